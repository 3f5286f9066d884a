"""What came of a run: counted, printed, and written as JSON again and again, so that a run that is
cut short leaves what it found."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from pathlib import Path

from draw import draw
from modes import AGAIN, again
from pool import Result
from written import text

OFTEN = 15.0
"""Seconds between writings."""


class Record:
    """The results of a run.

    Args:
        path: where they are written; None for nowhere.
        tally: what was drawn, if that is counted (`drawn.Tally`).
    """

    def __init__(self, mode: str, path: Path | None, tally=None) -> None:
        self.mode, self.path, self.tally = mode, path, tally
        self.done, self.failed, self.tries = 0, list[Result](), 0
        self.counts: Counter[str] = Counter()
        self.begun = self.written = time.monotonic()
        self.cut = False

    @property
    def seconds(self) -> float:
        """How long it has taken."""
        return time.monotonic() - self.begun

    def add(self, result: Result) -> None:
        """One more program."""
        self.done, self.tries = self.done + 1, max(self.tries, result.seed // AGAIN)
        data = result.data or {}
        self.counts.update(data.get("counts", {}))
        if self.tally is not None and "drawn" in data:
            self.tally.add(*data["drawn"], result.seed)
        if result.failure is not None:
            self.failed.append(result)
            said = f"{result.failure.category}: {result.failure.cause}"
            print(f"seed {result.seed}: {said}", flush=True)
        if time.monotonic() - self.written > OFTEN:
            self.write()

    def causes(self) -> dict[tuple[str, str], list[int]]:
        """The seeds of each cause, the commonest first."""
        found: dict[tuple[str, str], list[int]] = {}
        for r in self.failed:
            found.setdefault((r.failure.category, r.failure.cause), []).append(r.seed)
        return dict(sorted(found.items(), key=lambda item: -len(item[1])))

    def summary(self) -> str:
        """How many were tried, how fast, and what failed."""
        rate = self.done / max(self.seconds, 1e-9)
        said = f"{self.done} programs in {self.seconds:.0f} s ({rate:.2f} a second)"
        lines = [f"\n{said}, {len(self.failed)} failed{', cut short' if self.cut else ''}"]
        lines += [f"{n} {what}" for what, n in sorted(self.counts.items())]
        for (category, cause), seeds in self.causes().items():
            lines.append(f"{len(seeds):5} {category}: {cause}: {', '.join(map(str, seeds[:6]))}")
        return "\n".join(lines)

    def write(self) -> None:
        """The results so far as JSON: whole, or as they were before."""
        self.written = time.monotonic()
        if self.path is None:
            return
        part = self.path.with_name(f"{self.path.name}.part")
        part.write_text(json.dumps(self.data(), indent=1), encoding="utf-8")
        os.replace(part, self.path)

    def data(self) -> dict[str, object]:
        """The results as plain data."""
        return {
            "mode": self.mode,
            "programs": self.done,
            "seconds": round(self.seconds, 1),
            "cut": self.cut,
            "tries": self.tries,
            "counts": dict(self.counts),
            "failed": [_row(r) for r in self.failed],
            "drawn": self.tally.table() if self.tally is not None else {},
            "rare": self.tally.rare() if self.tally is not None else {},
        }


def _row(r: Result) -> dict[str, object]:
    failure, program = r.failure, draw(again(r.seed)[0])
    return {
        "seed": r.seed,
        "category": failure.category,
        "cause": failure.cause,
        "detail": failure.detail,
        "seconds": round(r.seconds, 2),
        "program": text(program),
        "strewn": {i.name: list(i.strewn) for i in program.inputs if i.strewn},
        **failure.facts,
    }
