"""The gradient of a program beside central differences of its independent value, in float64.

A gradient is compared along random directions: where it is wrong, it is so along all but a few.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from filled import arrays as fill
from judged import COUNTS, Found, error
from programs import Program
from ties import tied
from unsure import FLOAT64, wobbles
from values import results
from written import diagram as written_diagram

import napkin as nk
from napkin.gradient.gradient import backward
from napkin.gradient.training_pair import backward_with, forward_with, keepable

STEPS = (1e-4, 1e-5, 1e-6, 1e-3, 1e-7)
"""How far inputs are moved: one of these is neither lost in rounding nor past a bend."""

TOLERANCE = 1e-5
"""Of a slope, beside the sum of the sizes of its parts."""

NOISE = 1e-11
"""Of a result, which its difference has, too."""

JITTER = 1e-2
"""What is added to inputs, so that no two values are equal."""


def gradient(program: Program, seed: int) -> None:
    """Raises `Found` where the gradient of a program is not the slope of its value."""
    program = replace(program, rules=())
    f = written_diagram(program)
    try:
        made = nk.gradient(f)
    except (nk.Refusal, nk.InputError) as refused:
        COUNTS["refused"] += 1
        if not any(w in str(refused) for w in REFUSED):
            raise
        return
    rng = np.random.default_rng(seed)
    data = [jittered(a, rng) for a in fill(program, program.sizes, seed)]
    if tied(program, data, program.sizes):
        COUNTS["equal values are ranked"] += 1
        return
    wanted = results(program, data, program.sizes)
    real = [w.dtype.kind == "f" and o.node.kind == "real"
            for w, o in zip(wanted, f.outputs, strict=True)]  # fmt: skip
    cots = [np.where(np.isfinite(w), rng.normal(size=w.shape), 0.0)
            for w, r in zip(wanted, real, strict=True) if r]  # fmt: skip
    found = _tuple(made.evaluate(*data, *cots))
    _refuses(made, data, cots, rng)
    try:
        _kept(f, [*data, *cots], wanted, found, seed)
        _slopes(program, made, data, cots, found, real, rng)
    except Found:
        if not jumps(program, data, wanted):
            raise
        COUNTS["rounding chooses"] += 1


def jumps(program: Program, data: Sequence[np.ndarray], wanted: Sequence[np.ndarray]) -> bool:
    """Whether a result jumps as steps are moved by roundings: a test of a sum that cancels, say,
    holds or not by the order of its terms."""
    with np.errstate(all="ignore"):
        moved = wobbles(program, data, program.sizes, wanted, 2.0**-53, FLOAT64)
    return any((m.by > KEPT * (1 + np.abs(w))).any() for m, w in zip(moved, wanted, strict=True))


def _slopes(program: Program, made: nk.Diagram, data, cots, found, real, rng) -> None:
    """The gradient is the slope of the program's value."""
    slopes = {o.name[1:]: v for o, v in zip(made.outputs, found, strict=True)}

    def value(moved: Sequence[np.ndarray]) -> float:
        kept = [w for w, r in zip(results(program, moved, program.sizes), real, strict=True) if r]
        return float(
            sum((c * np.where(c == 0, 0.0, v)).sum() for c, v in zip(cots, kept, strict=True))
        )

    for i, given in enumerate(program.inputs):
        if given.name in slopes:
            way = np.where(np.isfinite(data[i]), rng.normal(size=data[i].shape), 0.0)
            _compare(given.name, data, i, way, slopes[given.name], value)


def _refuses(made: nk.Diagram, data: Sequence[np.ndarray], cots: list[np.ndarray], rng) -> None:
    """A cotangent of another length than its output is refused."""
    longest = [(k, d) for k, c in enumerate(cots) for d, n in enumerate(c.shape) if n > 1]
    if not longest:
        return
    k, d = longest[rng.integers(len(longest))]
    n = cots[k].shape[d] + rng.choice((-1, 1))
    other = [np.resize(c, (*c.shape[:d], n, *c.shape[d + 1 :])) if i == k else c
             for i, c in enumerate(cots)]  # fmt: skip
    try:
        made.evaluate(*data, *other)
    except nk.InputError:
        COUNTS["other lengths refused"] += 1
        return
    said = f"cotangent {k} has {n} along its axis {d}"
    raise Found("wrong value", "gradient: a cotangent of another length is taken", said)


