"""The time model beside settings of shipped diagrams, as timed on an H200 (docs/measurements)."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean

import napkin as nk
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.plan.derive import derive
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.labels import labellings
from napkin.settings.pricing import Pricing

FILE = Path(__file__).parents[2] / "docs/measurements/2026-11-23-h200-settings.txt"
SIZES = {"b": 1, "h": 16, "q": 4096, "x": 4096, "d": 128, "v": 128}
ROW = re.compile(r"\s+[\d.]+\s+([\d.]+)  (\S+); (\d+) warps, (\d+) stages;")


def timed(name: str, kernel: str) -> Iterator[tuple[Schedule, float]]:
    """The settings of a kernel on record, and their times in microseconds."""
    _, _, rest = FILE.read_text().partition(f"\n{name}: {kernel}\n")
    for row in rest.partition("\n\n")[0].splitlines():
        if found := ROW.match(row):
            tiles = {a: int(n) for a, n in (t.split("=") for t in found[2].split(","))}
            yield Schedule(tiles, int(found[3]), int(found[4]), described=2), float(found[1])


@nk.diagram("b h q d, b h x d, b h x v, q d, q d -> b h q v", sizes=SIZES)
def queries_rotated(Q, K, V, C, E):
    """What of rotary attention is left where the rotated keys are stored."""
    i, half = nk.index("d"), nk.size("d") // 2
    other = nk.take(Q, d=(i + half) % nk.size("d"))
    rotated = Q * C + nk.where(i < half, -other, other) * E
    S = nk.contract(rotated, K, over="d")
    return nk.contract(nk.softmax(S * nk.size("d") ** -0.5, over="x"), V, over="x")


def priced(plan: nk.Plan, name: str, kernel: str) -> list[tuple[Choice, float]]:
    """Each of these as it is priced."""
    wanted = {kernel} if plan.name == name else {plan.name}
    (terms,) = (k.choice.kernel for k in plan.kernels if k.name in wanted)
    sizes = plan.full(plan.sizes)
    every = labellings(terms.name, terms.origin, terms.names, sizes)
    (made,) = (k for k in every if k.stream.axes == terms.stream.axes)
    pricing = Pricing(made, made.sized(sizes), "bf16", machine("h200"))
    return [(pricing.at(s), us) for s, us in timed(name, kernel)]


def test_readings_at_computed_positions_are_priced_as_they_were_timed() -> None:
    """A lane loads one value, and a warp touches as many lines as a tile has rows."""
    plan = derive(load("rotary_attention"), "h200")
    rows = priced(plan, "rotary_attention", "rotary_attention_shifted_2")
    assert len(rows) == 14
    assert fmean(abs(math.log(1e6 * c.time.seconds / us)) for c, us in rows) < 0.25
    first = min(rows, key=lambda row: row[0].rank)
    assert first[1] == min(us for _, us in rows)


def test_loops_of_rows_computed_before_are_priced_as_they_were_timed() -> None:
    """Each of their matrix instructions is waited for, and they hold registers of a prologue."""
    plan = derive(queries_rotated, "h200", materialise=[])
    rows = priced(plan, "rotary_attention", "rotary_attention")
    assert len(rows) == 6
    assert fmean(abs(math.log(1e6 * c.time.seconds / us)) for c, us in rows) < 0.1


def test_rotated_operands_are_stored_first() -> None:
    """Held by groups, rotated queries took 361 to 669 us: each matrix instruction of such a loop is
    waited for. Attention of what is stored is warp-specialised."""
    plan = derive(load("rotary_attention"), "h200")
    assert [bool(k.schedule.warpgroups) for k in plan.launched.kernels] == [False, False, True]
