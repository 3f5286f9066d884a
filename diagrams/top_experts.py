"""The router of a mixture of experts: for each token its two best experts and their weights.

The weights are the softmax of the two largest logits, as in Mixtral (arXiv 2401.04088,
section 2.1).
"""

import napkin as nk


@nk.diagram("t e -> t, t, t, t", sizes={"t": 65536, "e": 256})
def top_experts(L):
    (first, second), (expert, other) = nk.topk(L, 2, over="e")
    weight = nk.sigmoid(first - second)
    return nk.cast(weight, "fp32"), nk.cast(1.0 - weight, "fp32"), expert, other


def _torch(L):
    def run():
        values, experts = L.topk(2, -1)
        weights = values.float().softmax(-1)
        return weights[:, 0], weights[:, 1], experts[:, 0], experts[:, 1]

    return run


baselines = {"torch.topk": _torch}
