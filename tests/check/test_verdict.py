"""How exact an output has to be, and what is said of one that is sensitive."""

from __future__ import annotations

from dataclasses import replace

import napkin as nk
from napkin.check.verdict import TOLERANCE, check

SIZES = {"t": 51, "m": 40, "d": 24, "v": 32}


@nk.diagram("t m, m d, m d, m v -> t v", sizes=SIZES)
def projected(X, A, B, C):
    """Scores of random projections are some 30 apart, so that a rounded key moves its weight."""
    Q, K, V = (nk.contract(X, W, over="m") for W in (A, B, C))
    S = nk.contract(Q, K.rename(t="x"), over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V.rename(t="x"), over="x")


def test_large_scores_that_are_computed() -> None:
    """The tolerance is that of the types; the verdict says how little a kernel can do about it."""
    found = check(nk.derive(projected), sizes=SIZES, seed=0, resources=False)
    (row,) = found.values
    assert row.tolerance == TOLERANCE["bf16"] < row.relative_error < row.moves < 0.1
    assert not found.ok
    assert f"WRONG; rounding its inputs alone moves it by {row.moves:.1e}" in str(found)
    exact = check(nk.derive(projected, dtype="fp32"), sizes=SIZES, seed=0, resources=False)
    assert exact.ok, exact


def test_what_is_wrong_stays_wrong() -> None:
    """A kernel of another diagram, whose scores are twice those: off by more than it moves."""
    plan = nk.derive(projected)

    @nk.diagram("t m, m d, m d, m v -> t v", sizes=SIZES)
    def unscaled(X, A, B, C):
        Q, K, V = (nk.contract(X, W, over="m") for W in (A, B, C))
        S = 0.5 * nk.contract(Q, K.rename(t="x"), over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x"), V.rename(t="x"), over="x")

    other = replace(plan, diagram=unscaled)
    (row,) = check(other, sizes=SIZES, resources=False).values
    assert not row.ok
    assert row.relative_error > 2 * row.moves > 0
