"""Steps of optimisers, statistics of gradients, and how weights and states are stored."""

from __future__ import annotations

import numpy as np
from entries import Numbers, compared

import napkin as nk


def sign(x: nk.Array) -> nk.Array:
    """-1, 0 or 1."""
    return nk.where(x > 0, 1.0, 0.0) - nk.where(x < 0, 1.0, 0.0)


@compared(lambda w, g, m: (w - 0.1 * (g + 0.9 * (0.9 * m + g)), 0.9 * m + g), n=9)
@nk.diagram("n, n, n -> n, n", sizes=dict(n=2**26))
def nesterov_step(W, G, M, rate=0.1, beta=0.9):
    """Momentum that looks ahead (Nesterov, 1983; Sutskever et al., 2013)."""
    M_new = beta * M + G
    return W - rate * (G + beta * M_new), M_new


def _adam(w: Numbers, g: Numbers, m: Numbers, v: Numbers) -> tuple[Numbers, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * g * g
    return w - 1e-3 * m / 0.1 / (np.sqrt(v / 0.05) + 1e-8), m, v


@compared(_adam, ranges={"V": (0.0, 1.0)}, n=9)
@nk.diagram("n:fp32, n, n:fp32, n:fp32 -> n, n, n", sizes=dict(n=2**26))
def adam_step(W, G, M, V, first=0.1, second=0.05, rate=1e-3, beta=0.9, gamma=0.95, eps=1e-8):
    """Adam with states in fp32 and gradients in 16 bits (arXiv 1412.6980, 1710.03740)."""
    m = beta * M + (1 - beta) * G
    v = gamma * V + (1 - gamma) * G * G
    new = W - rate * (m / first) / (nk.sqrt(v / second) + eps)
    return nk.cast(new, "fp32"), nk.cast(m, "fp32"), nk.cast(v, "fp32")


def _lion(w: Numbers, g: Numbers, m: Numbers) -> tuple[Numbers, Numbers]:
    return w - 1e-4 * (np.sign(0.9 * m + 0.1 * g) + 0.1 * w), 0.99 * m + 0.01 * g


@compared(_lion, n=9)
@nk.diagram("n, n, n -> n, n", sizes=dict(n=2**26))
def lion_step(W, G, M, rate=1e-4, decay=0.1):
    """A step by the sign of a mean (Lion, arXiv 2302.06675)."""
    return W - rate * (sign(0.9 * M + 0.1 * G) + decay * W), 0.99 * M + 0.01 * G


def _adafactor(g: Numbers, r: Numbers, c: Numbers) -> tuple[Numbers, ...]:
    s = g * g + 1e-30
    r, c = 0.999 * r + 0.001 * s.mean(1), 0.999 * c + 0.001 * s.mean(0)
    u = g / np.sqrt(r[:, None] / r.mean() * c)
    return u / max(1.0, np.sqrt((u * u).mean())), r, c


@compared(_adafactor, ranges={"R": (0.5, 1.0), "C": (0.5, 1.0)}, i=4, j=5)
@nk.diagram("i j, i, j -> i j, i, j", sizes=dict(i=4096, j=4096))
def adafactor_update(G, R, C, gamma=0.999):
    """Factored second moments and a clipped update (arXiv 1804.04235, algorithm 4)."""
    S = G * G + 1e-30
    r = gamma * R + (1 - gamma) * nk.reduce(S, "mean", over="j")
    c = gamma * C + (1 - gamma) * nk.reduce(S, "mean", over="i")
    U = G * nk.rsqrt(r / nk.reduce(r, "mean", over="i") * c)
    size = nk.sqrt(nk.reduce(U * U, "mean", over="i j"))
    return U / nk.maximum(size, 1.0), r, c


def _newton(x: Numbers) -> Numbers:
    x = x / (np.linalg.norm(x) + 1e-7)
    a = x @ x.T
    return 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x


@compared(_newton, slow=True, i=4, j=6)
@nk.diagram("i j -> i j", sizes=dict(i=2048, j=8192))
def newton_schulz_step(G):
    """The first step of Muon's orthogonalisation (Jordan et al., 2024)."""
    X = G / (nk.sqrt(nk.reduce(G * G, "sum", over="i j")) + 1e-7)
    A = nk.contract(X, X.rename(i="k"), over="j")
    B = -4.7750 * A + 2.0315 * nk.contract(A.rename(k="m"), A.rename(i="m"), over="m")
    return 3.4445 * X + nk.contract(B, X.rename(i="k"), over="k")


def _shampoo(left: Numbers, r: Numbers, g: Numbers) -> tuple[Numbers, Numbers]:
    return 0.95 * left + 0.05 * g @ g.T, 0.95 * r + 0.05 * g.T @ g


@compared(_shampoo, i=3, k=3, j=4, m=4)
@nk.diagram("i k, j m, i j -> i k, j m", sizes=dict(i=4096, k=4096, j=4096, m=4096))
def shampoo_statistics(L, R, G):
    """The statistics of both sides of a gradient (arXiv 1802.09568)."""
    left = nk.contract(G, G.rename(i="k"), over="j")
    return 0.95 * L + 0.05 * left, 0.95 * R + 0.05 * nk.contract(G, G.rename(j="m"), over="i")


def _soap(q: Numbers, g: Numbers, p: Numbers) -> Numbers:
    return q.T @ g @ p


@compared(_soap, i=3, k=3, j=4, m=4)
@nk.diagram("i k, i j, j m -> k m", sizes=dict(i=4096, k=4096, j=4096, m=4096))
def rotated_gradient(Q, G, P):
    """A gradient in the eigenvectors of both sides (SOAP, arXiv 2409.11321)."""
    return nk.contract(Q, G, P, over="i j")


def _clip(g: Numbers) -> Numbers:
    return g * min(1.0, 1.0 / (np.linalg.norm(g) + 1e-6))


@compared(_clip, n=9)
@nk.diagram("n -> n", sizes=dict(n=2**28))
def clipped_gradient(G, most=1.0):
    """A gradient clipped by its norm (arXiv 1211.5063)."""
    size = nk.sqrt(nk.reduce(G * G, "sum", over="n")) + 1e-6
    return G * nk.minimum(most / size, 1.0)


def _lamb(w: Numbers, u: Numbers) -> Numbers:
    return w - 0.01 * np.linalg.norm(w) / np.linalg.norm(u) * u


@compared(_lamb, n=9)
@nk.diagram("n, n -> n", sizes=dict(n=2**24))
def lamb_step(W, U, rate=0.01):
    """A step as long as the weights of its layer (LAMB, arXiv 1904.00962)."""
    w = nk.sqrt(nk.reduce(W * W, "sum", over="n"))
    return W - rate * w * nk.rsqrt(nk.reduce(U * U, "sum", over="n")) * U


def _each(w: Numbers, g: Numbers) -> Numbers:
    a = np.maximum(np.linalg.norm(w, axis=1, keepdims=True), 1e-3)
    b = np.linalg.norm(g, axis=1, keepdims=True)
    return g * np.minimum(1, 0.01 * a / np.maximum(b, 1e-6))


@compared(_each, o=4, d=5)
@nk.diagram("o d, o d -> o d", sizes=dict(o=8192, d=4096))
def adaptive_clipping(W, G):
    """Gradients of units clipped by the norms of their weights (NFNets, arXiv 2102.06171)."""
    a = nk.maximum(nk.sqrt(nk.reduce(W * W, "sum", over="d")), 1e-3)
    b = nk.maximum(nk.sqrt(nk.reduce(G * G, "sum", over="d")), 1e-6)
    return G * nk.minimum(0.01 * a / b, 1.0)


def _quantised(x: Numbers) -> Numbers:
    return np.abs(x).max(-1) / 127.0


@compared(_quantised, g=4, b=8)
@nk.diagram("g b -> g", sizes=dict(g=2**18, b=256))
def block_scales(X):
    """The scale of each block of a state in 8 bits (arXiv 2110.02861)."""
    return nk.cast(nk.reduce(nk.abs(X), "max", over="b") / 127.0, "fp32")


@compared(lambda q, s: q * s[:, None], g=4, b=8)
@nk.diagram("g b:int8, g:fp32 -> g b", sizes=dict(g=2**18, b=256))
def dequantised_blocks(Q, S):
    """A state in 8 bits as numbers again (arXiv 2110.02861)."""
    return Q * S


def _fp8(x: Numbers) -> tuple[Numbers, Numbers]:
    s = np.abs(x).max(-1) / 448
    return x / s[..., None], s


@compared(_fp8, n=3, g=2, b=8)
@nk.diagram("n g b -> n g b, n g", sizes=dict(n=8192, g=32, b=128))
def quantise_fp8(X):
    """Tiles of 128 numbers in fp8 with a scale each (DeepSeek-V3, arXiv 2412.19437, 3.3)."""
    scale = nk.reduce(nk.abs(X), "max", over="b") / 448.0
    return nk.cast(X / scale, "fp8"), nk.cast(scale, "fp32")


def _average(a: Numbers, b: Numbers) -> tuple[Numbers, Numbers]:
    return 0.999 * a + 0.001 * b, np.sqrt(((a - b) ** 2).sum())


@compared(_average, n=9)
@nk.diagram("n, n -> n, ()", sizes=dict(n=2**26))
def weight_average(A, B, beta=0.999):
    """A moving average of weights, and how far it is from them (Polyak and Juditsky, 1992)."""
    return beta * A + (1 - beta) * B, nk.sqrt(nk.reduce((A - B) ** 2, "sum", over="n"))


def _sam(w: Numbers, g: Numbers) -> Numbers:
    return w + 0.05 * g / (np.linalg.norm(g) + 1e-12)


@compared(_sam, n=9)
@nk.diagram("n, n -> n", sizes=dict(n=2**26))
def sharpness_ascent(W, G, rho=0.05):
    """The ascent of sharpness-aware minimisation (arXiv 2010.01412)."""
    return W + rho * G / (nk.sqrt(nk.reduce(G * G, "sum", over="n")) + 1e-12)


def _moe(g: Numbers, w: Numbers) -> Numbers:
    return np.einsum("rn,r->n", g, w / w.sum())


@compared(_moe, ranges={"W": (0.1, 1.0)}, r=8, n=9)
@nk.diagram("r n, r -> n", sizes=dict(r=8, n=2**24))
def averaged_gradients(G, W):
    """A weighted mean of the gradients of workers (FedAvg, arXiv 1602.05629)."""
    return nk.contract(G, W / nk.reduce(W, "sum", over="r"), over="r")


def _private(g: Numbers) -> Numbers:
    size = np.linalg.norm(g, axis=1, keepdims=True)
    return (g * np.minimum(1, 1 / size)).sum(0)


@compared(_private, b=4, n=9)
@nk.diagram("b n -> n", sizes=dict(b=256, n=2**20))
def per_example_clipping(G):
    """Gradients of examples clipped and summed, before noise (DP-SGD, arXiv 1607.00133)."""
    size = nk.sqrt(nk.reduce(G * G, "sum", over="n"))
    return nk.reduce(G * nk.minimum(1.0 / size, 1.0), "sum", over="b")


def _ghost(a: Numbers, g: Numbers) -> Numbers:
    return np.sqrt((np.einsum("btd,bte->bde", a, g) ** 2).sum((1, 2)))


@compared(_ghost, b=3, t=4, d=5, e=6)
@nk.diagram("b t d, b t e -> b", sizes=dict(b=32, t=512, d=1024, e=1024))
def per_example_norms(A, G):
    """Norms of the gradients of examples in a linear layer (Goodfellow, arXiv 1510.01799)."""
    D = nk.contract(A, G, over="t")
    return nk.sqrt(nk.reduce(D * D, "sum", over="d e"))


def _fisher(a: Numbers, g: Numbers) -> Numbers:
    return (a * a).T @ (g * g) / len(a)


@compared(_fisher, n=4, d=5, e=6)
@nk.diagram("n d, n e -> d e", sizes=dict(n=8192, d=4096, e=4096))
def diagonal_fisher(A, G):
    """The squares of gradients of a linear layer (BackPACK, arXiv 1912.10985)."""
    return nk.contract(A * A, G * G, over="n") / nk.size("n")


def _wanda(w: Numbers, x: Numbers) -> Numbers:
    s = np.abs(w) * np.linalg.norm(x, axis=0)
    return w * (s > 0.5 * s.mean(1, keepdims=True))


@compared(_wanda, o=4, d=5, n=6)
@nk.diagram("o d, n d -> o d", sizes=dict(o=4096, d=4096, n=2048))
def pruned_weights(W, X):
    """Weights times the norms of what they read, small ones set to 0 (Wanda, arXiv 2306.11695)."""
    S = nk.abs(W) * nk.sqrt(nk.reduce(X * X, "sum", over="n"))
    return nk.where(0.5 * nk.reduce(S, "mean", over="d") < S, W, 0.0)


def _mini(w: Numbers, g: Numbers, m: Numbers, v: Numbers) -> tuple[Numbers, ...]:
    m, v = 0.9 * m + 0.1 * g, 0.95 * v + 0.05 * (g * g).mean(1)
    return w - 1e-3 * m / (np.sqrt(v)[:, None] + 1e-8), m, v


@compared(_mini, ranges={"V": (0.0, 1.0)}, n=5, d=6)
@nk.diagram("n d, n d, n d, n -> n d, n d, n", sizes=dict(n=16384, d=4096))
def adam_mini_step(W, G, M, V, rate=1e-3):
    """Adam with one second moment for each row (arXiv 2406.16793)."""
    M = 0.9 * M + 0.1 * G
    V = 0.95 * V + 0.05 * nk.reduce(G * G, "mean", over="d")
    return W - rate * M / (nk.sqrt(V) + 1e-8), M, V


def _projected(g: Numbers, p: Numbers, m: Numbers) -> tuple[Numbers, Numbers]:
    m = 0.9 * m + 0.1 * (p.T @ g)
    return p @ m, m


@compared(_projected, n=6, d=5, r=2)
@nk.diagram("n d, n r, r d -> n d, r d", sizes=dict(n=4096, d=4096, r=128))
def projected_momentum(G, P, M):
    """Momentum of a gradient in a subspace of few dimensions (GaLore, arXiv 2403.03507)."""
    M = 0.9 * M + 0.1 * nk.contract(P, G, over="n")
    return nk.contract(P, M, over="r"), M
