"""Windows: an axis read at sums of multiples of other positions, as in a convolution.

`slide` reads axis i of an array under p and w, at i = stride * p + dilation * w - padding: an
affine map from positions to positions (arXiv 2604.07242, reindexed weaves; a matrix of whole
numbers and an offset). It is a take whose positions are such sums, and whose `Span` says that sizes
keep them in range: the size of p follows from those of i and w.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from typing import TYPE_CHECKING, Any

from napkin.errors import InputError

if TYPE_CHECKING:
    from napkin.diagram.diagram import Diagram
    from napkin.diagram.node import Node


@dataclass(frozen=True)
class Span:
    """How far the positions of a window may reach, in the parameters of a take.

    Attributes:
        past: positions past the end of the axis that hold 0.
        window: the taps of the window where no input gives them; 0 where one does.
    """

    past: int = 0
    window: int = 0


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


def slide_of(axis: str, at: Node, span: Span) -> Slide:
    """The window whose positions `nk.slide` wrote: a sum of two multiples and an offset."""
    from napkin.diagram.keys.linear import linear

    form = linear(at)
    (out, stride), (tap, dilation) = ((n.axes[0], f) for n, f in form.items() if n is not None)
    return Slide(axis, out, tap, stride, dilation, form.get(None, 0), span)


def within(s: Slide, at: Node) -> list[Node]:
    """The tests that the positions of a window lie inside the axis, and not in its padding."""
    from napkin.diagram.infer import pointwise
    from napkin.diagram.node import node, number

    before, after = s.beyond
    tests: list[Node] = []
    if before:
        tests.append(pointwise("greater_equal", (at, number(0))))
    if after:
        tests.append(pointwise("less", (at, node("size", params=(s.axis,), kind="int"))))
    return tests


def slides_of(takes: Iterable[Node]) -> Iterator[Slide]:
    """The windows of takes in a diagram."""
    from napkin.diagram.taking import spans_of, taken_axes

    for n in takes:
        for axis, at, span in zip(taken_axes(n), n.args[1:], spans_of(n), strict=True):
            if span is not None:
                yield slide_of(axis, at, span)


def windowed(nodes: Iterable[Node]) -> set[str]:
    """The axes whose sizes windows say, in dataflow order of the nodes: of windows, and of taps
    where their number is given, also under other names."""
    nodes = list(nodes)
    found = list(slides_of(n for n in nodes if n.op == "take"))
    out = {s.out for s in found} | {s.tap for s in found if s.span.window}
    for n in nodes:
        if n.op == "rename":
            out |= {new for new, old in zip(n.axes, n.args[0].axes, strict=True) if old in out}
    return out


def settle(
    diagram: Diagram, given: dict[str, int], defaults: Mapping[str, int], *, empty: bool = False
) -> None:
    """Add to `given` the sizes that follow from windows: how many there are, or where only this is
    given, the shortest axis that has as many.

    Args:
        given: sizes that were asked for, of axes by the name that stands for all of one size.

    Raises:
        InputError: a given size does not fit.
    """
    same = diagram.same_size
    base = {same.get(a, a): n for a, n in defaults.items()}
    named = [[same.get(a, a) for a in (s.axis, s.out, s.tap)] for s in diagram.slides]
    shortest, made = dict(given), {out for _, out, _ in named}
    fixed = {tap for s, (_, _, tap) in zip(diagram.slides, named, strict=True) if s.span.window}
    # Of windows of windows, the last may be what is given.
    for s, (axis, out, tap) in reversed(list(zip(diagram.slides, named, strict=True))):
        taps = given.get(tap, base.get(tap, s.span.window))
        if out in shortest and axis not in fixed | given.keys() and taps:
            shortest[axis] = max(shortest.get(axis, 1), s.least(shortest[out], taps))
    given.update((a, n) for a, n in shortest.items() if a not in made)
    for s, (axis, out, tap) in zip(diagram.slides, named, strict=True):
        if s.span.window and given.setdefault(tap, s.span.window) != s.span.window:
            raise InputError(
                f"sizes: {s.tap}={given[tap]}, but {diagram.name} slides a window of "
                f"{s.span.window} along {s.axis}"
            )
        taps = given.get(tap, base.get(tap))
        if taps is None:
            continue
        asked = given.get(out)
        length = given.get(axis, base.get(axis))
        if length is None:
            continue
        windows = s.count(length, taps)
        if axis == out and windows != length:
            raise InputError(
                f"sizes: {diagram.name} reads {s}, and {s.out} is {s.axis} under another name, but "
                f"with {s.axis}={length} and {s.tap}={taps} there are {windows} windows; pad by "
                f"{s.reach(taps)} in all, with stride 1"
            )
        if windows < 1 and not empty:
            raise InputError(
                f"sizes: {s.axis}={length} is shorter than a window of {diagram.name}, which "
                f"reads {s}; write {s.axis}={s.least(1, taps)} or more"
            )
        if asked is not None and asked != max(windows, 0):
            raise InputError(
                f"sizes: {s.out}={asked}, but with {s.axis}={length} and {s.tap}={taps} "
                f"{diagram.name} has {max(windows, 0)} windows, as it reads {s}; leave out "
                f"{s.out} or {s.axis}"
            )
        given[out] = max(windows, 0)


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
