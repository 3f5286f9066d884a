"""The rows of a verdict: every prediction beside what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from napkin.errors import NapkinError


class CheckFailed(NapkinError):
    """A check found a prediction that does not hold."""


@dataclass(frozen=True)
class ValueRow:
    """The error of one output in one case.

    Attributes:
        moves: how far rounding the inputs once more moves it, by norm, where the error passes the
            tolerance: it tells a diagram that no kernel computes more exactly from a wrong kernel,
            and changes no verdict.
        overflow: the array of the reference that passes what kernels compute in, where the error
            passes the tolerance: it is neither right nor wrong then, and the row does not hold.
        undefined: why no derivative is known that a gradient could be compared with.
        terms: of an output that is 0 but for rounding, the largest number that it is computed of:
            its error is relative to that. 0 of others.
    """

    case: str
    output: str
    relative_error: float
    tolerance: float
    moves: float = 0.0
    overflow: str = ""
    undefined: str = ""
    terms: float = 0.0

    @property
    def ok(self) -> bool:
        """Whether the error is within the tolerance; NaN is not."""
        return self.relative_error <= self.tolerance and not self.undefined

    @property
    def mark(self) -> str:
        """That in words, and where it is not, how sensitive the output is."""
        if self.overflow:
            return f"OVERFLOW: {self.overflow}; give inputs or ranges"
        if self.undefined:
            return f"UNDEFINED: {self.undefined}; give inputs or ranges"
        if self.terms:
            of = f", of terms up to {self.terms:.1e}: the output is 0 but for rounding"
            return ("ok" if self.ok else "WRONG") + of
        moves = f"; rounding its inputs alone moves it by {self.moves:.1e}" if self.moves else ""
        return ("ok" if self.ok else "WRONG") + moves


@dataclass(frozen=True)
class TrafficRow:
    """Bytes of one tensor in one direction, in one kernel and one case."""

    case: str
    kernel: str
    tensor: str
    direction: str
    predicted: int
    counted: int

    @property
    def ok(self) -> bool:
        """Whether they are equal."""
        return self.predicted == self.counted


@dataclass(frozen=True)
class ResourceRow:
    """What one kernel takes on one architecture.

    Attributes:
        operands: bytes of the largest TMA box, which the compiler allocates at least
            (`PlannedKernel.operand_bytes`); 0 on another architecture than that of the plan's
            machine, for which nothing is predicted.
        room: bytes that a group of that machine has at most; likewise.
        allocated: bytes that the compiler allocates; None where it refuses the kernel.
        registers, spills: of a thread, in registers and bytes; None where they are not known.
    """

    kernel: str
    arch: str
    operands: int
    room: int
    allocated: int | None
    registers: int | None
    spills: int | None
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether the kernel compiles, and on the plan's machine takes what is predicted."""
        if self.allocated is None:
            return False
        return not self.room or self.operands <= self.allocated <= self.room

    @property
    def said(self) -> str:
        """The bytes of shared memory in words."""
        taken = self.allocated
        if taken is None:
            return "none: it does not compile"
        if not self.room:
            return f"{taken:,} bytes"
        below = "<=" if self.operands <= taken else "> "
        above = "<=" if taken <= self.room else "> "
        return f"{self.operands:,} {below} {taken:,} {above} {self.room:,} bytes"


@dataclass(frozen=True)
class Verdict:
    """Every row of a check.

    Attributes:
        derivatives: of a gradient, its errors beside slopes of the diagram's values.
    """

    name: str
    values: tuple[ValueRow, ...]
    traffic: tuple[TrafficRow, ...]
    resources: tuple[ResourceRow, ...]
    notes: tuple[str, ...] = ()
    derivatives: tuple[ValueRow, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether every row holds."""
        return all(self.verdicts.values())

    @property
    def verdicts(self) -> dict[str, bool]:
        """Whether the rows of each kind hold: three verdicts, or four of a gradient, none of which
        says anything of the others."""
        kinds = {"values": self.values, "bytes": self.traffic, "resources": self.resources}
        kinds |= {"derivatives": self.derivatives} if self.derivatives else {}
        return {kind: all(r.ok for r in rows) for kind, rows in kinds.items()}

    @property
    def relative_error(self) -> float:
        """The largest error of any output."""
        return max((r.relative_error for r in self.values), default=0.0)

    def raise_if_wrong(self) -> None:
        """Raise with the rows that failed.

        Raises:
            CheckFailed: some row does not hold.
        """
        every = (*self.values, *self.traffic, *self.resources, *self.derivatives)
        bad = [r for r in every if not r.ok]
        if bad:
            lines = "; ".join(str(r) for r in bad[:5])
            raise CheckFailed(f"{self.name}: {len(bad)} predictions do not hold: {lines}")

    def to_json(self) -> dict[str, Any]:
        """The verdict as plain data."""
        beside = [_plain(r) for r in self.derivatives]
        return {
            "ok": self.ok,
            "values": {
                "relative_error": self.relative_error,
                "tolerance": max((r.tolerance for r in self.values), default=0.0),
                "ok": all(r.ok for r in self.values),
                "rows": [_plain(r) for r in self.values],
            },
            "traffic": [asdict(r) for r in self.traffic],
            "resources": [asdict(r) for r in self.resources],
            "notes": list(self.notes),
            **({"derivatives": beside} if beside else {}),
        }

    def __str__(self) -> str:
        lines = [f"{self.name}: {in_words(self.verdicts)}"]
        for v in self.values:
            lines.append(f"  {v.case}: {v.output} error {v.relative_error:.2e} {v.mark}")
        for t in self.traffic:
            mark = "=" if t.ok else "!="
            lines.append(
                f"  {t.case}: {t.kernel} {t.direction} {t.tensor} {t.predicted} {mark} {t.counted}"
            )
        for r in self.resources:
            lines.append(
                f"  {r.kernel} {r.arch} shared {r.said}, {r.registers} registers, {r.spills} bytes "
                "spilled"
            )
        for v in self.derivatives:
            lines.append(f"  {v.output} beside {v.case} {v.relative_error:.2e} {v.mark}")
        return "\n".join(lines)


def _plain(row: ValueRow) -> dict[str, Any]:
    data = asdict(row)
    return {k: v for k, v in data.items() if v or k not in {"overflow", "undefined"}}


def in_words(verdicts: Mapping[str, bool]) -> str:
    """Verdicts in words."""
    if all(verdicts.values()):
        return "every prediction holds"
    said = (f"{kind} {'hold' if ok else 'do NOT hold'}" for kind, ok in verdicts.items())
    return ", ".join(said)
