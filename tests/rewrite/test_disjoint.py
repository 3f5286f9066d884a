"""Windows that share no position: an axis that is split, whose taps are axes as others are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.rule import LawError
from napkin.derive.prepare import prepare, split_windows
from napkin.ir.node import postorder
from napkin.ir.sliding import slides, taps
from napkin.ir.windows import Slide
from napkin.rewrite.disjoint import DISJOINT


def pooled(**how: int) -> Callable[[Any], Any]:
    return lambda X: nk.reduce(nk.slide(X, over="i", into="p w", **how), "max", over="w")


def read(body: Callable[[Any], Any], sizes: dict[str, int]) -> list[Slide]:
    """The windows of a diagram after the rule."""
    ready = split_windows(prepare(nk.diagram("n i -> n p")(body)), sizes)
    order = postorder(o.node for o in ready.outputs)
    return [s for n in order if n.op == "input" for s in slides(n)]


@pytest.mark.parametrize(
    ("how", "disjoint"),
    [
        ({"stride": 3, "window": 3}, True),
        ({"stride": 4, "window": 3}, True),
        ({"stride": 3, "window": 2, "dilation": 2}, True),
        ({"stride": 2, "window": 3}, False),
        ({"stride": 3, "window": 3, "dilation": 2}, False),
        ({"stride": 3, "window": 3, "padding": 1}, False),
    ],
)
def test_windows_are_split_where_they_share_no_position(
    how: dict[str, int], disjoint: bool
) -> None:
    """The rule is verified where it is applied here."""
    (found,) = read(pooled(**how), {"n": 2, "i": 24, "p": 8, "w": how["window"]})
    assert found.span.disjoint is disjoint


def test_windows_that_share_positions_break_the_law() -> None:
    roots = [o.node for o in prepare(nk.diagram("n i -> n p")(pooled(stride=3, window=3))).outputs]
    (found,) = DISJOINT.matches(roots, {"n": 2, "i": 12, "p": 4, "w": 3})
    with pytest.raises(LawError, match="rule 'split windows' broke its law"):
        DISJOINT.apply(replace(found, of={"p": 4, "w": 4}))


def test_taps_of_split_windows_are_axes_as_others_are() -> None:
    roots = [o.node for o in prepare(nk.diagram("n i -> n p")(pooled(stride=3, window=3))).outputs]
    (found,) = DISJOINT.matches(roots, {"n": 2, "i": 12, "p": 4, "w": 3})
    ((before,), (after,)) = found.sides()
    assert taps(before) == {"w"}
    assert taps(after) == set()
