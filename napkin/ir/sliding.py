"""Windows of takes: their positions, the tests for padding, the sizes that follow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

from napkin.ir.infer import pointwise
from napkin.ir.linear import linear
from napkin.ir.node import Node, number
from napkin.ir.taking import spans_of, taken_axes, taken_of
from napkin.ir.whole_numbers import length
from napkin.ir.windows import Slide, Span


def slide_of(axis: str, at: Node, span: Span) -> Slide:
    """The window whose positions `nk.slide` wrote: a sum of two multiples and an offset."""
    form = linear(at)
    (out, stride), (tap, dilation) = ((n.axes[0], f) for n, f in form.items() if n is not None)
    return Slide(axis, out, tap, stride, dilation, form.get(None, 0), span)


def within(s: Slide, at: Node) -> list[Node]:
    """The tests that the positions of a window lie inside the axis, and not in its padding."""
    before, after = s.beyond
    tests: list[Node] = []
    if before:
        tests.append(pointwise("greater_equal", (at, number(0))))
    if after:
        tests.append(pointwise("less", (at, length(s.axis))))
    return tests


def slides_of(takes: Iterable[Node]) -> Iterator[Slide]:
    """The windows of takes in a diagram."""
    for n in takes:
        for axis, at, span in zip(taken_axes(n), n.args[1:], spans_of(n), strict=True):
            if span is not None:
                yield slide_of(axis, at, span)


def windowed(nodes: Iterable[Node]) -> set[str]:
    """The axes whose sizes windows say: of windows, and of taps where their number is given."""
    found = list(slides_of(n for n in nodes if n.op == "take"))
    return {s.out for s in found} | {s.tap for s in found if s.span.window}


def windows(leaf: Node) -> tuple[tuple[Slide, Node], ...]:
    """The windows of a reading, each with its positions."""
    if not (taken := taken_of(leaf)):
        return ()
    own = cast("tuple[str, ...]", leaf.params[1])
    return tuple(
        (slide_of(axis, leaf.args[u], span), leaf.args[u])
        for axis, u in zip(own, taken.under, strict=True)
        if isinstance(u, int) and (span := taken.spans[u]) is not None
    )


def slides(leaf: Node) -> tuple[Slide, ...]:
    """The windows of a reading."""
    return tuple(s for s, _ in windows(leaf))


def taps(leaf: Node) -> set[str]:
    """The taps of the windows of a reading that share positions."""
    return {s.tap for s in slides(leaf) if not s.span.disjoint}
