"""The residual of a transformer block and its RMSNorm, both returned (arXiv 1910.07467)."""

import napkin as nk


@nk.diagram("n d, n d, d -> n d, n d", sizes={"n": 16384, "d": 4096})
def rmsnorm_residual(X, R, G, eps=1e-6):
    H = X + R
    power = nk.reduce(H * H, "mean", over="d")
    return H, H * nk.rsqrt(power + eps) * G
