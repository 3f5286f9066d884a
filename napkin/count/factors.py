"""A number for every group as a product of arrays along few axes each, which is never formed whole:
arrays that share no axis are summed apart."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from operator import mul
from typing import Any

import numpy as np

from napkin.ir.evaluate import aligned

Array = np.ndarray[Any, Any]
Factor = tuple[tuple[str, ...], Array]
"""Axes, and a whole number or a truth for every position along them: one where all are alike."""

MARKED, WIDEST = 2**22, 2**62
"""Columns that there may be: so many are marked one by one, and so many have a number each."""


def joined(factors: Iterable[Factor]) -> list[Factor]:
    """The same product, of factors that share no axis, and have none along which all are alike."""
    out: list[Factor] = []
    for axes, value in map(_differing, factors):
        near = [f for f in out if not set(axes).isdisjoint(f[0])]
        out = [f for f in out if set(axes).isdisjoint(f[0])]
        out.append(_product([*near, (axes, value)]))
    return out


def _differing(factor: Factor) -> Factor:
    axes, value = factor
    if 1 not in value.shape:
        return factor
    return tuple(a for a, n in zip(axes, value.shape, strict=True) if n != 1), value.squeeze()


def _product(factors: Sequence[Factor]) -> Factor:
    every = tuple(dict.fromkeys(a for axes, _ in factors for a in axes))
    return every, reduce(mul, [aligned(value, axes, every) for axes, value in factors])


def summed(factors: Iterable[Factor], over: Mapping[str, int]) -> int:
    """The sum of a product over all positions of the axes `over`, each of so many."""
    parts = joined(factors)
    held = {a for axes, _ in parts for a in axes}
    rest = math.prod([n for a, n in over.items() if a not in held])
    return rest * math.prod([int(value.sum()) for _, value in parts])


def summed_outside(
    factors: Iterable[Factor], others: Sequence[Sequence[Factor]], over: Mapping[str, int]
) -> int:
    """The sum of a product over the positions of the axes `over` at which none of `others` holds,
    each of which is a product of truths."""
    factors = joined(factors)
    if not others or not all(value.any() for _, value in factors):
        return summed(factors, over)
    first, *rest = others
    first = joined(f for f in first if not f[1].all())
    if not all(value.any() for _, value in first):
        return summed_outside(factors, rest, over)
    if not first:
        return 0
    if len(first) == 1:
        ((axes, value),) = first
        return summed_outside([*factors, (axes, ~value)], rest, over)
    inside = summed_outside([*factors, *first], rest, over)
    return summed_outside(factors, rest, over) - inside


def most(products: Sequence[Sequence[Factor]], at_once: int) -> int:
    """The most that a sum of products is at any position. Where more than `at_once` different
    values of the parts would be tried, at most this: the sum of what each product is at most."""
    parts = [joined(p) for p in products]
    found = np.array([[math.prod([int(v) for axes, v in p if not axes])] for p in parts])
    for axes, together in joined(f for p in parts for f in p if f[0]):
        own = [[f for f in p if f[0] and set(f[0]) <= set(axes)] for p in parts]
        every = [_product([(axes, np.ones_like(together)), *f])[1] for f in own]
        values = _different(np.reshape(every, (len(parts), -1)))
        if found.shape[1] * values.shape[1] > at_once:
            found, values = (x.max(axis=1, keepdims=True) for x in (found, values))
        found = np.reshape(found[:, :, None] * values[:, None, :], (len(parts), -1))
    return int(found.sum(axis=0).max(initial=0))


def _different(columns: Array) -> Array:
    """The different columns of an array of whole numbers from 0, in order."""
    shape = tuple(int(n) + 1 for n in columns.max(axis=1, initial=0))
    if math.prod(shape) > WIDEST:
        return np.unique(columns, axis=1)
    places = np.ravel_multi_index(tuple(columns), shape)  # sorting columns takes 30 times as long
    if math.prod(shape) <= MARKED:
        found = np.flatnonzero(np.bincount(places, minlength=1))
    else:
        found = np.unique(places)
    return np.stack(np.unravel_index(found, shape))
