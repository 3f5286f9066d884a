"""The time model beside every setting whose time is on record, and its constants fitted to them.

The files `*-h100-settings.csv` have one line for each kernel that was timed in the runs of its
day: what was run, on which sizes, in which setting, and the median. No GPU is needed.
`*-gradient-kernels.csv` and `*-scans.csv` have kernels of gradients and of scans by pairs, in ways
that the planner takes or not: with each, what its groups do, as it was counted on that day.

    python docs/measurements/fit_model.py [--fit FAMILY] [--off 0.15]

prints the mean absolute error of each family in each run, and of sweeps how much longer the first
choice took than the best that was measured; --off names the shapes that are off by more. --fit
searches the constants that a family (of `FITTED`) decides for the least mean error over it, and
prints them.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean, median

import numpy as np
from problems import KEYS, heads
from scipy.optimize import minimize

import napkin as nk
from napkin.count.matrix_products import WARPGROUP_ROWS
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.machine.calibration import Constants
from napkin.machine.machines import Machine, machine
from napkin.plan.plan import Plan
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.labels import labellings
from napkin.settings.pricing import Pricing
from napkin.timing.execution import Execution
from napkin.timing.kernel_time import predict

SETTINGS = sorted(Path(__file__).parent.glob("*-h100-settings.csv"))
GRADIENTS = sorted(Path(__file__).parent.glob("*-h100-gradient-kernels.csv"))
SCANS = sorted(Path(__file__).parent.glob("*-h200-scans.csv"))
PLACE = machine("h100")

FITTED = {
    "attention": (
        "stall", "special_slots", "hidden_2", "hidden_3", "chain_iteration", "wait", "l2_apart",
    ),
    "product": ("start", "iteration", "arrival", "l2_share", "partial"),
    "rows": ("row_wait", "row_lanes", "row_moves", "row_slots", "uneven"),
    "gradients": ("formed", "wide", "pieces", "finishing", "scattered"),
    "scans": ("carry", "carry_moves", "exchange", "link"),
}  # fmt: skip
"""What a family of kernels alone decides: no single run tells these constants apart. None is below
0."""

SWEPT = 0.3
"""What a setting of a sweep counts in the mean, where a planned shape counts 1: there are more of
them, and most are no choices."""

RANKED = {"attention": 21, "product": 26, "rows": 48, "decode": 8}
"""Settings of a sweep by their rank then; those after them are such as no plan takes."""

WIDEST = 0.4
"""Logarithm of a ratio at most: what the model does not know of (spilled registers) decides
nothing."""

LANED = ("new shapes 8", "new shapes 9", "new shapes 10", "tiles 4", "tiles 5", "rows 1")
"""Runs in which lanes kept the folds of rows, as today."""


@dataclass(frozen=True)
class Timed:
    """A kernel that was timed, as it is priced today; microseconds."""

    run: str
    name: str
    sizes: Mapping[str, int]
    choice: Choice
    rank: int
    measured: float
    constants: Constants | None = None

    @property
    def family(self) -> str:
        first = self.name.split("_")[0].split(" ")[0]
        return {"attention": "attention", "matmul": "product", "decode": "decode"}.get(
            first, "rows"
        )

    @property
    def swept(self) -> bool:
        return self.run.startswith(("tiles", "rows"))

    @property
    def priced(self) -> Choice:
        """At these constants; by default those of the machine."""
        time = predict(PLACE, "bf16", self.choice.run, self.constants)
        return replace(self.choice, time=time)

    @property
    def predicted(self) -> float:
        return 1e6 * self.priced.time.seconds

    @property
    def ratio(self) -> float:
        return self.predicted / self.measured

    @property
    def about(self) -> str:
        tiles = " ".join(f"{a}={n}" for a, n in self.choice.schedule.tiles.items() if n > 1)
        sizes = " ".join(f"{a}={n}" for a, n in self.sizes.items())
        return (
            f"{self.run}: {self.name} {sizes}; {tiles}, {self.choice.schedule.words}: predicted "
            f"{self.predicted:.1f} us, measured {self.measured:.1f}, {self.ratio:.2f}"
        )


@dataclass(frozen=True)
class Counted:
    """A kernel that was timed, and what its groups do; microseconds.

    Attributes:
        run: the run in which it was timed.
        chosen: whether it is what the planner took.
        place: the machine.
    """

    run: str
    name: str
    run_by: Execution
    measured: float
    chosen: bool
    family: str = "gradients"
    place: Machine = PLACE
    constants: Constants | None = None

    @property
    def swept(self) -> bool:
        return not self.chosen

    @property
    def ratio(self) -> float:
        seconds = predict(self.place, "bf16", self.run_by, self.constants).seconds
        return 1e6 * seconds / self.measured

    @property
    def about(self) -> str:
        schedule = self.run_by.schedule
        return (
            f"{self.run}: {self.name}; {schedule.words}: measured {self.measured:.1f} us, "
            f"{self.ratio:.2f}"
        )


def counted() -> Iterator[Counted]:
    """The kernels of gradients and of scans on record."""
    for row in (row for file in GRADIENTS for row in _rows(file)):
        chosen = row["chosen"] == "1"
        about = f"seed {row['seed']}, {'chosen' if chosen else 'others'}"
        yield Counted(about, row["kernel"], _does(row), float(row["measured_us"]), chosen)
    for row in (row for file in SCANS for row in _rows(file)):
        about, took = f"{row['problem']}, {row['way']}", float(row["measured_us"])
        yield Counted(about, row["kernel"], _does(row), took, True, "scans", machine("h200"))


def _rows(file: Path) -> Iterator[dict[str, str]]:
    yield from csv.DictReader(file.read_text().splitlines())


def _does(row: Mapping[str, str]) -> Execution:
    does = json.loads(row["does"])
    return Execution(**{**does, "schedule": Schedule(**does["schedule"])})


@cache
def diagram_of(name: str) -> Diagram:
    """A problem's diagram, by the name that tables give it."""
    if name.startswith("attention "):
        return heads(KEYS[name.removeprefix("attention ")])
    return heads() if name == "decode" else load(name)


