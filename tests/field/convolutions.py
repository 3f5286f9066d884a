"""Convolutions, pooling, resampling and filters of images and signals."""

from __future__ import annotations

import numpy as np
from entries import Numbers, compared, sigmoid, soft, taken, windows

import napkin as nk


def plane(x: Numbers, taps: int, stride: int = 1, dilation: int = 1, padding: int = 0) -> Numbers:
    """Windows of [n, i, j, c] as [n, p, q, c, u, v]."""
    rows = windows(np.moveaxis(x, 1, -1), taps, stride, dilation, padding)  # n j c p u
    both = windows(np.moveaxis(rows, 1, -1), taps, stride, dilation, padding)  # n c p u q v
    return both.transpose(0, 2, 4, 1, 3, 5)


def patches(X: nk.Array, **how: int) -> nk.Array:
    """Windows along both axes of images."""
    return nk.slide(nk.slide(X, over="i", into="p u", **how), over="j", into="q v", **how)


def _depthwise(x: Numbers, w: Numbers) -> Numbers:
    return np.einsum("npqcuv,uvc->npqc", plane(x, 7, padding=3), w)


@compared(_depthwise, n=1, i=8, j=9, u=7, v=7, c=3)
@nk.diagram("n i j c, u v c -> n p q c", sizes=dict(n=32, i=56, j=56, u=7, v=7, c=96))
def depthwise_conv(X, W):
    """A depthwise convolution of 7 x 7 (ConvNeXt, arXiv 2201.03545)."""
    return nk.contract(patches(X, padding=3), W, over="u v")


@compared(lambda x, w: np.einsum("npqcuv,uvco->npqo", plane(x, 3, 1, 4, 4), w),
          n=1, i=10, j=11, u=3, v=3, c=3, o=4)  # fmt: skip
@nk.diagram("n i j c, u v c o -> n p q o", sizes=dict(n=8, i=64, j=64, u=3, v=3, c=256, o=256))
def dilated_conv(X, W):
    """A convolution with holes of 4 (arXiv 1511.07122)."""
    return nk.contract(patches(X, dilation=4, padding=4), W, over="c u v")


@compared(lambda x, w: np.einsum("npqcuv,uvco->npqo", plane(x, 3, 2, 1, 1), w),
          n=1, i=9, j=8, u=3, v=3, c=3, o=4)  # fmt: skip
@nk.diagram("n i j c, u v c o -> n p q o", sizes=dict(n=32, i=56, j=56, u=3, v=3, c=128, o=256))
def strided_conv(X, W):
    """A convolution by steps of 2, as between stages of a ResNet (arXiv 1512.03385)."""
    return nk.contract(patches(X, stride=2, padding=1), W, over="c u v")


@compared(lambda x, w: np.einsum("npqcuv,uvco->npqo", plane(x, 16, 16), w),
          n=1, i=32, j=33, u=16, v=16, c=3, o=5)  # fmt: skip
@nk.diagram("n i j c, u v c o -> n p q o", sizes=dict(n=64, i=224, j=224, u=16, v=16, c=3, o=768))
def patch_embedding(X, W):
    """Patches of 16 x 16 as tokens (ViT, arXiv 2010.11929)."""
    rows = nk.slide(X, over="i", into="p u", stride=16)
    return nk.contract(nk.slide(rows, over="j", into="q v", stride=16), W, over="c u v")


def _transposed(x: Numbers, w: Numbers, like: Numbers) -> Numbers:
    n, _, i = x.shape
    out = np.zeros((n, w.shape[2], len(like)))
    for s in range(i):
        for u in range(4):
            if 0 <= 2 * s + u - 1 < 2 * i:
                out[:, :, 2 * s + u - 1] += x[:, :, s] @ w[u]
    return out


