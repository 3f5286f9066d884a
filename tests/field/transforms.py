"""Transforms of signals and coordinates: as products with matrices, windows and rotations."""

from __future__ import annotations

import math

import numpy as np
from entries import Numbers, compared, windows

import napkin as nk


def _dft(x: Numbers, k: Numbers) -> tuple[Numbers, Numbers]:
    y = np.fft.fft(x)[:, : len(k)]
    return y.real + 0 * k, y.imag + 0 * k


@compared(_dft, n=3, t=8, k=5)
@nk.diagram("n t, k -> n k, n k", sizes=dict(n=8192, t=512, k=257))
def fourier_transform(X, K):
    """The discrete transform of real rows, its waves computed where they are used (Fourier, 1822);
    K says how many frequencies there are."""
    turn = nk.cast((nk.index("t") * nk.index("k")) % nk.size("t"), "fp32")
    angle = turn * (-2 * math.pi) / nk.size("t")
    real = nk.contract(X, nk.cos(angle), over="t") + 0.0 * K
    return real, nk.contract(X, nk.sin(angle), over="t") + 0.0 * K


def _two_steps(
    x: Numbers, y: Numbers, f: Numbers, g: Numbers, c: Numbers, s: Numbers
) -> tuple[Numbers, Numbers]:
    z = np.einsum("nij,ik->nkj", x + 1j * y, f + 1j * g) * (c + 1j * s)
    return z.real, z.imag


@compared(_two_steps, n=2, i=3, j=4, k=3)
@nk.diagram(
    "n i j, n i j, i k, i k, k j, k j -> n k j, n k j",
    sizes=dict(n=1024, i=64, j=64, k=64),
)
def fft_first_half(X, Y, F, G, C, S):
    """Short transforms and twiddle factors, half of a long transform (FlashFFTConv, 2311.05908)."""
    real = nk.contract(X, F, over="i") - nk.contract(Y, G, over="i")
    imag = nk.contract(X, G, over="i") + nk.contract(Y, F, over="i")
    return real * C - imag * S, real * S + imag * C


def _dct(x: Numbers) -> Numbers:
    t = np.arange(8)
    basis = np.cos(np.pi / 8 * (t[:, None] + 0.5) * t)
    return np.einsum("nij,iu,jv->nuv", x, basis, basis)


@compared(lambda x, e: _dct(x) + 0 * e, n=3, i=8, j=8, u=8, v=8)
@nk.diagram("n i j, u v -> n u v", sizes=dict(n=65536, i=8, j=8, u=8, v=8))
def block_cosine_transform(X, E):
    """The cosine transform of blocks of 8 x 8 (JPEG; Ahmed et al., 1974)."""

    def wave(t: str, k: str) -> nk.Array:
        return nk.cos(math.pi / 8 * (nk.index(t) + 0.5) * nk.index(k))

    return nk.contract(X, wave("i", "u"), wave("j", "v"), over="i j") + 0.0 * E


@compared(lambda x, a, b: np.einsum("nij,ik,jl->nkl", x, a, b), n=3, i=4, j=4, k=4, l=4)
@nk.diagram("n i j, i k, j l -> n k l", sizes=dict(n=8192, i=64, j=64, k=64, l=64))
def hadamard_transform(X, A, B):
    """The Walsh-Hadamard transform of 4096 numbers by two factors of 64 (QuaRot, 2404.00456)."""
    return nk.contract(X, A, B, over="i j")


def _haar(x: Numbers) -> tuple[Numbers, Numbers]:
    a, b = x[:, ::2], x[:, 1::2]
    return (a + b) * 0.5**0.5, (a - b) * 0.5**0.5


@compared(_haar, n=3, i=8)
@nk.diagram("n i -> n p, n p", sizes=dict(n=4096, i=16384))
def haar_wavelets(X):
    """Means and differences of pairs (Haar, 1910)."""
    pair = nk.slide(X, over="i", into="p w", stride=2, window=2)
    a, b = nk.take(pair, w=0), nk.take(pair, w=1)
    return (a + b) * 0.5**0.5, (a - b) * 0.5**0.5


