"""The gradient of gelu(X + B), with respect to the array and to the bias (arXiv 1606.08415)."""

import napkin as nk


@nk.diagram("n f, f, n f -> n f, f", sizes={"n": 16384, "f": 4096})
def bias_gelu_gradient(X, B, dY):
    H = X + B
    density = nk.exp(-0.5 * H * H) * 0.3989422804014327
    dX = dY * (nk.ndtr(H) + H * density)
    return dX, nk.reduce(dX, "sum", over="n")
