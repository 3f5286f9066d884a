"""Key sets by brute force: whether each query sees each key, from what each pattern is said to be.

Every pattern is a test of one query and one key, as its definition in words has it; a set over
several axes is the product of its tests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
from programs import Keys

Test = Callable[[int, int], bool]


def seen(keys: Keys, queries: Sequence[int], lengths: Sequence[int], tables: list[np.ndarray]):
    """Whether each query sees each key, as an array with the query axes, then the key axes.

    Args:
        queries, lengths: the sizes of the query axes and of the key axes.
        tables: the values of what the set reads; it takes its own off the front.
    """
    if keys.pattern in {"&", "|"}:
        left, right = (seen(k, queries, lengths, tables) for k in keys.parts)
        return left & right if keys.pattern == "&" else left | right
    given = dict(keys.options)
    starts = tables.pop(0) if keys.placed else None
    out = np.ones((*queries, *lengths), dtype=bool)
    for a in range(len(lengths)):
        test = _test(keys, a, lengths[a], given, tables)
        if not lengths[a]:
            continue
        places = (int(n) for n in starts) if starts is not None else range(queries[a])
        pairs = [[test(i + (keys.at or 0), j) for j in range(lengths[a])] for i in places]
        shape = [1] * (len(queries) + len(lengths))
        shape[a], shape[len(queries) + a] = queries[a], lengths[a]
        out &= np.array(pairs, dtype=bool).reshape(shape)
    return out


def _test(keys: Keys, a: int, n: int, given: dict[str, object], tables: list[np.ndarray]) -> Test:
    p = keys.numbers
    if keys.pattern == "neighborhood":
        k, s, d, causal = (_each(v, a) for v in (p[0], *(given.get(x, y) for x, y in _PLAIN)))
        return _neighborhood(n, k, s, d, causal, bool(given.get("clip")))
    if keys.pattern == "documents":
        ends = np.cumsum(tables.pop(0))
        return lambda i, j: int((ends <= i).sum()) == int((ends <= j).sum())
    if keys.pattern == "bigbird":
        return _bigbird(*p, [tables.pop(0) for _ in keys.tables])
    if keys.pattern == "mirrored":
        return lambda i, j: abs(i + j - (n - 1)) <= p[0]
    return _SIMPLE[keys.pattern](*p, **given)


_PLAIN = (("stride", 1), ("dilation", 1), ("is_causal", False))


def _each(value: object, a: int):
    return value[a] if isinstance(value, tuple) else value


def _steps(left: int, right: int, step: int) -> Test:
    return lambda i, j: (j - i) % step == 0 and -left <= (j - i) // step <= right


def _strided(stride: int, local: bool = True) -> Test:
    def test(i: int, j: int) -> bool:
        near = local and i - j < stride
        return j <= i and (near or (i - j) % stride == 0)

    return test


def _fixed(block: int, columns: int) -> Test:
    def test(i: int, j: int) -> bool:
        if j // block == i // block:
            return j <= i
        return j // block < i // block and j % block >= block - columns

    return test


_SIMPLE: dict[str, Callable[..., Test]] = {
    "causal": lambda: lambda i, j: j <= i,
    "sliding": lambda left, right=0: _steps(left, right, 1),
    "dilated": lambda left, right=0, step=2: _steps(left, right, step),
    "strided": _strided,
    "fixed": _fixed,
    "blocked": lambda block, before=0, after=0: (
        lambda i, j: i // block - before <= j // block <= i // block + after
    ),
    "sinks": lambda count: lambda i, j: j < count,
    "global_tokens": lambda count: lambda i, j: j < count or i < count,
    "thinning": lambda near, step: lambda i, j: _thinning(i - j, near, step),
    "checkered": lambda step: lambda i, j: (i - j) % step == 0,
    "halved": lambda block: lambda i, j: math.floor(i / (2 * block)) * block <= j <= i,
}


def _thinning(back: int, near: int, step: int) -> bool:
    return 0 <= back <= near or back in {near + k * step for k in (1, 2, 3)}


def _bigbird(block: int, window: int, globals_: int, tables: list[np.ndarray]) -> Test:
    def test(i: int, j: int) -> bool:
        if i < globals_ * block or j < globals_ * block:
            return True
        if abs(i // block - j // block) <= window:
            return True
        return any(len(t) and int(t[min(i // block, len(t) - 1)]) == j // block for t in tables)

    return test


def _neighborhood(n: int, k: int, s: int, d: int, causal: bool, clip: bool) -> Test:
    """Generalised neighborhood attention along one axis of length `n`, by its definition."""

    @cache
    def window(i: int) -> set[int]:
        group, place = i % d, i // d
        length = -(-(n - group) // d)
        width = min(k, length) if clip else k
        if causal:
            # A query behind the last key, from another layout, leads itself.
            leader = max(place, min((place // s) * s + s - 1, length - 1))
            first, end = max(leader - k + 1, 0), min(place + 1, length)
        else:
            leader = min((place // s) * s + s // 2, length - 1)
            first = min(max(leader - k // 2, 0), length - width)
            end = first + width
        return {group + t * d for t in range(first, end)}

    return lambda i, j: j in window(i)
