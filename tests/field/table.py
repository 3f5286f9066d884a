"""Print the table of all diagrams of the field: `python tests/field/table.py > docs/field.md`.

With names of families, only those; with `--sample N`, every N-th diagram.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from statistics import median
from time import process_time

from entries import FOUND, Entry

import napkin as nk
from napkin.studies.roofline import roofline
from napkin.studies.strategies import compulsory

HERE = Path(__file__).resolve().parent
FAMILIES = (
    "attention", "norms", "losses", "mixtures", "convolutions", "recurrences", "physics",
    "retrieval", "optimisers", "transforms",
)  # fmt: skip
MACHINE, DTYPE = "h100", "bf16"
FAR = 1.5
"""A plan whose time over the bound's is above this is listed with what limits it."""

HEAD = f"""# Diagrams of the field

Written by `python tests/field/table.py > docs/field.md`. Plans are for {MACHINE} in {DTYPE}, and
times are predictions. The diagrams are in `tests/field`, a file for each family.

* **kernels**: launches.
* **bytes**: the bytes that all groups read and write, over the compulsory bytes (every input read
  once, every output written once). What groups read again is in the cache as a rule.
* **stored**: the bytes of every tensor once for each kernel, over the compulsory bytes. Above 1,
  kernels pass arrays on through memory, or read an input again.
* **time / bound**: the predicted time over that of the compulsory bytes at the rate of DRAM, or of
  the operations at the peak of what computes them, whichever is longer. No launch, no latency and
  no special function is in the bound, so short kernels are far above it.
* **limited by**: what sets the time of the kernel that takes longest.
"""


@dataclass(frozen=True)
class Row:
    """A diagram in numbers, or why there are none."""

    name: str
    kernels: int = 0
    bytes: float = 0.0
    stored: float = 0.0
    seconds: float = 0.0
    over: float = 0.0
    limit: str = ""
    refused: str = ""


def entries(family: str) -> list[Entry]:
    """The entries of a family's file."""
    if family not in FOUND:
        import_module(family)
    return FOUND[family]


def measured(entry: Entry) -> Row:
    """An entry's plan in numbers."""
    try:
        plan = nk.derive(entry.make(), MACHINE, dtype=DTYPE)
    except nk.NapkinError as refusal:
        return Row(entry.name, refused=str(refusal))
    lines, least = [roofline(k) for k in plan.kernels], compulsory(plan)
    once = sum(line.levels[0].bytes for line in lines)
    bound = max(least / plan.machine.dram_rate, sum(x.operations / x.peak for x in lines))
    return Row(
        entry.name,
        len(plan.kernels),
        plan.moved / least,
        once / least,
        plan.seconds,
        plan.seconds / bound,
        plan.limited_by,
    )


def table(family: str, rows: Sequence[Row]) -> Iterator[str]:
    """A family's part of the page."""
    planned = [r for r in rows if not r.refused]
    yield f"\n## {family.capitalize()}\n"
    if planned:
        far = Counter(r.limit for r in planned if r.over > FAR)
        why = ", ".join(f"{many} by {limit}" for limit, many in far.most_common())
        middle = [median(x) for x in ([r.bytes for r in planned], [r.over for r in planned])]
        yield f"{len(rows)} diagrams, {len(rows) - len(planned)} refused. Medians:"
        yield f"bytes {middle[0]:.2f}, time over the bound's {middle[1]:.2f}."
        yield f"{far.total()} above {FAR}, limited: {why or '-'}.\n"
    yield "| diagram | kernels | bytes | stored | time, us | time / bound | limited by |"
    yield "| --- | ---: | ---: | ---: | ---: | ---: | --- |"
    for r in rows:
        if r.refused:
            yield f"| {r.name} | refused: {r.refused} | | | | | |"
            continue
        numbers = f"{r.bytes:.2f} | {r.stored:.2f} | {r.seconds * 1e6:,.1f} | {r.over:.2f}"
        yield f"| {r.name} | {r.kernels} | {numbers} | {r.limit} |"


def page(families: Iterable[str], every: int = 1) -> Iterator[str]:
    """The lines of the page."""
    yield HEAD.rstrip("\n")
    for family in families:
        rows: list[Row] = []
        for entry in entries(family)[::every]:
            began = process_time()
            rows.append(measured(entry))
            print(f"{family} {entry.name}: {process_time() - began:.1f} s", file=sys.stderr)
        yield from table(family, rows)


def main() -> None:
    """Print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("families", nargs="*", default=FAMILIES)
    parser.add_argument("--sample", type=int, default=1)
    given = parser.parse_args()
    print("\n".join(page(given.families or FAMILIES, given.sample)))


if __name__ == "__main__":
    main()
