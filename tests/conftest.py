"""Settings for every test: the same hypothesis examples on every run, unless more are asked for.
And plans: those of the shipped diagrams, whose tests run beside each other, and the searches for
all others, of which each is made once."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pytest
from hypothesis import settings

import napkin as nk
from napkin.algebra.tracer import active
from napkin.cut.segments import Memo
from napkin.derive.rules.table import ADDED
from napkin.diagram.library import load, names
from napkin.plan import derive
from napkin.plan.derive import Searched
from napkin.show.goldens import MACHINES, runs

gc.set_threshold(50_000, 20, 50)  # looking for cycles among terms took 7 % of the time

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


class Searches:
    """Searches for the fastest cut, each made once. One that a tracer listens to is made again."""

    def __init__(self) -> None:
        self.made, self.shared, self.found = derive.searched, True, dict[object, Searched]()

    def __call__(
        self,
        diagram: nk.Diagram,
        known: Mapping[str, int],
        memo: Memo,
        materialise: Sequence[str] | Literal["every"] | None = None,
        multiply_out: bool = False,
    ) -> Searched:
        asked = diagram, known, memo, materialise, multiply_out
        fresh = not memo.known and memo.room == float("inf")
        if not (self.shared and fresh) or active() is not None:
            return self.made(*asked)
        terms = *((o.name, o.node, o.axes) for o in diagram.outputs), *diagram.inputs
        named = diagram.name, *diagram.names.items(), *diagram.scalars.items(), *known.items()
        wanted = memo.dtype, memo.machine, memo.deterministic, *(memo.parts or {}).items()
        key = terms, named, wanted, repr(materialise), multiply_out, *ADDED.items()
        if key not in self.found:
            self.found[key] = self.made(*asked)
        return self.found[key]


SEARCHES = derive.searched = Searches()


@pytest.fixture(autouse=True)
def _searched(request: pytest.FixtureRequest) -> Iterator[None]:
    """Tests that may change what a search depends on have searches of their own."""
    SEARCHES.shared = "monkeypatch" not in request.fixturenames
    yield
    SEARCHES.shared = True


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Each test draws the same numbers from torch, alone and beside others."""
    if torch := sys.modules.get("torch"):
        torch.manual_seed(0)
