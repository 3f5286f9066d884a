"""Causal attention: each query sees the keys up to its own place."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes=dict(q=4096, x=4096, d=64))
def causal_attention(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over keys 0..q."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.causal("q", "x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
