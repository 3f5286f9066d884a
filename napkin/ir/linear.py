"""Whole-number terms as sums of whole multiples, and what they are within one residue.

Where position i is step * place + residue, i // step is the place, i % step the residue, and a
bound that is the residue and a multiple of the step is a place of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from napkin.ir.infer import pointwise
from napkin.ir.node import Node, number
from napkin.ir.rewrite import rewrite
from napkin.ir.whole_numbers import modulo, over, plus, times

Form = dict[Node | None, int]
"""A sum of multiples of terms; None stands for 1."""


def whole_number(n: Node) -> int | None:
    """The value of a whole number that is written out; None for any other term."""
    return int(float(str(n.params[0]))) if n.op == "number" and n.kind == "int" else None


def linear(n: Node) -> Form:
    """`n` as a sum of multiples."""
    if n.op == "number":
        value = int(float(str(n.params[0])))
        return {None: value} if value else {}
    if n.op in {"add", "sub"}:
        return _added(linear(n.args[0]), linear(n.args[1]), 1 if n.op == "add" else -1)
    if n.op == "mul" and n.args[1].op == "number":
        factor = int(float(str(n.args[1].params[0])))
        return {t: f * factor for t, f in linear(n.args[0]).items() if f * factor}
    return {n: 1}


def _added(a: Form, b: Form, sign: int = 1) -> Form:
    out = dict(a)
    for term, factor in b.items():
        out[term] = out.get(term, 0) + sign * factor
    return {t: f for t, f in out.items() if f}


def summed(form: Form) -> Node:
    """The term of a sum of multiples, what is added before what is taken away."""
    for term, factor in form.items():
        if term is not None and factor < 0 and term.op in {"minimum", "maximum"}:
            shorter = _negated(form, term, factor)
            if shorter is not None:
                return shorter
    parts = [(t, f) for t, f in form.items() if t is not None]
    parts.sort(key=lambda p: p[1] < 0)
    constant = form.get(None, 0)
    total: Node | None = None
    for term, factor in parts:
        if total is None and factor < 0:
            total, constant = number(constant), 0
        scaled, op = times(term, abs(factor)), "add" if factor > 0 else "sub"
        total = scaled if total is None else pointwise(op, (total, scaled))
    return number(constant) if total is None else plus(total, constant)


def _negated(form: Form, term: Node, factor: int) -> Node | None:
    """t - min(a, b) = max(t - a, t - b), where a difference is a number."""
    rest = {t: f for t, f in form.items() if t is not term}
    left = [_added(rest, linear(a), factor) for a in term.args]
    if not any(set(x) <= {None} for x in left):
        return None
    op = "maximum" if term.op == "minimum" else "minimum"
    known = sorted(left, key=lambda x: set(x) <= {None})
    return _either(op, *(summed(x) for x in known))


def at_places(
    terms: Iterable[Node], steps: Mapping[str, tuple[int, Node, Node]]
) -> dict[Node, Node]:
    """`terms` with every position along the axes of `steps` written as step * place + residue.

    Args:
        steps: for an axis its step, and the terms of place and residue.
    """
    within = Within({residue: step for step, _, residue in steps.values()})

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op == "index" and old.params[0] in steps:
            step, place, residue = steps[str(old.params[0])]
            return pointwise("add", (times(place, step), residue))
        if old.op in {"floordiv", "mod"} and old.kind == "int":
            by = whole_number(args[1])
            if by is not None and by > 0:
                quotient, rest = within.divided(args[0], by)
                return summed(quotient) if old.op == "floordiv" else summed(rest)
        return None

    return rewrite(terms, change)


class Within:
    """Arithmetic within one residue: `residues` are terms from 0 to a step, which is excluded."""

    def __init__(self, residues: Mapping[Node, int]) -> None:
        self.residues = residues

    def divided(self, n: Node, by: int) -> tuple[Form, Form]:
        """The quotient of `n` by a number, rounded down, and what is left."""
        form = linear(n)
        whole: Form = {t: f // by for t, f in form.items() if t and f % by == 0}
        rest: Form = {t: f for t, f in form.items() if t and f % by}
        constant = form.get(None, 0)
        reach = self._range(rest, constant)
        if reach is not None and reach[0] // by == reach[1] // by:
            known = reach[0] // by
            return _with(whole, known), _with(rest, constant - known * by)
        for term, factor in rest.items():
            if factor > 0 and term and term.op in {"minimum", "maximum"}:
                # Rounding down never turns an order round.
                others = {t: f for t, f in form.items() if t is not term}
                sides = [summed(_added(others, linear(a), factor)) for a in term.args]
                found = [summed(self.divided(side, by)[0]) for side in sides]
                return {_either(term.op, *found): 1}, {modulo(n, by): 1}
        left = summed(_with(rest, constant % by)) if whole else n
        quotient: Form = {over(left, by): 1}
        if whole:
            quotient = _added(_with(whole, constant // by), quotient)
        return quotient, {modulo(left, by): 1}

    def _range(self, rest: Form, constant: int) -> tuple[int, int] | None:
        low = high = constant
        for term, factor in rest.items():
            if term is None or term not in self.residues:
                return None
            far = factor * (self.residues[term] - 1)
            low, high = low + min(far, 0), high + max(far, 0)
        return low, high

    def place(self, n: Node, residue: Node) -> Node | None:
        """The place of position `n`, where it lies at `residue`, by its terms alone."""
        step = self.residues[residue]
        form = _added(linear(n), {residue: 1}, -1)
        if all(f % step == 0 for f in form.values()):
            return summed({t: f // step for t, f in form.items()})
        if n.op in {"minimum", "maximum"}:
            found = [self.place(a, residue) for a in n.args]
            known = [f for f in found if f is not None]
            return _either(n.op, *known) if len(known) == 2 else None
        return None

    def past(self, n: Node, residue: Node) -> Node:
        """One past the last place whose position lies below `n`."""
        step = self.residues[residue]
        if n.op in {"minimum", "maximum"}:
            return _either(n.op, *(self.past(a, residue) for a in n.args))
        form = _added(linear(n), {residue: 1}, -1)
        quotient, _ = self.divided(summed(_with(form, form.get(None, 0) + step - 1)), step)
        return summed(quotient)


def _with(form: Form, value: int) -> Form:
    """A sum of multiples with this number for its constant."""
    out: Form = {t: f for t, f in form.items() if t}
    if value:
        out[None] = value
    return out


def _either(op: str, a: Node, b: Node) -> Node:
    """The larger or the smaller of two whole numbers."""
    if a is b or (a.op == op and b in a.args):
        return a
    return pointwise(op, (a, b))
