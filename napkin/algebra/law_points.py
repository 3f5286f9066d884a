"""Points at which both sides of a law are evaluated: sizes of axes, and values of inputs."""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, cast

import numpy as np

from napkin.algebra import composites
from napkin.algebra.terms import is_steep
from napkin.ir.evaluate import Array, aligned, evaluate
from napkin.ir.infer import parts_of
from napkin.ir.key_sets import spec_of
from napkin.ir.node import (
    COMPOSITES,
    MOVES,
    REDUCTIONS,
    Kind,
    Node,
    names_of,
    node,
    over,
    postorder,
    within,
)
from napkin.ir.operators import POINTWISE
from napkin.ir.sliding import slide_of
from napkin.ir.slots import slots_of, spread
from napkin.ir.slotted import guard, read_slots
from napkin.ir.taking import own_axes, reading_of, table_of, taken_of
from napkin.ir.windows import Slide
from napkin.keys.residues import Split

_EXACT = frozenset({"input", "number", "size", "ones", "index", "mean", "rename", "keys"})
"""Terms without an operator's record that have rational values of rational numbers."""

SHORT = 2**12
"""The largest numerator and denominator of numbers whose products floats hold exactly."""

LARGEST = 20_000
"""Values of the largest array with which more than one point is tried."""

HUGE = 1e100
"""What exponentials stay below where values are compared. Tensors are drawn apart, so that of one
less the maximum of another has no bound, and products of such values overflow in some orders
alone."""

STEP = 2.0**-46
"""How far inputs and reductions are moved, relative to themselves, to see what rounding does."""

NEAR = 12
"""How often they are: which of two equal values is chosen changes in some of these."""


def is_rational(roots: Iterable[Node]) -> bool:
    """Whether the terms have exact values on rational inputs."""
    return all(_keeps_rational(n) and not _rounds(n) for n in postorder(roots))


def _keeps_rational(n: Node) -> bool:
    op = REDUCTIONS[n.op].combine if n.op in REDUCTIONS else n.op
    return POINTWISE[op].rational if op in POINTWISE else op in _EXACT


def _rounds(n: Node) -> bool:
    """Whether a node is a quotient of whole numbers, which numpy rounds."""
    return n.op == "div" and all(a.kind != "real" for a in n.args)


