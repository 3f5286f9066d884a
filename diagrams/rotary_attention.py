"""Multi-head attention with rotary position embeddings (arXiv 2104.09864), as they lie in memory.

Queries and keys are turned by an angle for each position and pair of numbers: number i of a head
and number i + d/2 are a pair. C and E are the cosines and sines, the same for both of a pair.
"""

import napkin as nk


def turned(X, C, E):
    i, half = nk.index("d"), nk.size("d") // 2
    other = nk.take(X, d=(i + half) % nk.size("d"))
    return X * C + nk.where(i < half, -other, other) * E


@nk.diagram(
    "q d, x d, x v, q d, q d, x d, x d -> q v", sizes={"q": 4096, "x": 4096, "d": 128, "v": 128}
)
def rotary(Q, K, V, C_q, E_q, C_x, E_x):
    S = nk.contract(turned(Q, C_q, E_q), turned(K, C_x, E_x), over="d")
    return nk.contract(nk.softmax(S * nk.size("d") ** -0.5, over="x"), V, over="x")


rotary_attention = rotary.weave("b h", into="Q K V").with_sizes(b=1, h=16).named("rotary_attention")


def _sdpa(Q, K, V, C_q, E_q, C_x, E_x):
    import torch

    def rotated(X, C, E):
        low, high = X.chunk(2, -1)
        return X * C + torch.cat([-high, low], -1) * E

    first = torch.compile(lambda: (rotated(Q, C_q, E_q), rotated(K, C_x, E_x)), dynamic=False)
    return lambda: torch.nn.functional.scaled_dot_product_attention(*first(), V)


baselines = {"SDPA of rotated heads": _sdpa}
