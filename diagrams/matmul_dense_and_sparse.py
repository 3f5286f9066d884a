"""A linear map with weights of which a few are kept as they are, and the rest in 4 bits: the dense
and the sparse part of SqueezeLLM (arXiv 2306.07629, section 4.2).

Row c of the weights is W[c] times its scale, and V[c, s] more at the columns I[c, s], s of them in
each row; a row with fewer has zeros there.
"""

import napkin as nk


@nk.diagram("a b, c b:int4, c, c s, c s:int -> a c", sizes={"a": 16, "b": 4096, "c": 4096, "s": 16})
def matmul_dense_and_sparse(X, W, scale, V, I):  # noqa: E741
    dense = nk.contract(X, W, over="b") * scale
    return dense + nk.contract(V, nk.take(X, b=I), over="s")
