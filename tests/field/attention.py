"""Attention: scores, weights and what is summed with them, as the literature varies them."""

from __future__ import annotations

import math

import numpy as np
from entries import Numbers, compared, rows, sigmoid, soft, taken, unit

import napkin as nk


def dense(q: Numbers, k: Numbers, scale: float | None = None) -> Numbers:
    """Scaled scores."""
    return q @ np.swapaxes(k, -1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)


def masked(scores: Numbers, seen: Numbers) -> Numbers:
    """Softmax over the keys that are seen."""
    return soft(np.where(seen, scores, -np.inf))


def back(n: int) -> Numbers:
    """How far each key lies before each query."""
    return np.subtract.outer(np.arange(n), np.arange(n))


def scored(Q: nk.Array, K: nk.Array) -> nk.Array:
    """Scaled scores, as most diagrams here begin."""
    return nk.contract(Q, K, over="d") * nk.size("d") ** -0.5


def _alibi(q: Numbers, k: Numbers, v: Numbers, m: Numbers) -> Numbers:
    far = back(q.shape[1])
    return masked(dense(q, k) - m[:, None, None] * far, far >= 0) @ v


@compared(_alibi, h=2, q=9, x=9, d=4)
@nk.diagram("h q d, h x d, h x d, h -> h q d", sizes=dict(h=32, q=4096, x=4096, d=128))
def alibi(Q, K, V, M):
    """Attention with linear biases, a slope for each head (arXiv 2108.12409)."""
    S = scored(Q, K) - M * (nk.index("q") - nk.index("x"))
    return nk.contract(nk.softmax(S, over="x", keys=nk.causal("q", "x")), V, over="x")


def _differential(*a: Numbers) -> Numbers:
    q, k, r, e, v, g = a
    return rows_rms((soft(dense(q, k)) - 0.5 * soft(dense(r, e))) @ v) * g


def rows_rms(x: Numbers, eps: float = 1e-5) -> Numbers:
    """Divided by the root of the mean square."""
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps)


@compared(_differential, slow=True, q=5, x=7, d=4, v=6)
@nk.diagram("q d, x d, q d, x d, x v, v -> q v", sizes=dict(q=4096, x=4096, d=64, v=128))
def differential_attention(Q, K, R, E, V, G, share=0.5, eps=1e-5):
    """The difference of two softmaxes, normalised for each head (arXiv 2410.05258)."""
    P = nk.softmax(scored(Q, K), over="x") - share * nk.softmax(scored(R, E), over="x")
    O = nk.contract(P, V, over="x")  # noqa: E741
    return O * nk.rsqrt(nk.reduce(O * O, "mean", over="v") + eps) * G


@compared(lambda q, k, v: sigmoid(dense(q, k) - math.log(k.shape[-2])) @ v, b=2, h=2, q=5, x=7, d=4)
@nk.diagram("b h q d, b h x d, b h x d -> b h q d", sizes=dict(b=4, h=16, q=2048, x=2048, d=128))
def sigmoid_attention(Q, K, V):
    """Attention by a sigmoid, with a bias of minus the logarithm of the keys (arXiv 2409.04431)."""
    return nk.contract(nk.sigmoid(scored(Q, K) - nk.log(nk.size("x"))), V, over="x")


def _ring(a: Numbers, la: Numbers, b: Numbers, lb: Numbers) -> tuple[Numbers, Numbers]:
    w, total = sigmoid(la - lb)[..., None], np.logaddexp(la, lb)
    return w * a + (1 - w) * b, total


@compared(_ring, h=2, q=5, d=4)
@nk.diagram("h q d, h q, h q d, h q -> h q d, h q", sizes=dict(h=32, q=8192, d=128))
def ring_merge(A, L, B, M):
    """Two segments of keys merged by their log-sum-exps (ring attention, arXiv 2310.01889)."""
    top = nk.maximum(L, M)
    first, second = nk.exp(L - top), nk.exp(M - top)
    return (first * A + second * B) / (first + second), top + nk.log(first + second)


def _relative(q: Numbers, k: Numbers, v: Numbers, t: Numbers, i: Numbers) -> Numbers:
    return soft(dense(q, k, 1.0) + taken(t, i, 1)) @ v


