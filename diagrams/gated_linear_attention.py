"""Linear attention with a decay for each key number (arXiv 2312.06635).

The state is a matrix of values by keys, which only the product with the queries reads. So on a
chunk its products are those of pairs of positions, and it stays in registers.
"""

import napkin as nk


@nk.diagram("h t k, h t k, h t v, h t k -> h t v", sizes={"h": 32, "t": 1024, "k": 64, "v": 64})
def gated_linear_attention(Q, K, V, G):
    state = nk.scan(lambda h: nk.sigmoid(G) * h + K * V, 0.0, along="t")
    return nk.contract(Q, state, over="k")
