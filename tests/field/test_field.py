"""Diagrams of the field: each has the value of an independent formula, and a plan or a refusal.

A run without `NAPKIN_FIELD=all` derives a part of the plans, and runs the kernels of fewer.
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from entries import Entry
from table import FAMILIES, Row, entries, measured, table

import napkin as nk
from napkin.check.inputs import given
from napkin.ir.evaluate import close_to

ROOT = Path(__file__).resolve().parents[2]
EVERY = [e for family in FAMILIES for e in entries(family)]
ALL = os.environ.get("NAPKIN_FIELD") == "all"
PLANNED = EVERY if ALL else [e for e in EVERY if e.refused or not e.slow][::2]
RUN = [e for e in PLANNED if not e.refused][slice(None) if ALL else slice(2, None, 4)]
PAGE = ROOT / "docs" / "field.md"


def named(entry: Entry) -> str:
    return entry.name


@cache
def planned(entry: Entry) -> nk.Plan:
    """The plan of an entry, which several tests need."""
    return nk.derive(entry.make())


def test_there_are_two_hundred_of_names_of_their_own() -> None:
    assert len({e.name for e in EVERY}) == len(EVERY) >= 200


@pytest.mark.parametrize("entry", [e for e in EVERY if e.reference], ids=named)
def test_values(entry: Entry) -> None:
    """What a diagram evaluates to is what a formula of its own gives, in float64."""
    assert entry.reference is not None
    diagram = entry.make().with_sizes(**entry.small)
    sizes, rng = diagram.check_sizes({}), np.random.default_rng(0)
    said = given(diagram, None, entry.ranges, sizes)
    arrays = [np.asarray(said.values(diagram, n, sizes, rng), float) for n in diagram.inputs]
    found, wanted = diagram.evaluate(*arrays), entry.reference(*arrays)
    pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
    for a, b in pairs:
        assert a.shape == np.shape(b)
        assert close_to(a, np.asarray(b, float)) < 1e-9


@pytest.mark.parametrize("entry", PLANNED, ids=named)
def test_plans(entry: Entry) -> None:
    """A plan at the sizes of practice, or the refusal that its file expects."""
    if entry.refused:
        with pytest.raises(nk.NapkinError, match=re.escape(entry.refused)):
            planned(entry)
    else:
        assert planned(entry).seconds > 0


@pytest.mark.parametrize("entry", RUN, ids=named)
def test_kernels(entry: Entry) -> None:
    """The kernels of a plan give the value, and move the bytes that it says."""
    verdict = planned(entry).check(sizes=entry.small, ranges=entry.ranges, resources=False)
    assert verdict.ok, str(verdict)


def test_the_page_is_up_to_date() -> None:
    text = PAGE.read_text()
    for entry in PLANNED[::20]:
        lines = list(table("any", [measured(entry)]))
        assert lines[-1] in text, lines[-1]


def test_a_page_says_what_is_refused_and_what_is_far() -> None:
    rows = [Row("a", 1, 1.0, 1.0, 1e-6, 2.0, "DRAM bandwidth"), Row("b", refused="no")]
    text = "\n".join(table("losses", rows))
    assert "2 diagrams, 1 refused. Medians:\nbytes 1.00, time over the bound's 2.00.\n" in text
    assert "1 above 1.5, limited: 1 by DRAM bandwidth." in text
    assert "| b | refused: no |" in text
