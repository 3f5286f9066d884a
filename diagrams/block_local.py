"""Block-local attention: each query sees its own block of keys (arXiv 1911.02972, section 3.1)."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes=dict(q=4096, x=4096, d=64))
def block_local(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over blocks of 128 keys."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.blocked(128, queries="q", keys="x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
