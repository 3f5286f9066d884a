"""Products of tiles that a loop reads for something else, too, are done where an iteration ends."""

from collections.abc import Callable

import numpy as np
import pytest

import napkin as nk
from napkin.check.verdict import run_case
from napkin.diagram.diagram import Diagram
from napkin.plan.plan import Plan
from napkin.plan.samples import Case

WAITS = ".to(tl.int32, bitcast=True).to(tl.float32, bitcast=True)"
SIZES = {"q": 32, "n": 64, "i": 32}
TILES = {"q": 16, "n": 16, "i": 32}


@nk.diagram("q n, i n -> q i, q")
def norms_too(T, S):
    return nk.contract(T, S, over="n"), nk.reduce(T * T, "sum", over="n")


@nk.diagram("q n, i n -> q i")
def product(T, S):
    return nk.contract(T, S, over="n")


@pytest.mark.parametrize(("diagram", "many"), [(norms_too, 1), (product, 0)])
def test_a_product_is_waited_for_where_its_operand_is_read_otherwise(
    forced: Callable[..., Plan], diagram: Diagram, many: int
) -> None:
    plan = forced(diagram, SIZES, "n", tiles=TILES)
    assert plan.source.count(WAITS) == many
    rows, _ = run_case(plan, Case("", SIZES), np.random.default_rng(0))
    assert all(r.ok for r in rows)
