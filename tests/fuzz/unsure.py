"""How far rounding may move a program's results: its evaluation again, with every step disturbed.

Monte Carlo arithmetic (Parker, 1997): what a step computes is moved at random by some roundings of
its size, a sum by roundings of the size of its terms. Results that then move far have a condition
that float32 does not serve, and results that jump are steps of a value that lies on the edge. What
is read from inputs alone, and only selected, is exact and stays. What overflows is NaN. What
underflows is 0, or a multiple of the least positive number: in one evaluation everywhere, in
another nowhere, in the others here and there; and in one it is all that is lost, for what is left
may be exact. In one evaluation steps are rounded to nearest, to so many bits fewer, and in another
to the bits that floats have: what rounding makes equal, or equal to an input, is so there, and
never where each value moves by itself.

On a device a product and a sum may be one operation (FMA): the sum has the product before it is
rounded, where another term has it after. So x y - x y is 0, or as much as the product was rounded
by. A sum then moves by one rounding of each product that it has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np
from judged import both
from programs import Program, Ref, Step
from values import DTYPE, Value, value

from napkin.plan.plan import Plan

SAMPLES, MANY = 12, 120
"""Evaluations: what jumps in half of them is seen to jump in one. Where a result is then off, there
are many: a rank of values that only rounding parts may be any, and each reads another place."""

ROUNDINGS = 16
"""Roundings that a step may be off by."""

TERMS = 64
"""Terms of a sum that is off by no more than a step."""

UNROUNDED = 2.0**-24
"""How far a product in float32 is from itself rounded, beside its size."""

WOBBLES = 4.0
"""How much further off than the samples a result may be."""


@dataclass(frozen=True)
class Range:
    """The numbers that steps are held in: the largest, the least normal one, the least of all."""

    largest: float
    normal: float
    least: float


FLOAT32 = Range(1e37, 2.0**-126, 2.0**-149)
FLOAT16 = Range(6e4, 2.0**-14, 2.0**-24)
FLOAT64 = Range(1e307, 2.0**-1022, 2.0**-1074)


@dataclass(frozen=True, eq=False)
class Wobble:
    """What roundings make of a result.

    Attributes:
        by: how far they move each value.
        up, down: where they make it infinite.
        anything: where they make it no number, or a number of what is none.
    """

    by: np.ndarray
    up: np.ndarray
    down: np.ndarray
    anything: np.ndarray

    @staticmethod
    def none(wanted: np.ndarray) -> Wobble:
        """No movement yet."""
        never = np.zeros(np.shape(wanted), bool)
        return Wobble(np.zeros(np.shape(wanted)), never, never, never)

    def beside(self, wanted: np.ndarray, near: np.ndarray) -> Wobble:
        """With one more sample."""
        same = (near == wanted) | (np.isnan(near) & np.isnan(wanted))
        odd = ~same & (np.isnan(near) | ~np.isfinite(wanted))
        up, down = (~same & ~odd & (near == end) for end in (np.inf, -np.inf))
        with np.errstate(all="ignore"):
            moved = np.where(same | odd | up | down, 0.0, np.abs(near - wanted))
        return Wobble(
            np.maximum(self.by, moved), self.up | up, self.down | down, self.anything | odd
        )


WIDER = {"bf16", "fp32"}
"""Types of inputs whose numbers may be too small for a product in fp16."""

SELECTS = {
    "rename", "take", "slide", "compress", "spread", "sort", "max", "min", "maximum", "minimum",
    "where", "neg", "abs", "cast", "saturated", "nearest", "xor", "topk", "uniform",
}  # fmt: skip
READS = {"rename", "take", "slide", "neg"}
"""Operators that give what they are given, at other positions or with another sign."""

NARROW = {"bf16": 2.0**-8, "fp16": 2.0**-11, "fp8": 2.0**-4}
"""Half steps of types to which a cast rounds, and the reference does not."""

SUMS = {"sum", "mean", "contract", "cumsum", "added"}
FROM_ONE = {"tanh", "softplus"}
"""Operators that kernels compute by a sum with 1, which is rounded: 2 sigmoid(2 x) - 1, and the
logarithm of 1 + exp(-|x|)."""

TAILS, TAIL = {"ndtr", "gelu"}, 1e-14
"""Operators of the normal distribution, and where they are so small that kernels may have 0."""

EXPONENTIALS = {"exp", "doubled"}
ENDLESS = {"log", "div", "rsqrt", "logsumexp", "log_sum", "smooth_least", *EXPONENTIALS, *SELECTS}
"""Operators that make infinities of finite numbers, in float32 the same ones: an exponential that
is infinite in float64 is so there."""


def excess(found: np.ndarray, wanted: np.ndarray, wobble: Wobble) -> float:
    """How far values are off beyond what roundings make of them, by norm, beside their size and 1;
    infinite where one is no number or infinite and roundings do not explain it."""
    found, wanted = both(found, wanted)
    with np.errstate(all="ignore"):
        gap = np.maximum(np.abs(found - wanted) - WOBBLES * wobble.by, 0.0)
    same = (found == wanted) | (np.isnan(found) & np.isnan(wanted))
    beyond = (wobble.up & (found > wanted)) | (wobble.down & (found < wanted))
    gap = np.where(same | beyond | wobble.anything, 0.0, gap)
    if not np.isfinite(gap).all():
        return np.inf
    size = np.linalg.norm(wanted[np.isfinite(wanted)])
    return float(np.linalg.norm(gap) / (1 + size))


def wobbles(
    program: Program,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    wanted: Sequence[np.ndarray],
    rounding: float,
    held: Range = FLOAT32,
    fused: bool = False,
    samples: int = SAMPLES,
) -> list[Wobble]:
    """What roundings make of each value of every output, where steps are held in numbers of a
    range; and products and sums may be one operation where they are `fused`."""
    rng, many = np.random.default_rng(0), [(rounding, 0.5, False)] * (samples - 5)
    first = [(0.0, 1.0, False), (rounding, 1.0, False), (rounding, 0.0, False), (rounding, 0, True)]
    first.append((2 * rounding / ROUNDINGS, 0, True))
    last: list[tuple[float, float | None, bool]] = [(0.0, None, True), (0.0, 1.0, True)]
    if rounding > UNROUNDED:  # what is computed in float32 has equal values there
        last += [(n * UNROUNDED / ROUNDINGS, 0, True) for n in (1, 2, 4)]
    exact = [np.asarray(w, float) for w in wanted]
    out = [Wobble.none(w) for w in exact]
    every = [(held, s) for s in (*first, *many, *last)]
    if held is FLOAT16:  # what passes between steps of one kernel is held in float32
        every += [(FLOAT32, s) for s in (first[0], *last[:2])]
    for numbers, (reach, lost, nearest) in every:
        found = disturbed(program, arrays, sizes, reach, rng, numbers, lost, nearest, fused)
        for i, (r, axes) in enumerate(program.outputs):
            near = np.asarray(found[r.at].filled(axes, sizes), float)
            out[i] = out[i].beside(exact[i], near)
    return out


def disturbed(
    program: Program,
    arrays: Sequence[np.ndarray],
    sizes: Mapping[str, int],
    rounding: float,
    rng: np.random.Generator,
    held: Range,
    lost: float | None,
    nearest: bool = False,
    fused: bool = False,
) -> list[Value]:
    """The value of every input and step, each moved after it is computed, or rounded to nearest; a
    share of what is too small for normal numbers is 0, or with None, all of it is rounded."""
    found: list[Value] = []
    for given, x in zip(program.inputs, arrays, strict=True):
        data = np.asarray(x).astype(DTYPE[given.kind])
        narrowed = held is FLOAT16 and given.storage in WIDER
        found.append(Value(given.axes, _small(data, held, lost, rng) if narrowed else data))
    exact = [True] * len(found)
    for step in program.steps:
        made = value(step, found, sizes)
        real = made.data.dtype.kind == "f"
        narrow = step.op == "cast" and step.option.get("dtype") in NARROW
        plain = (step.op in SELECTS and not narrow) or not real
        exact.append(plain and all(exact[r.at] for r in _read(step)))
        if real and not exact[-1]:
            reach = _reach(step, made, found, sizes, rounding * ROUNDINGS)
            if narrow and rounding:
                reach = np.maximum(reach, np.abs(made.data) * NARROW[str(step.option["dtype"])])
            if fused and rounding and step.op in {"add", "sub"}:
                reach = reach + UNROUNDED * _products(step, made.axes, program, found, sizes)
            drawn = reach * rng.uniform(-1, 1, made.data.shape)
            # In 16 bits what float32 has rounded is rounded again.
            computed = made.data if held is FLOAT64 else _in_float32(made.data)
            moved = on_grid(computed, reach) if nearest else made.data + drawn
            moved = _small(moved, held, lost, rng)
            if step.op in TAILS and lost:
                far = (np.abs(made.data) < TAIL) & (rng.random(moved.shape) < lost)
                moved = np.where(far, 0.0, moved)
            beyond = _beyond(step, made.data, found, held.largest)
            made = Value(made.axes, np.where(beyond, np.nan, moved))
        found.append(made)
    return found


def _in_float32(data: np.ndarray) -> np.ndarray:
    """Values rounded to float32's precision, of any magnitude."""
    parts, powers = np.frexp(data)
    return np.ldexp(parts.astype(np.float32).astype(float), powers)


