"""How exact an output has to be, and what is said of one that is sensitive."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import napkin as nk
from napkin.check import verdict
from napkin.check.verdict import FP8_SUM, TOLERANCE, as_promised, check, on_device
from napkin.diagram.library import load
from napkin.run.compile import Job
from napkin.run.worker import CompileError

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


@nk.diagram("a b -> a", sizes={"a": 5, "b": 31})
def deviations(X):
    """0 but for rounding."""
    return nk.reduce(X - nk.reduce(X, "mean", over="b"), "sum", over="b")


def test_a_result_that_is_0_but_for_rounding_is_held_to_what_cancels() -> None:
    plan = nk.derive(deviations, dtype="fp32")
    found = check(plan, sizes=deviations.sizes, resources=False)
    (row,) = found.values
    assert found.ok
    assert 2 < row.terms < 10
    assert f"of terms up to {row.terms:.1e}: the output is 0 but for rounding" in str(found)

    @nk.diagram("a b -> a", sizes=deviations.sizes)
    def sums(X):
        return nk.reduce(X, "sum", over="b")

    other = nk.derive(sums, dtype="fp32")
    wrong = check(replace(other, diagram=deviations), sizes=deviations.sizes, resources=False)
    assert not wrong.ok
    assert "WRONG, of terms up to" in str(wrong)


@nk.diagram("a b -> a", sizes={"a": 5, "b": 31})
def nothing(X):
    """0 whatever the inputs are."""
    return nk.reduce(nk.where(X > 1e4, X, 0.0), "sum", over="b")


def test_a_result_that_nothing_cancels_in_is_held_to_0() -> None:
    plan = nk.derive(nk.diagram("a b -> a", sizes=nothing.sizes)(small_sums), dtype="fp32")
    wrong = check(replace(plan, diagram=nothing), sizes=nothing.sizes, resources=False)
    (row,) = wrong.values
    assert not row.ok
    assert not row.terms


def small_sums(X):
    return nk.reduce(X * 1e-5, "sum", over="b")


@nk.diagram("n x -> n x", sizes={"n": 7, "x": 5})
def before(X):
    """A state as it was before each step, of which another state rounds what it takes in."""
    _, found = nk.scan(lambda h, b: (0.75 * h + nk.cast(X, "bf16"), h), (0.5, 0.0), along="n")
    return found + 0.0


def test_a_cast_within_another_state_says_how_exact_a_state_is() -> None:
    found = check(nk.derive(before, dtype="fp32"), sizes=before.sizes, resources=False)
    (row,) = found.values
    assert found.ok
    assert TOLERANCE["fp32"] < row.relative_error < row.tolerance == TOLERANCE["bf16"]


def test_where_the_compiler_fails_elsewhere_other_warps_are_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = nk.derive(load("softmax"), "h100")
    (k,) = plan.kernels
    warps, stages = k.schedule.warps, k.schedule.stages

    def refusing(arch: str) -> list[tuple[str, int | None, str]]:
        def answer(jobs: list[Job]) -> list[int | CompileError]:
            refused = CompileError("a pass fails")
            return [refused if (j.arch, j.num_warps) == (arch, warps) else 7 for j in jobs]

        monkeypatch.setattr(verdict, "compilations", answer)
        rows = verdict.compiled(plan, registers=False)
        return [(r.arch, r.allocated, r.note) for r in rows if r.note]

    said = f"with {2 * warps} warps and {stages} stages: a pass fails"
    assert refusing("sm_100") == [("sm_100", 7, said)]
    assert refusing("sm_90") == [("sm_90", None, "a pass fails")]


def test_no_kernel_that_casts_to_eight_bits_is_compiled_for_what_has_none() -> None:
    @nk.diagram("a b -> a b", sizes={"a": 512, "b": 512})
    def rounded(X):
        return nk.cast(nk.sigmoid(X), "fp8") + X

    rows = verdict.compiled(nk.derive(rounded, on="h100"), registers=False)
    assert all(row.ok for row in rows), rows
    assert {row.arch for row in rows} == {"sm_90", "sm_100"}


def test_sums_of_fp8_keep_few_bits_on_a_device() -> None:
    """128 products come of 4 instructions, of which each keeps 14 bits."""
    scaled, plain = load("blockwise_fp8_linear"), load("matmul")
    assert on_device(scaled, "fp32") == FP8_SUM == 4 * 2.0**-14
    assert on_device(scaled, "bf16") == TOLERANCE["bf16"]
    assert on_device(plain, "fp32") == TOLERANCE["fp32"]
    assert on_device(load("attention_fp8_kv"), "fp32") == TOLERANCE["fp32"]


def test_whole_numbers_are_exact() -> None:
    """One of a thousand sums that is off by one is wrong, however large the others are."""

    @nk.diagram("n x:int -> n x, n", sizes={"n": 3, "x": 700})
    def summed(N):
        return nk.cumsum(N, along="x"), nk.reduce(N > 4, "max", over="x")

    @nk.diagram("n x:int -> n x, n", sizes={"n": 3, "x": 700})
    def other(N):
        sums = nk.cumsum(N, along="x")
        return sums + nk.where(nk.index("x") == 9, 1, 0), nk.reduce(N > 4, "max", over="x")

    plan = nk.derive(summed)
    asked = {"sizes": plan.sizes, "ranges": {"N": (900, 1000)}, "resources": False}
    assert check(plan, **asked).ok
    found = check(replace(plan, diagram=other), **asked)
    sums, largest = found.values
    assert 0 < sums.relative_error < TOLERANCE["fp32"]
    assert (sums.mark, largest.mark) == ("WRONG", "ok")


def test_an_infinity_for_nan_where_inputs_are_infinite() -> None:
    """In another order sums may have either (docs/semantics.md); of finite inputs none does."""

    @nk.diagram("x, x -> ()")
    def scaled(A, B):
        return nk.contract(A, nk.reduce(B, "max", over="x"), over="x")

    plan = nk.derive(scaled, sizes={"x": 4}, dtype="fp32")
    signs = [1.0, -2.0, 3.0, 0.5]
    lowest = {"A": signs, "B": [-np.inf] * 4}
    assert np.isnan(scaled.evaluate(*lowest.values()))
    assert check(plan, inputs=lowest, resources=False).ok
    found, wanted = np.array([np.nan, np.inf, np.nan, 1.0]), np.array([np.inf, np.nan, 1.0, 1.0])
    held = as_promised(found, wanted, [np.array([np.inf])])
    np.testing.assert_array_equal(held, [np.inf, np.nan, np.nan, 1.0])
    assert as_promised(found, wanted, [np.ones(2)]) is found
