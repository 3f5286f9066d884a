"""Small terms that folds are written with: identities, counts, sums and products."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set

import numpy as np

from napkin.ir.evaluate import STORED, evaluate
from napkin.ir.infer import joined, pointwise
from napkin.ir.node import Node, factors, in_kind, number, ones, over, postorder, preorder
from napkin.ir.operators import POINTWISE, REDUCTIONS, RELATIONS
from napkin.ir.rewrite import substitute
from napkin.ir.sliding import taps
from napkin.ir.storage import own_type, stored_as, unstored
from napkin.ir.types import PACKED, STORAGE
from napkin.ir.whole_numbers import length

EXTREMA = frozenset(name for name, r in REDUCTIONS.items() if r.order)
JOINS = frozenset(REDUCTIONS[name].combine for name in EXTREMA)
"""The operators that join two results of an extremum."""

WRITTEN = "as written"
"""The last parameter of a maximum or minimum that is computed as it is written, and not brought to
another form that is rounded otherwise."""

_ZEROS = (number(0), number(0.0), number(-0.0))
_ONES = (number(1), number(1.0))
_WIDE = STORAGE["fp32"]


def identity(n: Node) -> float:
    """The value a reduction starts from."""
    record = REDUCTIONS[n.op]
    return float(str(n.params[1])) if record.order else record.identity


def combined(op: str, a: Node, b: Node) -> Node:
    """Two results of a reduction, joined."""
    return pointwise(REDUCTIONS[op].combine, (a, b))


def in_float32(n: Node) -> Node:
    """A real array that is stored in float32, where it is stored."""
    return pointwise("cast", (n,), ("fp32",))


def of_reals(body: Node, parts: Iterable[Node]) -> Node:
    """What a sum of reals is of, made of some parts: with no arithmetic on whole numbers, which
    would wrap before a real factor scales it. Positions are counted as they are, and products in 8
    bits are summed as they are multiplied."""
    known = {p: p for p in parts}
    made = (n for n in postorder([body], known) if n not in known and n.op in POINTWISE)
    if body.kind != "int" and all(n.kind != "int" for n in made):
        return body
    if body.op == "ones" or narrow_type(factors(body)):
        return body
    return substitute([body], {p: in_float32(p) if p.kind == "int" else p for p in known})[body]


def compares(n: Node) -> bool:
    """Whether the least error of what an operator reads may turn its value: it compares, and not
    with 0, as tests of divisors do."""
    return n.op in RELATIONS and not any(a in _ZEROS for a in n.args)


def is_steep(n: Node) -> bool:
    """Whether an error relative to its argument grows without bound in the value of a term."""
    return n.op in POINTWISE and POINTWISE[n.op].steep


def as_written(n: Node) -> bool:
    """Whether a maximum or minimum is to be computed as it is written."""
    return n.op in EXTREMA and n.params[-1] == WRITTEN


def rounded_alike(roots: Iterable[Node], stored: Iterable[Node] = ()) -> set[Node]:
    """The terms that are to be rounded as other kernels round the same terms: comparisons of two
    reals, extrema that something is compared with, what is `stored` for other kernels that compare
    it, and all that these are computed of. Sums end the walk: one kernel computes each."""
    todo = [*stored, *(n for n in postorder(roots) if as_written(n) or _compares_reals(n))]
    found = set[Node]()
    while todo:
        n = todo.pop()
        if n not in found:
            found.add(n)
            todo += (a for a in n.args if a.op not in REDUCTIONS or a.op in EXTREMA)
    return found


def compared(roots: Iterable[Node]) -> set[Node]:
    """The terms that comparisons of two reals are computed of. A sum among them is computed once:
    x == max(x) holds of one x, and two kernels may add up in two orders."""
    return {*postorder(n for n in postorder(roots) if _compares_reals(n))}


def _compares_reals(n: Node) -> bool:
    return compares(n) and all(a.kind == "real" and not a.constant for a in n.args)


def is_read(n: Node) -> bool:
    """Whether `n` is read from memory."""
    return n.op == "input"


def narrow_type(parts: Iterable[Node]) -> str:
    """The type of 8 bits in which a product of these factors is computed: "fp8" or "int8", where
    both are readings stored as such, or in 4 bits, which int8 holds; else ""."""
    found = [own_type(p) if is_read(p) else "" for p in parts]
    own = set(found) if len(found) == 2 else set[str]()
    if own == {"fp8"}:
        return "fp8"
    return "int8" if own and own <= {"int8", *PACKED} else ""


def reads_bytes(parts: Iterable[Node]) -> bool:
    """Whether factors of a product are computed of values that lie in memory in 8 bits or fewer."""
    reads = [n for n in postorder(parts) if is_read(n)]
    return any(n.kind == "bool" or STORAGE.get(own_type(n), _WIDE).bits <= 8 for n in reads)


def multiplies(n: Node, parts: Iterable[Node]) -> bool:
    """Whether matrix instructions may compute a sum of products: of reals, and of whole numbers in
    8 bits; not over the taps of windows alone, which are added up one by one."""
    parts = list(parts)
    fits = n.kind == "real" or (n.kind == "int" and narrow_type(parts) == "int8")
    return fits and not set(over(n)) <= _taps(parts, set(over(n)))


def _taps(parts: Iterable[Node], among: Set[str]) -> set[str]:
    """The axes among some that are taps of windows that `parts` read and that share positions."""

    def near(n: Node) -> bool:
        return not among.isdisjoint(n.axes)

    read = (n for n in preorder(parts, near) if near(n) and is_read(n))
    return {tap for n in read for tap in taps(n)}


def is_operand(n: Node, parts: Iterable[Node] = ()) -> bool:
    """Whether a factor of a product of `parts` can be its operand as it lies in memory: products
    have operands of the plan's type, or of 8 bits where all are. Packed values are taken apart."""
    if not is_read(n) or own_type(n) in PACKED:
        return False
    return (n.kind == "real" and not own_type(n)) or bool(narrow_type(parts))


