"""A convolution over images, channels last, as in residual networks (arXiv 1512.03385)."""

import napkin as nk


@nk.diagram("b i j c, u v c o -> b p q o", sizes=dict(b=16, i=56, j=56, u=3, v=3, c=128, o=128))
def conv2d(X, W):
    rows = nk.slide(X, over="i", into="p u", padding=1)
    windows = nk.slide(rows, over="j", into="q v", padding=1)
    return nk.contract(windows, W, over="c u v")
