"""Normalisations, and what practitioners put around them."""

from __future__ import annotations

import numpy as np
from entries import Numbers, compared, gelu, rows, sigmoid, soft, unit

import napkin as nk


def centred(X: nk.Array, over: str, eps: float = 1e-5) -> nk.Array:
    """X shifted to mean 0 and scaled to variance 1 over some axes."""
    mean = nk.reduce(X, "mean", over=over)
    return (X - mean) * nk.rsqrt(nk.reduce((X - mean) ** 2, "mean", over=over) + eps)


def rms(X: nk.Array, over: str, eps: float = 1e-6) -> nk.Array:
    """X divided by the root of its mean square."""
    return X * nk.rsqrt(nk.reduce(X * X, "mean", over=over) + eps)


def power(x: Numbers, eps: float = 1e-6, axis: int = -1) -> Numbers:
    """As `rms`."""
    return x / np.sqrt((x * x).mean(axis, keepdims=True) + eps)


def _group(x: Numbers, g: Numbers, b: Numbers) -> Numbers:
    return rows(x, axis=(2, 3, 4)) * g[..., None, None] + b[..., None, None]


@compared(_group, n=2, g=2, c=3, i=4, j=5)
@nk.diagram("n g c i j, g c, g c -> n g c i j", sizes=dict(n=16, g=32, c=8, i=32, j=32))
def groupnorm(X, G, B):
    """GroupNorm of images, channels in groups (arXiv 1803.08494)."""
    return centred(X, "c i j") * G + B


@compared(lambda x: rows(x, axis=(2, 3)), n=2, c=3, i=4, j=5)
@nk.diagram("n c i j -> n c i j", sizes=dict(n=8, c=256, i=64, j=64))
def instancenorm(X):
    """InstanceNorm: each image and channel by itself (arXiv 1607.08022)."""
    return centred(X, "i j")


def _batch(x: Numbers, m: Numbers, v: Numbers, g: Numbers, b: Numbers) -> Numbers:
    return np.maximum((x - m) / np.sqrt(v + 1e-5) * g + b, 0)


@compared(_batch, ranges={"var": (0.5, 2.0)}, n=2, i=3, j=4, c=5)
@nk.diagram("n i j c, c, c, c, c -> n i j c", sizes=dict(n=64, i=56, j=56, c=256))
def batchnorm_inference(X, mean, var, G, B, eps=1e-5):
    """BatchNorm with running statistics, and a ReLU (arXiv 1502.03167)."""
    return nk.maximum((X - mean) * nk.rsqrt(var + eps) * G + B, 0.0)


def _training(x: Numbers, g: Numbers, b: Numbers) -> tuple[Numbers, ...]:
    return rows(x, axis=(0, 1, 2)) * g + b, x.mean((0, 1, 2)), x.var((0, 1, 2))


@compared(_training, n=2, i=3, j=4, c=5)
@nk.diagram("n i j c, c, c -> n i j c, c, c", sizes=dict(n=32, i=28, j=28, c=512))
def batchnorm_training(X, G, B, eps=1e-5):
    """BatchNorm of a batch with its statistics (arXiv 1502.03167, algorithm 1)."""
    mean = nk.reduce(X, "mean", over="n i j")
    var = nk.reduce((X - mean) ** 2, "mean", over="n i j")
    return (X - mean) * nk.rsqrt(var + eps) * G + B, mean, var


def _standardised(x: Numbers, w: Numbers) -> Numbers:
    flat = rows(w.reshape(-1, w.shape[-1]), axis=0).reshape(w.shape)
    out = np.zeros((x.shape[0], x.shape[1] - 2, x.shape[2] - 2, w.shape[-1]))
    for u, v in np.ndindex(3, 3):
        out += x[:, u : u + out.shape[1], v : v + out.shape[2]] @ flat[u, v]
    return out


@compared(_standardised, slow=True, n=1, i=5, j=6, u=3, v=3, c=3, o=4)
@nk.diagram("n i j c, u v c o -> n p q o", sizes=dict(n=16, i=56, j=56, u=3, v=3, c=64, o=64))
def weight_standardised_conv(X, W):
    """A convolution by standardised weights (arXiv 1903.10520)."""
    windows = nk.slide(nk.slide(X, over="i", into="p u"), over="j", into="q v")
    return nk.contract(windows, centred(W, "u v c"), over="c u v")


def _grn(x: Numbers, g: Numbers, b: Numbers) -> Numbers:
    size = np.sqrt((x * x).sum((1, 2), keepdims=True))
    return x + g * (x * size / (size.mean(-1, keepdims=True) + 1e-6)) + b


@compared(_grn, n=2, i=3, j=4, c=5)
@nk.diagram("n i j c, c, c -> n i j c", sizes=dict(n=64, i=14, j=14, c=1536))
def global_response_norm(X, G, B, eps=1e-6):
    """Global response normalisation (ConvNeXt V2, arXiv 2301.00808)."""
    size = nk.sqrt(nk.reduce(X * X, "sum", over="i j"))
    return X + G * X * size / (nk.reduce(size, "mean", over="c") + eps) + B


