"""Whether what was found is what is wanted, to rounding."""

from __future__ import annotations

import re
import traceback
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

COUNTS: Counter[str] = Counter()
"""What a mode counts of one program: kernels that were run, sources that were compiled."""


@dataclass(frozen=True)
class Failure:
    """What is wrong with a program.

    Attributes:
        category: wrong value, wrong bytes, imprecise, crash, refused, timeout, does not compile.
        cause: equal for failures that seem to have one cause.
        detail: what was tried and found.
        facts: more of it by name, as plain data.
    """

    category: str
    cause: str
    detail: str = ""
    facts: Mapping[str, object] = field(default_factory=dict[str, object])


class Found(Exception):
    """A failure, on its way up."""

    def __init__(
        self, category: str | Failure, cause: str = "", detail: str = "", **facts: object
    ) -> None:
        super().__init__(category, cause, detail)
        own = isinstance(category, Failure)
        self.failure = category if own else Failure(category, cause, detail, facts)


WORST = (
    "wrong value",
    "crash",
    "timeout",
    "does not compile",
    "wrong bytes",
    "imprecise",
    "refused",
)
"""Categories, the worst first."""


def worst(failures: list[Failure]) -> Failure:
    """The worst of several failures."""
    return min(failures, key=lambda f: WORST.index(f.category))


def both(found: np.ndarray, wanted: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What was found and is wanted, as floats of one shape. NaN is found where it is wanted and an
    infinity is found: sums in another order may have that (docs/semantics.md)."""
    found = np.asarray(found, float)
    wanted = np.broadcast_to(np.asarray(wanted, float), found.shape)
    return np.where(np.isnan(wanted) & np.isinf(found), np.nan, found), wanted


def reordered(found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """What was found, with an infinity where it is wanted and NaN is found: infinities of both
    signs, or one and 0, meet in sums in another order (docs/semantics.md)."""
    return np.where(np.isnan(found) & np.isinf(wanted), wanted, found)


def error(found: np.ndarray, wanted: np.ndarray) -> float:
    """How far values are off, by norm, beside their size and 1; infinite where what is no number
    differs."""
    found, wanted = both(found, wanted)
    good = np.isfinite(wanted)
    if good.all() and np.isfinite(found).all():
        with np.errstate(all="ignore"):
            return float(np.linalg.norm(found - wanted) / (1 + np.linalg.norm(wanted)))
    if not np.array_equal(found[~good], wanted[~good], equal_nan=True):
        return np.inf
    if not np.isfinite(found[good]).all():
        return np.inf
    with np.errstate(all="ignore"):
        gap, size = np.linalg.norm((found - wanted)[good]), np.linalg.norm(wanted[good])
    return float(gap / (1 + size))


def differing(found: np.ndarray, wanted: np.ndarray) -> str:
    """The first values that differ most, and what they should be."""
    found = np.asarray(found, float)
    wanted = np.broadcast_to(np.asarray(wanted, float), found.shape)
    with np.errstate(all="ignore"):
        gap = np.nan_to_num(np.abs(found - wanted), nan=np.inf)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    gap = np.where(same, 0.0, gap)
    at = np.argsort(-gap, axis=None, kind="stable")[:3]
    places = [tuple(map(int, np.unravel_index(i, found.shape))) for i in at]
    return "; ".join(f"{found[p]:.6g} for {wanted[p]:.6g} at {p}" for p in places)


def crash(problem: BaseException) -> Failure:
    """What was raised, and where in napkin."""
    frames = traceback.extract_tb(problem.__traceback__)
    inside = [f for f in frames if "/napkin/" in f.filename]
    last = inside[-1] if inside else frames[-1]
    place = f"{Path(last.filename).parent.name}/{Path(last.filename).name}:{last.name}"
    kind = type(problem).__name__
    category = "refused" if kind in {"Refusal", "InputError"} else "crash"
    said = str(problem).splitlines() or [""]
    return Failure(category, f"{kind} at {place}: {plain(said[0])[:110]}", str(problem)[:2000])


def plain(said: str) -> str:
    """What was said without the names and numbers of one program."""
    said = re.sub(r"^kernel \w+, program \([\d, ]*\): ", "", said)
    said = re.sub(r", at line \d+: .*", "", said)
    said = re.sub(r"'[^']*'", "'..'", said)
    return re.sub(r"\d+", "N", said)
