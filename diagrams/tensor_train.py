"""A form of three vectors in each row, whose coefficients are a train of cores (arXiv 1605.03795).

It is one contraction of six factors; the sizes say in which order it is computed.
"""

import napkin as nk


@nk.diagram(
    "n i, n j, n k, i a, a j b, b k -> n",
    sizes={"n": 65536, "i": 32, "j": 32, "k": 32, "a": 32, "b": 32},
)
def tensor_train(X, Y, Z, A, B, C):
    return nk.contract(X, A, Y, B, Z, C, over="i j k a b")