@compared(lambda x, a, g, b: np.tanh(a * x) * g + b, n=3, d=5)
@nk.diagram("n d, (), d, d -> n d", sizes=dict(n=16384, d=4096))
def dynamic_tanh(X, A, G, B):
    """A tanh in the place of a norm (DyT, arXiv 2503.10622)."""
    return nk.tanh(A * X) * G + B


def _adaln(x: Numbers, w: Numbers, c: Numbers) -> Numbers:
    shift, scale = np.einsum("bc,scd->sbd", c * sigmoid(c), w)
    return rows(x, 1e-6) * (1 + scale[:, None]) + shift[:, None]


@compared(_adaln, b=2, n=3, d=5, s=2, c=4)
@nk.diagram("b n d, s c d, b c -> b n d", sizes=dict(b=32, n=256, d=1152, s=2, c=1152))
def adaptive_layernorm(X, W, C):
    """A LayerNorm whose shift and scale come from a condition (DiT, arXiv 2212.09748)."""
    both = nk.contract(W, nk.silu(C), over="c")
    shift, scale = nk.take(both, s=0), nk.take(both, s=1)
    return centred(X, "d", 1e-6) * (1 + scale) + shift


@compared(lambda x, r, g: rows(3.0 * x + r) * g, n=3, d=5)
@nk.diagram("n d, n d, d -> n d", sizes=dict(n=8192, d=8192))
def deepnorm(X, R, G, alpha=3.0):
    """The post-norm of deep transformers with a scaled residual (arXiv 2203.00555)."""
    return centred(alpha * X + R, "d") * G


@compared(lambda x, s: unit(x) * s, n=3, d=5)
@nk.diagram("n d, () -> n d", sizes=dict(n=16384, d=2048))
def scalenorm(X, S):
    """Rows of one learned length (arXiv 1910.05895)."""
    return X * nk.rsqrt(nk.reduce(X * X, "sum", over="d")) * S


def _ngpt(h: Numbers, a: Numbers, alpha: Numbers) -> Numbers:
    return unit(h + alpha * (unit(a) - h))


@compared(_ngpt, n=3, d=5)
@nk.diagram("n d, n d, d -> n d", sizes=dict(n=16384, d=4096))
def hypersphere_step(H, A, alpha):
    """A step on the sphere towards a block's output (nGPT, arXiv 2410.01131)."""
    a = A * nk.rsqrt(nk.reduce(A * A, "sum", over="d"))
    moved = H + alpha * (a - H)
    return moved * nk.rsqrt(nk.reduce(moved * moved, "sum", over="d"))


def _lrn(x: Numbers) -> Numbers:
    near = np.pad(x * x, [(0, 0)] * 3 + [(2, 2)])
    total = sum(near[..., k : k + x.shape[-1]] for k in range(5))
    return x / (2.0 + 1e-4 / 5 * total) ** 0.75


@compared(_lrn, n=2, i=3, j=4, c=7)
@nk.diagram("n i j c -> n i j c", sizes=dict(n=32, i=27, j=27, c=256))
def local_response_norm(X):
    """Local response normalisation over 5 channels (AlexNet, 2012, section 3.3)."""
    total = nk.reduce(nk.slide(X * X, over="c", into="k w", padding=2, window=5), "sum", over="w")
    return X / (2.0 + 1e-4 / 5 * total.rename(k="c")) ** 0.75


def _pixel(x: Numbers) -> Numbers:
    return x / np.sqrt((x * x).mean(1, keepdims=True) + 1e-8)


@compared(_pixel, n=2, c=5, i=3, j=4)
@nk.diagram("n c i j -> n c i j", sizes=dict(n=8, c=512, i=64, j=64))
def pixelnorm(X):
    """Each pixel divided by the size of its channels, channels first (arXiv 1710.10196)."""
    return rms(X, "c", 1e-8)


def _style(w: Numbers, s: Numbers) -> Numbers:
    scaled = w * s[:, None, :, None, None]
    return scaled / np.sqrt((scaled**2).sum((2, 3, 4), keepdims=True) + 1e-8)


@compared(_style, n=2, o=3, c=4, u=3, v=3)
@nk.diagram("o c u v, n c -> n o c u v", sizes=dict(n=8, o=512, c=512, u=3, v=3))
def weight_demodulation(W, S, eps=1e-8):
    """Weights scaled by a style and brought to length 1 again (StyleGAN 2, arXiv 1912.04958)."""
    scaled = W * S
    return scaled * nk.rsqrt(nk.reduce(scaled * scaled, "sum", over="c u v") + eps)


@compared(lambda v, g: v * (g / np.linalg.norm(v, axis=1))[:, None], o=3, d=5)
@nk.diagram("o d, o -> o d", sizes=dict(o=4096, d=4096))
def weightnorm(V, G):
    """Weights as a length and a direction (arXiv 1602.07868)."""
    return V * (G * nk.rsqrt(nk.reduce(V * V, "sum", over="d")))


def _spectral(w: Numbers, v: Numbers) -> tuple[Numbers, ...]:
    u = unit(w @ v)
    new = unit(w.T @ u)
    return w / (u @ w @ new), u, new


