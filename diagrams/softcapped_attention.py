"""Attention on scores kept within (-cap, cap) by a tanh (Gemma 2, arXiv 2408.00118, section 2)."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes={"q": 4096, "x": 4096, "d": 128})
def softcapped_attention(Q, K, V, cap=30.0):
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    C = cap * nk.tanh(S / cap)
    return nk.contract(nk.softmax(C, over="x"), V, over="x")