@dataclass(frozen=True, eq=False)
class Point:
    """Sizes and values.

    Attributes:
        what: how the values of reals are drawn.
        sizes: of every axis.
        own: the axes of each tensor.
        seed: of the values.
        shift: how many times inputs are moved, for another point close by.
        residues, splits: which residue of each split axis tensors are read at, and its places.
        whole: sizes of axes of which `sizes` has the first positions alone.
    """

    what: str
    sizes: Mapping[str, int]
    own: Mapping[str, tuple[str, ...]]
    seed: int = 0
    shift: int = 0
    residues: Mapping[str, int] = field(default_factory=dict[str, int])
    splits: Sequence[Split] = ()
    whole: Mapping[str, int] = field(default_factory=dict[str, int])

    def __str__(self) -> str:
        sizes = ", ".join(f"{a}={n}" for a, n in self.sizes.items())
        return f"{self.what} values (seed {self.seed}), sizes {sizes}"

    @property
    def exact(self) -> bool:
        """Whether values are rational numbers."""
        return self.what == "rational"

    def moved(self) -> list[Point]:
        """Points close by; none of an exact one."""
        return [] if self.exact else [replace(self, shift=i) for i in range(1, NEAR + 1)]

    def at(self, residues: Mapping[str, int], splits: Sequence[Split]) -> Point:
        """The same point for terms that have positions of some axes as places of these residues,
        of which the last may have one place fewer than the first."""
        places = {s.place: int(s.lengths(self.sizes[s.axis])[residues[s.residue]]) for s in splits}
        sizes = {**self.sizes, **places, **dict.fromkeys(residues, 1)}
        return replace(self, sizes=sizes, residues=residues, splits=splits)

    def values(self, roots: Sequence[Node]) -> list[Array]:
        """The values of terms, composites included."""
        bind: dict[Node, Array] = {}
        scalars = scalars_of(roots)
        box = {a: range(r, r + 1) for a, r in self.residues.items()}
        box |= {a: range(self.sizes[a]) for a in self.whole}
        sizes = {**self.sizes, **self.whole}
        for n in postorder(self._tables(roots)):
            if n.op == "input" and taken_of(n) is None:
                bind[n] = self._reading(n, bind)
            elif n.op in COMPOSITES:
                parts = evaluate(n.args, bind, sizes, scalars, box)
                bind[n] = composites.value(n, parts_of(n), parts)
            elif n.op == "number" and n.kind == "real" and self.exact:
                value = cast("float", n.params[0])
                bind[n] = np.asarray(Fraction(value) if math.isfinite(value) else value, object)
            elif self.shift and _adds(n):
                near = bind | self._near(bind)
                (value,) = evaluate([n], near, sizes, scalars, box)
                # It overflows, and few rules hold of infinities.
                value = np.where(np.isinf(value), np.nan, value)
                bind[n] = _moved(value, [self.seed, self.shift, len(bind)])
            elif self.shift and is_steep(n):
                near = dict(zip(n.args, self._rounded(n, bind, sizes, scalars, box), strict=True))
                (value,) = evaluate([n], bind | near, sizes, scalars, box)
                bind[n] = np.where(np.abs(value) > HUGE, np.nan, value)
        return evaluate(roots, bind, sizes, scalars, box)

    def bound(self, terms: Iterable[Node]) -> dict[Node, Array]:
        """Terms, each once, with their values, and the tables of readings at computed positions:
        other positions may be computed."""
        known = list(dict.fromkeys(m for n in terms for m in (n, table_of(n))))
        return dict(zip(known, self.values(known), strict=True))

    def _rounded(self, n: Node, bind: dict[Node, Array], *known: Any) -> list[Array]:
        """The arguments of a steep operator, each moved by a rounding of the largest number that it
        is computed from: a score less the maximum is as uncertain as the score."""
        out: list[Array] = []
        for a in n.args:
            *_, value = every = evaluate([*postorder([a])], bind, *known)
            key = [self.seed, self.shift, len(bind), len(out)]
            out.append(_moved(value, key, max(map(largest, every))))
        return out

    def _near(self, bind: Mapping[Node, Array]) -> dict[Node, Array]:
        """The real inputs, moved once more: each reduction rounds what it reads by itself."""
        key = [self.seed, self.shift, len(bind)]
        inputs = [n for n in bind if n.op == "input" and n.kind == "real"]
        return {n: _moved(bind[n], [*key, i]) for i, n in enumerate(inputs)}

    def _tables(self, roots: Sequence[Node]) -> list[Node]:
        """The terms, after the tensors that they read at computed positions."""
        order = list(postorder(roots))
        return [*(table_of(n) for n in order if taken_of(n) is not None), *order]

    def _reading(self, leaf: Node, bind: Mapping[Node, Array]) -> Array:
        keys = guard(leaf)
        if keys is None:
            return self._tensor(leaf)
        slots = read_slots(leaf)
        axes = slots.compressed(leaf.axes)
        inner = node("input", params=(leaf.params[0], own_axes(leaf)), axes=axes, kind=leaf.kind)
        term = spread(inner, keys, slots)
        known = {**bind, inner: self._tensor(inner)}
        return evaluate([term], known, self.sizes, {})[0]

    def _tensor(self, leaf: Node) -> Array:
        """The values of a tensor as a leaf reads it."""
        name, own = str(leaf.params[0]), own_axes(leaf)
        axes = self.own.get(name, own)
        sizes = tuple(self.sizes[a] for a in axes)
        value = _drawn(self.what, self.seed, self.shift, name, sizes, leaf.kind)
        if axes == own or len(axes) == len(own):
            return value
        of = {s.axis: s for s in self.splits if s.place in own}
        cut = tuple(
            slice(self.residues[of[a].residue], None, of[a].step) if a in of else slice(None)
            for a in axes
        )
        here = [of[a].place if a in of else a for a in axes]
        return np.array(aligned(value[cut], here, own))


def _adds(n: Node) -> bool:
    """Whether a term is a reduction that rounds: an extremum is one of its values."""
    return n.op in REDUCTIONS and n.kind == "real" and not REDUCTIONS[n.op].order


