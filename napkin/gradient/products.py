"""Arithmetic on cotangents: products with derivatives, and sums over the axes that go.

A cotangent has the axes of its node or fewer: it is the same along an axis that it lacks. None
stands for 0. What a test masks stays masked on the outside, so that a derivative that is no number
where it does not count is never multiplied by 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from napkin.ir.infer import along, joined, pointwise
from napkin.ir.node import Node, factors, number, over, postorder
from napkin.ir.selecting import position

ZERO = number(0.0)


def is_number(n: Node, value: float) -> bool:
    """Whether a term is this number, written out."""
    return n.op == "number" and n.kind != "bool" and n.params[0] == value


def negated(g: Node) -> Node:
    """-g."""
    return g.args[0] if g.op == "neg" else pointwise("neg", (g,))


def times(g: Node | None, d: Node) -> Node | None:
    """A cotangent times a derivative."""
    if g is None or is_number(d, 0):
        return None
    if is_number(d, 1):
        return g
    if is_number(d, -1):
        return negated(g)
    if g.op == "neg":
        return _signed(times(g.args[0], d))
    if d.op == "neg":
        return _signed(times(g, d.args[0]))
    if g.op == "where" and is_number(g.args[2], 0) and not d.constant:
        return chosen(g.args[0], times(g.args[1], d), None)
    if d.op == "where" and any(x.op == "number" for x in d.args[1:]):
        return chosen(d.args[0], times(g, d.args[1]), times(g, d.args[2]))
    return pointwise("mul", (g, d))


def _signed(g: Node | None) -> Node | None:
    return None if g is None else negated(g)


def masked(test: Node, g: Node) -> Node:
    """A cotangent where a test holds, and 0 elsewhere."""
    return pointwise("where", (test, g, ZERO))


def chosen(test: Node, yes: Node | None, no: Node | None) -> Node | None:
    """One cotangent where a test holds, another elsewhere."""
    if yes is no:
        return yes
    return pointwise("where", (test, *(ZERO if x is None else x for x in (yes, no))))


def total(each: Sequence[Node]) -> Node:
    """The sum of cotangents; of equal ones a multiple."""
    found: Node | None = None
    for g, count in Counter(each).items():
        part = g if count == 1 else pointwise("mul", (number(float(count)), g))
        if found is None:
            found = part
        elif part.op == "neg":
            found = pointwise("sub", (found, part.args[0]))
        elif found.op == "neg":
            found = pointwise("sub", (part, found.args[0]))
        else:
            found = pointwise("add", (found, part))
    assert found is not None
    return found


def filled(g: Node, axes: Iterable[str]) -> Node:
    """A cotangent that has these axes, too."""
    for axis in axes:
        if axis not in g.axes:
            at = position(axis)
            g = pointwise("add", (g, pointwise("mul", (number(0), at))))
    return g


class Sums:
    """Sums over the axes that go, with those in view that the diagram has already.

    <P, A^T u> = <A P, u>: where a sum of a product has a factor that is itself a sum, the two are
    exchanged if that makes the inner one a sum that the diagram computes.

    Attributes:
        length: the size of an axis as a term.
    """

    def __init__(self, roots: Iterable[Node], length: Callable[[str], Node]) -> None:
        self.length = length
        self._known: dict[Node, list[tuple[Node, Counter[Node]]]] = {}
        for n in postorder(roots):
            if n.op == "sum" and n.kind == "real":
                parts = Counter(factors(n.args[0]))
                for p in parts:
                    self._known.setdefault(p, []).append((n, parts))

    def onto(self, g: Node | None, axes: Sequence[str], every: Iterable[str]) -> Node | None:
        """The sum of a cotangent over those of `every` axis that are not in `axes`."""
        if g is None:
            return None
        gone = [a for a in every if a not in axes]
        if not gone:
            return g
        if g.op == "neg":
            return _signed(self.onto(g.args[0], axes, every))
        there = tuple(a for a in gone if a in g.axes)
        found = self._summed(g, there) if there else g
        for axis in gone:  # it is the same at every position
            if axis not in there:
                found = pointwise("mul", (found, self.length(axis)))
        return found

    def _summed(self, g: Node, gone: tuple[str, ...]) -> Node:
        """The sum of a product, what does not have the axes outside of it, but for whole numbers,
        which wrap without a real factor."""
        parts = list(factors(g))
        exchanged = self._exchanged(parts, gone)
        if exchanged is not None:
            return exchanged
        inner = [p for p in parts if set(p.axes) & set(gone)]
        inner = inner if any(p.kind == "real" for p in inner) else parts
        outer = [p for p in parts if p not in inner]
        return joined("mul", [*outer, along("sum", joined("mul", inner), gone)])

    def _exchanged(self, parts: list[Node], gone: tuple[str, ...]) -> Node | None:
        for s in parts:
            if s.op != "sum":
                continue
            others = Counter(parts)
            others[s] -= 1
            axes = {*gone, *over(s)}
            if len(axes) < len(gone) + len(over(s)) or any(
                set(over(s)) & set(p.axes) for p in +others
            ):
                continue
            flat = others + Counter(factors(s.args[0]))
            for p in flat:
                for known, needed in self._known.get(p, ()):
                    rest = _without(flat, needed, over(known))
                    if rest is not None and set(over(known)) <= set(gone):
                        left = tuple(a for a in (*gone, *over(s)) if a not in over(known))
                        return along("sum", joined("mul", [*rest, known]), left) if left else known
        return None


def _without(
    flat: Mapping[Node, int], needed: Counter[Node], gone: Sequence[str]
) -> list[Node] | None:
    """The factors beside those of a known sum; None where these are not among them, or where one
    of the others has an axis along which that goes."""
    left = Counter(flat)
    left.subtract(needed)
    if min(left.values()) < 0:
        return None
    rest = list(left.elements())
    return None if any(set(gone) & set(p.axes) for p in rest) else rest
