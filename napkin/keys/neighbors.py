"""Neighborhood attention over one axis or several, and which queries see a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeGuard

from napkin.errors import InputError
from napkin.ir.array import Array
from napkin.ir.infer import pointwise
from napkin.ir.key_sets import Box, Interval, Need
from napkin.ir.names import axis_names
from napkin.ir.node import Node, number
from napkin.ir.whole_numbers import (
    FARTHEST,
    flag,
    greater,
    length,
    lesser,
    modulo,
    over,
    plus,
    times,
    whole,
)
from napkin.keys.axes import axes_of, place_of
from napkin.keys.keyset import KeySet

PerAxis = int | Sequence[int]
PerAxisFlag = bool | Sequence[bool]


@dataclass(frozen=True)
class Window:
    """The parameters of one axis: the window's length, and what goes with it, in tokens."""

    kernel_size: int
    stride: int = 1
    dilation: int = 1
    is_causal: bool = False

    @property
    def span(self) -> int:
        """The least size of the axis."""
        return self.kernel_size * self.dilation


def windows(
    kernel_size: PerAxis,
    stride: PerAxis = 1,
    dilation: PerAxis = 1,
    is_causal: PerAxisFlag = False,
    dims: int | None = None,
    what: str = "neighborhood",
) -> tuple[Window, ...]:
    """The window of every axis; a number stands for every axis.

    Args:
        dims: how many axes there are, where that is known.

    Raises:
        InputError: a parameter is out of range, or their lengths differ.
    """
    given = {"kernel_size": kernel_size, "stride": stride, "dilation": dilation}
    every = given | {"is_causal": is_causal}
    named = {name: len(v) for name, v in every.items() if _many(v)}
    known = {dims} if dims is not None else set[int]()
    lengths = known | set(named.values())
    if len(lengths) > 1 or 0 in lengths:
        said = [f"{name} names {n}" for name, n in named.items()]
        said += [f"there are {n} axes" for n in known]
        raise InputError(f"{what}: {', '.join(said)}; give one number, or one for every axis")
    dims = next(iter(lengths), 1)
    k, s, d = ([whole(v, f"{what}: {n}", 1) for v in _each(given[n], dims)] for n in given)
    for name, values in zip(given, (k, s, d), strict=True):
        if max(values) > FARTHEST:
            raise InputError(f"{what}: {name}={max(values)} is past every key; write 2**30 at most")
    flags = [flag(c, f"{what}: is_causal") for c in _each(is_causal, dims)]
    for a in range(dims):
        if s[a] > k[a]:
            raise InputError(
                f"{what}: stride {s[a]} exceeds kernel_size {k[a]}, so some keys would be "
                f"seen by no query; write a stride from 1 to {k[a]}"
            )
    return tuple(Window(*row) for row in zip(k, s, d, flags, strict=True))


def neighborhood(
    kernel_size: PerAxis,
    stride: PerAxis = 1,
    dilation: PerAxis = 1,
    is_causal: PerAxisFlag = False,
    *,
    queries: str | None = None,
    keys: str | None = None,
    clip: bool = False,
    at: Array | Sequence[Array] | None = None,
) -> KeySet:
    """Generalized neighborhood attention over one axis or several (Hassani et al., 2025).

    A window of `kernel_size` keys around the leader of each group of `stride` queries, shifted at
    the borders so that it stays whole. A number stands for every axis.

    Args:
        clip: allow a window larger than the axis, which then is the whole axis.
        at: where a query lies among the keys, one term per axis; of one axis the term alone, too.

    Raises:
        InputError: a parameter is out of range, or their lengths differ.
    """
    said = {"keys": keys, "queries": queries}.items()
    named = (axis_names(a, f"neighborhood {r}={a!r}") for r, a in said if a is not None)
    dims = next(map(len, named), None)
    each = windows(kernel_size, stride, dilation, is_causal, dims)
    text, clip = f"neighborhood({_shown(each)})", flag(clip, "neighborhood: clip")
    axes = axes_of(queries, keys, len(each), text)
    given = [None] * len(each) if at is None else at if isinstance(at, Sequence) else [at]
    if at is not None and queries is None:
        raise InputError(f"{text}: at=... names axes of the diagram; name queries and keys, too")
    if len(given) != len(each):
        raise InputError(f"{text}: at=... takes one term for each of {len(each)} named axes")
    places = [place_of(p, q, text) for p, q in zip(given, axes[0], strict=True)]
    intervals = tuple(
        _neighbors(p, length(x), w, clip, at is not None)
        for p, x, w in zip(places, axes[1], each, strict=True)
    )
    needs = () if clip else tuple(map(_need, axes[1], each))
    most = tuple(w.kernel_size for w in each)
    return KeySet(text, axes[0], axes[1], (Box(intervals),), at is None, needs, most)


