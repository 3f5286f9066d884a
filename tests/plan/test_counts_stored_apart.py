"""A mean whose sum an earlier kernel stored: its count is a size, and asks for no axis of the
kernel that reads the sum."""

from __future__ import annotations

from typing import Any

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.diagram.interface import Output
from napkin.ir.infer import pointwise
from napkin.ir.node import node, postorder
from napkin.settings.labels import labellings

LONG = {"x": 256, "k": 1024, "b": 256, "h": 256}


@nk.diagram("x k b -> b", sizes=LONG)
def less(N: Any) -> Any:
    """How many other means are less, beside each mean."""
    mean = nk.reduce(N, "mean", over="x k")
    other = nk.rename(mean, b="h")
    return mean + nk.reduce(other < mean, "sum", over="h")


def test_a_stored_sum_over_long_axes_is_divided_by_its_count() -> None:
    """That x and k held whole are too much for a tile was why the plan was refused."""
    plan = nk.derive(less, on="b200")
    plan.check(sizes={"x": 5, "k": 7, "b": 3, "h": 3}, resources=False).raise_if_wrong()


@nk.diagram("q x -> q x", sizes={"q": 64, "x": 2**20})
def centred(N: Any) -> Any:
    return N - nk.reduce(N, "mean", over="x")


def test_rows_less_their_stored_mean_are_weaved_over() -> None:
    ready = prepare(centred)
    (output,) = ready.outputs
    total = next(n for n in postorder([output.node]) if n.op == "sum" and n.args[0].op == "input")
    count = next(n for n in postorder([output.node]) if n.op == "sum" and n is not total)
    stored = node("input", params=("total",), axes=total.axes, kind="real")
    (rows,) = total.args
    term = pointwise("sub", (rows, pointwise("div", (stored, count))))
    made = list(labellings("centred", [Output("t", term, ("q", "x"))], {}, centred.sizes))
    assert [set(k.group) for k in made] == [{"q", "x"}]


@nk.diagram("n q -> ()", sizes={"n": 2048, "q": 2**17})
def largest_deviation(T: Any) -> Any:
    """The largest deviation from the mean along n."""
    return nk.reduce(T - nk.reduce(T, "mean", over="n"), "max", over="n q")


def test_the_count_of_a_stored_sum_is_a_size_where_its_axis_is_streamed_with_another() -> None:
    """That the count was to grow along n alone was why both axes could not be streamed."""
    plan = nk.derive(largest_deviation, on="h100", materialise="every")
    assert set(plan.kernels[-1].choice.kernel.stream.axes) == {"n", "q"}
    plan.check(sizes={"n": 40, "q": 50}, resources=False).raise_if_wrong()