@compared(_relative, h=2, q=5, x=7, d=4, p=6)
@nk.diagram(
    "h q d, h x d, h x d, h p, q x:int -> h q d", sizes=dict(h=12, q=1024, x=1024, d=64, p=32)
)
def bucketed_bias_attention(Q, K, V, T, I):  # noqa: E741
    """A learned bias for each bucket of distances (T5, arXiv 1910.10683)."""
    S = nk.contract(Q, K, over="d") + nk.take(T, p=I)
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


def _sink(q: Numbers, k: Numbers, v: Numbers, s: Numbers) -> Numbers:
    far = back(q.shape[1])
    scores = np.where((far >= 0) & (far < 128), dense(q, k), -np.inf)
    extra = np.broadcast_to(s[..., None], (*scores.shape[:2], 1))
    return soft(np.concatenate([scores, extra], -1))[..., :-1] @ v


@compared(_sink, h=2, q=150, x=150, d=4, a=1)
@nk.diagram("h q d, h x d, h x d, h a -> h q d", sizes=dict(h=64, q=4096, x=4096, d=64, a=1))
def learned_sink_attention(Q, K, V, sink):
    """A window of 128 keys with a learned sink for each head (gpt-oss, arXiv 2508.10925)."""
    near = nk.sliding(127, 0, "q", "x")
    P, _ = nk.softmax([scored(Q, K), sink], over=["x", "a"], keys=[near, None])
    return nk.contract(P, V, over="x")


def _talking(q: Numbers, k: Numbers, v: Numbers, a: Numbers, b: Numbers) -> Numbers:
    mixed = np.einsum("hqx,hg->gqx", dense(q, k), a)
    return np.einsum("gqx,gh->hqx", soft(mixed), b) @ v


@compared(_talking, slow=True, h=2, g=2, f=2, q=5, x=7, d=4)
@nk.diagram(
    "h q d, h x d, f x d, h g, g f -> f q d", sizes=dict(h=12, g=12, f=12, q=512, x=512, d=64)
)
def talking_heads_attention(Q, K, V, A, B):
    """Heads mixed before and after the softmax (arXiv 2003.02436)."""
    S = nk.contract(scored(Q, K), A, over="h")
    P = nk.contract(nk.softmax(S, over="x"), B, over="g")
    return nk.contract(P, V, over="x")


def _cosine(q: Numbers, k: Numbers, v: Numbers, t: Numbers, b: Numbers) -> Numbers:
    return soft(dense(unit(q), unit(k), 1.0) / t[:, None, None] + b) @ v


@compared(_cosine, ranges={"T": (0.1, 1.0)}, w=2, h=2, q=5, x=5, d=4)
@nk.diagram(
    "w h q d, w h x d, w h x d, h, h q x -> w h q d", sizes=dict(w=1024, h=6, q=64, x=64, d=32)
)
def scaled_cosine_attention(Q, K, V, T, B):
    """Cosine scores over a temperature, and a bias, in windows (Swin v2, arXiv 2111.09883)."""
    q = Q * nk.rsqrt(nk.reduce(Q * Q, "sum", over="d"))
    k = K * nk.rsqrt(nk.reduce(K * K, "sum", over="d"))
    S = nk.contract(q, k, over="d") / T + B
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


def _retention(q: Numbers, k: Numbers, v: Numbers, g: Numbers) -> Numbers:
    far = back(q.shape[1])
    decay = np.where(far >= 0, g[:, None, None] ** np.maximum(far, 0), 0.0)
    return rows(dense(q, k, 1.0) * decay @ v)


@compared(_retention, ranges={"G": (0.5, 0.99)}, h=2, q=7, x=7, d=4, v=5)
@nk.diagram("h q d, h x d, h x v, h -> h q v", sizes=dict(h=8, q=4096, x=4096, d=256, v=512))
def multiscale_retention(Q, K, V, G, eps=1e-5):
    """The parallel form of retention, with a norm for each head (arXiv 2307.08621)."""
    far = nk.index("q") - nk.index("x")
    S = nk.contract(Q, K, over="d") * nk.exp(nk.log(G) * nk.cast(far, "fp32"))
    O = nk.contract(S, V, over="x", keys=nk.causal("q", "x"))  # noqa: E741
    mean = nk.reduce(O, "mean", over="v")
    return (O - mean) * nk.rsqrt(nk.reduce((O - mean) ** 2, "mean", over="v") + eps)


def _quiet(q: Numbers, k: Numbers, v: Numbers) -> Numbers:
    w = np.exp(dense(q, k))
    return w / (1 + w.sum(-1, keepdims=True)) @ v


