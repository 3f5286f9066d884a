"""Sparse Transformer, strided: the last keys, and every 64th before (arXiv 1904.10509, 4.3)."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes=dict(q=4096, x=4096, d=64))
def sparse_transformer_strided(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over both patterns of a stride of 64 at once."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.strided(64, "q", "x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
