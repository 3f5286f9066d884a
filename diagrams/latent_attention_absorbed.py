"""Multi-head latent attention of one query, with its projections absorbed (arXiv 2405.04434, 2.1).

All h heads share one latent vector C of c numbers for each key, beside its rotated part R. With
the projections of keys and values multiplied into those of queries and outputs, C is keys and
values at once: it is read once. Q holds the queries projected into the latent space, P their
rotated parts; scores are divided by the square root of a head's 128 + 64 numbers.
"""

import napkin as nk


@nk.diagram("h c, h r, x c, x r -> h c", sizes={"h": 128, "x": 8192, "c": 512, "r": 64})
def latent(Q, P, C, R, scale=(128 + 64) ** -0.5):
    S = (nk.contract(Q, C, over="c") + nk.contract(P, R, over="r")) * scale
    return nk.contract(nk.softmax(S, over="x"), C, over="x")


latent_attention_absorbed = latent.weave("b").with_sizes(b=64).named("latent_attention_absorbed")