@compared(_quiet, h=2, q=5, x=7, d=4)
@nk.diagram("h q d, h x d, h x d -> h q d", sizes=dict(h=16, q=4096, x=4096, d=128))
def softmax_one_attention(Q, K, V):
    """A softmax with one more in its denominator, so that a head may say nothing (Miller, 2023)."""
    S = scored(Q, K)
    top = nk.maximum(nk.reduce(S, "max", over="x"), 0.0)
    weights = nk.exp(S - top)
    return nk.contract(weights, V, over="x") / (nk.exp(-top) + nk.reduce(weights, "sum", over="x"))


def _triangle(q: Numbers, k: Numbers, v: Numbers, b: Numbers, g: Numbers) -> Numbers:
    scores = np.einsum("ihjd,ihkd->ihjk", q, k) * q.shape[-1] ** -0.5 + b
    return sigmoid(g) * (soft(scores) @ v)


@compared(_triangle, i=3, h=2, j=5, k=5, d=4)
@nk.diagram(
    "i h j d, i h k d, i h k d, h j k, i h j d -> i h j d",
    sizes=dict(i=384, h=4, j=384, k=384, d=32),
)
def triangle_attention(Q, K, V, B, G):
    """Triangle attention with a pair bias and a gate (AlphaFold 2, supplement, algorithm 13)."""
    P = nk.softmax(scored(Q, K) + B, over="k")
    return nk.sigmoid(G) * nk.contract(P, V, over="k")


def _deberta(q: Numbers, k: Numbers, v: Numbers, qr: Numbers, kr: Numbers) -> Numbers:
    n, half = q.shape[1], kr.shape[1] // 2
    far = np.clip(back(n) + half, 0, 2 * half - 1)
    c2p = np.take_along_axis(dense(q, kr, 1.0), np.broadcast_to(far, (len(q), n, n)), -1)
    p2c = np.take_along_axis(dense(k, qr, 1.0), np.broadcast_to(far.T, (len(q), n, n)), -1)
    both = dense(q, k, 1.0) + c2p + np.swapaxes(p2c, -1, -2)
    return soft(both * (3 * q.shape[-1]) ** -0.5) @ v


@compared(_deberta, slow=True, h=2, q=9, x=9, d=4, p=6)
@nk.diagram(
    "h q d, h x d, h x d, h p d, h p d -> h q d", sizes=dict(h=12, q=512, x=512, d=64, p=512)
)
def disentangled_attention(Q, K, V, R, E):
    """Content to content, content to position and position to content (arXiv 2006.03654)."""
    half = nk.size("p") // 2
    there = nk.index("q") - nk.index("x") + half
    at = nk.maximum(nk.minimum(there, 2 * half - 1), 0)
    mirrored = nk.maximum(nk.minimum(there, 2 * half - 1), 0)
    S = nk.contract(Q, K, over="d")
    S = S + nk.contract(Q, nk.take(E, p=at), over="d")
    S = S + nk.contract(K, nk.take(R, p=mirrored), over="d")
    return nk.contract(nk.softmax(S * (3 * nk.size("d")) ** -0.5, over="x"), V, over="x")


def _favor(q: Numbers, k: Numbers, v: Numbers, w: Numbers) -> Numbers:
    def phi(x: Numbers) -> Numbers:
        x = x * q.shape[-1] ** -0.25
        return np.exp(x @ w.T - (x * x).sum(-1, keepdims=True) / 2) + 1e-6

    a, b = phi(q), phi(k)
    return a @ (np.swapaxes(b, -1, -2) @ v) / (a @ b.sum(-2)[..., None])


@compared(_favor, slow=True, h=2, q=5, x=7, d=4, m=6)
@nk.diagram("h q d, h x d, h x d, m d -> h q d", sizes=dict(h=16, q=8192, x=8192, d=64, m=256))
def performer(Q, K, V, W, eps=1e-6):
    """Softmax attention by positive random features (FAVOR+, arXiv 2009.14794)."""

    def features(X: nk.Array) -> nk.Array:
        X = X * nk.size("d") ** -0.25
        return nk.exp(nk.contract(X, W, over="d") - nk.reduce(X * X, "sum", over="d") / 2) + eps

    A, B = features(Q), features(K)
    state, norm = nk.contract(B, V, over="x"), nk.reduce(B, "sum", over="x")
    return nk.contract(A, state, over="m") / nk.contract(A, norm, over="m")


