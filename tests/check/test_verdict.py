"""How exact an output has to be: by what it is rounded to, and by how sensitive it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

import napkin as nk
from napkin.check.verdict import TOLERANCE, check

SIZES = {"t": 51, "m": 40, "d": 24, "v": 32}


@nk.diagram("t m, m d, m d, m v -> t v", sizes=SIZES)
def projected(X, A, B, C):
    """Scores of random projections are some 30 apart, so that a rounded key moves its weight."""
    Q, K, V = (nk.contract(X, W, over="m") for W in (A, B, C))
    S = nk.contract(Q, K.rename(t="x"), over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V.rename(t="x"), over="x")


@pytest.mark.parametrize("seed", [0, 1])
def test_large_scores_that_are_computed(seed: int) -> None:
    found = check(nk.derive(projected), sizes=SIZES, seed=seed, resources=False)
    (row,) = found.values
    assert found.ok, found
    assert TOLERANCE["bf16"] <= row.tolerance < 0.3
    assert row.tolerance in {TOLERANCE["bf16"], 2 * row.moves}
    assert ("moves it by" in str(found)) == bool(row.moves)
    exact = check(nk.derive(projected, dtype="fp32"), sizes=SIZES, seed=seed, resources=False)
    assert exact.ok, exact


def test_what_is_wrong_stays_wrong() -> None:
    """A kernel of another diagram, whose scores are twice those."""
    plan = nk.derive(projected)

    @nk.diagram("t m, m d, m d, m v -> t v", sizes=SIZES)
    def unscaled(X, A, B, C):
        Q, K, V = (nk.contract(X, W, over="m") for W in (A, B, C))
        S = 0.5 * nk.contract(Q, K.rename(t="x"), over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x"), V.rename(t="x"), over="x")

    other = replace(plan, diagram=unscaled)
    assert not check(other, sizes=SIZES, resources=False).ok
