"""Linear layers of a student and a teacher, and the Jensen-Shannon divergence of their classes for
each token (Liger, arXiv 2410.10989).

A probability that is 0 in float32 adds nothing, as x log x does at 0.
"""

import napkin as nk


@nk.diagram("n d, v d, n e, v e -> n", sizes={"n": 4096, "d": 2048, "e": 2048, "v": 32768})
def linear_jensen_shannon(X, W, Y, U):
    p = nk.softmax(nk.contract(X, W, over="d"), over="v")
    q = nk.softmax(nk.contract(Y, U, over="e"), over="v")
    m = (p + q) / 2
    left, right = (nk.where(x > 0.0, x * nk.log(x / m), 0.0) for x in (p, q))
    return nk.reduce(left + right, "sum", over="v") / 2
