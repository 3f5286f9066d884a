"""The tracer: it hears every rewrite while it listens, and nothing at other times."""

from __future__ import annotations

import napkin as nk
from napkin.algebra.tracer import Step, Tracer, active, times, tracing
from napkin.derive.prepare import prepare
from napkin.rewrite.expand import EXPANDED


@nk.diagram("q x -> q x")
def weights(S):
    return nk.softmax(S, over="x")


def test_nobody_listens_by_default() -> None:
    assert active() is None
    heard = Tracer()
    prepare(weights)
    assert heard.events == []


def test_a_tracer_hears_of_rewrites_while_its_context_lasts() -> None:
    with tracing() as tracer:
        assert active() is tracer
        prepare(weights)
    assert active() is None
    heard = list(tracer.events)
    prepare(weights)
    assert tracer.events == heard
    (step,) = heard
    assert isinstance(step, Step)
    assert (step.rule, step.law) == (EXPANDED.name, EXPANDED.law)
    assert (step.before[0].op, step.after[0].op) == ("softmax", "div")


def test_an_inner_tracer_takes_the_place_of_the_outer() -> None:
    with tracing() as outer:
        with tracing() as inner:
            prepare(weights)
        assert active() is outer
    assert (len(outer.events), len(inner.events)) == (0, 1)


def test_a_rewrite_that_changes_nothing_is_no_step() -> None:
    term = weights.outputs[0].node
    tracer = Tracer()
    tracer.stepped("same", "x = x", [term], [term])
    assert tracer.events == []


def test_streaming_by_hand_is_traced_as_its_fold() -> None:
    with tracing() as tracer:
        nk.diagram("q x -> q")(lambda S: nk.reduce(S, "sum", over="x")).stream("x")
    (step,) = (e for e in tracer.events if isinstance(e, Step) and e.rule == "stream")
    assert step.kernel.stream.axes == ("x",)


def test_times_are_written_in_microseconds() -> None:
    assert times(0.00123456) == "1,234.6 us"
