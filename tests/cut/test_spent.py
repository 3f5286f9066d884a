"""Rewrites that may save next to nothing of the time of a cut are passed over."""

from __future__ import annotations

import math
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.tracer import Dropped, tracing
from napkin.cli.request import load
from napkin.cut.cut import cut
from napkin.cut.spent import Spent
from napkin.cut.ways import Cut
from napkin.derive.prepare import Prepared, prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.node import ones, postorder
from napkin.moves.refactor import CHEAP, FURTHER, MOST, refactorings
from napkin.plan.derive import memo_of

LIGHT = MOST + 2
SIZES = {"a": 64, "c": 64, "b": 8192, "d": 1024, "e": 1024}


@nk.diagram(f"{'a c, ' * LIGHT}b d, d e, b e -> , b")
def slow_at_last(*given: Any) -> Any:
    """Norms that take next to no time, and a form that takes nearly all of it in its own order."""
    *light, X, W, Y = given
    norms = [nk.reduce(A * A, "sum", over="a c") for A in light]
    return sum(norms[1:], norms[0]), nk.contract(X, W, Y, over="d e")


def cut_of(d: Diagram, sizes: dict[str, int] | None = None) -> tuple[Prepared, Cut]:
    ready = prepare(d)
    known = d.check_sizes(sizes or {})
    found = cut(d.name, ready.outputs, ready.names, known, memo_of("h200", "bf16"))
    assert found is not None
    return ready, found


@pytest.mark.parametrize("name", ["attention", "decode_attention", "mlp"])
def test_all_kernels_compute_some_term(name: str) -> None:
    """Those of parts and those that merge them, too."""
    ready, found = cut_of(load(name))
    spent = Spent(found, ready.outputs)
    (root,) = [o.node for o in ready.outputs]
    assert spent.taken_away(root, ones(())) == pytest.approx(found.seconds)
    assert spent.taken_away(root, root) == 0
    # Of a term that the cut has not it tells nothing.
    assert spent.taken_away(ones(()), root) == math.inf


def test_a_term_is_computed_by_the_kernels_that_do_not_read_it() -> None:
    @nk.diagram("b d, d e, e f -> b f")
    def two(X: Any, W: Any, V: Any) -> Any:
        return nk.contract(nk.softmax(nk.contract(X, W, over="d"), over="e"), V, over="e")

    ready, found = cut_of(two, {"b": 8192, "d": 2048, "e": 8192, "f": 2048})
    assert len(found.pieces) > 1
    spent = Spent(found, ready.outputs)
    every = postorder(o.node for o in ready.outputs)
    first, last = (n for n in every if n.op == "sum" and len(n.axes) == 2)
    result = ready.outputs[0].name
    of = {p.binding[o.name]: p.seconds for p in found.pieces for o in p.choice.kernel.outputs}
    assert spent.taken_away(last, last.args[0]) == of[result]
    assert of[result] <= spent.taken_away(last, first) <= found.seconds
    # To compute `first` otherwise leaves the kernel as it is that reads it from memory.
    assert 0 < spent.taken_away(first, first.args[0]) <= found.seconds - of[result]


def test_rewrites_that_save_next_to_nothing_are_passed_over() -> None:
    ready, found = cut_of(slow_at_last, SIZES)
    outputs = ready.outputs, ready.names, SIZES
    form = outputs[0][1].node
    assert form not in {r.at for r in refactorings(*outputs)}
    spent = Spent(found, ready.outputs)
    much = 0.5 * found.seconds
    left = list(refactorings(*outputs, pays=lambda n, m: spent.taken_away(n, m) >= much))
    assert {r.at for r in left} == {form}


def test_a_slow_term_after_many_others_is_rewritten() -> None:
    plan = nk.derive(slow_at_last, on="h200", sizes=SIZES)
    assert "refactor" in {m.rule for m in plan.trail}
    assert plan.check(sizes={"a": 3, "c": 5, "b": 7, "d": 17, "e": 5}).ok


def test_a_trace_says_which_rewrites_are_not_tried() -> None:
    ready = prepare(slow_at_last)
    outputs = ready.outputs, ready.names, SIZES
    form = outputs[0][1].node
    with tracing() as tracer:
        tried = list(refactorings(*outputs, pays=lambda n, m: n is form))
    dropped = [e for e in tracer.events if isinstance(e, Dropped)]
    passed = {e.what for e in dropped if e.why == CHEAP}
    assert len(passed) >= LIGHT
    assert passed.isdisjoint(r.law for r in tried)
    with tracing() as tracer:
        list(refactorings(*outputs))
    assert Dropped("term", "rewrites of further nodes", FURTHER) in tracer.events
