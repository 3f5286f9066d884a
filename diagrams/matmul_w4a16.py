"""A linear map with 4-bit weights, two to a byte, and a scale for each group of 128 of them along
the reduced axis; activations in 16 bits (W4A16; GPTQ, arXiv 2210.17323, and AWQ, arXiv 2306.00978).

The reduced axis is given as groups `g` of `b` values: a view of activations [a, g * b].
"""

import napkin as nk


@nk.diagram("a g b, c g b:int4, g c -> a c", sizes={"a": 16, "g": 32, "b": 128, "c": 4096})
def matmul_w4a16(X, W, scale):
    return nk.contract(X, W * scale, over="g b")
