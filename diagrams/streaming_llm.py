"""StreamingLLM: a few first keys, the attention sinks, and the last ones (arXiv 2309.17453)."""

import napkin as nk


@nk.diagram("q d, x d, x d -> q d", sizes=dict(q=4096, x=4096, d=64))
def streaming_llm(Q, K, V):
    """softmax(Q K^T / sqrt(d)) V over 4 sinks and the last 512 keys."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.causal("q", "x") & (nk.sinks(4) | nk.sliding(511, 0))
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