def _paged(q: Numbers, k: Numbers, v: Numbers, t: Numbers, n: Numbers) -> Numbers:
    out = np.empty(q.shape)
    for b in range(len(q)):
        pages = np.clip(t[b].astype(int), 0, len(k) - 1)
        keys, values = (x[pages].reshape(-1, q.shape[-1]) for x in (k, v))
        seen = np.arange(len(keys)) < n[b]
        out[b] = masked(dense(q[b], keys), seen) @ values
    return out


@compared(_paged, slow=True, ranges={"N": (1, 12)}, b=2, h=3, d=4, n=5, s=4, p=3)
@nk.diagram(
    "b h d, n s d, n s d, b p:int, b:int -> b h d",
    sizes=dict(b=64, h=8, d=128, n=16384, s=16, p=256),
)
def paged_decode_attention(Q, K, V, pages, N):
    """A step of generation over a cache in pages (PagedAttention, arXiv 2309.06180)."""
    S = scored(Q, nk.take(K, n=pages))
    place = nk.index("p") * nk.size("s") + nk.index("s")
    S = nk.where(place < N, S, -math.inf)
    return nk.contract(nk.softmax(S, over="p s"), nk.take(V, n=pages), over="p s")


def _gated(q: Numbers, k: Numbers, v: Numbers, x: Numbers, w: Numbers) -> Numbers:
    seen = back(q.shape[1]) >= 0
    return masked(dense(q, k), seen) @ v * sigmoid(np.einsum("qm,hmd->hqd", x, w))


@compared(_gated, h=2, q=6, x=6, d=4, m=5)
@nk.diagram(
    "h q d, h x d, h x d, q m, h m d -> h q d", sizes=dict(h=16, q=4096, x=4096, d=128, m=2048)
)
def gated_attention(Q, K, V, X, W):
    """A gate from the token on the output of every head (arXiv 2505.06708)."""
    P = nk.softmax(scored(Q, K), over="x", keys=nk.causal("q", "x"))
    return nk.contract(P, V, over="x") * nk.sigmoid(nk.contract(X, W, over="m"))


def _qk_norm(q: Numbers, k: Numbers, v: Numbers, g: Numbers, e: Numbers) -> Numbers:
    return soft(dense(rows_rms(q, 1e-6) * g, rows_rms(k, 1e-6) * e)) @ v


@compared(_qk_norm, slow=True, h=2, q=5, x=7, d=4)
@nk.diagram("h q d, h x d, h x d, d, d -> h q d", sizes=dict(h=16, q=4096, x=4096, d=128))
def normed_query_key_attention(Q, K, V, G, E, eps=1e-6):
    """Queries and keys normalised before their product (arXiv 2302.05442)."""
    q = Q * nk.rsqrt(nk.reduce(Q * Q, "mean", over="d") + eps) * G
    k = K * nk.rsqrt(nk.reduce(K * K, "mean", over="d") + eps) * E
    return nk.contract(nk.softmax(scored(q, k), over="x"), V, over="x")


def _stick(q: Numbers, k: Numbers, v: Numbers) -> Numbers:
    beta = np.where(back(len(q)) > 0, sigmoid(dense(q, k)), 0.0)
    kept = np.cumprod((1 - beta)[:, ::-1], -1)[:, ::-1]
    after = np.concatenate([kept[:, 1:], np.ones((len(q), 1))], -1)
    return beta * after @ v


@compared(_stick, q=7, x=7, d=4)
@nk.diagram("q d, x d, x d -> q d", sizes=dict(q=2048, x=2048, d=64))
def stick_breaking_attention(Q, K, V):
    """Each key takes its share of what nearer keys left (arXiv 2410.17980)."""
    S = scored(Q, K)
    near = nk.index("x") < nk.index("q")
    left = nk.where(near, nk.log(1 - nk.sigmoid(S)), 0.0)
    after = nk.reduce(left, "sum", over="x") - nk.cumsum(left, along="x")
    return nk.contract(nk.where(near, nk.sigmoid(S), 0.0) * nk.exp(after), V, over="x")


def _free(q: Numbers, k: Numbers, v: Numbers, w: Numbers) -> Numbers:
    weights = np.exp(k[None] + w[..., None])
    return sigmoid(q) * (weights * v).sum(1) / weights.sum(1)


