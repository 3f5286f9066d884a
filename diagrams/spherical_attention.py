"""Spherical attention: each row of scores divided by its L2 norm (arXiv 2505.09326).

The scores need no 1/sqrt(d): a factor common to a row cancels.
"""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes={"q": 4096, "x": 4096, "d": 128})
def spherical_attention(Q, K, V):
    S = nk.contract(Q, K, over="d")
    norm = nk.sqrt(nk.reduce(S * S, "sum", over="x"))
    return nk.contract(S / norm, V, over="x")
