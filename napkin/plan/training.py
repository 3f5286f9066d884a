"""`nk.training`: a forward and a backward planned together, by what is kept from one to the other.

Whatever the backward computes of the inputs alone may be kept by the forward. A kept array is
written by one and read by the other, and takes memory until then; one that is not kept is computed
again. Arrays are taken up one after another, the best first, by what the time model says of both
kernels; outputs of the diagram are there in any case.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.gradient.gradient import backward
from napkin.ir.whole_numbers import flag
from napkin.machine.machines import Machine
from napkin.plan.derive import memo_of
from napkin.plan.fitting import first_that_fits
from napkin.plan.keeping import Candidate, Keep, Pairs
from napkin.plan.plan import Plan
from napkin.settings.effort import PAIRS

BOUNDED = f"after the work of {PAIRS:,} settings, no further arrays were looked at"


@dataclass(frozen=True, eq=False, repr=False)
class Training:
    """A forward and a backward plan, and what passes between them.

    Attributes:
        forward: from the inputs to the outputs, and then what is kept beside them.
        backward: from the inputs, the cotangents, and what is kept, to the gradients.
        kept: the names of what is kept, in order.
        candidates: the arrays that may be kept.
        keep: what was asked for.
        bounded: whether some were not looked at, as the search was long.
    """

    forward: Plan
    backward: Plan
    kept: tuple[str, ...]
    candidates: tuple[Candidate, ...]
    keep: Keep
    bounded: bool

    @property
    def seconds(self) -> float:
        """Predicted time of both."""
        return self.forward.seconds + self.backward.seconds

    @property
    def bytes(self) -> int:
        """Bytes that are kept from the forward to the backward, beside inputs and outputs."""
        return sum(c.bytes for c in self.candidates if c.kept)

    def to_json(self) -> dict[str, Any]:
        """Both plans and the table of candidates as plain data."""
        return {
            "name": self.forward.name,
            "keep": self.keep,
            "kept": list(self.kept),
            "kept_bytes": self.bytes,
            "bounded": self.bounded,
            "time_us": round(self.seconds * 1e6, 3),
            "candidates": [c.to_json() for c in self.candidates],
            "forward": self.forward.to_json(),
            "backward": self.backward.to_json(),
        }

    def __repr__(self) -> str:
        return "\n".join([
            f"{self.forward.name}, trained on {self.forward.machine.name}, keep={self.keep}",
            "",
            *_table(self.candidates),
            *([f"the search is bounded: {BOUNDED}"] * self.bounded),
            "",
            f"kept: {self.bytes:,} bytes beside inputs and outputs",
            f"predicted time {self.seconds * 1e6:.1f} us: forward "
            f"{self.forward.seconds * 1e6:.1f}, backward {self.backward.seconds * 1e6:.1f}",
        ])  # fmt: skip


def _table(candidates: Sequence[Candidate]) -> list[str]:
    """The candidates as lines of columns."""
    rows = [("array", "bytes", "us to keep", "us to rebuild", "")]
    rows += [
        (
            f"{c.name}[{' '.join(c.axes)}] {c.dtype}",
            "an output" if c.output else f"{c.bytes:,}",
            _shown(c.forward),
            _shown(c.backward),
            "kept" if c.kept else "rebuilt",
        )
        for c in candidates
    ]
    wide = [max(len(r[i]) for r in rows) for i in range(4)]
    return [
        "  ".join([r[0].ljust(wide[0]), *map(str.rjust, r[1:4], wide[1:4]), r[4]]).rstrip()
        for r in rows
    ]


def _shown(seconds: float) -> str:
    return "-" if math.isnan(seconds) else f"{seconds * 1e6:.1f}"


def training(
    diagram: Diagram,
    wrt: str | Iterable[str] | None = None,
    keep: Keep = "fastest",
    *,
    on: str | Machine = "h100",
    sizes: Mapping[str, int] | None = None,
    dtype: str = "bf16",
    deterministic: bool = True,
) -> Training:
    """Plan the forward and the backward of a diagram together.

    Args:
        wrt: names of inputs, as of `nk.gradient`.
        keep: what is kept for the backward beside inputs and outputs. "fastest": whatever makes
            the two fastest. "least": what takes the least memory, arrays between the backward's
            kernels among it, of which none is larger than the largest input or output if that can
            be, and of such the fastest. A number: whatever makes them fastest in that many bytes.
        on, sizes, dtype, deterministic: as of `nk.derive`.

    Raises:
        InputError: `keep` is none of these, or as `nk.gradient` and `nk.derive` say.
        Refusal: something has no derivative, or no kernel fits the machine.
    """
    _check_keep(keep)
    deterministic = flag(deterministic, "deterministic")
    back = backward(diagram, wrt)
    memo = memo_of(on, dtype, deterministic=deterministic)
    pairs = Pairs(diagram, back, diagram.check_sizes(sizes or {}), memo, keep)
    kept = pairs.best()
    table = tuple(pairs.candidate(k, kept) for k in pairs.keepable)
    ahead, behind = first_that_fits(
        lambda: [found.fitted() for found in pairs.chosen(kept)], pairs.leave_out
    )
    return Training(ahead, behind, tuple(k.name for k in kept), table, keep, pairs.bounded)


def _check_keep(keep: object) -> None:
    if keep in ("fastest", "least"):
        return
    if isinstance(keep, bool) or not isinstance(keep, int) or keep < 0:
        raise InputError(
            f"training: keep={keep!r}; write 'fastest', 'least', or how many bytes may be kept"
        )