def _many(value: object) -> TypeGuard[Sequence[object]]:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _each(value: object, dims: int) -> Sequence[object]:
    return value if _many(value) else [value] * dims


def _shown(each: Sequence[Window]) -> str:
    """Parameters as they are written in a call."""
    plain = Window(1)
    out: list[str] = []
    for name in ("kernel_size", "stride", "dilation", "is_causal"):
        values = tuple(getattr(w, name) for w in each)
        if name == "kernel_size" or any(v != getattr(plain, name) for v in values):
            text = str(values) if len(values) > 1 else f"{next(iter(values))}"
            out.append(text if name == "kernel_size" else f"{name}={text}")
    return ", ".join(out)


def _need(axis: str, w: Window) -> Need:
    """The least size of an axis."""
    near = w.dilation == 1
    apart = "" if near else f", {w.dilation} apart,"
    instead = "takes the whole axis instead" if near else "takes what there is"
    why = f"a window of {w.kernel_size} keys{apart} does not fit (clip=True {instead})"
    return Need(axis, w.span, why)


@dataclass(frozen=True)
class Place:
    """A position as its dilation group sees it: every dilation-th token, from `residue` on.

    Attributes:
        residue: the first token of the group.
        place: the position within the group.
        group: how many tokens the group has.
    """

    residue: Node
    place: Node
    group: Node
    step: int

    def tokens(self, first: Node, end: Node) -> Interval:
        """Places `first` to `end` of the group as an interval of the axis."""
        d = self.step
        if d == 1:
            return Interval(first, end)
        token = pointwise("add", (times(first, d), self.residue))
        past = plus(pointwise("add", (times(plus(end, -1), d), self.residue)), 1)
        return Interval(token, past, d)


def _placed(i: Node, size: Node, d: int) -> Place:
    """Position `i` of an axis within its dilation group."""
    residue = modulo(i, d)
    group = size if d == 1 else over(plus(pointwise("sub", (size, residue)), d - 1), d)
    return Place(residue, over(i, d), group, d)


def _neighbors(i: Node, size: Node, w: Window, clip: bool, cross: bool) -> Interval:
    """The window of one axis, inside the query's dilation group."""
    k, s = w.kernel_size, w.stride
    at = _placed(i, size, w.dilation)
    last = plus(at.group, -1)
    block = times(over(at.place, s), s)
    if w.is_causal:
        # A query of another layout may lie behind the last key, and then leads itself.
        leader = at.place if s == 1 else greater(lesser(plus(block, s - 1), last), at.place)
        end = plus(at.place, 1)
        end = lesser(end, at.group) if cross else end
        return at.tokens(greater(plus(leader, 1 - k), number(0)), end)
    # A window that the axis may not hold is cut to the axis.
    width: Node = lesser(number(k), at.group) if clip else number(k)
    leader = at.place if s == 1 else lesser(plus(block, s // 2), last)
    latest = pointwise("sub", (at.group, width))
    first = greater(lesser(plus(leader, -(k // 2)), latest), number(0))
    return at.tokens(first, pointwise("add", (first, width)))
