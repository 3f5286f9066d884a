"""The gated delta rule (arXiv 2412.06464, equation 10): a matrix of values by keys.

At each position the matrix decays by A, and the value that it has for a key moves by the share B to
a new one. So what is added depends on the matrix, by a product with the key. On a chunk that is a
triangular system. Matrix products solve it, and the matrix stays in registers.
"""

import napkin as nk


@nk.diagram(
    "b h t k, b h t k, b h t v, b h t, b h t -> b h t v",
    sizes={"b": 4, "h": 16, "t": 2048, "k": 128, "v": 128},
)
def gated_delta_rule(Q, K, V, A, B):
    keys = K * nk.rsqrt(nk.reduce(K * K, "sum", over="k") + 1e-6)

    def step(S):
        left = nk.sigmoid(A) * S
        return left + nk.sigmoid(B) * keys * (V - nk.contract(left, keys, over="k"))

    S = nk.scan(step, 0.0, along="t", axes="k")
    return nk.contract(Q, S, over="k") * nk.size("k") ** -0.5
