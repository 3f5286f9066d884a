"""Windows in counts and in symbols: what a group reads of an axis at sums of positions.

Windows share positions. What is held at once is read once: of g windows of k taps, the image of
the affine map (p, w) -> stride * p + dilation * w over the box g x k, which is g + k - 1 positions
for stride and dilation 1, the halo. A loop that streams the taps holds one of them, and reads its
g positions again for each.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import sympy

from napkin.ir.windows import Slide


def image(s: Slide, windows: Any, taps: Any) -> Any:
    """How many positions `windows` x `taps` read, each counted once.

    Window p at tap w reads what window p + dilation reads at tap w - stride (both over their common
    divisor), so every pair but the last of such a chain is read before.
    """
    if s.span.disjoint:
        return windows * taps
    later, back = s.again
    shared = sympy.Max(windows - later, 0) * sympy.Max(taps - back, 0)
    return sympy.expand(windows * taps - shared)


def inside(slides: Sequence[Slide], sizes: Mapping[str, int]) -> int:
    """The pairs of a window and a tap that read the tensor, and no padding, over all slides."""
    return math.prod(_inside(s, sizes[s.axis], sizes[s.out], sizes[s.tap]) for s in slides)


@lru_cache(maxsize=4096)
def _inside(s: Slide, length: int, windows: int, taps: int) -> int:
    if not any(s.beyond):
        return windows * taps
    return int(reading(s, length, s.tap, taps, windows).sum())


def reading(s: Slide, length: int, axis: str, positions: int, others: int) -> np.ndarray[Any, Any]:
    """At each position of the windows or of the taps, `axis`, how many of the others read the
    tensor, and no padding."""
    first, end = _others(s, length, axis, positions)
    return np.maximum(np.minimum(end, others) - first, 0)


@lru_cache(maxsize=16)
def pairs(s: Slide, length: int, windows: int, taps: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """How many pairs of one of the first p windows and one of the first taps read the tensor, and
    no padding: at row p, from 0 on, and a column for each number of `taps`."""
    first, end = (x[:, None] for x in _others(s, length, s.out, windows))
    each = np.maximum(np.minimum(end, taps) - first, 0)
    return np.pad(np.cumsum(each, axis=0), ((1, 0), (0, 0)))


def _others(s: Slide, length: int, axis: str, positions: int) -> list[np.ndarray[Any, Any]]:
    """From which to which of the others, past their last one too, each position reads the
    tensor."""
    step, other = (s.stride, s.dilation) if axis == s.out else (s.dilation, s.stride)
    at = s.offset + step * np.arange(positions)  # of the first of the others
    return [np.maximum(-(at // other), 0), (length - 1 - at) // other + 1]
