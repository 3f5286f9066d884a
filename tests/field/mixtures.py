"""Mixtures of experts, feed-forward layers, adapters and quantised weights."""

from __future__ import annotations

import numpy as np
from entries import Numbers, compared, sigmoid, soft, taken

import napkin as nk


def silu(x: Numbers) -> Numbers:
    """x * sigmoid(x)."""
    return x * sigmoid(x)


def best(x: Numbers, k: int) -> Numbers:
    """Positions of the k largest of each row, the largest first."""
    return np.argsort(-x, axis=-1, kind="stable")[..., :k]


def _mixtral(x: Numbers, w: Numbers) -> tuple[Numbers, ...]:
    z = x @ w
    at = best(z, 2)
    p = soft(np.take_along_axis(z, at, -1))
    return p[:, 0], p[:, 1], at[:, 0], at[:, 1]


@compared(_mixtral, t=5, d=4, e=6)
@nk.diagram("t d, d e -> t, t, t, t", sizes=dict(t=16384, d=4096, e=8))
def router_top_two(X, W):
    """The router of Mixtral from hidden states (arXiv 2401.04088, section 2.1)."""
    (a, b), (i, j) = nk.topk(nk.contract(X, W, over="d"), 2, over="e")
    share = nk.sigmoid(a - b)
    return share, 1.0 - share, i, j


def _deepseek(x: Numbers, w: Numbers, b: Numbers) -> tuple[Numbers, ...]:
    s = sigmoid(x @ w)
    at = best(s + b, 8)
    gate = np.take_along_axis(s, at, -1)
    gate = 2.5 * gate / gate.sum(-1, keepdims=True)
    return (*np.moveaxis(gate, -1, 0), *np.moveaxis(at, -1, 0))


@compared(_deepseek, t=5, d=4, e=12)
@nk.diagram("t d, d e, e -> " + ", ".join(["t"] * 16), sizes=dict(t=8192, d=7168, e=256))
def router_with_bias(X, W, B):
    """Sigmoid affinities, the best 8 by affinity and bias, gates without it (arXiv 2412.19437)."""
    S = nk.sigmoid(nk.contract(X, W, over="d"))
    _, at = nk.topk(S + B, 8, over="e")
    gates = [nk.take(S, e=i) for i in at]
    total = sum(gates[1:], gates[0])
    return (*(2.5 * g / total for g in gates), *at)


def _switch(x: Numbers) -> Numbers:
    p = soft(x)
    share = np.eye(x.shape[1])[x.argmax(1)].mean(0)
    return x.shape[1] * (share * p.mean(0)).sum()


@compared(_switch, t=7, e=5)
@nk.diagram("t e -> ()", sizes=dict(t=65536, e=128))
def load_balancing_loss(X):
    """The auxiliary loss of the Switch transformer (arXiv 2101.03961, equation 4)."""
    P = nk.softmax(X, over="e")
    mine = nk.where(nk.index("e") == nk.argmax(X, over="e"), 1.0, 0.0)
    share = nk.reduce(mine, "mean", over="t")
    return nk.size("e") * nk.reduce(share * nk.reduce(P, "mean", over="t"), "sum", over="e")


def _choice(x: Numbers, i: Numbers, g: Numbers, u: Numbers) -> Numbers:
    return g[..., None] * np.einsum("esm,emf->esf", taken(x, i), u)


@compared(_choice, t=7, m=4, e=3, s=2, f=5)
@nk.diagram("t m, e s:int, e s, e m f -> e s f", sizes=dict(t=8192, m=2048, e=64, s=256, f=1408))
def expert_choice_layer(X, I, G, U):  # noqa: E741
    """Each expert takes the tokens that it chose (arXiv 2202.09368)."""
    return G * nk.contract(nk.take(X, t=I), U, over="m")


def _combine(y: Numbers, g: Numbers, e: Numbers, s: Numbers, r: Numbers) -> Numbers:
    at = np.clip(e.astype(int), 0, len(y) - 1), np.clip(s.astype(int), 0, y.shape[1] - 1)
    return r + (g[..., None] * y[at]).sum(1)


@compared(_combine, e=3, s=4, n=5, t=6, k=2)
@nk.diagram(
    "e s n, t k, t k:int, t k:int, t n -> t n", sizes=dict(e=64, s=1024, n=2048, t=8192, k=8)
)
def expert_combine(Y, G, E, P, R):
    """Results of experts weighted and added to the residual (arXiv 2006.16668)."""
    return R + nk.contract(G, nk.take(Y, e=E, s=P), over="k")


def _soft_moe(x: Numbers, p: Numbers) -> Numbers:
    return np.einsum("bnes,bnd->besd", soft(np.einsum("bnd,esd->bnes", x, p), 1), x)


