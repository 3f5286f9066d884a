"""A rewrite that makes a term faster is tried at all nodes of its kind at once, if many are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.tracer import Considered, Dropped, Tracer, tracing
from napkin.cut import rewritten
from napkin.moves.refactor import MOST, everywhere, refactorings
from napkin.plan.plan import Plan

LAYERS = MOST + 1
SIZES = {"b": 8192, "d": 1024, "e": 1024}


@nk.diagram(f"b d{', d e, b e' * LAYERS} -> b")
def forms(X: Any, *given: Any) -> Any:
    """Bilinear forms, of which each but the first has what the one before gives."""
    total = nk.contract(X, given[0], given[1], over="d e")
    for W, Y in zip(given[2::2], given[3::2], strict=True):
        total = nk.contract(nk.maximum(X, total), W, Y, over="d e")
    return total


@nk.diagram("b d, d e, b e -> b")
def form(X: Any, W: Any, Y: Any) -> Any:
    return nk.contract(X, W, Y, over="d e")


@pytest.fixture(scope="module")
def found() -> Iterator[tuple[Plan, Tracer, int]]:
    """The plan, what the search reports, and how many terms it cuts."""
    cuts: list[object] = []
    own = rewritten.cut
    with pytest.MonkeyPatch.context() as patch, tracing() as tracer:
        patch.setattr(rewritten, "cut", lambda *a, **k: (cuts.append(a), own(*a, **k))[1])
        plan = nk.derive(forms, on="h200", sizes=SIZES, dtype="fp32")
        yield plan, tracer, len(cuts)


def test_all_of_a_kind_are_rewritten_at_once(found: tuple[Plan, Tracer, int]) -> None:
    """One after another takes a cut for each way of each of the first nodes, again and again: 41 of
    these five forms."""
    plan, _, cuts = found
    assert sum(m.rule == "refactor" for m in plan.trail.moves) == LAYERS
    assert cuts <= 15
    one = nk.derive(form, on="h200", sizes=SIZES, dtype="fp32")
    assert plan.seconds < 1.2 * LAYERS * one.seconds


def test_all_rewrites_together_keep_the_values(found: tuple[Plan, Tracer, int]) -> None:
    assert found[0].check(sizes={"b": 3, "d": 17, "e": 5}).ok


def test_rewrites_of_a_kind_are_those_of_other_nodes_alone() -> None:
    each = list(refactorings(forms.outputs, forms.names, SIZES))
    first = each[0]
    every = everywhere(first, forms.outputs, SIZES)
    assert len(every) == LAYERS
    assert {r.kind for r in every} == {first.kind}
    assert len({r.at for r in every}) == LAYERS
    other = next(r for r in each if r.at is first.at and r.kind != first.kind)
    assert other.kind[0] == first.kind[0] == "order contractions"
    assert everywhere(every[-1], every[-2].outputs, SIZES, {r.made for r in every}) == [every[-1]]


def test_what_is_tried_together_is_reported(found: tuple[Plan, Tracer, int]) -> None:
    events = found[1].events
    considered = [e.what for e in events if isinstance(e, Considered)]
    assert any(f", and {LAYERS - 1} more of its kind" in what for what in considered)
    dropped = [e.why for e in events if isinstance(e, Dropped)]
    assert "it is tried with another of its kind, which pays" in dropped
