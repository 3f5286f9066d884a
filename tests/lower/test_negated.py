"""Negatives of whole numbers, which an assembler loses in the larger of three."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import napkin as nk

FORMS: dict[str, Callable[[Any], Any]] = {
    "negated": lambda x: -x,
    "scaled": lambda x: x * -1,
    "from_zero": lambda x: 0 - x,
    "of_a_test": lambda x: -(x > 0),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_largest_negative_is_no_pattern_of_the_assembler(form: str) -> None:
    """The ptxas of CUDA 12.9 gives max(-a, b, -c) for max(-a, -b, -c) on sm_90: so the zero that a
    number is taken from is one that no compiler knows."""

    @nk.diagram("q x:int -> q", sizes={"q": 64, "x": 64})
    def largest_negative(values: Any) -> Any:
        return nk.reduce(FORMS[form](values), "max", over="x")

    plan = nk.derive(largest_negative, on="h200")
    assert "tl.program_id(1) - " in plan.source
    plan.check(sizes={"q": 9, "x": 13}, resources=False).raise_if_wrong()


def test_negatives_of_reals_are_written_plainly() -> None:
    @nk.diagram("q x -> q", sizes={"q": 64, "x": 64})
    def largest_negative_real(values: Any) -> Any:
        return nk.reduce(-values, "max", over="x")

    assert "program_id(1)" not in nk.derive(largest_negative_real, on="h200").source


def test_small_positions_are_divided_in_32_bits() -> None:
    """Two numbers of 16 bits are one register, and the ptxas of CUDA 12.8 adds 0 for 1 to one of
    them: on sm_90 the fourth query of eight saw the keys of the third."""

    @nk.diagram("i j e, x y e, n c, m c -> i j, n")
    def nearest(Q: Any, K: Any, A: Any, B: Any) -> Any:
        at = [nk.index("i") + 1, nk.index("j") + 1]
        keys = nk.neighborhood((1, 1), dilation=(3, 3), queries="i j", keys="x y", at=at)
        S = nk.contract(Q, K, over="e")
        largest = nk.reduce(nk.contract(A, B, over="c"), "max", over="m")
        return nk.reduce(S * S, "logsumexp", over="x y", keys=keys), largest

    sizes = {"i": 7, "j": 8, "x": 8, "y": 9, "e": 7, "n": 1, "m": 8, "c": 15}
    plan = nk.derive(nearest, "h200", sizes, "fp32", deterministic=False)
    assert "+ tl.program_id(1)) % 3" in plan.source
    plan.check(resources=False).raise_if_wrong()
