"""Kernels of warpgroups on the GPU: beside the plain kernels, float64, and themselves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import napkin as nk

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

SHAPES = [
    (32, 4096, 128), (48, 2999, 128), (64, 2048, 64), (31, 4032, 64), (24, 4096, 96),
    (16, 4088, 192), (16, 4096, 256), (40, 3000, 80),
]  # fmt: skip
"""Heads, tokens, head size: of each, the planner takes a warp-specialised CTA in full or causal, or
in both."""


def attention(keys: Any) -> Any:
    @nk.diagram("h q d, h x d, h x d -> h q d, h q")
    def attended(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        lse = nk.cast(nk.reduce(S, "logsumexp", over="x", keys=keys), "fp32")
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x"), lse

    return attended


def off(found: Any, wanted: Any) -> float:
    return float((found.double() - wanted.double()).norm() / wanted.double().norm())


@pytest.fixture(scope="module", autouse=True)
def _hopper() -> None:
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("kernels of warpgroups need a Hopper GPU")


@pytest.mark.parametrize("kind", ["full", "causal", "window"])
@pytest.mark.parametrize(("h", "s", "d"), SHAPES)
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_bands_beside_plain_kernels_and_float64(
    kind: str, h: int, s: int, d: int, dtype: str
) -> None:
    from napkin.torch.run import prepared

    keys = {
        "full": None,
        "causal": nk.causal("q", "x"),
        "window": nk.neighborhood(1000, 3, queries="q", keys="x"),
    }[kind]
    own = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype]
    plan = nk.derive(
        attention(keys), on="h100", sizes={"h": h, "q": s, "x": s, "d": d}, dtype=dtype
    )
    Q, K, V = (torch.randn(h, s, d, device="cuda", dtype=own) for _ in range(3))
    if plan.launched is plan:
        pytest.skip("the planner takes no warp-specialised CTA here")
    assert prepared(plan, (Q, K, V), {}).specialised
    found = plan(Q, K, V)
    again = plan(Q, K, V)
    plain = replace(plan, specialised=False)(Q, K, V)
    for a, b, c in zip(found, again, plain, strict=True):
        assert torch.equal(a, b)
        assert not a.isnan().any()
        assert off(a, c) < 5e-3
    some = slice(0, 2)
    scores = Q[some].double() @ K[some].double().transpose(1, 2) * d**-0.5
    if kind == "causal":
        scores = scores.masked_fill(
            ~torch.ones(s, s, device="cuda", dtype=torch.bool).tril(), -torch.inf
        )
    if kind == "window":
        return  # the plain kernel is held to float64 in test_key_sets.py
    assert off(found[1][some], scores.logsumexp(-1)) < 1e-5
    assert off(found[0][some], scores.softmax(-1) @ V[some].double()) < 1e-2


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(("h", "s", "d"), [(64, 4096, 128), (128, 4096, 64), (66, 2999, 128)])
def test_gradients_beside_plain_kernels_and_float64(
    h: int, s: int, d: int, causal: bool, deterministic: bool
) -> None:
    from napkin.torch.run import prepared

    @nk.diagram("h q d, h x d, h x d -> h q d")
    def attended(Q: Any, K: Any, V: Any) -> Any:
        S, keys = nk.contract(Q, K, over="d") * d**-0.5, nk.causal("q", "x") if causal else None
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    sizes = {"h": h, "q": s, "x": s, "d": d}
    backward = nk.gradient(attended)
    plan = nk.derive(backward, "h100", sizes, "bf16", deterministic=deterministic)
    if plan.launched is plan:
        pytest.skip("the planner takes no warp-specialised CTA here")
    made = [torch.randn(h, s, d, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
    assert prepared(plan, made, {}).specialised
    found, again = plan(*made), plan(*made)
    plain = replace(plan, specialised=False)(*made)
    Q, K, V, G = (t[:1].double().requires_grad_() for t in made)
    scores = Q @ K.transpose(1, 2) * d**-0.5
    if causal:
        seen = torch.ones(s, s, device="cuda", dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -torch.inf)
    exact = torch.autograd.grad(scores.softmax(-1) @ V, (Q, K, V), G)
    for a, b, c, e in zip(found, again, plain, exact, strict=True):
        assert torch.equal(a, b) or (plan.accumulates and off(a, b) < 1e-2)
        assert off(a, c) < 1e-2
        assert off(a[:1], e) < 1e-2


@pytest.mark.parametrize(("heads", "shared", "s", "d"), [(16, 4, 1024, 64), (32, 8, 2048, 128)])
def test_gradients_of_grouped_heads(heads: int, shared: int, s: int, d: int) -> None:
    import napkin.torch as nkt

    counts = (heads, shared, shared)
    made = [torch.randn(4, n, s, d, device="cuda", dtype=torch.bfloat16) for n in counts]
    inputs = [t.requires_grad_() for t in made]
    exact = [t[:1].detach().double().requires_grad_() for t in inputs]
    G = torch.randn(4, heads, s, d, device="cuda", dtype=torch.bfloat16)
    out = nkt.attention(*inputs, is_causal=True, enable_gqa=True)
    found = torch.autograd.grad(out, inputs, G)
    Q, K, V = (t.repeat_interleave(heads // t.shape[1], 1) for t in exact)
    seen = torch.ones(s, s, device="cuda", dtype=torch.bool).tril()
    scores = (Q @ K.mT * d**-0.5).masked_fill(~seen, -torch.inf)
    wanted = torch.autograd.grad(scores.softmax(-1) @ V, exact, G[:1].double())
    for a, e in zip(found, wanted, strict=True):
        assert off(a[:1], e) < 1e-2


def test_a_tensor_that_no_descriptor_serves_takes_the_plain_kernel() -> None:
    from napkin.torch.run import prepared

    plan = nk.derive(attention(None), on="h100", sizes={"h": 32, "q": 4096, "x": 4096, "d": 128})
    wide = torch.randn(3, 32, 4096, 132, device="cuda", dtype=torch.bfloat16)[..., 1:129]
    assert plan.launched is not plan
    assert not prepared(plan, tuple(wide), {}).specialised
    found, _ = plan(*wide)
    plain = plan(*(t.contiguous() for t in wide))[0]
    assert off(found, plain) < 5e-3


def test_two_streams_at_once() -> None:
    plan = nk.derive(attention(None), on="h100", sizes={"h": 32, "q": 4096, "x": 4096, "d": 128})
    draws = [
        [torch.randn(32, 4096, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
        for _ in range(2)
    ]
    alone = [plan(*d)[0] for d in draws]
    torch.cuda.synchronize()
    streams = [torch.cuda.Stream() for _ in draws]
    found: list[Any] = [None, None]
    for _ in range(3):
        for i, s in enumerate(streams):
            with torch.cuda.stream(s):
                found[i] = plan(*draws[i])[0]
    torch.cuda.synchronize()
    assert all(torch.equal(a, b) for a, b in zip(alone, found, strict=True))
