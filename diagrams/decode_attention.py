"""One query a sequence against a cache of keys and values: a step of generation.

The r heads that share a head of keys and values (arXiv 2305.13245) are the rows of its products,
so the cache is read once for all of them.
"""

import napkin as nk


@nk.diagram("r d, x d, x d -> r d", sizes={"r": 8, "x": 8192, "d": 128})
def attention(Q, K, V):
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


decode_attention = attention.weave("b k").with_sizes(b=64, k=8).named("decode_attention")