@lru_cache(maxsize=1024)
def _drawn(
    what: str, seed: int, shift: int, name: str, shape: tuple[int, ...], kind: Kind
) -> Array:
    """The values of a tensor."""
    key = zlib.crc32(name.encode())
    rng = np.random.default_rng([seed, key])
    if kind != "real":
        drawn = rng.integers(0, 2 if kind == "bool" else 4, size=shape)
        return drawn.astype(bool) if kind == "bool" else drawn
    values = _DRAW[what](rng, shape)
    if shift:
        return _moved(values, [seed, shift, key])
    return values


def _moved(value: Array, seed: Sequence[int], of: float | None = None) -> Array:
    """A value, moved relative to itself, or to a number that it comes of."""
    by = STEP * np.random.default_rng(seed).uniform(-1.0, 1.0, size=np.shape(value))
    return value * (1 + by) if of is None else value + by * of


def largest(value: Array) -> float:
    """The largest finite number of a value, without its sign: what cancels leaves its rounding."""
    sizes = np.abs(np.asarray(value, float))
    return float(sizes[np.isfinite(sizes)].max(initial=0.0))


def folds_exactly(term: Node) -> bool:
    """Whether floats hold what rules fold of a term's numbers: 0.5 x 0.5, and not 0.1 x 0.1."""
    numbers = (cast("float", n.params[0]) for n in postorder([term]) if n.op == "number")
    small = [float(x).as_integer_ratio() for x in numbers if abs(x) < HUGE]
    return all(max(abs(above), below) <= SHORT for above, below in small)


def scalars_of(roots: Iterable[Node]) -> dict[str, float]:
    """Values of the scalars under `roots`: between 0 and 1, by name."""
    names = [str(n.params[0]) for n in postorder(roots) if n.op == "scalar"]
    return {name: (1 + zlib.crc32(name.encode()) % 97) / 98 for name in names}


