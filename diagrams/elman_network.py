"""A recurrent network with a tanh in its state (Elman, 1990).

No two steps are joined, so each group takes one position after another, for some of the rows b.
Weights are divided by the root of their number, so that those of variance 1 keep states apart from
the ends of tanh.
"""

import napkin as nk


@nk.diagram("b t d, d k -> b t d", sizes={"b": 64, "t": 512, "d": 256, "k": 256})
def elman_network(X, W):
    def step(h):
        moved = nk.contract(h, W, over="d").rename(k="d") * nk.size("d") ** -0.5
        return nk.tanh(moved + X)

    return nk.scan(step, 0.0, along="t", axes="d")
