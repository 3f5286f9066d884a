"""The time model beside the settings on record: what its constants were read off."""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import fmean

import pytest

from napkin.machine.calibration import Constants

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "measurements"))
import fit_bands
import fit_model


@pytest.fixture(scope="module")
def rows() -> list[fit_model.Timed]:
    return fit_model.judged(list(fit_model.timed()))


def test_planned_shapes_take_about_as_long_as_predicted(rows: list[fit_model.Timed]) -> None:
    drawn = [r for r in rows if r.run.startswith("new shapes")]
    assert len(drawn) > 150
    assert fit_model.off([r.ratio for r in drawn]) < 0.1
    attention = [r.ratio for r in drawn if r.family == "attention"]
    assert len(attention) > 70
    assert fit_model.off(attention) < 0.075


def test_the_first_choice_of_sweeps_is_about_the_best(rows: list[fit_model.Timed]) -> None:
    """Of sweeps of the planner's ranking: at most 5 % longer than the best, 2 % in the middle."""
    found = [x for x in fit_model.sweeps(rows) if x[0][:7] in {f"tiles {i}" for i in (2, 3, 4, 5)}]
    assert len(found) > 20
    over = sorted(first for _, _, first, _ in found)
    assert over[-1] < 1.05
    assert over[len(over) // 2] < 1.02
    assert all(five < 1.02 for *_, five in found)


def test_the_first_choice_where_the_model_was_off(rows: list[fit_model.Timed]) -> None:
    """Of shapes that were predicted worst: 2 % in the middle, and the best is among five."""
    found = [x for x in fit_model.sweeps(rows) if x[0].startswith(("tiles 6", "rows 1"))]
    assert len(found) > 18
    over = sorted(first for _, _, first, _ in found)
    assert over[-1] < 1.2
    assert over[len(over) // 2] < 1.02
    assert sum(five < 1.02 for *_, five in found) > len(found) - 3


def test_bands_of_sums_take_about_as_long_as_predicted() -> None:
    settings = list(fit_bands.settings())
    own = Constants.of(fit_bands.PLACE)
    assert len(settings) > 80
    assert fmean(abs(s.off(own)) for s in settings) < 0.04
