"""What may be given for an input, and what is said when it may not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.errors import InputError

ATTENTION, LOSS = load("attention"), load("cross_entropy")


@nk.diagram("n x:bool, n x -> n, n:int, n:bool")
def masked(M: Any, X: Any) -> Any:
    kept = nk.reduce(nk.where(M, X, 0.0), "sum", over="x")
    return kept, nk.reduce(M, "sum", over="x"), nk.reduce(M, "all", over="x")


@pytest.fixture(scope="module")
def call() -> Any:
    """A plan and an evaluation take the same arrays and refuse the same."""
    plan = nk.derive(ATTENTION, sizes={"q": 3, "x": 5, "d": 4}, dtype="fp32")

    def both(*arrays: Any) -> tuple[Any, Any]:
        return plan(*arrays), ATTENTION.evaluate(*arrays)

    return both


@pytest.fixture
def qkv(rng: Any) -> list[Any]:
    return [rng.normal(size=s) for s in ((3, 4), (5, 4), (5, 4))]


VIEWS = {
    "transposed": lambda a: np.asfortranarray(a),
    "reversed": lambda a: a[::-1, ::-1],
    "every other": lambda a: np.repeat(a, 2, 0)[::2],
    "one row for all": lambda a: np.broadcast_to(a[:1], a.shape),
    "one number for all": lambda a: np.broadcast_to(a[:1, :1], a.shape),
    "float16": lambda a: a.astype(np.float16),
    "big endian": lambda a: a.astype(">f4"),
    "whole numbers": lambda a: a.astype(int),
    "booleans": lambda a: a > 0,
    "objects": lambda a: a.astype(object),
    "a list": lambda a: a.tolist(),
}


@pytest.mark.parametrize("view", VIEWS)
def test_any_view_of_numbers_will_do(call: Any, qkv: list[Any], view: str) -> None:
    given = [VIEWS[view](a) for a in qkv]
    plain = [np.array(g, float, order="C") for g in given]
    found, wanted = call(*given)
    np.testing.assert_array_equal(wanted, ATTENTION.evaluate(*plain))
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_inputs_that_share_memory(call: Any, qkv: list[Any]) -> None:
    found, wanted = call(qkv[1], qkv[1], qkv[1].T.copy().T)
    np.testing.assert_allclose(found, wanted, atol=1e-5)


def test_torch_tensors_come_back_as_such(qkv: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    plan = nk.derive(ATTENTION, sizes={"q": 3, "x": 5, "d": 4}, dtype="bf16")
    wanted = torch.from_numpy(ATTENTION.evaluate(*qkv))
    for dtype in (torch.float64, torch.float32, torch.bfloat16):
        given = [torch.tensor(a, dtype=dtype, requires_grad=True) for a in qkv]
        with torch.no_grad():
            found = plan(given[0].flip(0), *given[1:])
        assert found.dtype == dtype
        torch.testing.assert_close(found.flip(0).double(), wanted, atol=2e-2, rtol=2e-2)
    assert isinstance(plan(*qkv), np.ndarray)


def test_outputs_have_their_item_types(rng: Any) -> None:
    torch = pytest.importorskip("torch")
    plan = nk.derive(masked, sizes={"n": 3, "x": 5}, dtype="fp32")
    mask, values = rng.random((3, 5)) > 0.5, rng.normal(size=(3, 5))
    mask[0] = True
    wanted = masked.evaluate(mask, values)
    for found in (plan(mask, values), plan(mask * 3, values), masked.evaluate(mask * 3, values)):
        assert [f.dtype.kind for f in found] == ["f", "i", "b"]
        for f, w in zip(found, wanted, strict=True):
            np.testing.assert_allclose(f, w, rtol=1e-6)
    found = plan(torch.tensor(mask), torch.tensor(values))
    assert [f.dtype for f in found] == [torch.float64, torch.int32, torch.bool]
    only = nk.diagram("n x:bool -> n")(lambda M: nk.reduce(M, "mean", over="x"))
    back = nk.derive(only, sizes={"n": 3, "x": 5}, dtype="bf16")(torch.tensor(mask))
    assert back.dtype == torch.bfloat16
    torch.testing.assert_close(
        back.double(), torch.tensor(mask).double().mean(1), atol=1e-2, rtol=0
    )


def refusal(call: Any, *arrays: Any) -> str:
    with pytest.raises(InputError) as caught:
        call(*arrays)
    return str(caught.value)


@pytest.fixture(params=["plan", "evaluate"])
def attention(request: Any) -> Any:
    if request.param == "evaluate":
        return ATTENTION.evaluate
    return nk.derive(ATTENTION, sizes={"q": 3, "x": 5, "d": 4}, dtype="fp32")


def test_wrong_shapes(attention: Any, qkv: list[Any]) -> None:
    Q, K, V = qkv
    assert refusal(attention, Q, K) == "attention takes 3 arrays (Q, K, V), not 2"
    assert refusal(attention, Q, K, V, V) == "attention takes 3 arrays (Q, K, V), not 4"
    assert refusal(attention, Q[0], K, V) == (
        "attention: Q has axes 'q d' but an array of shape (4,) was given"
    )
    assert refusal(attention, Q[None], K, V) == (
        "attention: Q has axes 'q d' but an array of shape (1, 3, 4) was given"
    )
    assert refusal(attention, Q, K, V[:3]) == "attention: axis x is 5 in K but 3 in V"
    assert refusal(attention, Q[:, :1], K, V) == "attention: axis d is 1 in Q but 4 in K"
    assert refusal(attention, Q, K[:0], V) == "attention: axis x is 0 in K but 5 in V"
    assert refusal(attention, None, K, V) == (
        "attention: Q has axes 'q d' but an array of shape () was given"
    )


def test_a_size_that_two_names_share() -> None:
    @nk.diagram("t d -> t d")
    def self_attention(X: Any) -> Any:
        Y = nk.rename(X, t="x")
        return nk.contract(nk.softmax(nk.contract(X, Y, over="d"), over="x"), Y, over="x")

    assert self_attention.evaluate(np.ones((3, 2))).tolist() == [[1, 1]] * 3
    with pytest.raises(InputError, match="x is t under another name and t=3; give one size"):
        self_attention.check_sizes({"t": 3, "x": 4, "d": 2})


def test_what_holds_no_numbers(attention: Any, qkv: list[Any]) -> None:
    Q, K, V = qkv
    for given, dtype in (
        (Q + 1j, "complex128"),
        (Q.astype("M8[s]"), "datetime64[s]"),
        (np.full((3, 4), "a"), "<U1"),
    ):
        assert refusal(attention, given, K, V) == (f"attention: Q holds real numbers, not {dtype}")
    assert refusal(attention, [[1, 2], [3]], K, V).startswith("attention: Q is no array: ")
    assert refusal(attention, np.array([["a"]], object), K, V) == (
        "attention: Q holds real numbers: could not convert string to float: 'a'"
    )
    assert refusal(attention, [[10**400]], K, V) == (
        "attention: Q holds real numbers: int too large to convert to float"
    )


def test_tensors_that_hold_no_numbers(attention: Any, qkv: list[Any]) -> None:
    torch = pytest.importorskip("torch")
    _, K, V = qkv
    assert refusal(attention, torch.zeros(3, 4, dtype=torch.complex32), K, V).startswith(
        "attention: Q is no array of numbers: "
    )
    assert refusal(attention, torch.zeros(3, 4, device="meta"), K, V) == (
        "attention: Q is on the device 'meta' and has no numbers"
    )
    assert refusal(attention, torch.zeros(3, 4).to_sparse(), K, V) == (
        "attention: Q is torch.sparse_coo; give it as .to_dense()"
    )
    assert refusal(attention, torch.zeros(3, 4) * 1j, K, V) == (
        "attention: Q holds real numbers, not complex64"
    )


@pytest.fixture(params=["plan", "evaluate"])
def loss(request: Any) -> Any:
    if request.param == "evaluate":
        return LOSS.evaluate
    return nk.derive(LOSS, sizes={"n": 3, "v": 5}, dtype="fp32")


def test_whole_numbers_are_int32(loss: Any, rng: Any) -> None:
    L, T = rng.normal(size=(3, 5)), np.array([0, 4, 2])
    wanted = loss(L, T)
    for given in (T.astype(np.uint8), T.astype(np.int64), T.astype(float), T.tolist()):
        np.testing.assert_array_equal(loss(L, given), wanted)
    text = "cross_entropy: T holds whole numbers in int32, as ':int' in the signature says, not "
    assert refusal(loss, L, T + 0.5) == text + "0.5"
    assert refusal(loss, L, T * np.nan) == text + "nan"
    assert refusal(loss, L, T + 2**31) == text + "2.14748e+09"
    assert refusal(loss, L, T + np.inf) == text + "inf"
    assert refusal(loss, L, T + 1j) == "cross_entropy: T holds whole numbers, not complex128"
