"""Search: scores, the best of them, quantised distances, embeddings and their sums."""

from __future__ import annotations

import math

import numpy as np
from entries import Numbers, compared, lse, soft, taken, unit

import napkin as nk


def best(x: Numbers, k: int) -> Numbers:
    """Positions of the k largest of each row."""
    return np.argsort(-x, axis=-1, kind="stable")[..., :k]


def _knn(q: Numbers, x: Numbers) -> tuple[Numbers, ...]:
    d = ((q[:, None] - x) ** 2).sum(-1)
    at = best(-d, 4)
    return tuple(at.T)


@compared(_knn, q=3, n=9, d=4)
@nk.diagram("q d, n d -> q, q, q, q", sizes=dict(q=1024, n=131072, d=64))
def nearest_neighbours(Q, X):
    """The 4 nearest points of each query (Fix and Hodges, 1951), by differences."""
    return nk.topk(-nk.reduce((Q - X) ** 2, "sum", over="d"), 4, over="n")[1]


def _inner(q: Numbers, x: Numbers) -> tuple[Numbers, ...]:
    s = q @ x.T
    at = best(s, 8)
    return (*np.take_along_axis(s, at, -1).T, *at.T)


@compared(_inner, slow=True, q=3, n=12, d=4)
@nk.diagram("q d, n d -> " + ", ".join(["q"] * 16), sizes=dict(q=4096, n=262144, d=256))
def dense_retrieval(Q, X):
    """The 8 passages of largest inner product (DPR, arXiv 2004.04906)."""
    values, at = nk.topk(nk.contract(Q, X, over="d"), 8, over="n")
    return (*values, *at)


def _maxsim(q: Numbers, x: Numbers) -> Numbers:
    return np.einsum("td,nsd->nts", q, x).max(-1).sum(-1)


@compared(_maxsim, t=3, n=4, s=5, d=4)
@nk.diagram("t d, n s d -> n", sizes=dict(t=32, n=16384, s=128, d=128))
def maxsim(Q, X):
    """The late interaction of ColBERT (arXiv 2004.12832)."""
    S = nk.contract(Q, X, over="d")
    return nk.reduce(nk.reduce(S, "max", over="s"), "sum", over="t")


def _pq(t: Numbers, c: Numbers) -> Numbers:
    return sum(taken(t[:, m], c[:, m], 1) for m in range(c.shape[1]))


@compared(_pq, q=2, m=3, k=5, n=6)
@nk.diagram("q m k, n m:uint8 -> q n", sizes=dict(q=64, m=16, k=256, n=262144))
def product_quantised_distances(T, C):
    """Distances from tables and codes (product quantisation, Jegou et al., 2011)."""
    return nk.reduce(nk.take(T, k=C), "sum", over="m")


def _tables(q: Numbers, c: Numbers) -> Numbers:
    return ((q[:, :, None] - c) ** 2).sum(-1)


@compared(_tables, q=2, m=3, k=5, d=4)
@nk.diagram("q m d, m k d -> q m k", sizes=dict(q=1024, m=16, k=256, d=8))
def distance_tables(Q, C):
    """The tables of product quantisation, a distance to each centre (Jegou et al., 2011)."""
    return nk.reduce((Q - C) ** 2, "sum", over="d")


def _bm25(f: Numbers, n: Numbers, w: Numbers) -> Numbers:
    norm = 1.2 * (0.25 + 0.75 * n / n.mean())
    return (f * 2.2 / (f + norm[:, None])) @ w


@compared(_bm25, ranges={"F": (0.0, 5.0), "N": (1.0, 9.0)}, n=6, t=4)
@nk.diagram("n t, n, t -> n", sizes=dict(n=1048576, t=16))
def bm25(F, N, W):
    """BM25 of documents from counts of the query's words (Robertson and Zaragoza, 2009)."""
    norm = 1.2 * (0.25 + 0.75 * N / nk.reduce(N, "mean", over="n"))
    return nk.reduce(W * F * 2.2 / (F + norm), "sum", over="t")


