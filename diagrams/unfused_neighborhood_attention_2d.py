"""Neighborhood attention on a plane with its weights in memory, queries x window values of them.

Scores where a query sees a key, softmax over the slots of its window, and the weights times V: what
fused attention does without storing either (Hassani et al., 2024; arXiv 2407.16847, section 3).
"""

import napkin as nk

window = nk.neighborhood((7, 7), queries="q0 q1", keys="x0 x1")


@nk.diagram(
    "q0 q1 d, x0 x1 d, x0 x1 d -> q0 q1 d, q0 q1 w0 w1",
    sizes={"q0": 64, "q1": 64, "d": 64},
)
def unfused_neighborhood_attention_2d(Q, K, V):
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    C = nk.compress(S, window, into="w0 w1")
    A = nk.softmax(C, over="w0 w1")
    out = nk.contract(nk.spread(A, window, over="w0 w1"), V, over="x0 x1")
    return out, A
