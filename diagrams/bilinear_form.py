"""A bilinear form for each row, x^T W y, as one contraction of three factors (biaffine scores,
arXiv 1611.01734). The sizes say in which order it is computed.
"""

import napkin as nk


@nk.diagram("b i, i j, b j -> b", sizes={"b": 8192, "i": 1024, "j": 1024})
def bilinear_form(x, W, y):
    return nk.contract(x, W, y, over="i j")