@cache
def plan_of(name: str) -> Plan:
    """Some plan of it, for its one kernel's terms."""
    drawn = name.startswith("attention ") or name == "decode"  # the others have sizes of their own
    sizes = {"h": 64, "q": 4096, "x": 4096, "d": 128} if drawn else {}
    return nk.derive(diagram_of(name), on="h100", sizes=sizes)


def numbers(text: str) -> dict[str, int]:
    """Sizes and tiles, as they stand in a line."""
    return {a: int(n) for a, n in (part.split("=") for part in text.split())}


def timed() -> Iterator[Timed]:
    """What is on record, as far as today's planner has such settings."""
    for file in SETTINGS:
        for row in csv.DictReader(file.read_text().splitlines()):
            plan, sizes = plan_of(row["name"]), numbers(row["sizes"])
            (kernel,) = plan.kernels
            known, terms = plan.full({**plan.sizes, **sizes}), kernel.choice.kernel
            wanted = row["stream"], int(row["passes"])
            for made in labellings(terms.name, terms.origin, terms.names, known):
                stream = made.stream
                if (stream.axis, len(stream.passes) if stream.axis else 0) == wanted:
                    own = made.sized(known)
                    choice = Pricing(made, own, "bf16", PLACE).at(
                        Schedule(
                            numbers(row["tiles"]),
                            int(row["warps"]),
                            int(row["stages"]),
                            persistent=int(row["persistent"]),
                        )
                    )
                    yield Timed(
                        row["run"], row["name"], sizes, choice, int(row["rank"] or 0),
                        float(row["measured_us"]),
                    )  # fmt: skip
                    break