def _read(step: Step) -> list[Ref]:
    return [a for a in step.args if isinstance(a, Ref)]


def _reach(
    step: Step,
    made: Value,
    known: Sequence[Value],
    sizes: Mapping[str, int],
    rounding: float,
) -> np.ndarray:
    """How far what a step computed may be off."""
    with np.errstate(all="ignore"):
        size = _terms(step, known, sizes) if step.op in SUMS else np.abs(made.data)
        size = size + 1.0 if step.op in FROM_ONE else size
        size = np.maximum(size, _peak(step, made, known)) if step.op == "either" else size
        long = _long(step, sizes) if step.op in SUMS else 1.0
        reach = np.where(np.isfinite(size), size, 0.0) * rounding * long
        if step.op == "softmax":  # whose scores stay in float32
            alone = min(rounding, ROUNDINGS * UNROUNDED)
            reach = reach + np.abs(made.data) * _score(step, made, known) * alone
        return reach


def _products(
    step: Step,
    axes: Sequence[str],
    program: Program,
    known: Sequence[Value],
    sizes: Mapping[str, int],
) -> np.ndarray | float:
    """The sizes of the products that a sum is computed of at once."""
    own = (known[r.at].on(tuple(axes)) for r in _read(step) if _multiplies(r, program, sizes))
    return sum((np.where(np.isfinite(x), np.abs(x), 0.0) for x in own), 0.0)


