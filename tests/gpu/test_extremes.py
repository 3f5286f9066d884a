"""Extreme values, empty axes and 64-bit offsets on the GPU, against the float64 evaluation.

The same semantics are tested through the interpreter, more widely, in tests/extremes; here it is
the hardware's own maximum, exponential and address arithmetic that run.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

INF, NAN = np.inf, np.nan
X = 200
FLOATS = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}


def scores() -> np.ndarray[Any, Any]:
    """Rows that are masked, large, infinite or not a number, in one place or in all."""
    rows = [np.full(X, v) for v in (-INF, 1e4, -1e4, 1e30, -1e30, NAN, INF, 0.0)]
    for value in (-INF, 1e30, -1e30, NAN, INF):
        for part in (slice(0, 1), slice(X - 1, X), slice(0, X - 1), slice(64, 128)):
            row = np.linspace(-1, 1, X)
            row[part] = value
            rows.append(row)
    return np.array(rows)


def same(diagram: nk.Diagram, *arrays: Any, dtype: str = "fp32", tolerance: float = 0.0) -> None:
    """A plan on the GPU and the evaluation agree on these arrays, NaN and infinities included."""
    given = [
        torch.tensor(a, device="cuda", dtype=getattr(torch, FLOATS[dtype]))
        if n.kind == "real"
        else torch.tensor(a, device="cuda", dtype=torch.int32)
        for a, n in zip(arrays, diagram.inputs, strict=True)
    ]
    sizes = {a: max(n, 1) for a, n in diagram.sizes_of([a.shape for a in given]).items()}
    found = nk.derive(diagram, sizes=sizes, dtype=dtype)(*given)
    wanted = diagram.evaluate(*given)
    found = found if isinstance(found, tuple) else (found,)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    tolerance = tolerance or {"fp32": 2e-5, "bf16": 2e-2}[dtype]
    for f, w in zip(found, wanted, strict=True):
        scale = max(1.0, float(np.max(np.abs(w), where=np.isfinite(w), initial=0.0)))
        np.testing.assert_allclose(
            f.double().cpu().numpy(), np.asarray(w, float), tolerance, tolerance * scale
        )


@nk.diagram("q d, x d, x d, q x -> q d")
def masked_attention(Q: Any, K: Any, V: Any, M: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5 + M
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@nk.diagram("n x -> n, n, n")
def reductions(L: Any) -> Any:
    return tuple(nk.reduce(L, how, over="x") for how in ("max", "min", "sum"))


@nk.diagram("n x -> n x, n")
def clamped(L: Any) -> Any:
    kept = nk.minimum(nk.maximum(L, -1.0), 1.0)
    return kept, nk.reduce(kept, "max", over="x")


@nk.diagram("n x:int, n x:int, n x -> n x:int, n x:int, n x, n x, n:int")
def items(I: Any, J: Any, L: Any) -> Any:  # noqa: E741
    count = nk.reduce((L > 0) * (I > 0), "sum", over="x")
    return I // J, I % J, L**4, nk.exp(I) + nk.softmax(J, over="x"), count


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", ["softmax", "logsumexp"])
def test_rows(name: str, dtype: str) -> None:
    same(load(name), scores(), dtype=dtype)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_attention(dtype: str) -> None:
    rng, mask = np.random.default_rng(0), scores()
    Q, K, V = (rng.normal(size=(n, 64)) for n in (len(mask), X, X))
    same(masked_attention, Q, K, V, mask, dtype=dtype, tolerance=2e-2)
    V[3, 5] = NAN
    same(masked_attention, Q, K, V, mask, dtype=dtype, tolerance=2e-2)


def test_a_maximum_keeps_nan() -> None:
    same(reductions, scores(), dtype="bf16")
    same(clamped, scores())


def test_whole_numbers() -> None:
    rng = np.random.default_rng(0)
    I, J = rng.integers(-9, 9, (2, 8, 64))  # noqa: E741
    same(items, I, np.where(J == 0, 1, J), rng.normal(size=(8, 64)))


def test_empty_axes() -> None:
    for q, x in ((8, 0), (0, 8), (0, 0)):
        same(load("attention"), np.ones((q, 16)), np.ones((x, 16)), np.ones((x, 16)))
    for name in ("softmax", "logsumexp", "variance"):
        same(load(name), np.ones((8, 0)))
    same(reductions, np.ones((8, 0)))
    same(load("matmul"), np.ones((8, 0)), np.ones((0, 8)))


def test_a_shifted_variance() -> None:
    same(load("variance"), 1e4 + np.random.default_rng(0).normal(size=(8, 4000)), tolerance=1e-3)


@pytest.mark.parametrize("streamed", [True, False])
def test_offsets_past_32_bits(streamed: bool, large_memory: Any) -> None:
    """A view of 5 GB whose last rows lie more than 2**31 values from its first."""
    with large_memory():
        far_apart(streamed)


def far_apart(streamed: bool) -> None:
    rng = np.random.default_rng(0)
    rows = 1024
    step = 2**31 // (rows - 2)
    if torch.cuda.mem_get_info()[0] < 3 * 2 * step * rows:
        pytest.skip("needs 15 GB")
    store = torch.full((step * (rows - 1) + 64,), NAN, dtype=torch.float16, device="cuda")
    far = store.as_strided((rows, 64), (step, 1))
    far.copy_(torch.tensor(rng.normal(size=(rows, 64))))
    near = [torch.tensor(rng.normal(size=(n, 64)), device="cuda").half() for n in (rows, rows)]
    given = (near[0], far, near[1]) if streamed else (far, near[0], near[1])
    attention = load("attention")
    plan = nk.derive(attention, sizes={"q": rows, "x": rows, "d": 64}, dtype="fp16")
    assert plan.kernels[0].choice.kernel.stream.axis == "x"
    wanted = attention.evaluate(*given)
    np.testing.assert_allclose(plan(*given).double().cpu().numpy(), wanted, atol=5e-3)