@compared(_soft_moe, slow=True, b=2, n=7, d=4, e=3, s=2)
@nk.diagram("b n d, e s d -> b e s d", sizes=dict(b=16, n=256, d=1024, e=128, s=2))
def soft_dispatch(X, P):
    """The slots of a soft mixture, means of all tokens (Soft MoE, arXiv 2308.00951)."""
    D = nk.softmax(nk.contract(X, P, over="d"), over="n")
    return nk.contract(D, X, over="n")


def _swiglu(x: Numbers, g: Numbers, u: Numbers, w: Numbers) -> Numbers:
    return silu(x @ g) * (x @ u) @ w


@compared(_swiglu, slow=True, n=5, d=4, f=6, e=4)
@nk.diagram("n d, d f, d f, f e -> n e", sizes=dict(n=8192, d=4096, f=11008, e=4096))
def swiglu_mlp(X, G, U, W):
    """The feed-forward layer of LLaMA (arXiv 2002.05202, 2302.13971)."""
    H = nk.silu(nk.contract(X, G, over="d")) * nk.contract(X, U, over="d")
    return nk.contract(H, W, over="f")


@compared(lambda x, u, w: np.maximum(x @ u, 0) ** 2 @ w, n=5, d=4, f=6, e=4)
@nk.diagram("n d, d f, f e -> n e", sizes=dict(n=8192, d=2048, f=8192, e=2048))
def squared_relu_mlp(X, U, W):
    """A squared ReLU between two products (Primer, arXiv 2109.08668)."""
    return nk.contract(nk.maximum(nk.contract(X, U, over="d"), 0.0) ** 2, W, over="f")


@compared(lambda x, w, a, b: x @ w + 2.0 * (x @ a @ b), n=5, d=4, e=6, r=2)
@nk.diagram("n d, d e, d r, r e -> n e", sizes=dict(n=4096, d=4096, e=4096, r=16))
def lora_linear(X, W, A, B, scale=2.0):
    """A linear map with a low-rank adapter (arXiv 2106.09685)."""
    return nk.contract(X, W, over="d") + scale * nk.contract(
        nk.contract(X, A, over="d"), B, over="r"
    )


def _multi(x: Numbers, w: Numbers, a: Numbers, b: Numbers, i: Numbers) -> Numbers:
    low = np.einsum("nd,ndr->nr", x, taken(a, i))
    return x @ w + np.einsum("nr,nre->ne", low, taken(b, i))


@compared(_multi, n=5, d=4, e=6, r=2, l=3)
@nk.diagram("n d, d e, l d r, l r e, n:int -> n e", sizes=dict(n=64, d=4096, e=4096, r=16, l=32))
def batched_adapters(X, W, A, B, I):  # noqa: E741
    """An adapter of its own for every row of a batch (Punica, arXiv 2310.18547)."""
    low = nk.contract(X, nk.take(A, l=I), over="d")
    return nk.contract(X, W, over="d") + nk.contract(low, nk.take(B, l=I), over="r")


def _dora(x: Numbers, w: Numbers, a: Numbers, b: Numbers, m: Numbers) -> Numbers:
    full = w + a @ b
    return x @ (full * m / np.linalg.norm(full, axis=0))


@compared(_dora, n=5, d=4, e=6, r=2)
@nk.diagram("n d, d e, d r, r e, e -> n e", sizes=dict(n=4096, d=4096, e=4096, r=16))
def dora_linear(X, W, A, B, M):
    """Adapted weights of a learned length (DoRA, arXiv 2402.09353)."""
    full = W + nk.contract(A, B, over="r")
    scale = M * nk.rsqrt(nk.reduce(full * full, "sum", over="d"))
    return nk.contract(X, full, over="d") * scale


def _zero(x: Numbers, w: Numbers, s: Numbers, z: Numbers) -> Numbers:
    return np.einsum("agb,cgb->ac", x, (w - z[..., None]) * s[..., None])


@compared(_zero, ranges={"Z": (0.0, 15.0)}, a=3, g=2, b=4, c=5)
@nk.diagram("a g b, c g b:uint4, c g, c g -> a c", sizes=dict(a=32, g=64, b=64, c=14336))
def asymmetric_four_bit_linear(X, W, S, Z):
    """Weights in 4 bits with a scale and a zero point for each group (AWQ, arXiv 2306.00978)."""
    return nk.contract(X, (W - Z) * S, over="g b")


def _nf4(x: Numbers, w: Numbers, t: Numbers, s: Numbers) -> Numbers:
    return np.einsum("agb,cgb->ac", x, taken(t, w) * s[..., None])


@compared(_nf4, ranges={"W": (0, 15)}, a=3, g=2, b=4, c=5, l=16)
@nk.diagram("a g b, c g b:uint4, l, c g -> a c", sizes=dict(a=16, g=64, b=64, c=4096, l=16))
def normal_float_linear(X, W, T, S):
    """Weights as entries of a table of 16 quantiles (NF4, QLoRA, arXiv 2305.14314)."""
    return nk.contract(X, nk.take(T, l=W) * S, over="g b")


