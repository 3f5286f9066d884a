"""The values of terms, one after another, over any library of arrays: numpy, or torch on a device.

What both libraries have under one name is called by that name; a `Library` has the rest.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any

from napkin.errors import InputError, NapkinError
from napkin.ir.added_at import AddedAt, added_at
from napkin.ir.key_sets import boxes_of, member
from napkin.ir.node import MOVES, REDUCTIONS, Kind, Node, factors, in_kind, over, steps_of
from napkin.ir.operators import POINTWISE
from napkin.ir.operators.record import Operator, Reduction
from napkin.ir.slots import slots_of
from napkin.ir.slotted import bounds
from napkin.ir.taking import reading_of, table_of, taken_of

KEPT = 4096
"""Ways to align arrays, and orders of evaluation, that are kept: a loop has the same ones for every
chunk."""


class Library(ABC):
    """What an evaluation needs of a library of arrays.

    Attributes:
        xp: the functions that operators' records call, under numpy's names.
    """

    xp: Any

    @abstractmethod
    def constant(self, value: Any, whole: bool = False) -> Any:
        """A number as an array, or several whole ones."""

    @abstractmethod
    def ones(self, shape: Sequence[int]) -> Any:
        """Whole numbers 1."""

    @abstractmethod
    def positions(self, where: range) -> Any:
        """The positions of a range, one after another."""

    @abstractmethod
    def permuted(self, x: Any, order: Sequence[int]) -> Any:
        """`x` with its dimensions in another order."""

    @abstractmethod
    def numbers(self, x: Any, kind: Kind) -> Any:
        """`x` in the numbers that a result of this kind is computed in: tests as 0 and 1."""

    @abstractmethod
    def cast(self, x: Any, kind: Kind) -> Any:
        """`x` as an item type."""

    @abstractmethod
    def filled(self, value: float, like: Any) -> Any:
        """A number in the type of an array."""

    @abstractmethod
    def expanded(self, x: Any, shape: Sequence[int]) -> Any:
        """`x` in a shape to which it broadcasts."""

    @abstractmethod
    def spread(self, x: Any, arrays: Sequence[Any]) -> Any:
        """`x`, computed from arrays, in the shape to which these broadcast."""

    @abstractmethod
    def contraction(self, n: Node, parts: Sequence[Node], values: Mapping[Node, Any]) -> Any:
        """A sum of a product, which is never formed."""

    @abstractmethod
    def added(self, shape: Sequence[int], where: Sequence[Any], value: Any) -> Any:
        """An array of a shape with the sum of what `value` has for each place."""

    def aligned(self, x: Any, axes: Sequence[str], target: Sequence[str]) -> Any:
        """`x` with axes `axes`, with length-1 axes to broadcast as `target`."""
        order, where = _fitting(tuple(axes), tuple(target))
        return x if where is None else self.permuted(x, order)[where]


@lru_cache(maxsize=KEPT)
def _fitting(
    axes: tuple[str, ...], target: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[slice | None, ...] | None]:
    """The order in which axes stand in `target`, and an index that adds those of length 1; no
    index where they are the same."""
    order = tuple(sorted(range(len(axes)), key=lambda i: target.index(axes[i])))
    where = tuple(slice(None) if a in axes else None for a in target)
    return order, None if axes == target else where


class Walk:
    """An evaluation under way.

    Attributes:
        values: what is known, which terms that come next are computed from.
    """

    def __init__(
        self,
        library: Library,
        sizes: Mapping[str, int],
        scalars: Mapping[str, float],
        held: Mapping[str, range],
        values: MutableMapping[Node, Any],
    ) -> None:
        self.library, self.sizes, self.scalars = library, sizes, scalars
        self.held, self.values = held, values

    def shape(self, axes: Iterable[str]) -> list[int]:
        """The lengths of axes, as the arrays hold them."""
        return [len(self.held[a]) for a in axes]

    def aligned(self, n: Node, target: Sequence[str]) -> Any:
        """The value of `n`, to broadcast as `target`."""
        value = self.values[n]
        return value if n.axes == target else self.library.aligned(value, n.axes, target)

    def value(self, n: Node) -> Any:
        """The value of a term, from those that it `needs`."""
        op = n.op
        if op in POINTWISE:
            return self._pointwise(n)
        if op in REDUCTIONS:
            return self._reduced(n)
        if op == "take" or taken_of(n) is not None:
            return self._gathered(n)
        if op in {"rename", "scatter"}:
            return self.values[n.args[0]]
        if op in MOVES:
            return self._moved(n)
        if op == "keys":
            return self.library.expanded(self.aligned(member(n), n.axes), self.shape(n.axes))
        if op == "recurrence":
            return self._recurrent(n)
        if op == "steps":
            return self._stepped(n)
        if op in {"cumsum", "sort"}:
            value, (axis,) = self.values[n.args[0]], over(n)
            return getattr(self.library.xp, op)(value, n.args[0].axes.index(axis))
        return self._leaf(n)

    def _recurrent(self, n: Node) -> Any:
        """The values of a recurrence, one position after another."""
        shape, at = self.shape(n.axes), n.axes.index(over(n)[0])
        a, b = (
            self.library.expanded(self.library.numbers(self.aligned(x, n.axes), "real"), shape)
            for x in n.args
        )
        before: Any = 0.0
        found: list[Any] = []
        for t in range(shape[at]):
            here = (*[slice(None)] * at, t)
            before = a[here] * before + b[here]
            found.append(before)
        return self.library.xp.stack(found, at) if found else b

    def _stepped(self, n: Node) -> Any:
        """The values of a state that any step takes from position to position, one by one."""
        library, (axis,), steps = self.library, over(n), steps_of(n)
        leaves, places = steps.leaves, self.held[axis]
        given = {m: self.values[n.args[i]] for m, i in leaves.items() if m.op == "operand"}
        states = {m: i for m, i in leaves.items() if m.op == "previous"}
        before = {m: library.constant(steps.starts[i]) for m, i in states.items()}
        order, found = order_of(steps.made, frozenset(leaves)), list[Any]()
        for t in range(len(places)):
            here = {m: _at(value, m, axis, t) for m, value in given.items()}
            here |= {m: self._shaped(value, m, m.axes) for m, value in before.items()}
            held = {**self.held, axis: places[t : t + 1]}
            walk = Walk(library, self.sizes, self.scalars, held, here)
            for m in order:
                here[m] = walk.value(m)

            def after(i: int, axes: tuple[str, ...], walk: Walk = walk) -> Any:
                value = walk.aligned(steps.made[i], (*axes, axis))
                return library.expanded(value, [*self.shape(axes), 1])[..., 0]

            before = {m: after(i, m.axes) for m, i in states.items()}
            found.append(self._shaped(after(steps.which, n.axes[:-1]), n, n.axes[:-1]))
        if found:
            return library.xp.stack(found, len(n.axes) - 1)
        nothing = library.constant(0.0 if n.kind == "real" else 0)
        return self._shaped(nothing, n, n.axes)

    def _shaped(self, value: Any, n: Node, axes: Sequence[str]) -> Any:
        """A value of `n`, with all positions along these axes."""
        return self.library.expanded(self.library.numbers(value, n.kind), self.shape(axes))

    def _leaf(self, n: Node) -> Any:
        library, op = self.library, n.op
        if op == "number":
            return library.constant(n.params[0])
        if op == "size":
            return library.constant(self.sizes[str(n.params[0])])
        if op == "scalar":
            return library.constant(float(self.scalars[str(n.params[0])]))
        if op == "index":
            return library.positions(self.held[n.axes[0]])
        if op == "ones":
            return library.ones(self.shape(n.axes))
        if op == "listed":
            return library.constant(n.params[0], whole=True)
        raise AssertionError(f"no value for {n!r}")

    def _pointwise(self, n: Node) -> Any:
        arrays = [self.aligned(a, n.axes) for a in n.args]
        if n.op == "cast":
            return self.library.cast(arrays[0], n.kind)
        if n.kind != "bool":
            first = 1 if n.op == "where" else 0
            arrays[first:] = [self.library.numbers(a, n.kind) for a in arrays[first:]]
        out = _evaluated(POINTWISE[n.op], self.library.xp, *arrays)
        return self.library.spread(out, arrays)

    def _reduced(self, n: Node) -> Any:
        if (s := added_at(n)) is not None:
            return self._added_at(n, s)
        if n.op == "sum":
            return self.library.contraction(n, factors(n.args[0]), self.values)
        record, (body,) = REDUCTIONS[n.op], n.args
        if n.kind == "real" != body.kind:
            value = self.library.cast(self.values[body], "real")
        else:  # exact rationals stay what they are
            value = self.library.numbers(
                self.values[body], "int" if n.kind == body.kind else n.kind
            )
        start = in_kind(float(str(n.params[1])), n.kind) if record.order else None
        where = tuple(body.axes.index(a) for a in over(n))
        if n.kind == "int" and start is None and 0 in (value.shape[i] for i in where):
            nothing = self.library.filled(in_kind(record.identity, n.kind), value)
            kept = [k for i, k in enumerate(value.shape) if i not in where]
            return self.library.expanded(nothing, kept)
        return _evaluated(record, self.library.xp, value, where, start)

    def _added_at(self, n: Node, s: AddedAt) -> Any:
        library, xp, shape = self.library, self.library.xp, self.shape(n.axes)
        axes = (*over(n), *(a for a in n.axes if a not in s.places))
        value = library.expanded(self.aligned(s.value, axes), self.shape(axes))
        value = library.cast(value, "real") if s.value.kind != "real" else value
        where: list[Any] = []
        for a, size in zip(n.axes, shape, strict=True):
            if a not in s.places:
                where.append(self._positions(a, range(size), axes))
                continue
            at = self.aligned(s.places[a], axes) - self.held[a].start
            value = xp.where((at >= 0) & (at < size), value, library.filled(0, value))
            where.append(xp.clip(at, 0, max(size - 1, 0)))
        where = [library.expanded(i, self.shape(axes)) for i in where]
        return library.added(shape, where, value)

    def _gathered(self, n: Node) -> Any:
        """The value of a take, or of a reading at computed positions."""
        table, positions, taken = reading_of(n)
        value, xp = self.values[table], self.library.xp
        where: list[Any] = []
        outside: Any = None
        for u, size in zip(taken.under, value.shape, strict=True):
            if isinstance(u, str):
                where.append(self._positions(u, range(size), n.axes))
                continue
            at = self.aligned(positions[u], n.axes)
            where.append(xp.clip(at, 0, max(size - 1, 0)))
            if taken.spans[u] is not None:
                past = (at < 0) | (at >= size)
                outside = past if outside is None else outside | past
        zero = self.library.filled(0, value)
        if 0 in value.shape:  # windows of nothing but padding
            return self.library.spread(zero, where)
        found = value[tuple(where)]
        return found if outside is None else xp.where(outside, zero, found)

    def _moved(self, n: Node) -> Any:
        """The value of a compress or a spread: between keys and slots."""
        s, (x, keys), xp = slots_of(n), n.args, self.library.xp
        (box,) = boxes_of(keys)
        at = dict[str, Any]()
        inside: Any = None
        for i, key, slot, count in zip(box.intervals, s.keys, s.slots, s.counts, strict=True):
            first, end = (self.aligned(b, n.axes) for b in (i.first, i.end))
            if n.op == "compress":
                at[key] = first + i.step * self._positions(slot, range(count), n.axes)
                here = at[key] < end
            else:
                k = self._positions(key, self.held[key], n.axes)
                at[slot] = (k - first) // i.step
                here = (first <= k) & (k < end) & ((k - first) % i.step == 0)
            inside = here if inside is None else inside & here
        value = self.values[x]
        fill = self.library.filled(s.fill if n.op == "compress" else 0, value)
        if 0 in value.shape:
            return self.library.expanded(fill, self.shape(n.axes))
        where = [
            xp.clip(at[a], 0, size - 1) if a in at else self._positions(a, range(size), n.axes)
            for a, size in zip(x.axes, value.shape, strict=True)
        ]
        return xp.where(inside, value[tuple(where)], fill)

    def _positions(self, axis: str, where: range, target: Sequence[str]) -> Any:
        return self.library.aligned(self.library.positions(where), (axis,), target)


def _evaluated(record: Operator | Reduction, *given: Any) -> Any:
    """What a record computes of arrays. One of a user was tried on a few of them alone.

    Raises:
        InputError: that of a user raises.
    """
    try:
        return record.evaluate(*given)
    except Exception as error:
        if not record.definition or isinstance(error, NapkinError):
            raise
        what = "operator" if isinstance(record, Operator) else "reduction"
        shapes = " and ".join(str(tuple(a.shape)) for a in given[1:] if hasattr(a, "shape"))
        raise InputError(
            f"{what} {record.name}: evaluate of arrays of shape {shapes} raised "
            f"{type(error).__name__}: {error}; it takes arrays of any shape"
        ) from error


def _at(value: Any, n: Node, axis: str, t: int) -> Any:
    """The part of an array at a position, with the axis."""
    return value[tuple(slice(t, t + 1) if a == axis else slice(None) for a in n.axes)]


def needs(n: Node) -> tuple[Node, ...]:
    """What the value of a node is computed from."""
    # The sum of a product is one contraction: its full product is never formed.
    if (s := added_at(n)) is not None:
        return (s.value, *s.places.values())
    if n.op == "sum":
        return factors(n.args[0])
    if n.op == "keys":
        return (member(n),)
    if n.op in MOVES:
        return bounds(n)
    if taken_of(n) is not None:
        return (table_of(n), *n.args)
    return n.args[:1] if n.op == "scatter" else n.args


def ordered(roots: Iterable[Node], done: Iterable[Node] = ()) -> tuple[Node, ...]:
    """The terms to evaluate, each after what it is computed from."""
    seen, out = set(done), list[Node]()
    stack = [(r, False) for r in reversed(tuple(roots))]
    while stack:
        current, ready = stack.pop()
        if current in seen:
            continue
        if ready:
            seen.add(current)
            out.append(current)
        else:
            stack.append((current, True))
            stack.extend((a, False) for a in reversed(needs(current)))
    return tuple(out)


@lru_cache(maxsize=KEPT)
def order_of(roots: tuple[Node, ...], known: frozenset[Node]) -> tuple[Node, ...]:
    """`ordered`, kept for the next evaluation of the same terms."""
    return ordered(roots, known)
