"""Quantised torch tensors: through the interpreter on the CPU, in eager mode and in graphs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import napkin as nk  # noqa: E402
import napkin.torch as nkt  # noqa: E402
from napkin.diagram.library import load  # noqa: E402
from napkin.errors import InputError  # noqa: E402
from napkin.measure.tensors import drawn  # noqa: E402
from napkin.torch.dtypes import logical_shapes, plan_type  # noqa: E402
from napkin.torch.reference import evaluation  # noqa: E402

SIZES = {"a": 16, "g": 2, "b": 32, "c": 32}
LINEAR = load("matmul_w4a16").with_sizes(**SIZES)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    torch.manual_seed(0)


def weights() -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(0)
    X = torch.randn(16, 2, 32, dtype=torch.bfloat16)
    W = torch.from_numpy(rng.integers(-8, 8, size=(32, 2, 32)))
    scale = torch.rand(2, 32, dtype=torch.bfloat16)
    return X, W, scale, torch.from_numpy(nk.pack(W.numpy()))


def close(found: Any, wanted: Any) -> bool:
    return bool((found.double() - wanted).norm() <= 1e-2 * wanted.norm())


@pytest.mark.filterwarnings("ignore:napkin runs tensors on the CPU")
def test_packed_weights() -> None:
    X, W, scale, packed = weights()
    wanted = torch.einsum("agb,cgb,gc->ac", X.double(), W.double(), scale.double())
    plan = nk.derive(LINEAR)
    found = plan(X, packed, scale)
    assert found.dtype == torch.bfloat16
    assert close(found, wanted)
    compiled: Any = nkt.compile(LINEAR)
    assert close(compiled(X, packed, scale), wanted)
    assert close(compiled(X, packed.view(torch.int8), scale), wanted)


@pytest.mark.filterwarnings("ignore:napkin runs tensors on the CPU")
def test_keys_and_values_in_fp8() -> None:
    Q, K, V = (torch.randn(n, 32, dtype=torch.bfloat16) for n in (16, 48, 48))
    K, V = K.to(torch.float8_e4m3fn), V.to(torch.float8_e4m3fn)
    wanted = torch.nn.functional.scaled_dot_product_attention(Q.double(), K.double(), V.double())
    compiled: Any = nkt.compile(load("attention_fp8_kv"))
    found = compiled(Q, K, V)
    assert found.dtype == torch.bfloat16
    assert close(found, wanted)
    assert torch.equal(
        nk.derive(load("attention_fp8_kv"), sizes={"q": 16, "x": 48, "d": 32})(Q, K, V), found
    )


def test_what_each_input_takes() -> None:
    X, W, scale, packed = weights()
    assert plan_type(LINEAR, [X, packed, scale]) == "bf16"
    assert logical_shapes(LINEAR, [X, packed, scale]) == [(16, 2, 32), (32, 2, 32), (2, 32)]
    with pytest.raises(InputError) as found:
        plan_type(LINEAR, [X, W, scale])
    assert "W is stored in int4: give it as torch.uint8 with two values to a byte, not" in str(
        found.value
    )
    fp8 = load("attention_fp8_kv")
    Q = torch.zeros(16, 32, dtype=torch.bfloat16)
    with pytest.raises(InputError) as found:
        plan_type(fp8, [Q, Q, Q])
    assert str(found.value) == (
        "attention_fp8_kv: K is stored in fp8: give it as torch.float8_e4m3fn, not torch.bfloat16, "
        "with .to(torch.float8_e4m3fn)"
    )


def test_a_device_evaluates_what_numpy_does() -> None:
    """Tensors as they are drawn for a device, and the evaluation that they are compared with."""
    for diagram in (LINEAR, load("attention_fp8_kv").with_sizes(q=16, x=24, d=32)):
        sizes = diagram.check_sizes({})
        for layout in ("plain", "reversed", "inside"):
            tensors = drawn(diagram, sizes, "bf16", 1, layout, device="cpu")
            assert logical_shapes(diagram, tensors) == [
                tuple(sizes[a] for a in n.axes) for n in diagram.inputs
            ]
            (found,) = evaluation(diagram, sizes)(*tensors)
            np.testing.assert_allclose(found.numpy(), diagram.evaluate(*tensors), atol=1e-10)


@nk.diagram("n i, w, n p:int4 -> n p")
def windows_in_4_bits(X: Any, W: Any, Y: Any) -> Any:
    return nk.contract(nk.slide(X, over="i", into="p w"), W, over="w") * Y


@pytest.mark.filterwarnings("ignore:napkin runs tensors on the CPU")
@pytest.mark.parametrize("windows", [8, 20, 34])
def test_packed_values_along_windows(windows: int) -> None:
    """The axis of a class is not so long that an odd number of windows fits."""
    X, W = torch.randn(3, windows + 1), torch.randn(2)
    Y = np.random.default_rng(0).integers(-8, 8, size=(3, windows))
    compiled: Any = nkt.compile(windows_in_4_bits)
    found = compiled(X, W, torch.from_numpy(nk.pack(Y)))
    assert close(found, (X.unfold(1, 2, 1) * W).sum(-1).double() * torch.from_numpy(Y))
