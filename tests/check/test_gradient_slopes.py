"""A gradient beside slopes of its diagram: what holds, what does not, and where there is none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.check.gradient_slopes import NOTHING, TOLERANCE, Point, derivative_rows
from napkin.check.inputs import Given
from napkin.check.verdict import check
from napkin.check.verdict_rows import Verdict
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load, names
from napkin.plan.samples import small
from napkin.torch.autograd import autograd

SIDES = {"central differences", "torch's autograd"}
WITHOUT = {"greedy_token", "sample_token"}


def rows(f: Diagram, made: Diagram | None = None, said: Given | None = None, seed: int = 0) -> Any:
    sizes = small(f, np.random.default_rng(seed))
    return derivative_rows(f, made or nk.gradient(f), sizes, said or Given(), seed, autograd)


@pytest.mark.parametrize("name", sorted(set(names()) - WITHOUT))
def test_gradients_of_shipped_diagrams_hold_at_small_sizes(name: str) -> None:
    found, notes = rows(load(name))
    assert [r for r in found if not r.ok] == []
    assert {r.case for r in found} == SIDES
    assert notes == []


@nk.diagram("n d, d -> n d", sizes={"n": 7, "d": 5})
def gained(X: Any, G: Any) -> Any:
    return nk.tanh(X) * G


@nk.diagram("n d, d, n d -> n d, d", sizes={"n": 7, "d": 5}, name="gained_gradient")
def wrong_in_one(X: Any, G: Any, dO: Any) -> Any:
    """dX as it should be; dG without the tanh."""
    T = nk.tanh(X)
    dX = dO * G * (1 - T * T)
    return dX, nk.reduce(dO * X, "sum", over="n")


def test_a_gradient_that_is_wrong_is_wrong_on_both_sides() -> None:
    dX, dG = wrong_in_one.outputs
    made = replace(wrong_in_one, outputs=(replace(dX, name="dX"), replace(dG, name="dG")))
    found, _ = rows(gained, made)
    assert {(r.case, r.output, r.ok) for r in found} == {
        (case, output, output == "dX") for case in SIDES for output in ("dX", "dG")
    }
    assert {r.mark for r in found if r.output == "dG"} == {"WRONG"}


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-5, 1.0), st.integers(0, 2**32 - 1))
def test_any_part_of_a_gradient_that_is_off_is_found(part: float, seed: int) -> None:
    made = nk.gradient(gained)
    off = tuple(replace(o, node=nk.gradient(scaled(part)).outputs[i].node)
                for i, o in enumerate(made.outputs))  # fmt: skip
    found, _ = rows(gained, replace(made, outputs=off), seed=seed)
    assert all(TOLERANCE < r.relative_error == pytest.approx(part, rel=1e-2) for r in found)


def scaled(part: float) -> Diagram:
    """`gained` whose values, and so whose gradient, are larger by this part."""
    return nk.diagram("n d, d -> n d", name="gained")(lambda X, G: nk.tanh(X) * G * (1.0 + part))


def test_values_that_bend_at_the_inputs_are_said_to() -> None:
    f = nk.diagram("n -> ()", sizes={"n": 3})(lambda X: nk.reduce(X, "max", over="n"))
    found, _ = rows(f, said=Given({"X": np.ones(3)}, {}, {"n": 3}))
    beside = {r.case: r for r in found}
    assert not beside["central differences"].ok
    assert beside["central differences"].mark == (
        "UNDEFINED: values bend where X is moved; give inputs or ranges"
    )
    assert beside["torch's autograd"].ok  # which shares among equal values as napkin does


def test_values_that_are_no_numbers_are_said_to_be_none() -> None:
    f = nk.diagram("n -> n", sizes={"n": 6})(lambda X: nk.sqrt(X))
    assert all(r.ok for r in rows(f)[0])  # of normal numbers the sizes are taken
    found, _ = rows(f, said=Given({}, {"X": (-2.0, -1.0)}, {}))
    assert not any(r.ok for r in found)
    assert {r.undefined for r in found} == {NOTHING}


def test_an_operator_that_torch_lacks_leaves_a_note() -> None:
    def numpys_alone(xp: Any, x: Any) -> Any:
        if xp is not np:
            raise TypeError("numpy alone")
        return x * x

    squared = nk.operator(
        "square_of_numpy_alone", 1, evaluate=numpys_alone, triton="x * x",
        derivative=lambda x: 2.0 * x,
    )  # fmt: skip
    f = nk.diagram("n -> n", sizes={"n": 4}, name="of_numpy")(squared)
    found, notes = rows(f)
    assert [(r.case, r.ok) for r in found] == [("central differences", True)]
    (note,) = notes
    assert note.startswith("torch cannot differentiate of_numpy: InputError: operator square_of_")
    assert "raised TypeError: numpy alone" in note
    found, notes = derivative_rows(f, nk.gradient(f), {"n": 4}, Given(), 0, None)
    assert notes == ["torch is not installed: gradients are compared with differences alone"]


def test_a_slope_is_that_of_outputs_times_cotangents() -> None:
    f = nk.diagram("n -> n")(lambda X: X * X)
    at = Point(f, [np.array([1.0, 2.0])], [np.array([1.0, 10.0])])
    assert at.value(0, at.arrays[0]) == at.size == 41.0
    assert at.slope(0, np.array([0.0, 1.0]), 1e-4) == pytest.approx(40.0)


@pytest.fixture(scope="module")
def verdict() -> Verdict:
    plan = nk.derive(nk.gradient(gained), dtype="fp32")
    found: Verdict = plan.check(gradient_of=gained, resources=False, sizes={"n": 7, "d": 5})
    return found


def test_derivatives_are_a_verdict_of_their_own(verdict: Verdict) -> None:
    verdict.raise_if_wrong()
    assert list(verdict.verdicts) == ["values", "bytes", "resources", "derivatives"]
    data = verdict.to_json()
    assert {(r["case"], r["output"]) for r in data["derivatives"]} == {
        (case, output) for case in SIDES for output in ("dX", "dG")
    }
    assert "dX beside central differences" in str(verdict)
    off = (replace(verdict.derivatives[0], relative_error=1e-3), *verdict.derivatives[1:])
    broken = replace(verdict, derivatives=off)
    said = "values hold, bytes hold, resources hold, derivatives do NOT hold"
    assert str(broken).splitlines()[0] == f"gained_gradient: {said}"
    assert not broken.ok


def test_a_plan_of_another_gradient_is_refused() -> None:
    plan = nk.derive(nk.gradient(gained), dtype="fp32")
    with pytest.raises(nk.InputError, match="gained_gradient is no gradient of softmax; derive"):
        check(plan, gradient_of=load("softmax"), resources=False)
