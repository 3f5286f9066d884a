"""The selective state-space scan of Mamba (arXiv 2312.00752, section 3.2).

Each channel d has n states, which decay by a step that D gives for each position t. The states are
carried from chunk to chunk, and no state is stored.
"""

import napkin as nk


@nk.diagram(
    "b t d, d n, b t n, b t n, b t d -> b t d", sizes={"b": 8, "t": 4096, "d": 2048, "n": 16}
)
def selective_scan(D, A, B, C, X):
    step = nk.log(1.0 + nk.exp(D))
    decay = nk.exp(step * -nk.exp(A))
    H = nk.scan(lambda h: decay * h + step * B * X, 0.0, along="t")
    return nk.contract(C, H, over="n")
