"""Sampling: a token of the softmax of the logits over a vocabulary, drawn by the Gumbel maximum.

The largest of logits with Gumbel noise is drawn from their softmax (arXiv 1611.01144, section 2),
so that no probability is computed, and neither these nor the noise are stored. The seed is a number
of the call.
"""

import napkin as nk


@nk.diagram("n v, ():int -> n", sizes={"n": 4096, "v": 128256})
def sample_token(L, seed):
    noise = -nk.log(-nk.log(nk.uniform(seed, along="n v")))
    return nk.argmax(L + noise, over="v")


def _torch(L, seed):
    def run():
        noise = -(-L.new_empty(L.shape).uniform_().log()).log()
        return (L + noise).argmax(-1)

    return run


baselines = {"torch with Gumbel noise": _torch}
