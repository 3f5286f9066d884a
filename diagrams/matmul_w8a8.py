"""A linear map on 8-bit whole numbers: weights with a scale for each output channel, activations
with one for each token, sums in int32 (W8A8; SmoothQuant, arXiv 2211.10438, section 2).
"""

import napkin as nk


@nk.diagram("a b:int8, c b:int8, a:fp32, c:fp32 -> a c", sizes={"a": 4096, "b": 4096, "c": 4096})
def matmul_w8a8(X, W, X_scale, W_scale):
    C = nk.contract(X, W, over="b")
    return C * X_scale * W_scale
