"""Operands of reductions."""

from __future__ import annotations

from typing import Any

import napkin as nk
from napkin.cut.changes import operands
from napkin.derive.prepare import prepare
from napkin.ir.node import postorder


def named(diagram: nk.Diagram) -> list[tuple[str, str]]:
    """Each reduction with what it reads that lacks some of its axes, by name."""
    ready = prepare(diagram)
    order = list(postorder(o.node for o in ready.outputs))
    return [(ready.names.get(n, n.op), ready.names.get(m, m.op)) for n, m in operands(order)]


def test_operands_are_what_lacks_an_axis_of_the_reduction() -> None:
    @nk.diagram("a b, b c, a c -> a c, a")
    def made(A: Any, B: Any, R: Any) -> Any:
        H = nk.gelu(A) * 2.0
        product = nk.contract(H, B, over="b")
        return product, nk.reduce(nk.exp(product * R), "sum", over="c")

    # All that the second sum reads has both of its axes.
    assert named(made) == [("product", "H"), ("product", "B")]


def test_what_two_reductions_read_by_way_of_one_term_is_given_once() -> None:
    @nk.diagram("a, b -> a, a")
    def made(X: Any, Y: Any) -> Any:
        both = nk.exp(X + Y)
        return nk.reduce(both, "sum", over="b"), nk.reduce(both, "max", over="b")

    assert named(made) == [("O1", "X"), ("O1", "Y")]
