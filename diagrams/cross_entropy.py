"""Cross-entropy of logits against a target: logsumexp over the vocabulary minus the target's logit.

The loss of each token on its own (arXiv 2411.09009), in fp32; their mean is left to the caller.
"""

import napkin as nk


@nk.diagram("n v, n:int -> n", sizes={"n": 8192, "v": 128256})
def cross_entropy(L, T):
    target = nk.reduce(nk.where(nk.index("v") == T, L, 0.0), "sum", over="v")
    return nk.cast(nk.reduce(L, "logsumexp", over="v") - target, "fp32")