@compared(_transposed, n=2, c=3, i=5, u=4, o=4, r=10)
@nk.diagram("n c i, u c o, r -> n o r", sizes=dict(n=16, c=256, i=2048, u=4, o=128, r=4096))
def transposed_conv(X, W, like):
    """A transposed convolution by steps of 2 with 4 taps (arXiv 1603.07285, chapter 4)."""
    there = nk.index("r") + 1 - nk.index("u")
    fits = (there % 2 == 0) & (there >= 0) & (there < 2 * nk.size("i"))
    seen = nk.where(fits, nk.take(X, i=there // 2), 0.0)
    return nk.contract(seen, W, over="c u") + 0.0 * like


@compared(lambda x, w: np.einsum("npqgcuv,uvgco->npqgo", np.stack(
    [plane(x[..., g, :], 3, padding=1) for g in range(x.shape[3])], 3), w),
    n=1, i=5, j=6, g=2, c=3, u=3, v=3, o=4)  # fmt: skip
@nk.diagram(
    "n i j g c, u v g c o -> n p q g o", sizes=dict(n=16, i=56, j=56, g=32, c=4, u=3, v=3, o=4)
)
def grouped_conv(X, W):
    """A convolution in 32 groups (ResNeXt, arXiv 1611.05431)."""
    return nk.contract(patches(X, padding=1), W, over="c u v")


def _winograd_in(x: Numbers, t: Numbers, s: Numbers) -> Numbers:
    return np.einsum("au,npqcuv,bv->npqabc", t, plane(x, 4, 2), s)


@compared(_winograd_in, slow=True, n=1, i=8, j=8, c=3, a=4, u=4, b=4, v=4)
@nk.diagram(
    "n i j c, a u, b v -> n p q a b c",
    sizes=dict(n=16, i=58, j=58, c=128, a=4, u=4, b=4, v=4),
)
def winograd_input(X, T, S):
    """Tiles of 4 x 4 of an input transformed for F(2 x 2, 3 x 3) (arXiv 1509.09308); T and S are
    both B."""
    return nk.contract(T, patches(X, stride=2), S, over="u v")


@compared(lambda m, k, t, s: np.einsum("ra,abtc,abco,sb->trso", t, m, k, s),
          a=4, b=4, t=3, c=5, o=6, r=2, s=2, slow=True)  # fmt: skip
@nk.diagram(
    "a b t c, a b c o, r a, s b -> t r s o",
    sizes=dict(a=4, b=4, t=12544, c=128, o=128, r=2, s=2),
)
def winograd_products(M, K, T, S):
    """Products of transformed tiles, and the transform back (arXiv 1509.09308)."""
    return nk.contract(T, nk.contract(M, K, over="c"), S, over="a b")


@compared(lambda x: plane(x, 3, 2, padding=1).max((-2, -1)), ranges={"X": (0.0, 4.0)},
          n=2, i=8, j=9, c=3)  # fmt: skip
@nk.diagram("n i j c -> n p q c", sizes=dict(n=64, i=112, j=112, c=64))
def max_pooling(X):
    """Maxima over 3 x 3, of what is not negative (arXiv 1512.03385)."""
    rows = nk.slide(X, over="i", into="p u", stride=2, padding=1, window=3)
    both = nk.slide(rows, over="j", into="q v", stride=2, padding=1, window=3)
    return nk.reduce(both, "max", over="u v")


@compared(lambda x: plane(x, 2, 2).mean((-2, -1)), n=2, i=8, j=6, c=3)
@nk.diagram("n i j c -> n p q c", sizes=dict(n=32, i=56, j=56, c=256))
def average_pooling(X):
    """Means over 2 x 2, as between the blocks of a DenseNet (arXiv 1608.06993)."""
    rows = nk.slide(X, over="i", into="p u", stride=2, window=2)
    return nk.reduce(nk.slide(rows, over="j", into="q v", stride=2, window=2), "mean", over="u v")


def _excite(x: Numbers, a: Numbers, b: Numbers) -> Numbers:
    gate = sigmoid(np.maximum(x.mean((1, 2)) @ a, 0) @ b)
    return x * gate[:, None, None]


@compared(_excite, n=2, i=3, j=4, c=5, r=2)
@nk.diagram("n i j c, c r, r c -> n i j c", sizes=dict(n=64, i=28, j=28, c=512, r=32))
def squeeze_excitation(X, A, B):
    """Channels gated by their means over an image (arXiv 1709.01507)."""
    low = nk.contract(nk.reduce(X, "mean", over="i j"), A, over="c")
    return X * nk.sigmoid(nk.contract(nk.maximum(low, 0.0), B, over="r"))


def _bilinear(x: Numbers, y: Numbers) -> Numbers:
    at = (np.arange(2 * x.shape[1]) + 0.5) / 2 - 0.5
    low = np.floor(at)
    w = (at - low)[None, :, None, None]
    up = (1 - w) * taken(x, low, 1) + w * taken(x, low + 1, 1)
    at = (np.arange(2 * x.shape[2]) + 0.5) / 2 - 0.5
    low = np.floor(at)
    w = (at - low)[None, None, :, None]
    return (1 - w) * taken(up, low, 2) + w * taken(up, low + 1, 2) + y


@compared(_bilinear, n=1, i=3, j=4, c=2, p=6, q=8)
@nk.diagram("n i j c, n p q c -> n p q c", sizes=dict(n=8, i=64, j=64, c=256, p=128, q=128))
def bilinear_upsampling(X, Y):
    """An image of twice the size, added to a finer one (FPN, arXiv 1612.03144)."""
    low, other = (nk.index("p") - 1) // 2, (nk.index("q") - 1) // 2
    w = nk.where(nk.index("p") % 2 == 0, 0.75, 0.25)
    v = nk.where(nk.index("q") % 2 == 0, 0.75, 0.25)
    top = (1 - v) * nk.take(X, i=low, j=other) + v * nk.take(X, i=low, j=other + 1)
    end = (1 - v) * nk.take(X, i=low + 1, j=other) + v * nk.take(X, i=low + 1, j=other + 1)
    return (1 - w) * top + w * end + Y


def _causal(x: Numbers, w: Numbers, b: Numbers) -> Numbers:
    x = np.pad(x, [(0, 0), (3, 0), (0, 0)])
    y = sum(x[:, k : k + x.shape[1] - 3] * w[k] for k in range(4)) + b
    return y * sigmoid(y)


@compared(_causal, b=2, t=6, w=4, d=3)
@nk.diagram("b t d, w d, d -> b p d", sizes=dict(b=8, t=4096, w=4, d=4096))
def causal_depthwise_conv(X, W, B):
    """The short causal convolution of Mamba, with a silu (arXiv 2312.00752)."""
    seen = nk.slide(X, over="t", into="p w", padding=(3, 0))
    return nk.silu(nk.contract(seen, W, over="w") + B)


def _involution(x: Numbers, k: Numbers) -> Numbers:
    return np.einsum("npqgcuv,npquvg->npqgc", np.stack(
        [plane(x[..., g, :], 3, padding=1) for g in range(x.shape[3])], 3), k)  # fmt: skip


@compared(_involution, n=1, i=5, j=6, p=5, q=6, g=2, c=3, u=3, v=3)
@nk.diagram(
    "n i j g c, n p q u v g -> n p q g c",
    sizes=dict(n=16, i=28, j=28, p=28, q=28, g=16, c=16, u=3, v=3),
)
def involution(X, K):
    """A kernel of its own for each pixel and group (arXiv 2103.06255)."""
    return nk.contract(patches(X, padding=1), K, over="u v")


def _deformed(x: Numbers, o: Numbers, w: Numbers) -> Numbers:
    n, i = x.shape[:2]
    at = np.arange(i)[:, None] + np.arange(3) - 1 + o
    low = np.floor(at)
    out = 0.0
    for side, share in ((low, 1 - (at - low)), (low + 1, at - low)):
        inside = (side >= 0) & (side < i)
        rows = np.clip(side, 0, i - 1).astype(int)
        out = out + np.stack([x[b][rows[b]] * (share * inside)[b][..., None] for b in range(n)])
    return np.einsum("niuc,uco->nio", out, w)


@compared(_deformed, n=2, i=6, c=3, p=6, u=3, o=4)
@nk.diagram("n i c, n p u, u c o -> n p o", sizes=dict(n=16, i=4096, c=128, p=4096, u=3, o=128))
def deformable_conv(X, O, W):  # noqa: E741
    """Taps moved by learned offsets, read between two positions (arXiv 1703.06211), in 1-D."""
    at = nk.index("p") + nk.index("u") - 1 + O
    low = nk.cast(at + 1024.0, "int32") - 1024
    share = at - nk.cast(low, "fp32")

    def read(place: nk.Array) -> nk.Array:
        inside = (place >= 0) & (place < nk.size("i"))
        return nk.where(inside, nk.take(X, i=place), 0.0)

    return nk.contract((1 - share) * read(low) + share * read(low + 1), W, over="u c")


def _sobel(x: Numbers) -> Numbers:
    w = plane(x[..., None], 3)[..., 0, :, :]
    a = np.array([1.0, 2, 1])
    d = np.array([-1.0, 0, 1])
    gx = np.einsum("npquv,u,v->npq", w, a, d)
    gy = np.einsum("npquv,u,v->npq", w, d, a)
    return np.sqrt(gx**2 + gy**2)


@compared(_sobel, n=2, i=6, j=7)
@nk.diagram("n i j -> n p q", sizes=dict(n=16, i=2048, j=2048))
def sobel_edges(X):
    """The size of the gradient by Sobel's operator (Sobel and Feldman, 1968)."""
    rows = nk.slide(X, over="i", into="p u", window=3)
    both = nk.slide(rows, over="j", into="q v", window=3)
    u, v = nk.index("u") - 1, nk.index("v") - 1
    across = nk.reduce(both * (2 - u * u) * v, "sum", over="u v")
    down = nk.reduce(both * (2 - v * v) * u, "sum", over="u v")
    return nk.sqrt(across * across + down * down)


def _separable(x: Numbers, g: Numbers, h: Numbers) -> Numbers:
    w = plane(x[..., None], 5, padding=2)[..., 0, :, :]
    return np.einsum("npquv,u,v->npq", w, g, h)


@compared(_separable, n=2, i=7, j=8, u=5, v=5)
@nk.diagram("n i j, u, v -> n p q", sizes=dict(n=16, i=2048, j=2048, u=5, v=5))
def separable_blur(X, G, H):
    """A blur by a row and a column of weights (Gonzalez and Woods, chapter 3)."""
    return nk.contract(patches(X, padding=2), G, H, over="u v")


def _bilateral(x: Numbers) -> Numbers:
    w = plane(x[..., None], 5, padding=2)[..., 0, :, :]
    u = np.arange(5) - 2
    near = np.exp(-(u[:, None] ** 2 + u**2) / 8.0)
    weight = near * np.exp(-((w - x[..., None, None]) ** 2) / 0.5)
    return (weight * w).sum((-2, -1)) / weight.sum((-2, -1))


@compared(_bilateral, n=1, p=6, q=7)
@nk.diagram("n p q -> n p q", sizes=dict(n=4, p=1024, q=1024))
def bilateral_filter(X):
    """A blur that keeps edges (Tomasi and Manduchi, 1998), with zeros around the image."""
    Y = X.rename(p="i", q="j")
    rows = nk.slide(Y, over="i", into="p u", padding=2, window=5)
    both = nk.slide(rows, over="j", into="q v", padding=2, window=5)
    u, v = nk.index("u") - 2, nk.index("v") - 2
    weight = nk.exp(-(u * u + v * v) / 8.0) * nk.exp(-((both - X) ** 2) / 0.5)
    return nk.reduce(weight * both, "sum", over="u v") / nk.reduce(weight, "sum", over="u v")


def _cost(a: Numbers, b: Numbers) -> Numbers:
    out = np.zeros((*a.shape[:2], 9))
    wide = np.pad(b, [(0, 0), (4, 4), (0, 0)])
    for w in range(9):
        out[..., w] = (a * wide[:, w : w + a.shape[1]]).sum(-1)
    return out


@compared(_cost, n=2, p=6, i=6, c=3)
@nk.diagram("n p c, n i c -> n p w", sizes=dict(n=512, p=1024, i=1024, c=64))
def correlation_volume(A, B):
    """Scores of a pixel with those of the other image in its row (PWC-Net, arXiv 1709.02371)."""
    return nk.contract(A, nk.slide(B, over="i", into="p w", padding=4, window=9), over="c")


def _median(x: Numbers) -> Numbers:
    return np.median(windows(x, 5, padding=2), -1)


@compared(_median, n=2, i=9)
@nk.diagram("n i -> n p", sizes=dict(n=4096, i=4096))
def median_filter(X):
    """The median of 5 samples (Tukey, 1977), by its rank."""
    W = nk.slide(X, over="i", into="p w", padding=2, window=5)
    values, _ = nk.topk(W, 3, over="w")
    return values[2]


def _wavenet(x: Numbers, f: Numbers, g: Numbers) -> Numbers:
    x = np.pad(x, ((0, 0), (4, 0), (0, 0)))
    taps = windows(np.moveaxis(x, 1, -1), 2, dilation=4)  # b c p w
    return np.tanh(np.einsum("bcpw,wco->bpo", taps, f)) * sigmoid(
        np.einsum("bcpw,wco->bpo", taps, g)
    )


@compared(_wavenet, b=2, t=9, c=3, w=2, o=4)
@nk.diagram("b t c, w c o, w c o -> b p o", sizes=dict(b=8, t=16384, c=128, w=2, o=128))
def wavenet_gate(X, F, G):
    """A gated causal convolution with holes (arXiv 1609.03499)."""
    X = nk.slide(X, over="t", into="p w", dilation=4, padding=(4, 0))
    return nk.tanh(nk.contract(X, F, over="w c")) * nk.sigmoid(nk.contract(X, G, over="w c"))


def _dynamic(x: Numbers, k: Numbers) -> Numbers:
    x = np.pad(x, ((0, 0), (2, 0), (0, 0), (0, 0)))
    return np.einsum("bhcpw,bphw->bphc", windows(np.moveaxis(x, 1, -1), 3), soft(k))


@compared(_dynamic, b=2, t=6, p=6, h=2, c=3, w=3)
@nk.diagram("b t h c, b p h w -> b p h c", sizes=dict(b=16, t=2048, p=2048, h=16, c=64, w=3))
def dynamic_convolution(X, K):
    """Each token's own weights of a causal window (arXiv 1901.10430)."""
    return nk.contract(
        nk.slide(X, over="t", into="p w", padding=(2, 0)), nk.softmax(K, over="w"), over="w"
    )


def _sampled(x: Numbers, at: Numbers) -> Numbers:
    y, z = at[..., 0] * (x.shape[0] - 1), at[..., 1] * (x.shape[1] - 1)
    i, j = np.floor(y).astype(int), np.floor(z).astype(int)
    out = np.zeros((*i.shape, x.shape[2]))
    for u, v in np.ndindex(2, 2):
        near = (1 - abs(y - i - u)) * (1 - abs(z - j - v))
        out += near[..., None] * x[np.minimum(i + u, len(x) - 1), np.minimum(j + v, x.shape[1] - 1)]
    return out


@compared(_sampled, ranges={"Y": (0.0, 1.0)}, i=4, j=5, c=3, p=3, q=2, k=2)
@nk.diagram("i j c, p q k -> p q c", sizes=dict(i=512, j=512, c=64, p=512, q=512, k=2))
def grid_sample(X, Y):
    """An image at the points of a grid, as a spatial transformer does (arXiv 1506.02025)."""
    y, x = nk.take(Y, k=0) * (nk.size("i") - 1), nk.take(Y, k=1) * (nk.size("j") - 1)
    i, j = nk.cast(y, "int32"), nk.cast(x, "int32")

    def row(i):
        return (1 - x + j) * nk.take(X, i=i, j=j) + (x - j) * nk.take(X, i=i, j=j + 1)

    return (1 - y + i) * row(i) + (y - i) * row(i + 1)