@compared(_spectral, slow=True, o=3, d=5)
@nk.diagram("o d, d -> o d, o, d", sizes=dict(o=4096, d=4096))
def spectralnorm(W, V):
    """A power iteration, and weights divided by their largest gain (arXiv 1802.05957)."""
    u = nk.contract(W, V, over="d")
    u = u * nk.rsqrt(nk.reduce(u * u, "sum", over="o"))
    v = nk.contract(W, u, over="o")
    v = v * nk.rsqrt(nk.reduce(v * v, "sum", over="d"))
    return W / nk.contract(u, W, v, over="o d"), u, v


@compared(lambda x, g, z: power(x * z * sigmoid(z), 1e-5) * g, b=2, t=3, d=6)
@nk.diagram("b t d, d, b t d -> b t d", sizes=dict(b=8, t=2048, d=4096))
def gated_rmsnorm(X, G, Z):
    """The RMSNorm of Mamba-2, of a gated input (arXiv 2405.21060)."""
    return rms(X * nk.silu(Z), "d", 1e-5) * G


@compared(lambda x, g, b: rows(x) * g[:, None] + b[:, None], b=2, h=3, t=4, d=5)
@nk.diagram("b h t d, h d, h d -> b h t d", sizes=dict(b=8, h=32, t=2048, d=64))
def head_norm(X, G, B):
    """GroupNorm of heads, as the linear attentions do (RWKV, arXiv 2305.13048)."""
    return centred(X, "d") * G + B


def _quantised(x: Numbers, g: Numbers) -> tuple[Numbers, Numbers]:
    y = power(x) * g
    scale = np.abs(y).max(-1) / 127
    return np.floor(y / scale[:, None] + 0.5), scale


@compared(lambda x, g: _quantised(x, g)[1], n=3, d=5)
@nk.diagram("n d, d -> n", sizes=dict(n=8192, d=4096))
def rmsnorm_scale(X, G):
    """The scale of each token, by which a normed row is stored in 8 bits (arXiv 2206.01861)."""
    return nk.reduce(nk.abs(rms(X, "d") * G), "max", over="d") / 127.0


def _sandwich(x: Numbers, g: Numbers, w: Numbers, e: Numbers) -> Numbers:
    return power(gelu(power(x) * g @ w)) * e


@compared(_sandwich, slow=True, n=3, d=5, e=4)
@nk.diagram("n d, d, d e, e -> n e", sizes=dict(n=8192, d=2048, e=2048))
def sandwich_norm(X, G, W, E):
    """A linear map between two RMSNorms (Gemma 2, arXiv 2408.00118)."""
    return rms(nk.gelu(nk.contract(rms(X, "d") * G, W, over="d")), "e") * E


def _switch(x: Numbers, a: Numbers, b: Numbers) -> Numbers:
    wm, wv = soft(a), soft(b)
    means = [x.mean((1, 2), keepdims=True), x.mean((1, 2, 3), keepdims=True)]
    vars_ = [x.var((1, 2), keepdims=True), x.var((1, 2, 3), keepdims=True)]
    mean = wm[0] * means[0] + wm[1] * means[1]
    return (x - mean) / np.sqrt(wv[0] * vars_[0] + wv[1] * vars_[1] + 1e-5)


@compared(_switch, slow=True, n=2, i=3, j=4, c=5, k=2)
@nk.diagram("n i j c, k, k -> n i j c", sizes=dict(n=16, i=28, j=28, c=256, k=2))
def switchable_norm(X, A, B, eps=1e-5):
    """A mixture of the statistics of InstanceNorm and LayerNorm (arXiv 1806.10779)."""
    a, b = nk.softmax(A, over="k"), nk.softmax(B, over="k")
    own, all_ = nk.reduce(X, "mean", over="i j"), nk.reduce(X, "mean", over="i j c")
    spread = nk.reduce((X - own) ** 2, "mean", over="i j")
    wide = nk.reduce((X - all_) ** 2, "mean", over="i j c")
    mean = nk.take(a, k=0) * own + nk.take(a, k=1) * all_
    return (X - mean) * nk.rsqrt(nk.take(b, k=0) * spread + nk.take(b, k=1) * wide + eps)


def _zero(x: Numbers, y: Numbers, c: Numbers, w: Numbers) -> tuple[Numbers, Numbers]:
    shift, scale, gate = np.einsum("bc,kcd->kbd", c * sigmoid(c), w)[:, :, None]
    return rows(x) * (1 + scale) + shift, x + gate * y


@compared(_zero, b=2, n=4, d=6, c=5, k=3)
@nk.diagram(
    "b n d, b n d, b c, k c d -> b n d, b n d", sizes=dict(b=64, n=256, d=1152, c=1152, k=3)
)
def adaln_zero(X, Y, C, W):
    """A norm and a gate by a condition, as in a diffusion transformer (arXiv 2212.09748)."""
    shift, scale, gate = (nk.take(nk.contract(nk.silu(C), W, over="c"), k=i) for i in range(3))
    return centred(X, "d") * (1 + scale) + shift, X + gate * Y
