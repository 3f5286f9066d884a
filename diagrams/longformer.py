"""Longformer: a window, and global tokens that see all and are seen by all (arXiv 2004.05150).

Window and global tokens share one set of projections here.
"""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes=dict(q=4096, x=4096, d=64))
def longformer(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over 256 keys on each side and the first 64 keys."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.sliding(256, 256, "q", "x") | nk.global_tokens(64, "q", "x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
