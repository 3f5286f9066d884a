"""Reductions over the keys of what is the same for all keys: where a chunk is seen whole, no test
is left to say along which axis they go."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk


@pytest.mark.parametrize("wrt", [("X",), ("Y",), ("X", "Y")])
@pytest.mark.parametrize("how", ["sum", "mean"])
def test_gradients_of_sums_of_a_number_of_each_query(how: str, wrt: tuple[str, ...]) -> None:
    @nk.diagram("q, x -> q", sizes=dict(q=96, x=96))
    def seen(X: Any, Y: Any) -> Any:
        return nk.reduce(X + Y, how, over="x", keys=nk.causal("q", "x"))

    plan = nk.derive(nk.gradient(seen, wrt), dtype="fp32")
    plan.check(resources=False, gradient_of=seen).raise_if_wrong()


@pytest.mark.parametrize("how", ["sum", "max", "min", "prod"])
@pytest.mark.parametrize("kind", ["real", "int"])
def test_reductions_of_a_number_of_each_query(how: str, kind: str) -> None:
    """Under two sets, of which one governs the loop."""

    @nk.diagram(f"q:{kind}, q x -> q, q", sizes=dict(q=64, x=64))
    def seen(X: Any, S: Any) -> Any:
        keys = nk.sliding(9, 9, "q", "x")
        own = nk.reduce(X + 0 * nk.index("x"), how, over="x", keys=keys)
        return own, nk.reduce(S, "sum", over="x", keys=keys)

    ranges = {"X": (1, 2) if kind == "int" else (0.9, 1.1)}
    plan = nk.derive(seen, dtype="fp32")
    plan.check(resources=False, ranges=ranges).raise_if_wrong()