def _kept(f: nk.Diagram, given: Sequence[np.ndarray], wanted, slopes, seed: int) -> None:
    """The forward that stores some of what may be kept, and the backward that reads it, give the
    same results and slopes."""
    back = backward(f)
    every, rng = keepable(f, back), random.Random(f"kept {seed}")
    kept = [k for k in every if rng.random() < rng.choice((0.3, 0.6, 1.0))]
    n = len(f.inputs)
    stored = _tuple(forward_with(f, back, kept).evaluate(*given[:n]))
    of_outputs = {o.name: v for o, v in zip(f.outputs, stored, strict=False)}
    more = iter(stored[len(f.outputs) :])
    read = [of_outputs[k.name] if k.output else next(more) for k in kept]
    found = _tuple(backward_with(back, kept).evaluate(*given, *read))
    COUNTS["arrays kept"] += len(kept)
    names = [*(o.name for o in f.outputs), *(o.name for o in back.diagram.outputs)]
    stored = stored[: len(f.outputs)]
    pairs = zip(names, [*stored, *found], [*wanted, *slopes], strict=True)
    for name, v, w in pairs:
        if (off := error(v, w)) > KEPT:
            near = [r * (1 + LEAST * rng.uniform(-1, 1)) for r in read]
            moved = [*stored, *_tuple(backward_with(back, kept).evaluate(*given, *near))]
            if error(moved[names.index(name)], v) > KEPT:  # it chooses among equal values
                COUNTS["not smooth"] += 1
                continue
            said = f"{name} off by {off:.2g} where {', '.join(k.name for k in kept)} are kept"
            raise Found("wrong value", "gradient: kept arrays", said)


def _tuple(found: np.ndarray | tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    return found if isinstance(found, tuple) else (found,)


LEAST = 1e-14
"""How far kept arrays are moved, to see whether a result stays."""

KEPT = 1e-6
"""How far results may be off where arrays are kept: some are in float32."""

REFUSED = (
    "no output holds real", "no input holds real", "by a permutation", "has no derivative",
)  # fmt: skip
"""What a refusal of a gradient says."""


def jittered(data: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Values of which no two are equal, if they are real."""
    return data + JITTER * rng.uniform(size=data.shape) if data.dtype.kind == "f" else data


def _compare(name: str, data: list[np.ndarray], i: int, way: np.ndarray, slope, value) -> None:
    parts = np.where(way == 0, 0.0, slope * way)
    said, size = float(parts.sum()), float(np.abs(parts).sum())
    here, tried = value(data), []
    for step in STEPS:
        after, before = (value([*data[:i], data[i] + s * way, *data[i + 1 :]])
                         for s in (step, -step))  # fmt: skip
        middle, bend = (after - before) / (2 * step), abs(after - 2 * here + before) / step
        slack = TOLERANCE * max(size, abs(middle), 1e-3) + NOISE * max(abs(here), 1.0) / step
        if abs(said - middle) <= slack:
            COUNTS["compared"] += 1
            return
        tried.append((middle, bend, slack))
    # Where the differences do not settle, the value is not smooth there.
    middles, bends, slacks = map(np.array, zip(*tried[1:3], strict=True))
    settled = abs(middles[0] - middles[1]) <= 10 * slacks.max() and bends[1] <= 100 * slacks[1]
    if not settled or not np.isfinite(middles).all():
        COUNTS["not smooth"] += 1
        return
    what = "no number" if not np.isfinite(said) else "another slope"
    raise Found("wrong value", f"gradient: {what}", f"d{name}: {said:.9g} for {tried}")