@compared(lambda q, x: unit(q) @ unit(x).T, q=3, n=5, d=4)
@nk.diagram("q d, n d -> q n", sizes=dict(q=1024, n=65536, d=768))
def cosine_similarity(Q, X):
    """Cosines of all pairs (Salton et al., 1975)."""
    q = Q * nk.rsqrt(nk.reduce(Q * Q, "sum", over="d"))
    return nk.contract(q, X * nk.rsqrt(nk.reduce(X * X, "sum", over="d")), over="d")


@compared(lambda t, i: taken(t, i).sum(1), v=7, d=4, b=3, l=5)
@nk.diagram("v d, b l:int -> b d", sizes=dict(v=1000000, d=128, b=16384, l=32))
def embedding_bag(T, I):  # noqa: E741
    """Sums of rows of a table (DLRM, arXiv 1906.00091)."""
    return nk.reduce(nk.take(T, v=I), "sum", over="l")


@compared(lambda t, i, w: (w[..., None] * taken(t, i)).sum(1), v=7, d=4, b=3, l=5)
@nk.diagram("v d, b l:int, b l -> b d", sizes=dict(v=1000000, d=64, b=65536, l=20))
def weighted_embedding_bag(T, I, W):  # noqa: E741
    """Weighted sums of rows of a table (DLRM, arXiv 1906.00091)."""
    return nk.contract(nk.take(T, v=I), W, over="l")


def _dot(x: Numbers) -> Numbers:
    return np.einsum("bfd,bgd->bfg", x, x)


@compared(_dot, b=3, f=4, d=5)
@nk.diagram("b f d -> b f g", sizes=dict(b=16384, f=27, g=27, d=128))
def feature_interaction(X):
    """Products of all pairs of embeddings of a row (DLRM, arXiv 1906.00091)."""
    return nk.contract(X, X.rename(f="g"), over="d")


def _fm(x: Numbers, v: Numbers) -> Numbers:
    e = x[..., None] * v
    return (e.sum(1) ** 2 - (e**2).sum(1)).sum(-1) / 2


@compared(_fm, b=3, f=5, k=4)
@nk.diagram("b f, f k -> b", sizes=dict(b=65536, f=512, k=64))
def factorisation_machine(X, V):
    """Interactions of the second order (Rendle, 2010)."""
    once = nk.contract(X, V, over="f")
    twice = nk.contract(X * X, V * V, over="f")
    return nk.reduce(once * once - twice, "sum", over="k") / 2


def _hamming(q: Numbers, x: Numbers) -> Numbers:
    return (q[:, None] != x).sum(-1)


@compared(_hamming, ranges={"Q": (0, 255), "X": (0, 255)}, q=2, n=5, m=4)
@nk.diagram("q m:uint8, n m:uint8 -> q n", sizes=dict(q=256, n=262144, m=16))
def code_mismatches(Q, X):
    """How many symbols of two codes differ (Hamming, 1950)."""
    return nk.reduce(nk.where(Q != X, 1, 0), "sum", over="m")


def _kmeans(x: Numbers, c: Numbers) -> Numbers:
    return ((x[:, None] - c) ** 2).sum(-1).argmin(1)


@compared(_kmeans, n=7, k=4, d=3)
@nk.diagram("n d, k d -> n", sizes=dict(n=262144, k=1024, d=64))
def nearest_centre(X, C):
    """The centre of each point (Lloyd, 1957): |c|^2 - 2 x c is enough."""
    near = nk.reduce(C * C, "sum", over="d") - 2 * nk.contract(X, C, over="d")
    return nk.argmin(near, over="k")


def _centres(x: Numbers, a: Numbers, like: Numbers) -> Numbers:
    mine = a[:, None] == np.arange(len(like))
    return mine.T @ x / np.maximum(mine.sum(0), 1)[:, None] + 0 * like


@compared(_centres, ranges={"A": (0, 3)}, n=9, d=3, k=4)
@nk.diagram("n d, n:int, k d -> k d", sizes=dict(n=262144, d=64, k=1024))
def new_centres(X, A, C):
    """The mean of the points of each centre (Lloyd, 1957)."""
    mine = nk.where(nk.index("k") == A, 1.0, 0.0)
    many = nk.maximum(nk.reduce(mine, "sum", over="n"), 1.0)
    return nk.contract(mine, X, over="n") / many + 0.0 * C


