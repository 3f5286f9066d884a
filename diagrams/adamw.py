"""A step of AdamW: weights and both moments of their gradient (arXiv 1711.05101, algorithm 2).

What the moments are divided by, 1 - beta^t at step t, is the scalars `first` and `second`.
"""

import napkin as nk


@nk.diagram("n, n, n, n -> n, n, n", sizes={"n": 2**26})
def adamw(
    W, G, M, V, first=0.1, second=0.001, rate=1e-3, beta=0.9, gamma=0.999, decay=0.01, eps=1e-8
):
    M_new = beta * M + (1 - beta) * G
    V_new = gamma * V + (1 - gamma) * G * G
    step = (M_new / first) / (nk.sqrt(V_new / second) + eps)
    return W - rate * (step + decay * W), M_new, V_new
