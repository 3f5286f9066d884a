"""Attention: softmax(Q K^T / sqrt(d)) V, one head (arXiv 1706.03762, section 3.2.1)."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes={"q": 4096, "x": 4096, "d": 128})
def attention(Q, K, V):
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V, over="x")
