"""Multi-head latent attention as it is written: keys and values projected up from a shared latent.

arXiv 2405.04434, section 2.1. Each of h heads has keys of n numbers and values of v, both linear
in the latent C of a token; beside them stand rotated parts, P of the queries and one R for the keys
of all heads. `latent_attention_absorbed` is the same with U and W multiplied into what is around.
"""

import napkin as nk


@nk.diagram(
    "h q n, h q r, x c, x r, h c n, h c v -> h q v",
    sizes=dict(q=4096, x=4096, h=128, c=512, n=128, r=64, v=128),
)
def latent(Q, P, C, R, U, W):
    K = nk.contract(C, U, over="c")
    V = nk.contract(C, W, over="c")
    S = nk.contract(Q, K, over="n") + nk.contract(P, R, over="r")
    scale = (nk.size("n") + nk.size("r")) ** -0.5
    return nk.contract(nk.softmax(S * scale, over="x"), V, over="x")


latent_attention = latent.weave("b", into="Q P C R").with_sizes(b=1).named("latent_attention")
