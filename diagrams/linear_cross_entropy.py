"""Linear layer and cross-entropy: the loss of each token, from hidden states and class weights.

The logits are never stored: each group computes one block of classes and keeps their maximum and
sum (arXiv 2411.09009). The loss of each token is on its own, in fp32.
"""

import napkin as nk


@nk.diagram("n d, v d, n:int -> n", sizes={"n": 8192, "d": 4096, "v": 128256})
def linear_cross_entropy(X, W, T):
    L = nk.contract(X, W, over="d")
    target = nk.reduce(nk.where(nk.index("v") == T, L, 0.0), "sum", over="v")
    return nk.cast(nk.reduce(L, "logsumexp", over="v") - target, "fp32")


def _torch(X, W, T):
    from torch.nn.functional import cross_entropy

    classes = T.long()
    return lambda: cross_entropy((X @ W.T).float(), classes, reduction="none")


baselines = {"stored logits": _torch}
