"""Scans, random numbers and ranks on plain arrays, by their definitions in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

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


def shares(x: np.ndarray, at: int) -> np.ndarray:
    """Exponentials over their sum."""
    e = np.exp(x - x.max(at, keepdims=True, initial=-np.inf))
    return e / e.sum(at, keepdims=True)


ANY_STEPS: dict[str, Callable[..., np.ndarray]] = {
    "largest": lambda h, b, at: np.where(np.isnan(h) | (h > b), h, b),
    "squashed": lambda h, a, b, at: np.tanh(b + h * a),
    "clamped": lambda h, b, at: np.clip(b + h, -1, 1),
    "shared": lambda h, a, b, at: b + shares(a * h, at),
    "running": lambda h, b, at: b + np.tanh(np.cumsum(h, at)),
    "recalled": lambda h, a, b, at: h + a * (b - (a * h).sum(at, keepdims=True) / h.shape[at]),
}
"""The same of `programs.ANY_STEPS`, with the place of an axis of the state."""


def scanned(
    form: str, start: np.ndarray, parts: Sequence[np.ndarray], within: int = 0
) -> np.ndarray:
    """The states of a scan along the first axis, one position after another; a step may take in the
    axis `within` of the state."""
    states, h = [], start
    for each in zip(*parts, strict=True):
        h = STEPS[form](h, *each) if form in STEPS else ANY_STEPS[form](h, *each, within)
        states.append(h)
    return np.array(states).reshape(np.shape(parts[0]))


def uniform(seed: int | np.ndarray, shape: Sequence[int], places: Sequence[int]) -> np.ndarray:
    """Random numbers of a shape, which differ along the axes at some places of it.

    Args:
        seed: a number, or whole numbers along axes of the shape.
    """
    salt = 0x3C6EF372
    if isinstance(seed, int):
        key = _hash(_hash(_word(seed >> 32), _word(salt)), _word(seed))
    else:
        key = _hash(_word(seed), _word(salt))
    for at in places:
        own = np.arange(shape[at]).reshape([-1 if i == at else 1 for i in range(len(shape))])
        key = _hash(key, _hash(_word(own), _word(salt)))
    steps = (key >> np.uint32(9)).astype(float)
    return np.broadcast_to((2 * steps + 1) / 2**24, shape)


def _word(x: int | np.ndarray) -> np.ndarray:
    return np.asarray(x % 2**32).astype(np.uint32)


def _hash(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    h = a ^ b
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x21F0AAAD)
    h = (h ^ (h >> np.uint32(15))) * np.uint32(0xD35A2D97)
    return h ^ (h >> np.uint32(15))


def ranked(
    x: np.ndarray, seen: np.ndarray, which: int, largest: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Of each row the value that is the `which`-th from the largest or the smallest, the first of
    equal ones, and its place among those seen; what is past the last is the extremum of nothing."""
    least, most = (INT32.min, INT32.max) if x.dtype.kind == "i" else (-np.inf, np.inf)
    values = np.full(x.shape[:-1], least if largest else most, x.dtype)
    places = np.full(x.shape[:-1], INT32.max)
    for at in np.ndindex(*x.shape[:-1]):
        order = sorted(np.flatnonzero(seen[at]), key=lambda i: -x[at][i] if largest else x[at][i])
        if which < len(order):
            values[at], places[at] = x[at][order[which]], order[which]
    return values, places
