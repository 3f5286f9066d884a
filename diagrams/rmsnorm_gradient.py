"""The gradient of RMSNorm with respect to its input and its gain (arXiv 1910.07467)."""

import napkin as nk


@nk.diagram("n d, d, n d -> n d, d", sizes={"n": 16384, "d": 4096})
def rmsnorm_gradient(X, G, dY, eps=1e-6):
    r = nk.rsqrt(nk.reduce(X * X, "mean", over="d") + eps)
    along = nk.reduce(dY * G * X, "mean", over="d")
    return r * (dY * G - X * r * r * along), nk.reduce(dY * X * r, "sum", over="n")