def _vq(x: Numbers, c: Numbers) -> tuple[Numbers, Numbers]:
    at = ((x[:, None] - c) ** 2).sum(-1).argmin(1)
    return at, c[at]


@compared(_vq, n=5, k=6, d=4)
@nk.diagram("n d, k d -> n, n d", sizes=dict(n=65536, k=8192, d=256))
def codebook_lookup(X, C):
    """The nearest code and its vector (VQ-VAE, arXiv 1711.00937)."""
    near = nk.reduce(C * C, "sum", over="d") - 2 * nk.contract(X, C, over="d")
    at = nk.argmin(near, over="k")
    return at, nk.take(C, k=at)


def _finite(x: Numbers) -> Numbers:
    return np.floor(np.tanh(x) * 3.5 + 4.0) @ 8.0 ** np.arange(x.shape[1])


@compared(_finite, n=5, d=4)
@nk.diagram("n d -> n", sizes=dict(n=1048576, d=4))
def finite_scalar_codes(X):
    """Codes of bounded and rounded numbers (FSQ, arXiv 2309.15505)."""
    level = nk.cast(nk.cast(nk.tanh(X) * 3.5 + 4.0, "int32"), "fp32")
    weight = nk.exp(nk.index("d") * math.log(8.0))
    return nk.cast(nk.reduce(level * weight, "sum", over="d") + 0.0, "fp32")


def _rank(s: Numbers, t: Numbers) -> Numbers:
    own = np.take_along_axis(s, t.astype(int)[:, None], 1)
    return (s > own).sum(1)


@compared(_rank, ranges={"T": (0, 6)}, q=3, n=7)
@nk.diagram("q n, q:int -> q", sizes=dict(q=4096, n=131072))
def rank_of_target(S, T):
    """How many scores are above the right one (mean reciprocal rank; Voorhees, 1999)."""
    return nk.reduce(nk.where(nk.take(S, n=T) < S, 1, 0), "sum", over="n")


def _page(p: Numbers, i: Numbers, w: Numbers) -> Numbers:
    return 0.15 / len(p) + 0.85 * (w * taken(p, i)).sum(1)


@compared(_page, n=6, l=3)
@nk.diagram("n, n l:int, n l -> n", sizes=dict(n=4194304, l=16))
def pagerank_step(P, L, W):
    """A step of PageRank over the links into each page (Brin and Page, 1998)."""
    return 0.15 / nk.size("n") + 0.85 * nk.reduce(W * nk.take(P, n=L), "sum", over="l")


def _gat(h: Numbers, a: Numbers, b: Numbers, i: Numbers) -> Numbers:
    s = a[:, None] + taken(b, i)
    p = soft(np.where(s > 0, s, 0.2 * s))
    return (p[..., None] * taken(h, i)).sum(1)


@compared(_gat, n=6, d=4, l=3)
@nk.diagram("n d, n, n, n l:int -> n d", sizes=dict(n=1048576, d=64, l=16))
def graph_attention(H, A, B, L):
    """Attention over the neighbours of each node (GAT, arXiv 1710.10903)."""
    S = A + nk.take(B, n=L)
    P = nk.softmax(nk.where(S > 0, S, 0.2 * S), over="l")
    return nk.contract(P, nk.take(H, n=L), over="l")


def _two(u: Numbers, i: Numbers, b: Numbers, q: Numbers) -> Numbers:
    s = u @ i.T - np.log(q)
    return lse(s) - np.diag(s) + 0 * b


@compared(_two, ranges={"F": (0.1, 1.0)}, n=5, m=5, d=4)
@nk.diagram("n d, m d, n, m -> n", sizes=dict(n=8192, m=8192, d=128))
def sampled_softmax(U, V, B, F):
    """In-batch softmax with a correction for frequent items (Yi et al., 2019)."""
    S = nk.contract(U, V, over="d") - nk.log(F)
    own = nk.reduce(nk.where(nk.index("n") == nk.index("m"), S, 0.0), "sum", over="m")
    return nk.reduce(S, "logsumexp", over="m") - own + 0.0 * B
