"""Multi-head attention: attention weaved over batches and heads (arXiv 1706.03762, 3.2.2)."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes={"q": 4096, "x": 4096, "d": 128})
def attention(Q, K, V):
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


heads = attention.weave("b h").with_sizes(b=1, h=16)
multi_head_attention = heads.named("multi_head_attention")