def _ternary(x: Numbers, w: Numbers, s: Numbers) -> Numbers:
    return x @ w.T * s


@compared(_ternary, ranges={"W": (-1, 1)}, a=3, b=4, c=5)
@nk.diagram("a b, c b:int8, () -> a c", sizes=dict(a=2048, b=4096, c=4096))
def ternary_linear(X, W, S):
    """Weights of -1, 0 and 1 with one scale (BitNet b1.58, arXiv 2402.17764)."""
    return nk.contract(X, W, over="b") * S


def _monarch(x: Numbers, a: Numbers, b: Numbers) -> Numbers:
    return np.einsum("nik,kil->nkl", np.einsum("nij,ijk->nik", x, a), b)


@compared(_monarch, n=3, i=4, j=5, k=6, l=2)
@nk.diagram("n i j, i j k, k i l -> n k l", sizes=dict(n=8192, i=64, j=64, k=64, l=64))
def monarch_linear(X, A, B):
    """A product by two block-diagonal factors and a permutation (Monarch, arXiv 2204.00595)."""
    return nk.contract(nk.contract(X, A, over="j"), B, over="i")


def _kan(x: Numbers, c: Numbers, w: Numbers) -> Numbers:
    basis = np.exp(-(((x[..., None] - np.arange(c.shape[1]) * 0.5 + 2.0) / 0.5) ** 2))
    return np.einsum("ndg,dgo->no", basis, c) + silu(x) @ w


@compared(_kan, n=3, d=4, g=8, o=5)
@nk.diagram("n d, d g o, d o -> n o", sizes=dict(n=8192, d=256, g=8, o=256))
def kan_layer(X, C, W):
    """A layer of learned univariate functions, in radial bases (FastKAN, arXiv 2405.06721)."""
    far = (X - nk.index("g") * 0.5 + 2.0) / 0.5
    return nk.contract(nk.exp(-far * far), C, over="d g") + nk.contract(nk.silu(X), W, over="d")


def _memory(q: Numbers, k: Numbers, v: Numbers) -> Numbers:
    s = q @ k.T
    at = best(s, 4)
    p = soft(np.take_along_axis(s, at, -1))
    return np.einsum("nk,nkd->nd", p, v[at])


@compared(_memory, slow=True, n=3, d=4, m=9)
@nk.diagram("n d, m d, m d -> n d", sizes=dict(n=4096, d=512, m=65536))
def memory_layer(Q, K, V):
    """A sum of the values of the 4 best keys (memory layers, arXiv 1907.05242)."""
    values, at = nk.topk(nk.contract(Q, K, over="d"), 4, over="m")
    weights = [nk.exp(v - values[0]) for v in values]
    total = sum(weights[1:], weights[0])
    parts = [w / total * nk.take(V, m=i) for w, i in zip(weights, at, strict=True)]
    return sum(parts[1:], parts[0])


def _depth(x: Numbers, y: Numbers, r: Numbers) -> Numbers:
    return x + (r >= 0.5)[:, None] * sigmoid(r)[:, None] * y


@compared(_depth, t=5, d=4)
@nk.diagram("t d, t d, t -> t d", sizes=dict(t=8192, d=4096))
def mixture_of_depths(X, Y, R):
    """Tokens whose router's weight is large enough pass a block (arXiv 2404.02258)."""
    return X + nk.where(R >= 0.5, nk.sigmoid(R), 0.0) * Y


def _hyper(h: Numbers, b: Numbers, a: Numbers, y: Numbers) -> Numbers:
    return np.einsum("tkd,kl->tld", h, a) + b[:, None] * y[:, None]


@compared(_hyper, t=3, k=4, l=4, d=5)
@nk.diagram("t k d, l, k l, t d -> t l d", sizes=dict(t=8192, k=4, l=4, d=2560))
def hyper_connections(H, B, A, Y):
    """Residual streams mixed, and a block's output added to each (arXiv 2409.19606)."""
    return nk.contract(H, A, over="k") + B * Y


def _limited(s: Numbers, b: Numbers) -> Numbers:
    score = sigmoid(s) + b
    group = np.sort(score, -1)[..., -2:].sum(-1)
    least = np.sort(group, -1)[:, -2]
    return np.where((group >= least[:, None])[..., None], score, 0).max((1, 2))


@compared(_limited, n=4, g=4, e=5)
@nk.diagram("n g e, g e -> n", sizes=dict(n=16384, g=8, e=32))
def group_limited_router(S, B):
    """The best expert of the best two groups (DeepSeek-V3, arXiv 2412.19437)."""
    score = nk.sigmoid(S) + B
    (a, b), _ = nk.topk(score, 2, over="e")
    (_, least), _ = nk.topk(a + b, 2, over="g")
    return nk.reduce(nk.where(a + b >= least, score, 0.0), "max", over="g e")
