"""Rules: rewrites that state their laws, and the check that an application keeps its law.

A law is an equation between two terms. With `NAPKIN_VERIFY=1` in the environment every application
of a rule evaluates both sides: in float64 at random points, near zero, far from it and where values
repeat, along axes of 1 and more positions and of none; and where both sides are rational, in
rational numbers. Rounding is told from error by moving the inputs a little: sides may differ by as
much as that moves the left one. Without the variable nothing is evaluated.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from napkin.derive.residues import Split
from napkin.derive.rules.points import Point, is_rational, points
from napkin.derive.trace import active
from napkin.diagram.evaluate import Array, aligned
from napkin.diagram.listing import text
from napkin.diagram.node import Node, node, postorder, substitute

VERIFYING = os.environ.get("NAPKIN_VERIFY", "") not in {"", "0"}

TOLERANCE = 1e-11
"""Relative error by norm, beside what rounding explains."""

ROUNDING = 16.0
"""How much farther apart sides may be than the left one moves with its inputs."""


@dataclass(frozen=True)
class Rule:
    """A rewrite.

    Attributes:
        name: its name, as refusals and errors have it.
        law: the equation, left side first.
        provided: its side conditions; the code that applies the rule checks them.
        infinite: whether it holds where values are infinite or NaN. Others hold where the left side
            is finite.
        empty: whether it holds along axes without positions.
    """

    name: str
    law: str
    provided: tuple[str, ...] = ()
    infinite: bool = False
    empty: bool = True


def verifying() -> bool:
    """Whether applications are verified."""
    return VERIFYING


class LawError(AssertionError):
    """An application of a rule that changed a value."""


_HELD = set[object]()


def verified(
    rule: Rule,
    before: Sequence[Node],
    after: Sequence[Node],
    same_size: Mapping[str, str] | None = None,
    splits: Sequence[Split] = (),
) -> None:
    """Report an application to the tracer, and evaluate both sides where that is asked for.

    Args:
        before, after: the terms, in the same order. Axes go by name.
        same_size: axes that have a new name, to those whose size they have.
        splits: axes of `before` that `after` has as places and residues.

    Raises:
        LawError: the sides differ at a point.
    """
    if (tracer := active()) is not None:
        tracer.stepped(rule.name, rule.law, before, after)
    if not verifying():
        return
    pairs = tuple((b, a) for b, a in _closed(before, after) if b is not a)
    if not pairs or (rule, pairs) in _HELD:
        return
    both = [n for pair in pairs for n in pair]
    for point in points(both, same_size or {}, splits, rule.empty, rule.infinite):
        exact = [pair for pair in pairs if is_rational(pair)] if point.exact else pairs
        with suppress(ZeroDivisionError):  # a rational number that has no value: nothing is claimed
            _hold(rule, point, exact, splits)
    _HELD.add((rule, pairs))


def _closed(before: Sequence[Node], after: Sequence[Node]) -> list[tuple[Node, Node]]:
    """Both sides with tensors for states, which may hold anything."""
    both = [*before, *after]
    states = {
        n: node("input", params=(".".join(map(str, n.params)),), axes=n.axes, kind=n.kind)
        for n in postorder(both)
        if n.op == "state"
    }
    done = substitute(both, states)
    return [(done[b], done[a]) for b, a in zip(before, after, strict=True)]


def _hold(
    rule: Rule, point: Point, pairs: Sequence[tuple[Node, Node]], splits: Sequence[Split]
) -> None:
    if not rule.infinite and 0 in point.sizes.values():
        pairs = [pair for pair in pairs if _defined(pair[0], point)]
    wanted = point.values([b for b, _ in pairs])
    after = [a for _, a in pairs]
    found = _joined(point, pairs, splits) if splits else point.values(after)
    for (b, a), old, new in zip(pairs, wanted, found, strict=True):
        value = new if splits else aligned(new, a.axes, b.axes)
        if not agree(value, old, point, b, infinite=rule.infinite):
            raise LawError(_message(rule, b, a, point, old, value))


def _defined(term: Node, point: Point) -> bool:
    """Whether all that a term is computed from are numbers. A mean of nothing is none, of which a
    sum of nothing leaves no trace, and another order of sums does (docs/semantics.md)."""
    real = [n for n in postorder([term]) if n.kind == "real"]
    return not any(np.isnan(np.asarray(v, float)).any() for v in point.values(real))


def _joined(
    point: Point, pairs: Sequence[tuple[Node, Node]], splits: Sequence[Split]
) -> list[Array]:
    """The values of terms over places and residues, residue by residue, as positions again."""
    steps = {s.residue: s.step for s in splits}
    of = {s.axis: s for s in splits}
    kind = object if point.exact else float
    out = [np.zeros([point.sizes[a] for a in b.axes], kind) for b, _ in pairs]
    for residues in itertools.product(*map(range, steps.values())):
        at = dict(zip(steps, residues, strict=True))
        found = point.at(at, splits).values([a for _, a in pairs])
        for (b, a), whole, value in zip(pairs, out, found, strict=True):
            where = tuple(
                slice(at[of[t].residue], None, of[t].step) if t in of else slice(None)
                for t in b.axes
            )
            places = [of[t].place if t in of else t for t in b.axes]
            gone = tuple(i for i, t in enumerate(a.axes) if t in steps)
            kept = [t for t in a.axes if t not in steps]
            whole[where] = aligned(np.squeeze(value, axis=gone), kept, places)
    return out


def agree(found: Array, wanted: Array, point: Point, term: Node, *, infinite: bool = False) -> bool:
    """Whether a value is that of a term at a point, exactly or but for rounding."""
    if point.exact:
        return bool(np.all(found == wanted))
    found = np.broadcast_to(np.asarray(found, float), np.shape(wanted))
    wanted = np.asarray(wanted, float)
    finite = np.isfinite(wanted)
    # Elsewhere sums in another order may overflow sooner.
    infinite = infinite and point.what == "infinite"
    if infinite and not np.array_equal(found[~finite], wanted[~finite], equal_nan=True):
        return False
    if _gap(found, wanted, finite) <= TOLERANCE * _norm(wanted[finite]):
        return True
    moved = [np.asarray(p.values([term])[0], float) for p in point.moved()]
    for other in moved:  # what overflows when it is moved is no number to compare with
        finite = finite & np.isfinite(other)
    noise = max((_gap(other, wanted, finite) for other in moved), default=0.0)
    allowed = TOLERANCE * _norm(wanted[finite]) + ROUNDING * noise
    return _gap(found, wanted, finite) <= allowed


def _gap(found: Array, wanted: Array, where: Array) -> float:
    with np.errstate(all="ignore"):
        return _norm((found - wanted)[where])


def _norm(x: Array) -> float:
    return float(np.linalg.norm(x))


def _message(rule: Rule, old: Node, new: Node, point: Point, wanted: Array, found: Array) -> str:
    return (
        f"rule {rule.name!r} broke its law, {rule.law}:\n"
        f"  {text(old, {})} = {np.ravel(wanted)[:4]}\n  {text(new, {})} = {np.ravel(found)[:4]}\n"
        f"at {point}"
    )
