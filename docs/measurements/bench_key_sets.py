"""Times kernels over key sets on the GPU that is there: causal beside FlexAttention and SDPA, then
neighborhood attention in 1, 2 and 3 dimensions, read in place from a heads-last layout.

    python docs/measurements/bench_key_sets.py
"""

from dataclasses import replace

import torch
import triton

import napkin as nk


def na(dims, **kw):
    q = " ".join(f"q{i}" for i in range(dims))
    x = " ".join(f"x{i}" for i in range(dims))

    @nk.diagram(f"{q} d, {x} d, {x} d -> {q} d", name=f"na{dims}d")
    def f(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(
            nk.softmax(S, over=x, keys=nk.neighborhood(queries=q, keys=x, **kw)), V, over=x
        )

    return f.weave("h")


def causal():
    @nk.diagram("q d, x d, x d -> q d")
    def causal_attention(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x", keys=nk.causal("q", "x")), V, over="x")

    return causal_attention.weave("h")


def forced(diagram, small, big, tiles, warps, stages):
    p = nk.derive(diagram, on="h100", sizes=small, dtype="bf16")
    k = p.kernels[0]
    t = dict(k.choice.tiles) | tiles
    c = replace(k.choice, tiles=t, sizes=big, warps=warps, stages=stages)
    return replace(p, kernels=(replace(k, choice=c),), sizes=big)


def reference(dims, layout, kw, Q, K, V, n=64):
    # a few queries, in float64

    keys = nk.neighborhood(**kw)
    g = torch.Generator().manual_seed(0)
    outs = []
    for _ in range(n):
        at = tuple(int(torch.randint(0, L, (1,), generator=g)) for L in layout)
        seen = keys.keys(at if dims > 1 else at[0], layout)
        idx = torch.tensor([[s] if dims == 1 else list(s) for s in seen]).T.cuda()
        h = int(torch.randint(0, Q.shape[0], (1,), generator=g))
        q = Q[(h, *at)].double()
        k = K[h][tuple(idx)].double()
        v = V[h][tuple(idx)].double()
        outs.append(((h, *at), torch.softmax(k @ q * Q.shape[-1] ** -0.5, 0) @ v))
    return outs


def run(name, dims, layout, heads, kw, settings, D=128):
    f = na(dims, **kw)
    k = kw["kernel_size"] if dims > 1 else (kw["kernel_size"],)
    small = {f"{c}{i}": max(n, 8) for c in "qx" for i, n in enumerate(k)} | {"h": 1, "d": D}
    big = {f"{c}{i}": n for c in "qx" for i, n in enumerate(layout)} | {"h": heads, "d": D}
    perm = (dims, *range(dims), dims + 1)
    Q, K, V = (
        torch.randn(*layout, heads, D, device="cuda", dtype=torch.bfloat16).permute(perm)
        for _ in range(3)
    )
    refs = reference(dims, layout, kw, Q, K, V)
    import math

    useful = 4 * heads * D * math.prod(layout) * math.prod(k)
    for tq, tx, w, s in settings:
        tiles = {f"q{i}": n for i, n in enumerate(tq)} | {f"x{i}": n for i, n in enumerate(tx)}
        try:
            p = forced(f, small, big, tiles, w, s)
            out = p(Q, K, V)
            num = sum(float(((out[i].double() - r) ** 2).sum()) for i, r in refs)
            den = sum(float((r**2).sum()) for _, r in refs)
            call = p.bound_call(Q, K, V)
            us = 1e3 * triton.testing.do_bench(call, warmup=20, rep=100, return_mode="median")
            print(
                f"{name} q{tq} x{tx} w{w} s{s}: {us:9.1f} us  {useful / us / 1e6:5.0f} TFLOP/s"
                f"  err {(num / den) ** 0.5:.1e}",
                flush=True,
            )
        except Exception as e:
            print(name, tq, tx, w, s, type(e).__name__, str(e)[:200], flush=True)


def flex_causal(B, H, S, D):
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    Q, K, V = (torch.randn(B, H, S, D, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    bm = create_block_mask(lambda b, h, q, k: q >= k, None, None, S, S)
    fx = torch.compile(flex_attention)
    a = 1e3 * triton.testing.do_bench(
        lambda: fx(Q, K, V, block_mask=bm), warmup=20, rep=100, return_mode="median"
    )
    sd = 1e3 * triton.testing.do_bench(
        lambda: torch.nn.functional.scaled_dot_product_attention(Q, K, V, is_causal=True),
        warmup=20,
        rep=100,
        return_mode="median",
    )
    ref = fx(Q, K, V, block_mask=bm)
    q, k, v = (t.flatten(0, 1) for t in (Q, K, V))
    for tq, tx, w, s in ((128, 128, 8, 3), (128, 64, 8, 3), (64, 64, 4, 3), (128, 64, 8, 4)):
        try:
            p = forced(
                causal(),
                dict(h=1, q=128, x=128, d=D),
                dict(h=B * H, q=S, x=S, d=D),
                dict(q=tq, x=tx),
                w,
                s,
            )
            out = p(q, k, v)
            call = p.bound_call(q, k, v)
            us = 1e3 * triton.testing.do_bench(call, warmup=20, rep=100, return_mode="median")
            print(
                f"causal B{B} H{H} S{S} D{D} {tq}/{tx} w{w} s{s}: {us:.1f} us, flex {a:.1f}, "
                f"sdpa {sd:.1f}, ratio {a / us:.2f} "
                f"err {float((out.view_as(ref) - ref).float().norm() / ref.float().norm()):.1e}",
                flush=True,
            )
        except Exception as e:
            print(tq, tx, w, s, type(e).__name__, str(e)[:150])


if __name__ == "__main__":
    print(torch.cuda.get_device_name(), torch.__version__, triton.__version__)
    flex_causal(4, 16, 4096, 128)
    flex_causal(1, 16, 16384, 128)
    flex_causal(4, 32, 4096, 64)
    S1 = [
        ((128,), (128,), 8, 3),
        ((128,), (64,), 8, 3),
        ((128,), (64,), 8, 4),
        ((64,), (64,), 4, 3),
        ((64,), (64,), 4, 4),
    ]
    for s in (1, 256):
        run(f"1d s={s}", 1, (32768,), 1, dict(kernel_size=2048, stride=s), S1)
    S2 = [((16, 8), (16, 8), 8, 3), ((8, 16), (8, 16), 8, 3), ((16, 8), (8, 8), 8, 3)]
    for s in ((1, 1), (16, 16)):
        run(f"2d s={s}", 2, (256, 256), 24, dict(kernel_size=(80, 80), stride=s), S2)
    S3 = [((2, 8, 8), (2, 8, 8), 8, 3), ((2, 8, 8), (2, 4, 8), 8, 3)]
    for s in ((1, 1, 1), (2, 8, 8)):
        run(f"3d s={s}", 3, (30, 48, 80), 24, dict(kernel_size=(18, 24, 24), stride=s), S3)
