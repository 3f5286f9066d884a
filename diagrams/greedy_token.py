"""Greedy decoding: the token with the largest of the logits over a vocabulary.

The maximum and its position are found in one pass; of equal logits the first token is taken.
"""

import napkin as nk


@nk.diagram("n v -> n", sizes={"n": 4096, "v": 128256})
def greedy_token(L):
    return nk.argmax(L, over="v")


baselines = {"torch.argmax": lambda L: lambda: L.argmax(-1)}
