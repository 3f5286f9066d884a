"""Kernels over key sets on the GPU, at large layouts, against dense masked attention in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

ONE = {"queries": "q", "keys": "x"}
LINES = {
    "causal": (nk.causal(**ONE), 5003),
    "sliding": (nk.sliding(300, 41, **ONE), 4999),
    "window": (nk.neighborhood(500, 7, **ONE), 6000),
    "window, causal": (nk.neighborhood(257, 16, 1, True, **ONE), 5001),
    "dilated": (nk.neighborhood(100, 3, 5, **ONE), 6007),
    "dilated, causal": (nk.neighborhood(64, 1, 9, True, **ONE), 4003),
    "dilated beside a window": (
        nk.neighborhood(64, 1, 2, **ONE) | nk.sliding(20, 0, **ONE),
        4001,
    ),
    "strided": (nk.strided(32, **ONE), 4000),
    "blocked": (nk.blocked(100, **ONE), 4040),
    "sinks": (nk.causal(**ONE) & (nk.sinks(4, **ONE) | nk.sliding(511, 0, **ONE)), 5000),
    "global": (nk.sliding(200, 200, **ONE) | nk.global_tokens(37, **ONE), 4001),
}
BOXES = {
    "plane": ((97, 101), dict(kernel_size=(20, 31))),
    "plane, strided": ((96, 96), dict(kernel_size=(32, 24), stride=(16, 8))),
    "plane, mixed": ((80, 111), dict(kernel_size=(9, 16), stride=(3, 1), is_causal=(True, False))),
    "plane, dilated": ((90, 95), dict(kernel_size=(7, 12), dilation=(3, 2))),
    "video": ((12, 24, 31), dict(kernel_size=(5, 8, 12))),
    "video, strided": ((12, 24, 32), dict(kernel_size=(6, 8, 16), stride=(2, 8, 8))),
    "video, mixed": (
        (11, 20, 30),
        dict(kernel_size=(4, 6, 5), dilation=(1, 2, 3), is_causal=(True, False, False)),
    ),
}


def draw(*shape: int, dtype: Any) -> Any:
    return torch.randn(*shape, device="cuda", dtype=dtype)


def reference(Q: Any, K: Any, V: Any, mask: Any, extra: Any = None) -> tuple[Any, Any]:
    """Output and log-sum-exp in float64; heads first, tokens flat, key heads shared in order."""
    Q, K, V = (t.double() for t in (Q, K, V))
    each = Q.shape[0] // K.shape[0]
    out, total = torch.empty_like(Q), Q.new_empty(Q.shape[:2])
    for h in range(Q.shape[0]):
        S = Q[h] @ K[h // each].T * Q.shape[-1] ** -0.5
        S.masked_fill_(~mask, -torch.inf)
        values = V[h // each]
        if extra is not None:
            S = torch.cat([S, Q[h] @ extra[0].double().T * Q.shape[-1] ** -0.5], 1)
            values = torch.cat([values, extra[1].double()])
        total[h] = S.logsumexp(1)
        out[h] = torch.softmax(S, 1) @ values
    return out, total


def off(found: Any, wanted: Any) -> float:
    """Relative error by norm; NaN is never small."""
    return float((found.double() - wanted).norm() / wanted.norm())


def check(diagram: nk.Diagram, arrays: list[Any], wanted: tuple[Any, ...], dtype: str) -> None:
    sizes = diagram.sizes_of([tuple(a.shape) for a in arrays])
    found = nk.derive(diagram, on="h100", sizes=sizes, dtype=dtype)(*arrays)
    limit = {"fp32": 1e-5, "bf16": 1e-2}[dtype]
    for f, w in zip(found if isinstance(found, tuple) else (found,), wanted, strict=True):
        assert off(f.reshape(w.shape), w) <= limit


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", LINES)
def test_one_axis(name: str, dtype: str) -> None:
    """Grouped-query heads, and the log-sum-exp beside the output."""
    keys, tokens = LINES[name]

    @nk.diagram("g r q d, g x d, g x d -> g r q d, g r q")
    def attend(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        out = nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
        return out, nk.reduce(S, "logsumexp", over="x", keys=keys)

    kind = torch.float32 if dtype == "fp32" else torch.bfloat16
    Q = draw(2, 2, tokens, 72, dtype=kind)
    K, V = (draw(2, tokens, 72, dtype=kind) for _ in range(2))
    mask = torch.tensor(keys.mask(tokens), device="cuda")
    wanted = reference(Q.flatten(0, 1), K, V, mask)
    check(attend, [Q, K, V], wanted, dtype)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("name", BOXES)
def test_several_axes_read_in_place(name: str, dtype: str) -> None:
    """A heads-last layout, and extra keys that every query sees."""
    layout, window = BOXES[name]
    q, x = (" ".join(f"{a}{i}" for i in range(len(layout))) for a in "qx")
    keys = nk.neighborhood(**window, queries=q, keys=x)

    @nk.diagram(f"{q} h d, {x} h d, {x} h d, a d, a d -> {q} h d")
    def attend(Q, K, V, E, F):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        T = nk.contract(Q, E, over="d") * nk.size("d") ** -0.5
        P, R = nk.softmax([S, T], over=[x, "a"], keys=[keys, None])
        return nk.contract(P, V, over=x) + nk.contract(R, F, over="a")

    kind = torch.float32 if dtype == "fp32" else torch.bfloat16
    Q, K, V = (draw(*layout, 2, 64, dtype=kind) for _ in range(3))
    E, F = (draw(6, 64, dtype=kind) for _ in range(2))
    mask = torch.tensor(nk.neighborhood(**window).mask(layout), device="cuda")
    flat = [t.flatten(0, len(layout) - 1).transpose(0, 1) for t in (Q, K, V)]
    out, _ = reference(*flat, mask, (E, F))
    check(attend, [Q, K, V, E, F], (out.transpose(0, 1),), dtype)


def test_documents_of_given_lengths() -> None:
    @nk.diagram("h q d, h x d, h x d, n:int -> h q d")
    def attend(Q, K, V, N):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        keys = nk.documents(N, "q", "x") & nk.causal("q", "x")
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    lengths = np.array([700, 1, 1500, 0, 37, 2000], dtype=np.int32)
    tokens = int(lengths.sum()) + 62  # the rest is one more document
    Q, K, V = (draw(3, tokens, 64, dtype=torch.bfloat16) for _ in range(3))
    owner = torch.tensor(np.repeat(np.arange(7), [*lengths, 62]), device="cuda")
    mask = (owner[:, None] == owner[None]).tril()
    N = torch.tensor(lengths, device="cuda")
    check(attend, [Q, K, V, N], reference(Q, K, V, mask)[:1], "bf16")
