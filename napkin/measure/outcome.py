"""How a problem of the matrix went."""

from __future__ import annotations

from dataclasses import dataclass

from napkin.check.verdict import on_device
from napkin.measure.matrix import Problem


@dataclass(frozen=True)
class Outcome:
    """How one problem went.

    Attributes:
        status: "ok", "wrong", "refused" (no kernel fits, and the message said so) or "skipped".
        relative_error: the largest of its outputs, against float64.
    """

    group: str
    title: str
    status: str
    relative_error: float | None
    tolerance: float
    seconds: float
    note: str = ""

    @staticmethod
    def of(
        p: Problem, status: str, error: float | None = None, seconds: float = 0.0, note: str = ""
    ) -> Outcome:
        """The outcome of a problem."""
        title = f"{p.title}, {p.dtype}, {p.layout}"
        return Outcome(
            p.group, title, status, error, on_device(p.diagram(), p.dtype), seconds, note
        )

    def __str__(self) -> str:
        error = "" if self.relative_error is None else f", error {self.relative_error:.1e}"
        return f"{self.status.upper()} {self.group}: {self.title}{error} {self.note}".rstrip()


def brief(text: str) -> str:
    """A message on one line: its beginning, and its end, where a compiler says what is wrong."""
    line = " ".join(text.split())
    return line if len(line) <= 300 else f"{line[:120]} ... {line[-170:]}"
