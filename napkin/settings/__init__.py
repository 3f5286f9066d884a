"""One kernel: its labels, tiles, warps and stages, their predicted cost, and the best of them."""
