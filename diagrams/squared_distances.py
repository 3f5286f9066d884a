"""Squared distances of all pairs, by their differences (Faiss, arXiv 2401.08281).

`nk.derive(..., multiply_out=True)` finds them by matrix products, which lose digits where points
are close to each other.
"""

import napkin as nk


@nk.diagram("n d, m d -> n m", sizes={"n": 8192, "m": 8192, "d": 128})
def squared_distances(X, Y):
    return nk.reduce((X - Y) ** 2, "sum", over="d")
