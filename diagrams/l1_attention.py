"""L1 attention: each row of scores divided by the sum of its absolute values.

A sibling of spherical attention (arXiv 2505.09326) that keeps the signs of the scores, too.
"""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes={"q": 4096, "x": 4096, "d": 128})
def l1_attention(Q, K, V):
    S = nk.contract(Q, K, over="d")
    norm = nk.reduce(nk.abs(S), "sum", over="x")
    return nk.contract(S / norm, V, over="x")