@compared(_free, q=5, x=7, d=4)
@nk.diagram("q d, x d, x d, q x -> q d", sizes=dict(q=2048, x=2048, d=768))
def attention_free(Q, K, V, W):
    """Learned pairwise biases in place of scores (AFT-full, arXiv 2105.14103)."""
    P = nk.softmax(K + W, over="x")
    return nk.sigmoid(Q) * nk.reduce(P * V, "sum", over="x")


def _nystrom(q: Numbers, k: Numbers, v: Numbers, z: Numbers) -> Numbers:
    m = z.shape[-1]
    a, b = (x.reshape(len(x), m, -1, x.shape[-1]).mean(2) for x in (q, k))
    return soft(dense(q, b)) @ (z @ (soft(dense(a, k)) @ v))


@compared(_nystrom, slow=True, h=2, n=8, d=4, m=2, o=2)
@nk.diagram("h n d, h n d, h n d, h m o -> h n d", sizes=dict(h=8, n=4096, d=64, m=64, o=64))
def nystrom_attention(Q, K, V, Z):
    """Attention through landmarks, the means of segments; Z is their inverse (arXiv 2102.03902)."""
    each = nk.size("n") // nk.size("m")
    mine = nk.where(nk.index("n") // each == nk.index("m"), 1.0, 0.0) / each
    A = nk.contract(Q, mine, over="n")
    B = nk.contract(K, mine, over="n")
    F = nk.softmax(nk.contract(Q, B, over="d") * nk.size("d") ** -0.5, over="m")
    L = nk.softmax(nk.contract(A, K, over="d") * nk.size("d") ** -0.5, over="n").rename(m="o")
    T = nk.contract(L, V, over="n")
    return nk.contract(F, nk.contract(Z, T, over="o"), over="m")


def _packed(q: Numbers, k: Numbers, v: Numbers, owner: Numbers, of: Numbers) -> Numbers:
    return masked(dense(q, k), owner[:, None] == of) @ v


@compared(_packed, ranges={"A": (0, 1), "B": (0, 1)}, h=2, q=6, x=40, d=4)
@nk.diagram("h q d, h x d, h x d, q:int, x:int -> h q d", sizes=dict(h=8, q=2048, x=8192, d=64))
def packed_cross_attention(Q, K, V, A, B):
    """Cross attention of packed sequences: tokens see what has their number (arXiv 2107.02027)."""
    S = nk.where(A == B, scored(Q, K), -math.inf)
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


def _packed_alibi(q: Numbers, k: Numbers, v: Numbers, m: Numbers, lengths: Numbers) -> Numbers:
    n = q.shape[1]
    owner = np.searchsorted(np.cumsum(lengths), np.arange(n), side="right")
    scores = 20 * np.tanh(dense(q, k) / 20) - m[:, None, None] * back(n)
    return masked(scores, (owner[:, None] == owner) & (back(n) >= 0)) @ v


@compared(_packed_alibi, ranges={"L": (1, 4)}, h=2, q=12, x=12, d=4, n=3)
@nk.diagram("h q d, h x d, h x d, h, n:int -> h q d", sizes=dict(h=16, q=8192, x=8192, d=128, n=16))
def packed_alibi_softcap(Q, K, V, M, L, cap=20.0):
    """Capped scores with linear biases, causal within each packed document (arXiv 2108.12409)."""
    S = cap * nk.tanh(scored(Q, K) / cap) - M * (nk.index("q") - nk.index("x"))
    keys = nk.causal("q", "x") & nk.documents(L, "q", "x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")


def _forgetting(q: Numbers, k: Numbers, v: Numbers, f: Numbers) -> Numbers:
    total = np.cumsum(np.log(sigmoid(f)), 1)
    return masked(dense(q, k) + total[:, :, None] - total[:, None], back(q.shape[1]) >= 0) @ v


@compared(_forgetting, h=2, q=12, d=4)
@nk.diagram("h q d, h q d, h q d, h q -> h q d", sizes=dict(h=16, q=4096, d=128))
def forgetting_attention(Q, K, V, F):
    """Attention whose keys fade by gates of the tokens since (arXiv 2503.02130)."""
    total = nk.cumsum(nk.log(nk.sigmoid(F)), along="q")
    S = scored(Q, K.rename(q="x")) + total - total.rename(q="x")
    return nk.contract(nk.softmax(S, over="x", keys=nk.causal("q", "x")), V.rename(q="x"), over="x")


def _selective(q: Numbers, k: Numbers, v: Numbers) -> Numbers:
    scores, past = dense(q, k), back(q.shape[1])
    gone = np.where((past > 0) & (np.arange(k.shape[1]) > 0), np.maximum(scores[0], 0), 0)
    return masked(scores - (np.cumsum(gone, 0) - gone), past >= 0) @ v


@compared(_selective, h=2, q=8, x=8, d=4)
@nk.diagram("h q d, h x d, h x d -> h q d", sizes=dict(h=8, q=2048, x=2048, d=64))
def selective_attention(Q, K, V):
    """Earlier queries mask keys for later ones, by the scores of head 0 (arXiv 2410.02703)."""
    S = scored(Q, K)
    seen = (nk.index("x") < nk.index("q")) & (nk.index("x") > 0)
    gone = nk.where(seen, nk.maximum(nk.take(S, h=0), 0.0), 0.0)
    masked = S - (nk.cumsum(gone, along="q") - gone)
    return nk.contract(nk.softmax(masked, over="x", keys=nk.causal("q", "x")), V, over="x")


def _tree(q: Numbers, k: Numbers, v: Numbers, kt: Numbers, vt: Numbers, seen: Numbers) -> Numbers:
    scores = np.concatenate([dense(q, k), np.where(seen, dense(q, kt), -np.inf)], -1)
    return soft(scores) @ np.concatenate([v, vt], 1)


@compared(_tree, h=2, q=5, x=7, t=5, d=4)
@nk.diagram(
    "h q d, h x d, h x d, h t d, h t d, q t:bool -> h q d",
    sizes=dict(h=32, q=64, x=8192, t=64, d=128),
)
def tree_attention(Q, K, V, Kt, Vt, T):
    """Drafted tokens see the context and their ancestors in a tree (arXiv 2305.09781)."""
    R = nk.where(T, scored(Q, Kt), -math.inf)
    P, R = nk.softmax([scored(Q, K), R], over=["x", "t"])
    return nk.contract(P, V, over="x") + nk.contract(R, Vt, over="t")


def _slots(q: Numbers, k: Numbers, v: Numbers) -> Numbers:
    weights = soft(dense(q, k), -2) + 1e-8
    return weights / weights.sum(-1, keepdims=True) @ v


@compared(_slots, b=2, q=3, x=9, d=4)
@nk.diagram("b q d, b x d, b x d -> b q d", sizes=dict(b=64, q=8, x=16384, d=64))
def slot_attention(Q, K, V):
    """Slots compete for the inputs: a softmax over queries (arXiv 2006.15055)."""
    A = nk.softmax(scored(Q, K), over="q") + 1e-8
    return nk.contract(A / nk.reduce(A, "sum", over="x"), V, over="x")


def _turned_keys(q: Numbers, k: Numbers, v: Numbers, g: Numbers, f: Numbers) -> Numbers:
    n, d = k.shape
    angle = np.arange(n)[:, None] * np.concatenate([f, f])

    def turned(x: Numbers) -> Numbers:
        x = rows_rms(x, 1e-6) * g
        other = np.concatenate([-x[..., d // 2 :], x[..., : d // 2]], -1)
        return x * np.cos(angle) + other * np.sin(angle)

    return masked(dense(turned(q), turned(k)), (back(n) >= 0) & (back(n) < 4)) @ v


@compared(_turned_keys, ranges={"F": (0.1, 1.0)}, h=2, q=8, d=4, p=2)
@nk.diagram("h q d, q d, q d, d, p -> h q d", sizes=dict(h=32, q=8192, d=128, p=64))
def gemma_attention(Q, K, V, G, F):
    """One head of keys; normed queries and keys are turned, in a window (arXiv 2503.19786)."""
    half = nk.size("p")

    def turned(X):
        X = X * nk.rsqrt(nk.reduce(X * X, "mean", over="d") + 1e-6) * G
        i = nk.index("d")
        other = nk.take(X, d=(i + half) % nk.size("d"))
        angle = nk.index("q") * nk.take(F, p=i % half)
        return X * nk.cos(angle) + nk.where(i < half, -other, other) * nk.sin(angle)

    keys = nk.sliding(3, 0, "q", "x")
    weights = nk.softmax(scored(turned(Q), turned(K).rename(q="x")), over="x", keys=keys)
    return nk.contract(weights, V.rename(q="x"), over="x")
