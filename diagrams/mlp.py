"""The feed-forward half of a transformer block: two products with a gelu between them.

The network of arXiv 1706.03762 (section 3.3), without biases and with gelu (arXiv 1606.08415).
"""

import napkin as nk


@nk.diagram("n d, d f, f e -> n e", sizes={"n": 8192, "d": 4096, "f": 16384, "e": 4096})
def mlp(X, U, W):
    H = nk.gelu(nk.contract(X, U, over="d"))
    return nk.contract(H, W, over="f")
