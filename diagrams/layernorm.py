"""LayerNorm: each row shifted to mean 0 and scaled to variance 1, then a gain and a bias.

arXiv 1607.06450, section 3.
"""

import napkin as nk


@nk.diagram("n d, d, d -> n d", sizes={"n": 8192, "d": 4096})
def layernorm(X, G, B, eps=1e-5):
    mean = nk.reduce(X, "mean", over="d")
    var = nk.reduce((X - mean) ** 2, "mean", over="d")
    return (X - mean) * nk.rsqrt(var + eps) * G + B
