"""Times kernels over key sets on the GPU that is there, at the tiles that the planner chose.

Causal attention beside FlexAttention and SDPA; neighborhood attention in 1, 2 and 3 dimensions,
read in place from a heads-last layout, beside NATTEN's FlexAttention back end where there is one,
and beside napkin's own dense kernel.

    python docs/measurements/bench_key_sets.py [causal] [1d] [2d] [3d]
"""

import math
import sys
from functools import partial

import torch
import triton
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention as sdpa

import napkin as nk

try:
    import natten

    natten.allow_flex_compile()
except ImportError:
    natten = None

CAUSAL = [(4, 16, 4096, 128), (1, 16, 16384, 128), (4, 32, 4096, 64)]
"""Batch, heads, tokens, head size."""

NEIGHBORHOODS = {
    "1d": ((32768,), (2048,), 1, [(1,), (256,)]),
    "2d": ((256, 256), (80, 80), 24, [(1, 1), (16, 16)]),
    "3d": ((30, 48, 80), (18, 24, 24), 24, [(1, 1, 1), (2, 8, 8)]),
}
"""Layout, window, heads, strides."""


def attention(keys=None):
    """Attention over one axis of tokens."""

    @nk.diagram("q d, x d, x d -> q d")
    def attention(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return attention.weave("h")


def neighborhood(dims, kernel_size, **settings):
    """Neighborhood attention over a layout of `dims` axes."""
    q, x = (" ".join(f"{a}{i}" for i in range(dims)) for a in "qx")
    if dims == 1:
        kernel_size, settings = kernel_size[0], {k: v[0] for k, v in settings.items()}
    keys = nk.neighborhood(kernel_size, queries=q, keys=x, **settings)

    @nk.diagram(f"{q} d, {x} d, {x} d -> {q} d", name=f"na{dims}d")
    def na(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over=x, keys=keys), V, over=x)

    return na.weave("h")


def event(call):
    """Median microseconds of a launch, between events, with a cold L2."""
    return 1e3 * triton.testing.do_bench(call, warmup=20, rep=100, return_mode="median")


def graph(call):
    """Median microseconds in a CUDA graph: no launch in between."""
    return 1e3 * triton.testing.do_bench_cudagraph(call, rep=60, return_mode="median")


def chosen(plan):
    c = plan.kernels[0].schedule
    tiles = {a: n for a, n in c.tiles.items() if n > 1 and a != "d"}
    return f"{tiles} w{c.warps} s{c.stages} predicted {plan.seconds * 1e6:.1f} us"


def draw(*shape):
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def causal():
    flex = torch.compile(flex_attention)
    for b, h, s, d in CAUSAL:
        Q, K, V = (draw(b, h, s, d) for _ in range(3))
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, s, s)
        plan = nk.derive(
            attention(nk.causal("q", "x")),
            on="h100", sizes={"h": b * h, "q": s, "x": s, "d": d}, dtype="bf16",
        )  # fmt: skip
        q, k, v = (t.flatten(0, 1) for t in (Q, K, V))
        found, wanted = (
            plan(q, k, v),
            sdpa(*(t.double() for t in (q[:1], k[:1], v[:1])), is_causal=True),
        )
        error = float((found[:1].double() - wanted).norm() / wanted.norm())
        ours = event(plan.bound_call(q, k, v))
        beside = event(partial(flex, Q, K, V, block_mask=mask))
        other = event(partial(sdpa, Q, K, V, is_causal=True))
        print(
            f"causal b{b} h{h} s{s} d{d}: {ours:.1f} us, {2 * b * h * s * s * d / ours / 1e6:.0f} "
            f"TFLOP/s; FlexAttention {beside:.1f} us ({beside / ours:.2f}x); SDPA {other:.1f} us; "
            f"error {error:.1e}; {chosen(plan)}",
            flush=True,
        )


def sample(layout, window, stride, Q, K, V, count=64):
    """A few queries of random heads in float64: where, and what."""
    keys = (
        nk.neighborhood(window, stride)
        if len(layout) > 1
        else nk.neighborhood(window[0], stride[0])
    )
    for _ in range(count):
        at = tuple(int(torch.randint(0, n, ())) for n in layout)
        seen = keys.keys(at if len(layout) > 1 else at[0], layout)
        index = tuple(torch.tensor([[s] if isinstance(s, int) else list(s) for s in seen]).T.cuda())
        h = int(torch.randint(0, Q.shape[0], ()))
        q, k, v = Q[(h, *at)].double(), K[h][index].double(), V[h][index].double()
        yield (h, *at), torch.softmax(k @ q * q.shape[-1] ** -0.5, 0) @ v


def neighborhoods(name):
    layout, window, heads, strides = NEIGHBORHOODS[name]
    dims, tokens, d = len(layout), math.prod(layout), 128
    Q, K, V = (draw(*layout, heads, d) for _ in range(3))
    inside = [t.permute(dims, *range(dims), dims + 1) for t in (Q, K, V)]
    sizes = {f"{a}{i}": n for a in "qx" for i, n in enumerate(layout)} | {"h": heads, "d": d}
    flat = {"h": heads, "q": tokens, "x": tokens, "d": d}
    dense = nk.derive(attention(), on="h100", sizes=flat, dtype="bf16")
    whole = event(dense.bound_call(*(t.flatten(0, dims - 1).transpose(0, 1) for t in (Q, K, V))))
    print(f"{name} dense {tokens} tokens: {whole:.1f} us; {chosen(dense)}", flush=True)
    for stride in strides:
        f = neighborhood(dims, window, stride=stride)
        plan = nk.derive(f, on="h100", sizes=sizes, dtype="bf16")
        found = plan(*inside)
        pairs = [(found[i].double(), w) for i, w in sample(layout, window, stride, *inside)]
        error = math.sqrt(
            sum(float((a - b).square().sum()) for a, b in pairs)
            / sum(float(b.square().sum()) for _, b in pairs)
        )
        call = plan.bound_call(*inside)
        ours, alone = event(call), graph(call)
        useful = 4 * heads * d * tokens * math.prod(window)
        tiles = [tuple(plan.kernels[0].tiles[f"{a}{i}"] for i in range(dims)) for a in "qx"]
        bound = nk.simulate(
            layout,
            kernel_size=window,
            stride=stride,
            q_tile=tiles[0],
            kv_tile=tiles[1],
            kv_tiling="dynamic",
        ).speedup_bound
        text = ""
        if natten is not None:
            na = getattr(natten, f"na{dims}d")
            q, k, v = (t[None] for t in (Q, K, V))
            torch._dynamo.reset()  # each problem is compiled anew
            settings = {"backend": "flex-fna", "torch_compile": True}
            other = event(partial(na, q, k, v, window, stride=stride, **settings))
            text = f"; NATTEN's FlexAttention {other:.1f} us ({other / ours:.2f}x)"
        print(
            f"{name} stride {stride}: {ours:.1f} us, in a graph {alone:.1f} us, "
            f"{useful / ours / 1e6:.0f} useful TFLOP/s; bound {bound:.2f}, of dense "
            f"{whole / ours:.2f}x, fraction {whole / ours / bound:.2f} (graph "
            f"{whole / alone / bound:.2f}){text}; error {error:.1e}; {chosen(plan)}",
            flush=True,
        )


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    for name in sys.argv[1:] or ["causal", *NEIGHBORHOODS]:
        causal() if name == "causal" else neighborhoods(name)
