"""Triangle multiplication along outgoing edges (AlphaFold 2, Jumper et al. 2021, supplement,
algorithm 11) without its layer norms: pairs i k and j k of gated projections are multiplied for
each channel c. X is one array of pairs, read as rows i and as rows j; both gates come before the
product, and one after it.
"""

import napkin as nk


@nk.diagram(
    "i k d, i j d, d c, d c, d c, d c, c e, d e -> i j e",
    sizes={"i": 256, "j": 256, "k": 256, "c": 128, "d": 128, "e": 128},
)
def triangle_multiplication(X, Z, G, P, H, R, W, U):
    A = nk.sigmoid(nk.contract(X, G, over="d")) * nk.contract(X, P, over="d")
    B = nk.sigmoid(nk.contract(X, H, over="d")) * nk.contract(X, R, over="d")
    T = nk.contract(A, B.rename(i="j"), over="k")
    return nk.sigmoid(nk.contract(Z, U, over="d")) * nk.contract(T, W, over="c")