def _daubechies(x: Numbers, h: Numbers) -> tuple[Numbers, Numbers]:
    w = windows(x, 4, 2)
    return w @ h, w @ (h[::-1] * [1, -1, 1, -1])


@compared(_daubechies, n=3, i=10, w=4)
@nk.diagram("n i, w -> n p, n p", sizes=dict(n=4096, i=16384, w=4))
def daubechies_wavelets(X, H):
    """Both filters of a wavelet with 4 taps (Daubechies, 1988)."""
    seen = nk.slide(X, over="i", into="p w", stride=2)
    sign = nk.where(nk.index("w") % 2 == 0, 1.0, -1.0)
    mirrored = nk.take(H, w=3 - nk.index("w")) * sign
    return nk.contract(seen, H, over="w"), nk.contract(seen, mirrored, over="w")


def _stft(x: Numbers, c: Numbers, s: Numbers) -> Numbers:
    w = windows(x, len(c), 160)
    return (w @ c) ** 2 + (w @ s) ** 2


@compared(_stft, n=2, i=600, w=16, k=9)
@nk.diagram("n i, w k, w k -> n p k", sizes=dict(n=16, i=480000, w=400, k=201))
def spectrogram(X, C, S):
    """Power of windows of 400 samples, every 160 (Whisper, arXiv 2212.04356)."""
    seen = nk.slide(X, over="i", into="p w", stride=160)
    real, imag = nk.contract(seen, C, over="w"), nk.contract(seen, S, over="w")
    return real * real + imag * imag


def _mel(p: Numbers, m: Numbers) -> Numbers:
    y = np.log10(np.maximum(p @ m, 1e-10))
    return (np.maximum(y, y.max((1, 2), keepdims=True) - 8.0) + 4.0) / 4.0


@compared(_mel, ranges={"P": (0.0, 4.0), "M": (0.0, 1.0)}, n=2, t=5, k=6, m=4)
@nk.diagram("n t k, k m -> n t m", sizes=dict(n=32, t=3000, k=201, m=80))
def log_mel(P, M):
    """The features of Whisper from powers (arXiv 2212.04356, its code)."""
    Y = nk.log(nk.maximum(nk.contract(P, M, over="k"), 1e-10)) / math.log(10.0)
    return (nk.maximum(Y, nk.reduce(Y, "max", over="t m") - 8.0) + 4.0) / 4.0


