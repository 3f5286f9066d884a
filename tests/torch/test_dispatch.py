"""What a call does around its launches, with launches that only note what they are given."""

from __future__ import annotations

import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

import napkin as nk
import napkin.torch as nkt
from napkin.run import prepared
from napkin.torch import arranged, function, ops, ready_tables
from napkin.torch import run as launching
from napkin.torch.ready_tables import remember


class Launches:
    """Stands for a kernel file; notes name, grid, arguments and settings of every launch."""

    def __init__(self) -> None:
        self.found: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return _Kernel(name, self.found)


class _Kernel:
    def __init__(self, name: str, found: list[Any]) -> None:
        self.name, self.found = name, found

    def __getitem__(self, grid: Any) -> Any:
        return lambda *args, **named: self.found.append((self.name, grid, args, named))


@pytest.fixture
def launches(monkeypatch: pytest.MonkeyPatch) -> Launches:
    """CPU tensors go the way of CUDA tensors, as far as the launch."""
    noted = Launches()
    monkeypatch.setattr(prepared, "interpreted", lambda _: False)
    monkeypatch.setattr(prepared, "module_of", lambda _: noted)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    for room, table in ((ops, "_WARM"), (arranged, "_CALLS")):
        monkeypatch.setattr(room, table, {})
    return noted


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).bfloat16()


def test_a_warm_call_only_launches(launches: Launches, monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = draw(2, 8, 512, 32), draw(2, 8, 512, 32)
    nkt.attention(q, k, k)
    monkeypatch.setattr(function, "prepare", None)  # nothing is worked out again
    other = draw(2, 8, 512, 32)
    out = nkt.attention(other, k, k)
    (name, grid, args, named), again = launches.found
    assert (again[0], again[1], again[3]) == (name, grid, named)
    pointers = [a.base if isinstance(a, TensorDescriptor) else a for a in again[2]]
    tensors = [a for a in pointers if isinstance(a, torch.Tensor)]
    assert any(t is other for t in tensors)
    assert any(t is out for t in tensors)
    assert not any(t is q for t in tensors)
    assert named["num_warps"] in (4, 8)
    assert named["DESCRIPTORS"] is True
    assert sum(isinstance(a, TensorDescriptor) for a in args) >= 2


def test_a_tensor_that_begins_elsewhere_has_no_descriptor(launches: Launches) -> None:
    k = draw(2, 8, 512, 32)
    odd = torch.empty(k.numel() + 1).bfloat16()[1:].view(k.shape)
    assert odd.data_ptr() % 16
    nkt.attention(k, odd, k)
    nkt.attention(k, k, k)
    assert [named["DESCRIPTORS"] for *_, named in launches.found] == [False, True]
    assert not any(isinstance(a, TensorDescriptor) for a in launches.found[0][2])


def test_nothing_is_copied(launches: Launches) -> None:
    """Heads-last tensors, shared heads and a mask that is broadcast are read where they are."""
    packed = draw(2, 128, 3, 4, 32)
    q, k, v = (t.transpose(1, 2) for t in packed.unbind(2))
    bias = draw(1, 1, 128, 1).expand(2, 4, 128, 128)[:, :1]
    nkt.attention(q, k[:, ::2], v[:, ::2], attn_mask=bias, enable_gqa=True)
    ((_, _, args, _),) = launches.found
    pointers = [a.base if isinstance(a, TensorDescriptor) else a for a in args]
    at = {t.data_ptr() for t in pointers if isinstance(t, torch.Tensor)}
    assert {t.data_ptr() for t in (q, k, v, bias)} < at
    assert len(at) == 5


def test_whole_numbers_are_brought_to_int32(launches: Launches) -> None:
    @nk.diagram("n d, n:int, d:bool -> n d")
    def chosen(X: Any, N: Any, M: Any) -> Any:
        return nk.where(M, X * N, 0.0)

    number, flag = torch.arange(20)[::2], torch.ones(8, dtype=torch.bool)
    for _ in range(2):
        nkt.compile(chosen)(torch.randn(10, 8), number, flag)
    for *_, args, _ in launches.found:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        (found,) = [t for t in tensors if t.dtype == torch.int32]
        assert torch.equal(found, number.int())
        assert any(t is flag for t in tensors)


def test_equal_outputs_are_tensors_of_their_own(launches: Launches) -> None:
    @nk.diagram("n x -> n, n")
    def twice(X: Any) -> Any:
        total = nk.reduce(X, "sum", over="x")
        return total, total

    first, second = nkt.compile(twice)(torch.ones(4, 8))
    assert len(launches.found) == 1
    assert first.data_ptr() != second.data_ptr()


def test_a_plan_takes_no_more_arrays_when_it_is_warm() -> None:
    @nk.diagram("a -> a")
    def doubled(X: Any) -> Any:
        return 2 * X

    plan, x = nk.derive(doubled, sizes={"a": 4}, dtype="fp32"), torch.ones(4)
    launching.run(plan, [x], {})
    with pytest.raises(nk.InputError, match="takes 1 arrays"):
        launching.run(plan, [x, x.numpy()], {})


def test_a_loop_of_launches_into_the_same_outputs(launches: Launches) -> None:
    plan = nk.derive(nk.diagram("n x -> n", name="f")(lambda X: nk.reduce(X, "sum", over="x")),
                     sizes=dict(n=64, x=64), dtype="fp32")  # fmt: skip
    found = prepared.prepare(
        plan.diagram, plan.recipe, [torch.ones(64, 64)], plan.sizes, {}, "fp32"
    )
    assert isinstance(found, prepared.OnCuda)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "device", lambda _: warnings.catch_warnings())
        again = found.again([torch.ones(64, 64)])
        again()
        again()
    first, second = ([id(a) for a in args] for _, _, args, _ in launches.found)
    assert first == second


def test_not_too_much_is_remembered() -> None:
    table: dict[Any, Any] = {i: i for i in range(ready_tables.MOST)}
    remember(table, "last", print)
    assert table == {"last": print}


def test_a_number_that_changes_with_every_call_fills_no_table(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A learning rate, say."""

    @nk.diagram("a -> a")
    def scaled(X: Any, rate: float = 1.0):
        return X * rate

    plan, made = nk.derive(scaled, sizes={"a": 4}), list[float]()

    def prepared(_: Any, arrays: Any, scalars: dict[str, float]) -> Any:
        made.append(scalars["rate"])
        return lambda arrays: list(arrays)

    monkeypatch.setattr(launching, "prepared", prepared)
    monkeypatch.setattr(ready_tables, "MOST", 8)
    for i in range(20):
        launching.run(plan, [torch.ones(4)], {"rate": float(i)})
        launching.run(plan, [torch.ones(4)], {"rate": float(i)})
        assert len(launching._WARM[plan]) <= 8
    assert made == [float(i) for i in range(20)]


def test_warned_once() -> None:
    prepared._warned = False
    x = torch.ones(1, 1, 4, 16)
    with pytest.warns(RuntimeWarning, match="through Triton's interpreter, which is slow"):
        nkt.attention(x, x, x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        nkt.attention(x, x, x)


def test_napkin_alone_imports_no_torch_and_napkin_torch_no_compiler() -> None:
    code = (
        "import sys, napkin; assert 'torch' not in sys.modules; "
        "import napkin.torch; import torch; assert napkin.torch.attention; "
        "assert not torch.cuda.is_initialized(); "
        "assert not {'torch._dynamo', 'sympy', 'napkin.plan.derive'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
