"""Settings for every test: the same hypothesis examples on every run, unless more are asked for.
And the plans of the shipped diagrams: tests that take one run beside each other, so that each is
derived once."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import settings

import napkin as nk
from napkin.diagram.library import load, names
from napkin.show.goldens import MACHINES, runs

settings.register_profile("repeatable", derandomize=True, deadline=None)
if "NAPKIN_EXAMPLES" not in os.environ:
    settings.load_profile("repeatable")


SHIPPED = [(n, m) for m in MACHINES for n in names()[:: 1 if m == MACHINES[-1] else 3]]


@pytest.fixture(scope="session", params=SHIPPED, ids="-".join)
def shipped(request: pytest.FixtureRequest) -> nk.Plan:
    """The plan of a shipped diagram for the last machine that has kernels in `generated/`; of one
    in three for the others."""
    name, on = request.param
    if not runs(load(name), on):
        pytest.skip(f"{on} lacks a type of {name}")
    return nk.derive(load(name), on=on)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Each test draws the same numbers from torch, alone and beside others."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