def _rope(x: Numbers) -> Numbers:
    t, d = x.shape[-2:]
    i = np.arange(d)
    angle = np.arange(t)[:, None] * 10000.0 ** (-2.0 * (i % (d // 2)) / d)
    other = np.where(i < d // 2, -1, 1) * np.roll(x, d // 2, -1)
    return x * np.cos(angle) + other * np.sin(angle)


@compared(_rope, h=2, t=5, d=8)
@nk.diagram("h t d -> h t d", sizes=dict(h=32, t=4096, d=128))
def rotary_embedding(X):
    """Rotary positions, their angles computed where they are used (arXiv 2104.09864)."""
    i, half = nk.index("d"), nk.size("d") // 2
    angle = nk.index("t") * nk.exp(-2.0 * math.log(10000.0) * (i % half) / nk.size("d"))
    other = nk.take(X, d=(i + half) % nk.size("d"))
    return X * nk.cos(angle) + nk.where(i < half, -other, other) * nk.sin(angle)


def _nerf(x: Numbers, k: Numbers) -> tuple[Numbers, Numbers]:
    angle = x[..., None] * math.pi * 2.0 ** np.arange(len(k))
    return np.sin(angle) + 0 * k, np.cos(angle) + 0 * k


@compared(_nerf, n=4, c=3, k=4)
@nk.diagram("n c, k -> n c k, n c k", sizes=dict(n=262144, c=3, k=10))
def frequency_encoding(X, K):
    """Coordinates as waves of growing frequency (NeRF, arXiv 2003.08934)."""
    angle = X * math.pi * nk.exp(nk.index("k") * math.log(2.0))
    return nk.sin(angle) + 0.0 * K, nk.cos(angle) + 0.0 * K


def _render(s: Numbers, c: Numbers) -> tuple[Numbers, Numbers]:
    left = np.exp(-(np.cumsum(s, 1) - s))
    w = left * (1 - np.exp(-s))
    return np.einsum("rs,rsc->rc", w, c), w.sum(1)


@compared(_render, ranges={"S": (0.0, 1.0)}, r=3, s=6, c=3)
@nk.diagram("r s, r s c -> r c, r", sizes=dict(r=65536, s=128, c=3))
def volume_rendering(S, C):
    """Colours along rays, weighted by what light is left (NeRF, arXiv 2003.08934)."""
    left = nk.exp(S - nk.cumsum(S, along="s"))
    w = left * (1 - nk.exp(-S))
    return nk.contract(w, C, over="s"), nk.reduce(w, "sum", over="s")


def _integral(x: Numbers) -> Numbers:
    return x.cumsum(1).cumsum(2)


@compared(_integral, n=2, i=5, j=6)
@nk.diagram("n i j -> n i j", sizes=dict(n=16, i=1024, j=1024))
def integral_image(X):
    """Sums over all that lies above and to the left (Viola and Jones, 2001)."""
    return nk.cumsum(nk.cumsum(X, along="i"), along="j")


@compared(lambda x, w, b: np.cos(x @ w + b) * (2 / w.shape[1]) ** 0.5, n=4, d=3, m=5)
@nk.diagram("n d, d m, m -> n m", sizes=dict(n=65536, d=128, m=2048))
def random_fourier_features(X, W, B):
    """Features of a Gaussian kernel (Rahimi and Recht, 2007)."""
    return nk.cos(nk.contract(X, W, over="d") + B) * (2 / nk.size("m")) ** 0.5


@compared(
    lambda g, a, b, c: np.einsum("pqr,ip,jq,kr->ijk", g, a, b, c),
    p=2,
    q=3,
    r=2,
    i=4,
    j=5,
    k=3,
    slow=True,
)
@nk.diagram("p q r, i p, j q, k r -> i j k", sizes=dict(p=32, q=32, r=32, i=512, j=512, k=512))
def tucker_reconstruction(G, A, B, C):
    """A tensor from its core and three factors (Tucker, 1966)."""
    return nk.contract(G, A, B, C, over="p q r")


@compared(
    lambda a, b, c: np.einsum("iab,jbc,kca->ijk", a, b, c), i=3, j=4, k=5, a=2, b=3, c=2, slow=True
)
@nk.diagram("i a b, j b c, k c a -> i j k", sizes=dict(i=256, j=256, k=256, a=16, b=16, c=16))
def tensor_ring(A, B, C):
    """A tensor from a ring of three cores (arXiv 1606.05535)."""
    return nk.contract(A, B, C, over="a b c")


def _mahalanobis(x: Numbers, m: Numbers, p: Numbers) -> Numbers:
    d = x - m
    return np.einsum("ni,ij,nj->n", d, p, d)


@compared(_mahalanobis, n=5, i=4, j=4)
@nk.diagram("n i, i, i j -> n", sizes=dict(n=65536, i=512, j=512))
def mahalanobis_distance(X, M, P):
    """Squared distances under a precision matrix (Mahalanobis, 1936)."""
    D = X - M
    return nk.contract(D, P, D.rename(i="j"), over="i j")


def _quaternion(q: Numbers, x: Numbers) -> Numbers:
    w, v = q[:, :1], q[:, 1:]
    t = 2 * np.cross(v, x)
    return x + w * t + np.cross(v, t)


@compared(_quaternion, n=5, q=4, c=3)
@nk.diagram("n q, n c -> n c", sizes=dict(n=2**22, q=4, c=3))
def quaternion_rotation(Q, X):
    """Vectors turned by quaternions (Hamilton, 1844), by two cross products."""

    def cross(A: nk.Array, B: nk.Array) -> nk.Array:
        i, j = (nk.index("c") + 1) % 3, (nk.index("c") + 2) % 3
        return nk.take(A, c=i) * nk.take(B, c=j) - nk.take(A, c=j) * nk.take(B, c=i)

    V = nk.take(Q, q=nk.index("c") + 1)
    V = V + 0.0 * X
    T = 2.0 * cross(V, X)
    return X + nk.take(Q, q=0) * T + cross(V, T)


def _warp(x: Numbers, o: Numbers) -> Numbers:
    i, j = x.shape[1:]
    p, q = np.indices((i, j)) - [[[i / 2]], [[j / 2]]]
    a, b = 0.79, 0.613
    u, v = np.floor(a * p - b * q + i / 2), np.floor(b * p + a * q + j / 2)
    inside = (u >= 0) & (u < i) & (v >= 0) & (v < j)
    u, v = (np.clip(z, 0, m - 1).astype(int) for z, m in ((u, i), (v, j)))
    return np.where(inside, x[:, u, v], 0.0) + 0 * o


@compared(_warp, n=2, i=8, j=10, p=8, q=10)
@nk.diagram("n i j, n p q -> n p q", sizes=dict(n=32, i=1024, j=1024, p=1024, q=1024))
def image_rotation(X, E):
    """Images turned by an angle, the nearest pixel below (spatial transformers, 1506.02025)."""
    n, m = nk.size("i"), nk.size("j")
    p, q = nk.index("p") - n / 2, nk.index("q") - m / 2
    u, v = 0.79 * p - 0.613 * q + n / 2, 0.613 * p + 0.79 * q + m / 2
    inside = (u >= 0) & (u < n) & (v >= 0) & (v < m)
    pixel = nk.take(X, i=nk.cast(u, "int32"), j=nk.cast(v, "int32"))
    return nk.where(inside, pixel, 0.0) + 0.0 * E


def _shuffle(x: Numbers, like: Numbers) -> Numbers:
    n, i, j, c = x.shape
    y = x.reshape(n, i, j, 2, 2, c // 4).transpose(0, 1, 3, 2, 4, 5)
    return y.reshape(n, 2 * i, 2 * j, c // 4) + 0 * like


@compared(_shuffle, n=2, i=2, j=3, c=8, p=4, q=6, o=2)
@nk.diagram("n i j c, n p q o -> n p q o", sizes=dict(n=8, i=128, j=128, c=256, p=256, q=256, o=64))
def pixel_shuffle(X, Y):
    """Channels as pixels of an image of twice the size, and a skip (arXiv 1609.05158)."""
    p, q = nk.index("p"), nk.index("q")
    channel = ((p % 2) * 2 + q % 2) * nk.size("o") + nk.index("o")
    return nk.take(X, i=p // 2, j=q // 2, c=channel) + 0.0 * Y


def _toeplitz(r: Numbers, x: Numbers) -> Numbers:
    n = x.shape[0]
    at = np.arange(n)[:, None] - np.arange(n) + n - 1
    return r[at] @ x


@compared(lambda r, x, e: _toeplitz(r, x) + 0 * e[:, None], l=9, s=5, t=5, d=3)
@nk.diagram("l, s d, t -> t d", sizes=dict(l=4095, s=2048, t=2048, d=512))
def toeplitz_product(R, X, E):
    """A product with a matrix of equal diagonals (Toeplitz networks, arXiv 2305.04749)."""
    T = nk.take(R, l=nk.index("t") - nk.index("s") + nk.size("s") - 1)
    return nk.contract(T, X, over="s") + 0.0 * E


def _poly(x: Numbers, c: Numbers) -> Numbers:
    return np.einsum("nd,k->ndk", x, np.ones(len(c))) ** np.arange(len(c)) @ c


@compared(_poly, n=4, d=3, k=6)
@nk.diagram("n d, k -> n d", sizes=dict(n=65536, d=1024, k=8))
def polynomial(X, C):
    """A polynomial of each number, its powers summed (Horner, 1819, without his order)."""
    return nk.contract(X ** nk.index("k"), C, over="k")
