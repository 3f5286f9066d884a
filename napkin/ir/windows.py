"""Windows: an axis read at sums of multiples of other positions, as in a convolution.

`slide` reads axis i of an array under p and w, at i = stride * p + dilation * w - padding: an
affine map from positions to positions (arXiv 2604.07242, reindexed weaves; a matrix of whole
numbers and an offset). It is a take whose positions are such sums, and whose `Span` says that sizes
keep them in range: the size of p follows from those of i and w.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

from napkin.errors import InputError


@dataclass(frozen=True)
class Span:
    """How far the positions of a window may reach, in the parameters of a take.

    Attributes:
        past: positions past the end of the axis that hold 0.
        window: the taps of the window where no input gives them; 0 where one does.
        disjoint: whether windows share no position, at the sizes that a kernel is made for: windows
            and taps are then two axes as others are, into which the axis is split.
    """

    past: int = 0
    window: int = 0
    disjoint: bool = False


@dataclass(frozen=True)
class Slide:
    """One axis of a tensor that is read in windows: axis = stride * out + dilation * tap + offset.

    Attributes:
        axis: the tensor's axis.
        out: the axis of the windows, whose size follows from the others.
        tap: the axis of the places in a window.
        stride: how far apart windows begin.
        dilation: how far apart the taps of a window lie.
        offset: where the first window begins; before 0 lie zeros.
        span: how far windows reach past the end.
    """

    axis: str
    out: str
    tap: str
    stride: int
    dilation: int
    offset: int
    span: Span

    @property
    def beyond(self) -> tuple[bool, bool]:
        """Whether windows begin before the axis, and whether they end past it."""
        return self.offset < 0, self.span.past > 0

    @property
    def again(self) -> tuple[int, int]:
        """How many windows on, and how many taps back, the same position is read again."""
        common = gcd(self.stride, self.dilation)
        return self.dilation // common, self.stride // common

    def shares(self, taps: int) -> bool:
        """Whether two windows of so many taps read one position, or some a padded one."""
        return any(self.beyond) or self.reach(taps) >= self.stride

    def reach(self, taps: Any) -> Any:
        """From the first position of a window to its last."""
        return self.dilation * (taps - 1)

    def count(self, length: Any, taps: Any) -> Any:
        """How many windows lie within an axis of this length and its padding."""
        last = length - 1 + self.span.past - self.offset - self.reach(taps)
        return last // self.stride + 1

    def least(self, windows: int, taps: int) -> int:
        """The shortest axis with so many windows."""
        last = self.stride * (windows - 1) + self.reach(taps) + self.offset
        return max(last - self.span.past + 1, 1)

    def __str__(self) -> str:
        """The sum, as a formula."""
        parts = [
            a if f == 1 else f"{f} {a}"
            for a, f in ((self.out, self.stride), (self.tap, self.dilation))
        ]
        shift = f" - {-self.offset}" if self.offset else ""
        return f"{self.axis} = {' + '.join(parts)}{shift}"


def check_window(into: Sequence[str], known: Sequence[str]) -> tuple[str, str]:
    """The two axes that `slide` reads an axis under.

    Raises:
        InputError: they are not two, or the array has one of them already.
    """
    if len(into) != 2 or into[0] == into[1]:
        raise InputError(
            f"slide into={' '.join(into)!r}: write two axes, that of the windows and that of the "
            "taps in each, as in into='p w'"
        )
    for axis in into:
        if axis in known:
            raise InputError(
                f"slide into={' '.join(into)!r}: the array has an axis {axis!r} already; choose "
                "another name"
            )
    return into[0], into[1]
