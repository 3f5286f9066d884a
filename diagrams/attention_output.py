"""Multi-head attention with the product that joins its heads (arXiv 1706.03762, section 3.2.2)."""

import napkin as nk


@nk.diagram(
    "h q d, h x d, h x d, h d m -> q m",
    sizes={"h": 16, "q": 4096, "x": 4096, "d": 128, "m": 2048},
)
def attention_output(Q, K, V, W):
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    heads = nk.contract(nk.softmax(S, over="x"), V, over="x")
    return nk.contract(heads, W, over="h d")
