"""Neighborhood attention in three dimensions, as over video frames (Hassani et al., 2024)."""

import napkin as nk


@nk.diagram(
    "q0 q1 q2 d, x0 x1 x2 d, x0 x1 x2 d -> q0 q1 q2 d",
    sizes=dict(q0=16, q1=32, q2=32, x0=16, x1=32, x2=32, d=64),
)
def neighborhood_attention_3d(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over a window of 6 x 12 x 12 keys."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.neighborhood((6, 12, 12), queries="q0 q1 q2", keys="x0 x1 x2")
    return nk.contract(nk.softmax(S, over="x0 x1 x2", keys=keys), V, over="x0 x1 x2")
