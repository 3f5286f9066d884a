"""Settings of shipped diagrams' kernels, predicted and measured: the first three of the planner's
ranking, the first of each number of warps and stages, and some between.

    python docs/measurements/bench_settings.py rotary_attention gelu_matmul [--on h200]

With --compile I/N only a share of the kernels is compiled, into Triton's cache: run N of them
first.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from heading import heading

from napkin.diagram.library import load
from napkin.measure.tune import measured
from napkin.plan.derive import derive
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.plan.ranked import ranked
from napkin.settings.choice import Choice

FIRST, MOST, SHORT = 3, 14, 8e-6
"""Settings that are taken as they are ranked, settings of one kernel, and seconds of a kernel that
is left out."""


def some(rows: Sequence[Choice]) -> list[Choice]:
    """Settings of a ranking, the least predicted time first."""
    classes = {(c.schedule.warps, c.schedule.stages, c.schedule.warpgroups): c for c in rows[::-1]}
    between = rows[FIRST :: max(1, len(rows) // 20)]
    first = [*rows[:FIRST], *sorted(classes.values(), key=_seconds), *between]
    near = [c for c in first if _seconds(c) < 2.5 * _seconds(rows[0])]
    return sorted(list({id(c): c for c in near}.values())[:MOST], key=_seconds)


def _seconds(c: Choice) -> float:
    return c.time.seconds


def kernels(names: Sequence[str], on: str) -> Iterator[tuple[Plan, PlannedKernel, list[Choice]]]:
    """The kernels of diagrams, and the settings of each that are run."""
    for name in names:
        plan = derive(load(name), on)
        for k in distinct(plan.kernels):
            if _seconds(k.choice) > SHORT:
                yield plan, k, some(ranked(plan, k, 250))


def main() -> None:
    """Measures, or compiles a share."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="+")
    parser.add_argument("--on", default="h200")
    parser.add_argument("--compile", help="I/N")
    asked = parser.parse_args()
    found = kernels(asked.names, asked.on)
    if asked.compile:
        share, shares = map(int, asked.compile.split("/"))
        every = [(plan, k, c) for plan, k, choices in found for c in choices]
        for plan, k, c in every[share::shares]:
            measured(plan, k, [c], 1, 0.0)
        return
    print(heading("us, predicted and measured; the setting; by what it is predicted to be limited"))
    for plan, k, choices in found:
        print(f"\n{plan.name}: {k.name}")
        for r in measured(plan, k, choices, 1, 0.08).rows:
            time = f"{r.measured.median:10.1f}" if r.measured else "         -"
            predicted = 1e6 * r.choice.time.seconds
            print(f"{predicted:10.1f}{time}  {r.choice.schedule}; "
                  f"{r.choice.time.limited_by} {r.note[:80]}".rstrip(), flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
