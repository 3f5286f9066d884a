"""The state-space scan of Mamba-2 as its recurrence is written (arXiv 2405.21060).

Each head has one decay for each position, and all heads share keys B and queries C. A chunk is
computed by products of pairs of positions, and no state is stored.
"""

import napkin as nk


@nk.diagram(
    "b t h p, b t h, h, b t n, b t n -> b t h p",
    sizes={"b": 4, "t": 2048, "h": 32, "p": 64, "n": 64},
)
def state_space_dual(X, D, A, B, C):
    step = nk.log(1.0 + nk.exp(D))
    decay = nk.exp(step * -nk.exp(A))
    H = nk.scan(lambda h: decay * h + step * X * B, 0.0, along="t")
    return nk.contract(C, H, over="n")
