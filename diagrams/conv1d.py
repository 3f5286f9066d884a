"""A convolution along one axis: each output sees a window of k taps of every channel.

The affine map i = p + w - 1 from positions and taps to inputs (arXiv 2604.07242, reindexed weaves).
"""

import napkin as nk


@nk.diagram("i c, w c o -> p o", sizes={"i": 8192, "w": 3, "c": 512, "o": 512})
def conv1d(X, W):
    windows = nk.slide(X, over="i", into="p w", padding=1)
    return nk.contract(windows, W, over="c w")