def _multiplies(ref: Ref, program: Program, sizes: Mapping[str, int]) -> bool:
    """Whether a value is a product, or a sum of one."""
    if ref.at < len(program.inputs):
        return False
    step = program.steps[ref.at - len(program.inputs)]
    if step.op in READS:
        return _multiplies(_read(step)[0], program, sizes)
    one = step.over and all(sizes[a] == 1 for a in step.over[0])
    return step.op == "mul" or (step.op == "contract" and bool(one))


def on_grid(data: np.ndarray, reach: np.ndarray) -> np.ndarray:
    """Values rounded to multiples of a power of two, by no more than they may be off."""
    with np.errstate(all="ignore"):
        grid = 2.0 ** np.floor(np.log2(reach))
        return np.where((grid > 0) & np.isfinite(data), np.round(data / grid) * grid, data)


def _small(
    data: np.ndarray, held: Range, lost: float | None, rng: np.random.Generator
) -> np.ndarray:
    """Values of which those too small for normal numbers are 0, or the multiples of the least one
    on either side; where none is lost they stay, as in an operator that is computed at once with
    the next."""
    small = np.abs(data) < held.normal
    if lost is None:
        near = np.where(small, data, 0.0)
        return np.where(small, np.round(near / held.least) * held.least, data)
    if not lost or not small.any():
        return data
    with np.errstate(all="ignore"):
        steps = np.where(small, np.abs(data) / held.least, 0.0)
    near = np.copysign(np.floor(steps + rng.random(data.shape)) * held.least, data)
    near = np.where(rng.random(data.shape) < lost, np.copysign(0.0, data), near)
    return np.where(small, near, data)


