"""Grouped-query attention: r query heads share one head of keys and values (arXiv 2305.13245)."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes={"q": 4096, "x": 4096, "d": 128})
def attention(Q, K, V):
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


heads = attention.weave("r", into="Q").weave("b k").with_sizes(b=1, k=8, r=4)
grouped_query_attention = heads.named("grouped_query_attention")
