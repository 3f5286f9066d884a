"""Neighborhood attention in two dimensions (Hassani et al., 2024)."""

import napkin as nk


@nk.diagram("q0 q1 d, x0 x1 d, x0 x1 d -> q0 q1 d", sizes=dict(q0=64, q1=64, x0=64, x1=64, d=64))
def neighborhood_attention_2d(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over a window of 20 x 20 keys."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.neighborhood((20, 20), queries="q0 q1", keys="x0 x1")
    return nk.contract(nk.softmax(S, over="x0 x1", keys=keys), V, over="x0 x1")