def judged(rows: Sequence[Timed]) -> list[Timed]:
    """The rows that the model is judged on: kernels as they are today, in settings that a plan may
    take."""
    return [
        r for r in rows
        if r.rank <= RANKED.get(r.family, 0) or not r.rank
        if r.family != "rows" or r.run in LANED
        if not r.choice.run.singles  # those loaded values one by one, which none does today
        if not (r.swept and 0 < r.choice.run.rows < WARPGROUP_ROWS)
    ]  # fmt: skip


def table(rows: Sequence[Timed | Counted]) -> None:
    """Errors by run and family."""
    kinds: dict[tuple[str, str], list[float]] = {}
    for r in rows:
        kinds.setdefault((r.run, r.family), []).append(r.ratio)
    for (run, family), ratios in sorted(kinds.items()):
        print(f"{run:14s} {family:10s} {len(ratios):4d} settings, mean absolute error "
              f"{100 * off(ratios):5.1f} %, median ratio {median(ratios):.2f}")  # fmt: skip
    planned = [r.ratio for r in rows if r.run.startswith("new shapes")]
    print(f"{len(planned)} drawn shapes: mean absolute error {100 * off(planned):.1f} %")
    for about, count, first, five in sweeps([r for r in rows if isinstance(r, Timed)]):
        print(f"{about}: {count} settings, first choice {first:.3f} of the best, best of five "
              f"{five:.3f}")  # fmt: skip


def sweeps(rows: Sequence[Timed]) -> Iterator[tuple[str, int, float, float]]:
    """Of each sweep: what of, settings, time of the model's first choice over the best that was
    measured, and of the best of its first five."""
    found: dict[str, list[Timed]] = {}
    for r in rows:
        if r.swept:
            sizes = " ".join(f"{a}={n}" for a, n in r.sizes.items())
            found.setdefault(f"{r.run}: {r.name} {sizes}", []).append(r)
    for about, every in found.items():
        best = min(r.measured for r in every)
        order = sorted(every, key=lambda r: r.priced.rank)
        five = min(r.measured for r in order[:5])
        yield about, len(every), order[0].measured / best, five / best


def off(ratios: Sequence[float]) -> float:
    """Mean absolute error."""
    return fmean(abs(x - 1) for x in ratios)


def fitted(rows: Sequence[Timed | Counted], family: str) -> Constants:
    """The constants of least mean error over a family."""
    known, names = Constants.of(PLACE), FITTED[family]
    found = [r for r in rows if r.family == family]
    weights = np.array([SWEPT if r.swept else 1.0 for r in found])

    def scaled(scales: Sequence[float]) -> Constants:
        made = {n: getattr(known, n) * float(s) for n, s in zip(names, scales, strict=True)}
        return replace(known, **made)

    def error(scales: Sequence[float]) -> float:
        if min(scales) < 0:
            return math.inf
        constants = scaled(scales)
        logs = np.abs([math.log(replace(r, constants=constants).ratio) for r in found])
        return float(np.average(np.minimum(logs, WIDEST), weights=weights))

    best = np.ones(len(names))
    for _ in range(2):  # once more from where it came to rest
        options = {"maxfev": 500, "adaptive": True}
        best = minimize(error, best, method="Nelder-Mead", options=options).x
    return scaled(best)


def main() -> None:
    """Print what was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fit", choices=[*FITTED])
    parser.add_argument("--off", type=float, default=math.inf)
    given = parser.parse_args()
    rows = [*judged(list(timed())), *counted()]
    if given.fit:
        constants = fitted(rows, given.fit)
        for name in FITTED[given.fit]:
            print(f"{name} = {getattr(constants, name):.3g}")
        rows = [replace(r, constants=constants) for r in rows]
    table(rows)
    for r in rows:
        if not r.swept and abs(r.ratio - 1) > given.off:
            print(r.about)


if __name__ == "__main__":
    main()
