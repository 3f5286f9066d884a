"""The time model of bands that only add products up, beside every setting that is on record, and
its constants fitted to them.

The files `*-h100-bands-of-sums.csv` have one line for each time that a setting took: the diagram
and its sizes, the axis along which groups lie side by side (none where they take turns) and how
many do, tiles, stages, groups in a block of rows, and the median in microseconds. No GPU is needed.

    python docs/measurements/fit_bands.py [--fit] [--off 0.15]

prints the mean absolute error of each diagram, and the settings that are off by more than --off.
--fit searches the constants for the least mean error, and prints them.
"""

from __future__ import annotations

import argparse
import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
from scipy.optimize import minimize

import napkin as nk
from napkin.diagram.library import load
from napkin.machine.calibration import Constants
from napkin.machine.machines import machine
from napkin.schedule import specialised
from napkin.settings.pricing import Pricing
from napkin.settings.specialised import ROWS
from napkin.timing.execution import Execution
from napkin.timing.kernel_time import predict

SETTINGS = sorted(Path(__file__).parent.glob("*-h100-bands-of-sums.csv"))
PLACE = machine("h100")
FITTED = (
    "sums_cooperative", "sums_ping_pong", "sums_l2", "sums_partial", "sums_exposed", "sums_start",
)  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """One time on record: what was run, in words, microseconds, and what the model knows of it."""

    diagram: str
    text: str
    us: float
    run: Execution

    def off(self, constants: Constants) -> float:
        """The logarithm of predicted over measured time."""
        return math.log(predict(PLACE, "bf16", self.run, constants).seconds * 1e6 / self.us)


@cache
def priced(diagram: str, a: int, b: int, c: int) -> Pricing:
    (k,) = nk.derive(
        load(diagram), on="h100", sizes={"a": a, "b": b, "c": c}, parts={"b": 1}
    ).kernels
    return Pricing(k.choice.kernel, k.choice.sizes, "bf16", PLACE)


def settings() -> Iterator[Setting]:
    """Those that the planner may take: of the rows that it prices, in its blocks of rows."""
    for line in (x for path in SETTINGS for x in csv.DictReader(path.open())):
        sizes = [int(line[x]) for x in "abc"]
        axis, groups = line["axis"], int(line["groups"])
        tiles = {x: int(line[f"tile_{x}"]) for x in "abc"}
        tiles = {x: n // (groups if x == axis else 1) for x, n in tiles.items()}
        if tiles["a"] > (ROWS if axis else 2 * ROWS):
            continue
        found = priced(line["diagram"], *sizes).at(
            specialised(tiles, groups, axis, int(line["stages"]), persistent=PLACE.sms)
        )
        if found.schedule.swizzle != int(line["rows"]):
            continue
        shape = " ".join(f"{x}={n}" for x, n in found.schedule.tiles.items())
        text = f"{' x '.join(map(str, sizes))}: {found.schedule.side}, {shape}"
        yield Setting(line["diagram"], text, float(line["us"]), found.run)


def fit(every: Sequence[Setting]) -> Constants:
    """The constants of least mean error."""
    start = Constants.of(PLACE)
    first = np.array([getattr(start, n) for n in FITTED])

    def constants(x: np.ndarray) -> Constants:
        return replace(start, **dict(zip(FITTED, (float(v) for v in first * x), strict=True)))

    def error(x: np.ndarray) -> float:
        if (x <= 0).any():
            return 1e9
        return fmean(abs(s.off(constants(x))) for s in every)

    how = {"maxiter": 1500, "xatol": 1e-3, "fatol": 1e-5}
    found = minimize(error, np.ones(len(FITTED)), method="Nelder-Mead", options=how)
    return constants(found.x)


def main() -> None:
    """Print how far the model is off."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--fit", action="store_true", help="search constants")
    parser.add_argument("--off", type=float, default=0.15, help="settings to name")
    given = parser.parse_args()
    every = list(settings())
    constants = fit(every) if given.fit else Constants.of(PLACE)
    if given.fit:
        print("  ".join(f"{n} {getattr(constants, n):.4g}" for n in FITTED))
    for diagram in sorted({s.diagram for s in every}):
        own = [s.off(constants) for s in every if s.diagram == diagram]
        print(f"{diagram:18s} {len(own):3d} settings, mean absolute error "
              f"{fmean(map(abs, own)):.1%}, mean {fmean(own):+.1%}")  # fmt: skip
    for s in every:
        if abs(s.off(constants)) > given.off:
            print(f"  {s.diagram:18s} {s.text}: {s.us:.1f} us, {math.exp(s.off(constants)):.2f}")


if __name__ == "__main__":
    main()
