"""BigBird: a window of blocks, global blocks and random blocks (arXiv 2007.14062, section 2).

A, B and C hold, for each block of queries, the number of a block of keys drawn at random, or -1.
"""

import napkin as nk


@nk.diagram("q d, x d, x d, m:int, m:int, m:int -> q d", sizes=dict(q=4096, x=4096, d=64, m=64))
def bigbird(Q, K, V, A, B, C):
    """softmax(Q K^T / sqrt(d)) V over blocks of 64: 3 near, 2 global, 3 random."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.bigbird(64, 1, 2, [A, B, C], "q", "x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
