"""How far rounding may move a program's results: its evaluation again, with every step disturbed.

Monte Carlo arithmetic (Parker, 1997): what a step computes is moved at random by some roundings of
its size, a sum by roundings of the size of its terms. Results that then move far have a condition
that float32 does not serve, and results that jump are steps of a value that lies on the edge. What
is read from inputs alone, and only selected, is exact and stays. What overflows is NaN.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from programs import Program, Ref, Step
from values import DTYPE, Value, value

SAMPLES = 12
"""Evaluations: what jumps in half of them is seen to jump in one."""

ROUNDINGS = 16
"""Roundings that a step may be off by."""

WOBBLES = 4.0
"""How much further off than the samples a result may be."""

LARGEST, SMALLEST = 1e37, 2.0**-126

SELECTS = {
    "rename", "take", "slide", "compress", "spread", "sort", "max", "min", "maximum", "minimum",
    "where", "neg", "abs", "cast",
}  # fmt: skip
SUMS = {"sum", "mean", "contract", "cumsum"}
ENDLESS = {"log", "div", "rsqrt", "logsumexp", *SELECTS}
"""Operators that make infinities of finite numbers, in float32 the same ones."""


def excess(found: np.ndarray, wanted: np.ndarray, wobble: np.ndarray) -> float:
    """How far values are off beyond what roundings make of them, by norm, beside their size and 1;
    infinite where what is no number differs and roundings do not explain it."""
    found = np.asarray(found, float)
    wanted = np.broadcast_to(np.asarray(wanted, float), found.shape)
    sure = np.isfinite(wobble)
    good = sure & np.isfinite(wanted)
    if not np.array_equal(found[sure & ~good], wanted[sure & ~good], equal_nan=True):
        return np.inf
    gap = np.abs(found[good] - wanted[good]) - WOBBLES * wobble[good]
    if not np.isfinite(gap).all():
        return np.inf
    size = np.linalg.norm(wanted[np.isfinite(wanted)])
    return float(np.linalg.norm(np.maximum(gap, 0.0)) / (1 + size))


def wobbles(
    program: Program,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    wanted: Sequence[np.ndarray],
    rounding: float,
    largest: float = LARGEST,
) -> list[np.ndarray]:
    """How far each value of every output moves; infinite where it leaves the numbers, which end at
    `largest`."""
    rng = np.random.default_rng(0)
    out = [np.zeros(np.shape(w)) for w in wanted]
    for _ in range(SAMPLES):
        found = disturbed(program, arrays, sizes, rounding, rng, largest)
        for i, (r, axes) in enumerate(program.outputs):
            near = np.asarray(found[r.at].filled(axes, sizes), float)
            with np.errstate(all="ignore"):
                same = (near == wanted[i]) | (np.isnan(near) & np.isnan(wanted[i]))
                moved = np.where(same, 0.0, np.abs(near - wanted[i]))
            out[i] = np.fmax(out[i], np.nan_to_num(moved, nan=np.inf))
    return out


def disturbed(
    program: Program,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    rounding: float,
    rng: np.random.Generator,
    largest: float = LARGEST,
) -> list[Value]:
    """The value of every input and step, each moved after it is computed."""
    found = [
        Value(given.axes, np.asarray(x).astype(DTYPE[given.kind]))
        for given, x in zip(program.inputs, arrays, strict=True)
    ]
    exact = [True] * len(found)
    for step in program.steps:
        made = value(step, found, sizes)
        real = made.data.dtype.kind == "f"
        plain = step.op in SELECTS or not real
        exact.append(plain and all(exact[r.at] for r in _read(step)))
        if real and not exact[-1]:
            moved = _moved(step, made.data, found, sizes, rounding * ROUNDINGS, rng)
            made = Value(
                made.axes, np.where(_beyond(step, made.data, found, largest), np.nan, moved)
            )
        found.append(made)
    return found


def _read(step: Step) -> list[Ref]:
    return [a for a in step.args if isinstance(a, Ref)]


def _moved(
    step: Step,
    data: np.ndarray,
    known: Sequence[Value],
    sizes: Mapping[str, int],
    reach: float,
    rng: np.random.Generator,
) -> np.ndarray:
    """What a step computed, moved; in half of the cases 0 where it is too small for float32."""
    with np.errstate(all="ignore"):
        size = _terms(step, known, sizes) if step.op in SUMS else np.abs(data)
        drawn = rng.uniform(-1, 1, data.shape)
        moved = data + np.where(np.isfinite(size), size, 0.0) * reach * drawn
    lost = (np.abs(moved) < SMALLEST) & (rng.random(data.shape) < 0.5)
    return np.where(lost, 0.0, moved)


def _beyond(
    step: Step, data: np.ndarray, known: Sequence[Value], largest: float
) -> np.ndarray | bool:
    """Where a kernel has no number for what a step computes: it overflows, or is a power with a
    real exponent, 2 ** (y log2(x)), of a negative base, 0 ** 0, or 1 to an infinity."""
    with np.errstate(all="ignore"):
        over = np.abs(data) > largest
        if step.op in ENDLESS or any(np.isinf(known[r.at].data).any() for r in _read(step)):
            over &= np.isfinite(data)
        return over | _by_logarithm(step, known)


def _by_logarithm(step: Step, known: Sequence[Value]) -> np.ndarray | bool:
    """Where a power by logarithms is no number."""
    if step.op != "pow" or not all(isinstance(a, Ref) for a in step.args):
        return False
    base, exponent = (known[r.at] for r in _read(step))
    if exponent.data.dtype.kind != "f":
        return False
    axes = tuple(dict.fromkeys((*base.axes, *exponent.axes)))
    return np.isnan(np.log2(base.on(axes)) * exponent.on(axes))


def _terms(step: Step, known: Sequence[Value], sizes: Mapping[str, int]) -> np.ndarray:
    """The sum of the sizes of what a step sums."""
    large = [Value(v.axes, np.abs(v.data)) if v.data.dtype.kind == "f" else v for v in known]
    return np.abs(value(step, large, sizes).data)
