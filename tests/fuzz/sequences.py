"""Scans, random numbers and ranks on plain arrays, by their definitions in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from named import Value
from programs import FORMS, Ref, Step, union

INT32 = np.iinfo(np.int32)
STEPS: dict[str, Callable[..., np.ndarray]] = {
    "decayed": lambda h, a, b: b + h * a,
    "average": lambda h, a, b: (1 - a) * h + a * b,
    "kept": lambda h, test, b: np.where(test, h, b),
    "reset": lambda h, test, a, b: b + test * (a * h),
    "signed": lambda h, b: b - h,
    "divided": lambda h, a, b: h / a + b / a,
    "summed": lambda h, b: b + h,
    "lowered": lambda h, b: h - b,
    "scaled": lambda h, a: a * h,
    "twice": lambda h, a, b, c: (a + b) * h - c,
}
"""What a step of a scan makes of the state, by the name of its form (`programs.STEPS`)."""


LOWEST = float(np.finfo(np.float32).min)
"""Where the maximum of a softmax starts."""


def shares(x: np.ndarray, at: int) -> np.ndarray:
    """Exponentials over their sum; 0 where all are."""
    e = np.exp(x - x.max(at, keepdims=True, initial=LOWEST))
    total = e.sum(at, keepdims=True)
    return e / np.where(total == 0, 1.0, total)


ANY_STEPS: dict[str, Callable[..., np.ndarray]] = {
    "largest": lambda h, b, at: np.where(np.isnan(h) | (h > b), h, b),
    "squashed": lambda h, a, b, at: np.tanh(b + h * a),
    "clamped": lambda h, b, at: np.clip(b + h, -1, 1),
    "shared": lambda h, a, b, at: b + shares(a * h, at),
    "running": lambda h, b, at: b + np.tanh(np.cumsum(h, at)),
    "recalled": lambda h, a, b, at: h + a * (b - (a * h).sum(at, keepdims=True) / h.shape[at]),
}
"""The same of `programs.ANY_STEPS`, with the place of an axis of the state."""


def product(h: np.ndarray, w: np.ndarray, at: int) -> np.ndarray:
    """A state times a matrix, whose columns are the last axis of `w`."""
    return np.moveaxis((h[..., None] * w).sum(at), -1, at)


def sigmoid(x: np.ndarray) -> np.ndarray:
    """1 / (1 + exp(-x))."""
    return np.exp(-np.logaddexp(0.0, -x))


WIDER_STEPS: dict[str, Callable[..., np.ndarray | tuple[np.ndarray, ...]]] = {
    "multiplied": lambda h, b, w, at: np.tanh(b + product(h, w, at)),
    "rotated": lambda h, b, a, w, at: b + a * product(h, w, at),
    "delta": lambda h, a, k, v, at: a * h + k * v - k * (k * h).sum(at, keepdims=True),
    "corrected": lambda h, a, k, v, b, at: (
        a * h + b * k * (v - (k * a * h).sum(at, keepdims=True))
    ),
    "fed": lambda h, a, k, v, b, q, at: (
        a * h - b * k * (k * h).sum(at, keepdims=True) + q * v
    ),
    "normed": lambda h, b, at: (b + h) / np.sqrt(1 + (h**2).mean(at, keepdims=True)),
    "ordered": lambda h, b, at: np.sort(b + np.sin(h), at),
    "counted": lambda h, n, at: np.where(n > h, n, h - 1),
    "moment": lambda h, c, a, b, at: (b + a * h, np.tanh(h + c)),
    "online": lambda h, c, b, at: (
        np.maximum(h, b), (c * np.exp(h) + np.exp(b)) / np.exp(np.maximum(h, b))
    ),
    "gated": lambda h, c, a, b, w, at: (a * np.tanh(c), a * c + sigmoid(b + product(h, w, at))),
    "delayed": lambda h, c, g, a, b, at: (c, g, np.sin(b + a * h)),
    "shares": lambda h, c, a, b, at: (shares(h + c, at), b + a * c),
}  # fmt: skip
"""The same of `programs.WIDER_STEPS` and `programs.CORRECTED`; matrices have their columns last."""


def scan(step: Step, args: list[Value], sizes: Mapping[str, int]) -> Value:
    """One of the states of a scan, one position after another."""
    option, (along,) = step.option, step.over[0]
    form, columns = FORMS[option["form"]], option.get("product")
    every = union(*(x.axes for x in args))
    rest = tuple(a for a in every if a not in {along, columns})
    at, n = rest.index(option["within"]) if "within" in option else 0, form.states
    states = [np.asarray(x.filled(rest, sizes)) for x in args[:n]]
    whole = all(x.data.dtype.kind in "bi" for x in args)
    states = [x.astype(np.int64 if whole else float) for x in states]
    parts = [
        x.filled((along, *rest, columns) if columns in x.axes else (along, *rest), sizes)
        for x in args[n:]
    ]
    taken, found = (STEPS | ANY_STEPS | WIDER_STEPS)[option["form"]], []
    for each in zip(*parts, strict=True):
        more = () if option["form"] in STEPS else (at,)
        made = taken(*states, *each, *more)
        states = list(made) if n > 1 else [made]
        found.append(states[option.get("which", 0)])
    shape = [sizes[a] for a in (along, *rest)]
    axes = tuple(a for a in every if a != columns)
    return Value(axes, Value((along, *rest), np.array(found).reshape(shape)).on(axes))


def numbers(seed: int | np.ndarray, shape: Sequence[int], places: Sequence[int]) -> np.ndarray:
    """Random numbers of a shape, which differ along the axes at some places of it.

    Args:
        seed: a number, or whole numbers along axes of the shape.
    """
    place, first = _word(0x3C6EF372), _word(0x9E3779B9)
    if isinstance(seed, int) and not INT32.min <= seed <= INT32.max:
        key = _hash(_hash(_word(seed >> 32), first), _word(seed))
    else:
        key = _hash(_word(seed), first)
    for at in places:
        own = np.arange(shape[at]).reshape([-1 if i == at else 1 for i in range(len(shape))])
        key = _hash(key, _hash(_word(own), place))
    steps = (key >> np.uint32(9)).astype(float)
    return np.broadcast_to((2 * steps + 1) / 2**24, shape)


def uniform(step: Step, args: list[Value], sizes: Mapping[str, int]) -> Value:
    """Random numbers along axes, for each of several seeds."""
    seed, given = args[-1], step.args[-1]
    axes = union(seed.axes, step.over[0])
    shape = [sizes[a] for a in axes]
    own = seed.on(axes) if isinstance(given, Ref) else int(given)
    return Value(axes, numbers(own, shape, [axes.index(a) for a in step.over[0]]))


def dropout(step: Step, args: list[Value], sizes: Mapping[str, int]) -> Value:
    """Values of which some are 0, and the others larger by as much."""
    x, p, _ = args
    u = uniform(step, args, sizes)
    axes, share = union(x.axes, u.axes), np.round(p.data * 2**23) / 2**23
    kept = np.where(u.on(axes) < share, 0.0, 1.0 / (1.0 - share))
    return Value(axes, x.on(axes) * np.where(share >= 1, 0.0, kept))


def ranked(step: Step, x: Value, mask: Value | None, sizes: Mapping[str, int]) -> Value:
    """The place of an extremum, or one of the largest values or its place."""
    (over,) = step.over[0]
    kept = tuple(a for a in union(x.axes, mask.axes if mask else ()) if a != over)
    full = x.filled((*kept, over), sizes)
    own = np.ones(full.shape, bool) if mask is None else mask.filled((*kept, over), sizes)
    option = step.option
    both = ranks(full, own, int(option.get("which", 0)), step.op != "argmin")
    return Value(kept, both[option.get("what") != "values"])


SEQUENCES = {"scan": scan, "uniform": uniform, "dropout": dropout}
"""What computes the value of a step."""


def _word(x: int | np.ndarray) -> np.ndarray:
    return np.asarray(x % 2**32).astype(np.uint32)


def _hash(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    h = a ^ b
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0xD35A2D97)
    return h ^ (h >> np.uint32(15))


def ranks(
    x: np.ndarray, seen: np.ndarray, which: int, largest: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the value that is the `which`-th from the largest or the smallest, NaN before
    all, the first of equal ones, and its place among those seen; what is past the last is the
    extremum of nothing."""
    sign = -1 if largest else 1
    least, most = (INT32.min, INT32.max) if x.dtype.kind == "i" else (-np.inf, np.inf)
    values = np.full(x.shape[:-1], least if largest else most, x.dtype)
    places = np.full(x.shape[:-1], INT32.max)
    for at in np.ndindex(*x.shape[:-1]):
        row = np.where(np.isnan(x[at]), -np.inf, sign * x[at].astype(float))
        order = np.flatnonzero(seen[at])
        order = order[np.lexsort((row[order], ~np.isnan(x[at][order])))]
        if which < len(order):
            values[at], places[at] = x[at][order[which]], order[which]
    return values, places
