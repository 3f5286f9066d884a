"""A matrix product with a bias and an exact gelu behind it (gelu: arXiv 1606.08415)."""

import napkin as nk


@nk.diagram("a b, b c, c -> a c", sizes={"a": 8192, "b": 4096, "c": 4096})
def matmul_bias_gelu(X, W, B):
    Y = nk.contract(X, W, over="b") + B
    return nk.gelu(Y)
