"""Document attention: packed sequences, each of which sees itself alone (arXiv 2107.02027)."""

import napkin as nk


@nk.diagram("q d, x d, x d, n:int -> q d", sizes=dict(q=4096, x=4096, d=64, n=8))
def document_attention(Q, K, V, N):
    """softmax(Q K^T / sqrt(d)) V over the query's own document; N holds the length of each."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    keys = nk.documents(N, "q", "x")
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")
