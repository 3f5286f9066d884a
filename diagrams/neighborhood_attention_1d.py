"""Neighborhood attention in one dimension (Hassani et al., 2024)."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes=dict(q=4096, x=4096, d=64))
def neighborhood_attention_1d(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over a window of 256 keys, shifted at the borders."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.neighborhood(256)
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
