"""Attention with dropout of its weights, as in training (arXiv 1706.03762, section 5.4).

What is dropped is drawn again from the seed and the positions, wherever it is needed.
"""

import napkin as nk


@nk.diagram("q d, x d, x d, ():int -> q d", sizes={"q": 4096, "x": 4096, "d": 128})
def dropout_attention(Q, K, V, seed):
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    P = nk.dropout(nk.softmax(S, over="x"), 0.1, seed)
    return nk.contract(P, V, over="x")