def _rational(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    above, below = rng.integers(-9, 10, size=shape), rng.integers(1, 8, size=shape)
    made = np.frompyfunc(lambda a, b: Fraction(int(a), int(b)), 2, 1)(above, below)
    return np.asarray(made, object)


def _with_infinities(rng: np.random.Generator, shape: Sequence[int]) -> Array:
    special = rng.choice([-np.inf, np.inf, 0.0, -0.0], p=[0.6, 0.1, 0.2, 0.1], size=shape)
    return np.where(rng.random(shape) < 0.25, special, rng.normal(size=shape))


_DRAW = {
    "normal": lambda rng, shape: rng.normal(size=shape),
    "far": lambda rng, shape: 1e6 + rng.normal(size=shape),
    "repeated": lambda rng, shape: rng.choice([-2.0, -1.0, -0.0, 0.0, 1.0, 2.0], size=shape),
    "steep": lambda rng, shape: rng.choice([-900.0, 900.0], size=shape) + rng.normal(size=shape),
    "rational": _rational,
    "infinite": _with_infinities,
}  # fmt: skip


def points(
    roots: Sequence[Node],
    same_size: Mapping[str, str],
    splits: Sequence[Split],
    empty: bool,
    infinite: bool,
) -> Iterator[Point]:
    """Points for terms: of every kind of values, and with axes of 1, 2, 3 and no positions."""
    room = Room(roots, same_size, splits)
    wanted = [("normal", (3, 2)), ("far", (2, 3)), ("repeated", (3, 2)), ("normal", (1,))]
    if any(n.op in COMPOSITES or is_steep(n) for n in postorder(roots)):
        wanted += [("steep", (2, 3))]  # of which no exponential is a float
    wanted += [("rational", (2, 3)), *([("infinite", (3, 2))] if infinite else [])]
    wanted += [("normal", (0,))] if empty and not splits else []
    for seed, (what, lengths) in enumerate(wanted):
        sizes = room.sizes(lengths)
        if sizes is not None and (seed == 0 or _largest(roots, sizes) <= LARGEST):
            yield Point(what, sizes, room.own, seed)


def _largest(roots: Iterable[Node], sizes: Mapping[str, int]) -> int:
    return max(math.prod(sizes.get(a, 1) for a in n.axes) for n in postorder(roots))


class Room:
    """The axes of terms, and what their sizes depend on.

    Attributes:
        own: the axes of each tensor, as it calls them.
    """

    def __init__(
        self, roots: Sequence[Node], same_size: Mapping[str, str], splits: Sequence[Split]
    ) -> None:
        order = list(within(roots))
        self._root: dict[str, str] = {}
        self.own: dict[str, tuple[str, ...]] = {}
        self._fixed: dict[str, int] = {}
        self._least: dict[str, int] = {}
        self._slides: list[Slide] = []
        self._splits = splits
        parts = {a for s in splits for a in (s.place, s.residue)}
        self._products = {new: old for new, old in same_size.items() if " " in old}
        for new, old in same_size.items():
            if new not in self._products:
                self._tie(new, old)
        for n in order:
            if not parts & {*n.axes, *(own_axes(n) if n.op == "input" else ())}:
                self._note(n)
        self.axes = tuple(dict.fromkeys(self._root))

    def _find(self, axis: str) -> str:
        up = self._root.setdefault(axis, axis)
        return axis if up == axis else self._find(up)

    def _tie(self, a: str, b: str) -> None:
        self._root[self._find(a)] = self._find(b)

    def _note(self, n: Node) -> None:
        for a in (*n.axes, *over(n)):
            self._find(a)
        if n.op == "input":
            self._read(n)
        if n.op == "take":
            self._positions(n)
        if n.op == "rename":
            for old, new in names_of(n):
                self._tie(old, new)
        if n.op == "size":
            self._find(str(n.params[0]))
        if n.op == "keys":
            for q, x in spec_of(n).tied:
                self._tie(q, x)
            for need in spec_of(n).needs:
                self._least[need.axis] = max(self._least.get(need.axis, 0), need.least)
        if n.op in MOVES:
            self._fixed |= dict(zip(slots_of(n).slots, slots_of(n).counts, strict=True))

    def _read(self, n: Node) -> None:
        own = own_axes(n)
        self.own.setdefault(str(n.params[0]), own)
        if taken_of(n) is not None:
            self._positions(n)
            return
        under = n.axes
        if guard(n) is not None:
            slots = read_slots(n)
            under = slots.compressed(n.axes)
            self._fixed |= dict(zip(slots.slots, slots.counts, strict=True))
        for a, b in zip(own, under, strict=True):
            self._tie(a, b)

    def _positions(self, n: Node) -> None:
        table, positions, taken = reading_of(n)
        for own, under in zip(table.axes, taken.under, strict=True):
            if isinstance(under, str):
                self._tie(own, under)
                continue
            span, at = taken.spans[under], positions[under]
            if span is not None:
                self._slides.append(slide_of(own, at, span))
            self._find(own)

    def sizes(self, lengths: Sequence[int]) -> dict[str, int] | None:
        """Sizes that are `lengths` in turn where nothing else says what they are; None where that
        cannot be."""
        roots = list(dict.fromkeys(map(self._find, list(self._root))))
        found = {a: lengths[i % len(lengths)] for i, a in enumerate(roots)}
        for a, n in self._least.items():
            found[self._find(a)] = max(found[self._find(a)], n)
        for a, n in self._fixed.items():
            found[self._find(a)] = n
        split = {self._find(s.axis): s.step for s in self._splits if s.axis in self._root}
        for axis, step in split.items():  # of 3 places, 2 for the last residue
            whole = step * max(1, found[axis])
            found[axis] = whole - (found[axis] > 2 and step > 1)
        for s in self._slides:
            axis, out, tap = map(self._find, (s.axis, s.out, s.tap))
            found[tap] = s.span.window or found[tap]
            if axis != out:
                found[axis] = s.least(found[out], found[tap])
            found[out] = max(s.count(found[axis], found[tap]), 0)
        for s in self._slides:
            axis, out, tap = (found[self._find(a)] for a in (s.axis, s.out, s.tap))
            if s.count(axis, tap) != out or (s.span.window and s.span.window != tap):
                return None
        for new, old in self._products.items():
            found[self._find(new)] = math.prod([found[self._find(a)] for a in old.split()])
        return {a: found[self._find(a)] for a in self._root}
