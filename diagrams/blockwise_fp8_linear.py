"""A product in 8 bits with a scale for each 128 numbers, on both sides (DeepSeek-V3, arXiv
2412.19437, section 3.3). Those of a column of blocks lie side by side, as libraries take them.

With blocks of 32 numbers, `--sizes g=224,b=32`, it is a product of MX formats (arXiv 2310.10537).
"""

import napkin as nk


@nk.diagram(
    "a g b:fp8, c g b:fp8, g a:fp32, g c:fp32 -> a c",
    sizes={"a": 4096, "g": 56, "b": 128, "c": 4096},
)
def blockwise_fp8_linear(X, W, SX, SW):
    return nk.contract(nk.contract(X, W, over="b"), SX, SW, over="g")
