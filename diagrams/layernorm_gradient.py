"""The gradient of LayerNorm with respect to its input, its gain and its bias.

arXiv 1607.06450, section 3.
"""

import napkin as nk


@nk.diagram("n d, d, n d -> n d, d, d", sizes={"n": 8192, "d": 4096})
def layernorm_gradient(X, G, dY, eps=1e-5):
    mean = nk.reduce(X, "mean", over="d")
    r = nk.rsqrt(nk.reduce((X - mean) ** 2, "mean", over="d") + eps)
    H, dH = (X - mean) * r, dY * G
    level, slope = nk.reduce(dH, "mean", over="d"), nk.reduce(dH * H, "mean", over="d")
    dG, dB = nk.reduce(dY * H, "sum", over="n"), nk.reduce(dY, "sum", over="n")
    return r * (dH - level - H * slope), dG, dB
