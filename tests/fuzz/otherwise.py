"""What else a kernel may make of infinities and NaN (docs/semantics.md): evaluations in which sums
have a lane past the end of an axis, or another order."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

import numpy as np
from programs import Program, Ref, Step
from unsure import FLOAT16, SUMS, Wobble
from values import DTYPE, Value, value

from napkin.ir.evaluate import evaluate
from napkin.ir.node import FLOOR, number, postorder
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.run.interpreted import Ran

Change = Callable[[Step, Value, Sequence[Value]], Value]
"""What a step may have in place of its value, of what it reads."""


def allowed(
    program: Program,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    plan: Plan,
    wobbles: Sequence[Wobble],
    wanted: Sequence[np.ndarray],
) -> list[Wobble]:
    """Wobbles with these evaluations."""
    out = list(wobbles)
    data = [
        Value(n.axes, np.asarray(x).astype(DTYPE[n.kind]))
        for n, x in zip(program.inputs, arrays, strict=True)
    ]
    for found in _evaluations(program, data, sizes, uneven(plan, sizes)):
        for i, (r, axes) in enumerate(program.outputs):
            near = np.asarray(found[r.at].filled(axes, sizes), float)
            out[i] = out[i].beside(np.asarray(wanted[i], float), near)
    return out


def uneven(plan: Plan, sizes: Mapping[str, int]) -> set[str]:
    """The axes that tiles of some kernel do not divide; those that kernels have by other names."""
    tiles = {a: [k.tiles[a] for k in plan.kernels if a in k.tiles] for a in sizes}
    return {a for a, n in sizes.items() if not tiles[a] or any(n % t for t in tiles[a])}


def excused(found: np.ndarray, wanted: np.ndarray, plan: Plan, axes: Sequence[str]) -> np.ndarray:
    """What was found of a result with these axes, with what is wanted in its place where it is 0
    or NaN because a sum leaves out all that it has, or NaN before a state that is no number."""
    fine = np.zeros(wanted.shape, bool)
    if leaves_out(plan):
        fine |= ((found == 0) & np.isnan(wanted)) | (np.isnan(found) & (wanted == 0))
    for at in (i for i, a in enumerate(axes) if _paired(plan, a)):
        back = np.flip(~np.isfinite(wanted), at)
        fine |= np.isnan(found) & np.flip(np.logical_or.accumulate(back, at), at)
    return np.where(fine, wanted, found)


def _paired(plan: Plan, axis: str) -> bool:
    """Whether a kernel computes a scan along an axis by pairs of its positions."""
    return any(f"{axis}_later" in k.tiles for k in plan.kernels)


def leaves_out(plan: Plan) -> bool:
    """Whether a plan has sums of exponentials that are 0 where nothing is left to add: under a
    choice, or below a maximum by hand."""
    streams = [k.choice.kernel.stream for k in plan.kernels]
    tails = postorder(e.node for s in streams for e in s.tails)
    states = (x for s in streams for p in s.passes for x in p.states)
    return any(n.op == "greater" and number(FLOOR) in n.args for n in tails) or any(
        x.held == "carried" and abs(x.init) == -FLOOR for x in states
    )


def leaves_fp16(plan: Plan, ran: Ran, sizes: Mapping[str, int]) -> bool:
    """Whether what a kernel stores in fp16 for another is too large for that, of numbers that are
    not: a sum between two contractions whose order napkin chose, or without a scale that moved."""
    return any(_overflows(plan, k, ran, sizes) for k in plan.kernels)


def _overflows(plan: Plan, k: PlannedKernel, ran: Ran, sizes: Mapping[str, int]) -> bool:
    between = set(plan.materialised)
    outputs = [o for o in k.choice.origin if k.binding[o.name] in between]
    stored = [ran.tensors[k.binding[o.name]] for o in outputs]
    if not any(t.dtype == "fp16" and np.isinf(t.to_float64()).any() for t in stored):
        return False
    leaves = [n for n in postorder(o.node for o in outputs) if n.op == "input"]
    known = {n: ran.tensors[k.binding[str(n.params[0])]].to_float64() for n in leaves}
    found = evaluate([o.node for o in outputs], known, sizes, {})
    return all(np.isfinite(x).all() for x in known.values()) and any(
        np.isfinite(x).all() and np.abs(x).max(initial=0) > FLOAT16.largest for x in found
    )


def _evaluations(
    program: Program, data: Sequence[Value], sizes: Mapping[str, int], axes: Collection[str]
) -> Iterator[list[Value]]:
    past = {a: [_past(x, a) for x in data] for a in axes}
    changes: list[Change] = [
        lambda s, made, _: _ragged(s, made, sizes, past),
        lambda s, made, known: _born(s, made, known, sizes, np.inf),
        lambda s, made, known: _born(s, made, known, sizes, -np.inf),
        lambda s, made, _: _stopped(s, made),
    ]
    for change in changes:
        yield _run(program, data, sizes, change)


def _run(
    program: Program, data: Sequence[Value], sizes: Mapping[str, int], change: Change
) -> list[Value]:
    found = list(data)
    for step in program.steps:
        found.append(change(step, value(step, found, sizes), found))
    return found


def _past(x: Value, axis: str) -> Value:
    """What lies past the end of an axis: zeros, in one lane."""
    if axis not in x.axes:
        return x
    return Value(x.axes, np.zeros_like(x.data.take([0], x.axes.index(axis))))


def _ragged(
    step: Step,
    made: Value,
    sizes: Mapping[str, int],
    past: Mapping[str, list[Value]],
) -> Value:
    """A sum to which the lane past the end of an axis is added, times 0."""
    out = made
    for axis, lanes in past.items():
        lane = value(step, lanes, {**sizes, axis: 1}) if _along(step, lanes, axis) else None
        if lane is not None and step.op in SUMS and axis in step.over[0] and not any(step.keys):
            out = Value(out.axes, out.data + 0.0 * lane.on(out.axes))
            lane = None
        lanes.append(out if lane is None else lane)
    return out


def _along(step: Step, lanes: Sequence[Value], axis: str) -> bool:
    """Whether a step reads a lane, and does to it what it does to any; what is looked up has none,
    nor has what is computed of it."""
    read = [lanes[r.at] for r in step.refs if axis in lanes[r.at].axes]
    known = all(x.data.shape[x.axes.index(axis)] == 1 for x in read)
    return step.op not in {"take", "slide"} and bool(read) and known


def _born(
    step: Step, made: Value, known: Sequence[Value], sizes: Mapping[str, int], other: float
) -> Value:
    """A sum that is NaN of numbers and infinities, with an infinity in its place."""
    if not _reorders(step, known):
        return made
    clean = [Value(x.axes, np.nan_to_num(x.data, nan=1.0, posinf=np.inf, neginf=-np.inf))
             if x.data.dtype.kind == "f" else x for x in known]  # fmt: skip
    born = np.isnan(value(step, clean, sizes).data)
    return Value(made.axes, np.where(born, other, made.data))


def _stopped(step: Step, made: Value) -> Value:
    """A sum of what is computed that is infinite, with NaN in its place."""
    if step.op not in SUMS or made.data.dtype.kind != "f":
        return made
    return Value(made.axes, np.where(np.isinf(made.data), np.nan, made.data))


def _reorders(step: Step, known: Sequence[Value]) -> bool:
    """Whether a factor of a sum may come out of it."""
    read = [a for a in step.args if isinstance(a, Ref)]
    return step.op in SUMS and any(not set(step.over[0]) <= {*known[r.at].axes} for r in read)
