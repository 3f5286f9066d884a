"""Additions at places (`napkin.ir.added_at`) have the values of their sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.ir import walk
from napkin.ir.added_at import added_at
from napkin.ir.evaluate import evaluate, order_of


def one(X: Any, at: Any) -> Any:
    return nk.reduce(nk.where(nk.index("v") == at, X, 0.0), "sum", over="t")


def two(X: Any, at: Any, to: Any) -> Any:
    inner = nk.where(nk.index("v") == at, X, 0.0)
    return nk.reduce(nk.where((nk.index("w") == to) & (X > -1.0), inner, 0.0), "sum", over="t s")


def heads(X: Any, at: Any) -> Any:
    return nk.reduce(nk.where(nk.index("v") == at, X, 0.0), "sum", over="t")


SUMS = {
    "one": nk.diagram("t d, t:int, v -> v d")(lambda X, at, V: one(X, at) + 0.0 * V),
    "two": nk.diagram("t d, t s:int, s:int, v w -> v w d")(
        lambda X, at, to, V: two(X, at, to) + 0.0 * V
    ),
    "heads": nk.diagram("h t d, h t:int, v -> v h d")(lambda X, at, V: heads(X, at) + 0.0 * V),
}


@pytest.mark.parametrize("name", SUMS)
@pytest.mark.parametrize("sizes", [(3, 5), (1, 1), (4, 0), (0, 3)])
def test_it_has_the_values_of_its_sum(
    name: str, sizes: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    d, rng = SUMS[name], np.random.default_rng(0)
    known = {a: sizes[a in "vw"] + (a == "d") for a in d.axes}
    bind: dict[Any, Any] = {}
    for n in d.inputs:
        shape = [known[a] for a in n.axes]
        bind[n] = rng.normal(size=shape) if n.kind == "real" else rng.integers(-1, 6, size=shape)
    (sums,) = [r.args[0] for r in d.roots]
    assert added_at(sums) is not None
    (found,) = evaluate([sums], bind, known)
    monkeypatch.setattr(walk, "added_at", lambda n: None)
    order_of.cache_clear()
    (wanted,) = evaluate([sums], bind, known)
    order_of.cache_clear()
    assert found.shape == tuple(known[a] for a in sums.axes)
    np.testing.assert_allclose(found, np.broadcast_to(wanted, found.shape), rtol=1e-12, atol=1e-12)


def test_infinities_and_nan_stay_at_their_places() -> None:
    d = SUMS["heads"]
    (sums,) = [r.args[0] for r in d.roots]
    X = np.array([[[np.inf], [np.nan], [1.0]]])
    bind = dict(zip(d.inputs, [X, np.array([[0, 2, 7]]), np.zeros(4)], strict=True))
    (found,) = evaluate([sums], bind, {"h": 1, "t": 3, "d": 1, "v": 4})
    np.testing.assert_array_equal(found.ravel(), [np.inf, 0.0, np.nan, 0.0])


def test_rational_numbers_are_added_exactly() -> None:
    d = SUMS["one"]
    (sums,) = [r.args[0] for r in d.roots]
    X = np.array([[Fraction(1, 3)], [Fraction(1, 7)], [Fraction(2)]], dtype=object)
    bind = dict(zip(d.inputs, [X, np.array([1, 1, 0]), np.zeros(2)], strict=True))
    (found,) = evaluate([sums], bind, {"t": 3, "d": 1, "v": 2})
    assert found.ravel().tolist() == [2, Fraction(10, 21)]


def test_sums_that_are_none() -> None:
    def carried(X: Any, at: Any) -> Any:
        return nk.reduce(nk.where(nk.index("v") == at, X, 0.0), "sum", over="t")

    def twice(X: Any, at: Any, to: Any, Y: Any) -> Any:
        both = (nk.index("v") == at) & (nk.index("v") == to)
        return nk.reduce(nk.where(both, X, 0.0), "sum", over="t") + Y

    def by_position(X: Any, Y: Any) -> Any:
        return nk.reduce(nk.where(nk.index("v") == nk.index("t"), X, 0.0), "sum", over="t") + Y

    def elsewhere(X: Any, at: Any, Y: Any) -> Any:
        return nk.reduce(nk.where(nk.index("v") == at, X, 1.0), "sum", over="t") + Y

    for signature, body in (
        ("v t, t:int -> v", carried),
        ("t, v -> v", by_position),
        ("t, t:int, v -> v", elsewhere),
        ("t, t:int, t:int, v -> v", twice),
    ):
        sums = nk.diagram(signature)(body).roots
        assert not any(added_at(m) for r in sums for m in (r, *r.args))
