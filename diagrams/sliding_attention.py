"""Sliding-window attention (Mistral): each query sees itself and the keys before it."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes=dict(q=4096, x=4096, d=64))
def sliding_attention(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over the last 512 keys."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.sliding(511, 0, "q", "x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