def rounded(parts: Sequence[Node]) -> list[Node]:
    """The factors of a product that are rounded where they are operands of a matrix product."""
    loose = [p for p in parts if p.axes and p.kind == "real"]
    return [p for p in loose if len(loose) > 1 and not is_operand(p, parts)]


def worst(op: str) -> float:
    """The reduction of nothing."""
    return REDUCTIONS[op].identity


def starting(op: str) -> tuple[float, ...]:
    """The parameter of a reduction that says what it starts from, where it needs one."""
    return (worst(op),) if REDUCTIONS[op].order else ()


def is_count(f: Node) -> bool:
    """Whether a reduction counts positions: its final value is a size."""
    return f.op == "sum" and f.args[0].op == "ones"


def extent(axes: tuple[str, ...]) -> Node:
    """The number of positions along `axes`, as a term over sizes."""
    return joined("mul", map(length, axes))


def added(terms: Iterable[Node]) -> Node:
    """The sum of `terms`, from left to right; 0 where there are none."""
    held = list(terms)
    return joined("add", held) if held else number(0.0)


def scaled(n: Node, factor: Node) -> Node:
    """`n` times `factor`, a factor 1 left out and a reciprocal written as a division."""
    if factor in _ONES:
        return n
    if factor.op == "div" and factor.args[0] in _ONES:
        return pointwise("div", (n, factor.args[1]))
    return pointwise("mul", (n, factor))


def carrying(a: Node, axes: tuple[str, ...]) -> Node:
    """`a`, made to carry every axis of `axes` (multiplied by ones where it does not)."""
    lacking = tuple(axis for axis in axes if axis not in a.axes)
    if not lacking:
        return a
    return ones(lacking) if a in _ONES else pointwise("mul", (a, ones(lacking)))


def repeated(n: Node, axes: tuple[str, ...]) -> Node:
    """An array, with its values once more along each axis of `axes` that it lacks; stored as it
    is."""
    plain = unstored(n)
    if n.kind != "bool":
        return stored_as(n, carrying(plain, axes))
    lacking = tuple(axis for axis in axes if axis not in n.axes)
    true = pointwise("not_equal", (carrying(number(1), lacking), number(0)))
    return pointwise("and", (n, true)) if lacking else n


def like(found: Node, n: Node) -> Node:
    """What a term was found equal to, with the axes and the item type of the term.

    What cancels takes its axes along: max_b exp(s - max_b s) is 1 at each position of s.
    """
    found = carrying(found, n.axes)
    return pointwise("mul", (found, number(1.0))) if found.kind != n.kind == "real" else found


class Uses:
    """The terms among some that each term is computed from, itself included.

    Args:
        chosen: says which they are; a term that was asked about keeps its answer.
    """

    def __init__(self, chosen: Callable[[Node], bool]) -> None:
        self.chosen = chosen
        self.known: dict[Node, frozenset[Node]] = {}

    def of(self, n: Node) -> frozenset[Node]:
        """Those under `n`."""
        if n in self.known:
            return self.known[n]
        for m in postorder([n], self.known):
            if m not in self.known:
                below = frozenset[Node]().union(*(self.known[a] for a in m.args))
                self.known[m] = below | {m} if self.chosen(m) else below
        return self.known[n]


def value_at(term: Node, start: Mapping[Node, float]) -> float:
    """The value of a term with one position along each axis, where its leaves are as `start` says,
    or 1; not finite where something on the way is not in float32, in which kernels compute."""
    order = list(postorder([term]))
    leaves = [n for n in order if n.op in {"input", "size", "scalar", "state"}]
    exact = {
        n: np.full([1] * len(n.axes), in_kind(start.get(n, 1.0), n.kind), STORED[n.kind])
        for n in leaves
    }
    sizes = {a: 1 for n in order for a in n.axes}
    (value,), held = evaluate([term], exact, sizes, {}), dict(exact)
    with np.errstate(all="ignore"):
        for n in order:
            if n.op in POINTWISE or n.op in REDUCTIONS or n in exact:
                (found,) = evaluate([n], held, sizes, {})
                held[n] = found.astype(np.float32) if n.kind == "real" else found
    kept = float(np.ravel(held.get(term, value))[0])
    return float(np.ravel(value)[0]) if math.isfinite(kept) else kept
