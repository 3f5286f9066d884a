"""The order in which groups start, and how many tiles they fetch in it.

Groups start in the order of their numbers, as many at a time as run at once: a wave. A tile is read
by the groups that stand at its place along the axes that the array carries. Along the other grouped
axes the tile repeats, and its readers count through these like an odometer. The distance from one
reader to the next, in numbers, depends only on which of these digits goes up, and not on the tile.
So there are as many distances as digits that repeat the tile, and no group is looked at by itself.

A swizzle (`GROUP_M`) numbers groups in blocks: so many along one axis, the fastest, times all along
the next. A wave of them is nearer to a square, and reads less. Where blocks do not divide the axis
the last is smaller, and distances differ from tile to tile; then groups are looked at one by one.
Of very many groups some waves are, which are spread over all.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from operator import mul
from typing import Any

import numpy as np

MOST = 256
"""Waves that are counted; their mean stands for those after them."""

LOOKED = 2**17
"""Groups that are looked at one by one, at most; one wave, if that has more."""

SPREAD = (math.sqrt(5) - 1) / 2
"""Where in its stretch of the order a wave lies that is looked at: this share of a stretch further
than the one before, modulo 1. So these waves do not keep step with blocks of groups."""

FAR = 2**62
"""Numbers of groups from here on are Python's: numpy's might overflow."""


@dataclass(frozen=True)
class Order:
    """How the number of a group is taken apart into its places along the grouped axes.

    Attributes:
        digits: the axis, by its place among the grouped ones, and how many groups along it; the
            last is the fastest. An axis that is cut into sections has two.
        rows: groups along the last axis but one that are numbered before the next along the last,
            where they do not divide it; else 0.
    """

    digits: tuple[tuple[int, int], ...]
    rows: int = 0

    def blocked(self, rows: int) -> Order:
        """The same with groups numbered in blocks of so many along the last axis but one."""
        *outer, (a, many), column = self.digits
        rows = min(rows, many)
        if many % rows:
            return Order(self.digits, rows)
        return Order((*outer, (a, many // rows), column, (a, rows)))

    @cached_property
    def groups(self) -> int:
        """How many groups there are."""
        return math.prod(n for _, n in self.digits)

    @cached_property
    def strides(self) -> tuple[int, ...]:
        """Groups from one place along each digit to the next."""
        passed = itertools.accumulate((n for _, n in reversed(self.digits)), mul, initial=1)
        return tuple(passed)[-2::-1]

    def tiles(self, carried: Collection[int]) -> int:
        """Tiles of an array that carries these of the grouped axes."""
        return math.prod(n for axis, n in self.digits if axis in carried)

    def repeating(self, carried: Collection[int]) -> tuple[int, ...]:
        """The digits along which a tile repeats of an array that carries these axes."""
        return tuple(i for i, (axis, n) in enumerate(self.digits) if axis not in carried and n > 1)

    def together(self, carried: Collection[int]) -> int:
        """Groups in a row that read the same tile of an array that carries these axes."""
        out = 1
        if self.rows:
            (row, _), (column, columns) = self.digits[-2:]
            if row in carried:
                return 1
            if column in carried and columns > 1:
                return self.rows
        for axis, n in reversed(self.digits):
            if axis in carried and n > 1:
                break
            out *= n
        return out

    def before(self, number: Any, still: tuple[int, ...]) -> Any:
        """How many groups before this one, or before each of an array of them, stand first along
        each of the digits `still`."""
        return _before(_runs(self.digits, still), number)


_Run = tuple[bool, int, int]


def _before(runs: Sequence[_Run], number: Any) -> Any:
    """`Order.before` of the digits that `_runs` gave."""
    out, rest, here = 0, number, 1
    for first, block, inside in runs:
        place, rest = (rest // block, rest % block) if block > 1 else (rest, 0)
        if first:  # all that stand first here come before those that do not
            out, here = out + here * (place > 0) * inside, here * (place == 0)
        else:
            out = out + here * place * inside
    return out


@lru_cache(maxsize=65536)
def _runs(digits: tuple[tuple[int, int], ...], still: tuple[int, ...]) -> tuple[_Run, ...]:
    """Digits, with those side by side as one that are all in `still`, or all not: whether they are,
    and how many groups there are in each place along them, of all and of those that stand first."""
    each = ((i in still, n) for i, (_, n) in enumerate(digits) if n > 1)
    groups = itertools.groupby(each, key=lambda digit: digit[0])
    runs = [(first, math.prod(n for _, n in run)) for first, run in groups] or [(False, 1)]
    out: list[_Run] = []
    block = inside = 1
    for first, n in reversed(runs):
        out.append((first, block, inside))
        block, inside = block * n, inside if first else inside * n
    return tuple(reversed(out))


def seen(order: Order, carried: frozenset[int]) -> Callable[[int], int]:
    """What gives the different tiles that the first groups, so many, read of an array that carries
    these axes."""
    every = order.groups
    if order.rows:
        return lambda groups: _seen_in_rows(order, carried, min(groups, every))
    runs = _runs(order.digits, order.repeating(carried))
    return lambda groups: int(_before(runs, min(groups, every)))


def _seen_in_rows(order: Order, carried: frozenset[int], groups: int) -> int:
    """`seen` of blocks of rows. A plane is all groups at one place of the slower digits."""
    (row, many), (column, columns) = order.digits[-2:]
    inner = {row, column} & carried
    slower = Order(order.digits[:-2])
    runs = _runs(slower.digits, slower.repeating(carried))
    planes, more = divmod(groups, many * columns)
    before = int(_before(runs, planes))
    blocks, rest = divmod(more, order.rows * columns)
    width = min(order.rows, many - blocks * order.rows)
    if inner == {row, column}:
        here = more
    elif inner == {row}:
        here = blocks * order.rows + min(rest, width)
    elif inner == {column}:
        here = columns if blocks else -(-rest // width)
    else:
        here = min(more, 1)
    plane = Order(order.digits[-2:]).tiles(carried)
    return before * plane + (int(_before(runs, planes + 1)) - before) * here


def _since(order: Order, carried: frozenset[int], numbers: Any) -> Any:
    """How many groups before each of these the last one read the same tile, in blocks of rows; 0
    where none did."""
    (row, many), (column, columns) = order.digits[-2:]
    rows, plane = order.rows, many * columns
    planes, within = numbers // plane, numbers % plane
    block = within // (rows * columns)
    first = block * rows * columns
    width = np.minimum(many - block * rows, rows)
    i, j = (within - first) % width, (within - first) // width
    end, least = many - (many - 1) // rows * rows, (many - 1) // rows * rows * columns
    if {row, column} <= carried:
        near, last = 0 * within, within
    elif row in carried:
        near, last = np.where(j > 0, width, 0), within + (columns - 1 - j) * width
    elif column in carried:
        above = within - (first - rows * columns + j * rows + rows - 1)
        near = np.where(i > 0, 1, np.where(block > 0, above, 0))
        last = least + j * end + end - 1
    else:
        near, last = np.minimum(within, 1), plane - 1
    slower = Order(order.digits[:-2])
    far, passed = 0 * planes, 0
    for i, stride in reversed([(i, slower.strides[i]) for i in slower.repeating(carried)]):
        n = slower.digits[i][1]
        far = np.where((far == 0) & (planes // stride % n > 0), stride - passed, far)
        passed += stride * (n - 1)
    return np.where(near > 0, near, np.where(far > 0, far * plane + within - last, 0))


def _looked_at(order: Order, wave: int) -> Any:
    """The numbers of groups that are looked at: all, or those of waves spread over the order."""
    wide = object if order.groups >= FAR else np.int64
    if order.groups <= LOOKED:
        return np.arange(order.groups)
    total, many = -(-order.groups // wave), max(1, LOOKED // wave)
    at = (np.arange(many) + np.arange(many) * SPREAD % 1) / many
    starts = np.array([int(share * total) * wave for share in at.tolist()], wide)
    numbers = np.ravel(starts[:, None] + np.arange(wave).astype(wide))
    return numbers[numbers < order.groups]


@lru_cache(maxsize=65536)
def fetched(order: Order, carried: frozenset[int], wave: int, kept: int) -> int:
    """How many tiles all groups fetch into a cache that they share: each once, and again wherever
    its last reader ran too many waves before.

    Args:
        carried: the grouped axes that the array carries.
        wave: groups that run at once, and read a tile at once.
        kept: waves after which the cache still has what a wave read.
    """
    if order.rows:
        numbers = _looked_at(order, wave)
        since = _since(order, carried, numbers)
        waves = numbers // wave - (numbers - since) // wave
        again = int(((since > 0) & (waves > kept)).sum())
        return order.tiles(carried) + again * order.groups // len(numbers)
    digits = order.repeating(carried)
    again = (_again(order, i, digits[at + 1 :], wave, kept) for at, i in enumerate(digits))
    return order.tiles(carried) + sum(again)


def _again(order: Order, digit: int, faster: tuple[int, ...], wave: int, kept: int) -> int:
    """How many groups fetch a tile again, of those at which `digit` goes up and the `faster` ones
    of the digits that repeat the tile are back at 0. The last reader of their tile stands one lower
    along `digit` and last along the faster ones: for all of them at one distance."""

    def these(number: Any) -> Any:  # how many of them have a lower number
        return order.before(number, faster) - order.before(number, (digit, *faster))

    stride = order.strides
    distance = stride[digit] - sum([stride[i] * (order.digits[i][1] - 1) for i in faster])
    waves, more = divmod(distance, wave)
    if waves != kept:
        return these(order.groups) if waves > kept else 0
    # The first `more` groups of a wave are one wave further from that reader.
    total = -(-order.groups // wave)
    wide = object if order.groups >= FAR else np.int64
    starts = np.arange(min(total, MOST)).astype(wide) * wave
    upto, below = np.split(these(np.append(np.minimum(starts + more, order.groups), starts)), 2)
    return int((upto - below).sum()) * total // len(starts)
