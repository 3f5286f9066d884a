"""RMSNorm: each row divided by its root mean square, times a gain (arXiv 1910.07467)."""

import napkin as nk


@nk.diagram("n d, d -> n d", sizes={"n": 8192, "d": 4096})
def rmsnorm(X, G, eps=1e-6):
    power = nk.reduce(X * X, "mean", over="d")
    return X * nk.rsqrt(power + eps) * G