def _beyond(
    step: Step, data: np.ndarray, known: Sequence[Value], largest: float
) -> np.ndarray | bool:
    """Where a kernel has no number for what a step computes: it overflows, or is a power with a
    real exponent, 2 ** (y log2(x)), of a negative base, 0 ** 0, or 1 to an infinity; or one of the
    exponentials that the steps of a scan take does."""
    with np.errstate(all="ignore"):
        if step.option.get("form") == "online":
            read = [np.asarray(known[r.at].data, float) for r in _read(step)]
            if any((np.abs(x) > math.log(largest)).any() for x in read):
                return True
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


def _long(step: Step, sizes: Mapping[str, int]) -> float:
    """How many more roundings a long sum may be off by: those of equal terms add up."""
    return max(1.0, math.prod(sizes[a] for a in step.over[0]) / TERMS)


def _score(step: Step, made: Value, known: Sequence[Value]) -> np.ndarray:
    """The largest score of each softmax, of one array or of several together: two kernels that
    compute the scores may round them each in its way, and exp(s' - max(s)) is off by as much as
    they differ."""
    found = np.zeros([1] * len(made.axes))
    for r, gone in zip(_read(step), step.over, strict=False):
        x = known[r.at]
        size = np.where(np.isfinite(x.data), np.abs(x.data), 0.0)
        places = tuple(x.axes.index(a) for a in gone if a in x.axes)
        rest = tuple(a for a in x.axes if a not in gone)
        found = np.maximum(found, Value(rest, size.max(axis=places, initial=0.0)).on(made.axes))
    return found


def _peak(step: Step, made: Value, known: Sequence[Value]) -> np.ndarray:
    x, gone = known[_read(step)[0].at], step.over[0]
    return peak(x, gone, made.axes)


def peak(x: Value, gone: Sequence[str], axes: Sequence[str]) -> np.ndarray:
    """The largest that 1 - (1 - a) (1 - b) ... is on the way along some axes, in two orders: of
    numbers below 0 it grows, and others then take it back."""
    rest = tuple(a for a in x.axes if a not in gone)
    length = dict(zip(x.axes, x.data.shape, strict=True))
    largest = np.zeros([length[a] for a in rest])
    for order in (gone, gone[::-1]):
        ways = x.on((*rest, *order)).reshape(*largest.shape, math.prod(length[a] for a in gone))
        parts = 1.0 - np.multiply.accumulate(1.0 - ways, axis=-1)
        largest = np.maximum(largest, np.abs(parts).max(axis=-1, initial=0.0))
    return Value(rest, largest).on(tuple(axes))


def held_in(types: Set[str], plan: Plan) -> Range:
    """The numbers that a plan's steps are held in: those of fp16 where it stores or multiplies in
    between, and rounds to it."""
    between = plan.materialised or "tl.dot" in plan.source
    return FLOAT16 if "fp16" in types and between else FLOAT32


def _terms(step: Step, known: Sequence[Value], sizes: Mapping[str, int]) -> np.ndarray:
    """The sum of the sizes of what a step sums."""
    large = [Value(v.axes, np.abs(v.data)) if v.data.dtype.kind == "f" else v for v in known]
    return np.abs(value(step, large, sizes).data)
