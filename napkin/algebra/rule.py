"""Rules: rewrites that state their laws, list where they apply, and are held to their laws.

`Rule.matches` gives the legal instances of a rule, and `Rule.apply` takes one: every application is
reported to the tracer and verified there. `napkin.derive.rules.table` has every rule.

A law is an equation between two terms. With `NAPKIN_VERIFY=1` in the environment every application
of a rule evaluates both sides: in float64 at random points, near zero, far from it and where values
repeat, along axes of 1 and more positions and of none; and where both sides are rational, in
rational numbers. Rounding is told from error by moving the inputs a little: sides may differ by as
much as that moves the left one. Without the variable nothing is evaluated.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from napkin.algebra.law_points import Point, folds_exactly, is_rational, largest, points
from napkin.algebra.relabel import Relabel
from napkin.algebra.tracer import active
from napkin.ir.evaluate import Array, aligned
from napkin.ir.listing import text
from napkin.ir.node import REDUCTIONS, Node, node, postorder
from napkin.ir.rewrite import rewrite, substitute
from napkin.keys.residues import Split

VERIFYING = os.environ.get("NAPKIN_VERIFY", "") not in {"", "0"}

TOLERANCE = 1e-11
"""Relative error by norm, beside what rounding explains."""

ROUNDING = 16.0
"""How much farther apart sides may be than the left one moves with its inputs."""

EPSILONS = 1e-13
"""Roundings of float64 that a term may be off by, of the largest number that it is computed from:
some hundreds."""

ENDS = 1e-300, 1e300
"""Sizes of numbers beyond which a product or a quotient of them may be infinite in float64."""

Sides: TypeAlias = "tuple[Sequence[Node], Sequence[Node]]"
"""The terms on both sides of a law, in the same order. Axes go by name."""

Change: TypeAlias = "Callable[[Node, tuple[Node, ...]], Node | None]"
"""A node in place of another on new arguments, as `rewrite` takes it."""

Ways: TypeAlias = "Iterable[tuple[str, Sequence[Array]]]"
"""Values of the left side of a law that are found otherwise, each with how."""


@dataclass(frozen=True, eq=False)
class Instance:
    """A legal application of a rule.

    Attributes:
        where: the place, in words.
        made: what the rule gives there: terms or a kernel.
        sides: gives the two sides of the law there; none where the law is of kernels.
        same_size: axes of the right side that have a new name, to those whose size they have
            (`napkin.ir.names.with_named`).
        splits: axes of the left side that the right one has as places and residues.
        of: of a rule for kernels, what `made` is made of.
        kernel: of the stream of a labelled kernel, that kernel.
    """

    where: str
    made: Any
    sides: Callable[[], Sides] = lambda: ((), ())
    same_size: Mapping[str, str] = field(default_factory=dict[str, str])
    splits: Sequence[Split] = ()
    of: Any = None
    kernel: Any = None


@dataclass(frozen=True)
class Rule:
    """A rewrite.

    Attributes:
        name: its name, as moves, refusals and errors have it.
        law: the equation, left side first.
        matches: its legal instances on a term or a kernel.
        provided: its side conditions, which `matches` checks.
        infinite: whether it holds where values are infinite or NaN. Others hold where the left side
            is finite.
        empty: whether it holds along axes without positions.
        cancels: whether its right side loses digits that the left one has. It is then held to its
            law in rational numbers alone.
        change: of a rule that rewrites single nodes: its change, given the terms.
        relabel: what a move by this rule does to labels; None where it leaves them.
        alternative: whether the planner weighs a term with it beside the term without; `matches`
            is then given the terms and the sizes of axes.
        ways: of a rule for kernels, runs what an instance gives at a point; the law is that the
            left side has these values.
        check: reports and verifies an instance.
    """

    name: str
    law: str
    matches: Callable[..., Iterable[Instance]]
    provided: tuple[str, ...] = ()
    infinite: bool = False
    empty: bool = True
    cancels: bool = False
    change: Callable[..., Change] | None = None
    relabel: Relabel | None = None
    alternative: bool = False
    ways: Callable[[Instance, Point], Ways] | None = None
    check: Callable[[Rule, Instance], None] | None = None

    def apply(self, found: Instance) -> Any:
        """What an instance gives, traced and held to the law where that is asked for.

        Raises:
            LawError: the sides of the law differ.
        """
        if active() is not None or verifying():
            (self.check or verified)(self, found)
        return found.made

    def first(self, *given: Any) -> Any:
        """What the first instance gives; None where there is none."""
        found = next(iter(self.matches(*given)), None)
        return None if found is None else self.apply(found)

    def tried(self, term: Any, *given: Any) -> Any:
        """What the first instance on a term gives; the term itself where there is none."""
        made = self.first(term, *given)
        return term if made is None else made

    def everywhere(
        self, terms: Iterable[Node], roots: Sequence[Node], *given: Any
    ) -> Mapping[Node, Node]:
        """All instances of a rule for single nodes at once: the map from every node under `terms`.

        Args:
            roots: the terms whose values are compared.
            given: what else the rule is given.
        """
        assert self.change is not None
        terms = list(terms)
        done = rewrite(terms, self.change(terms, *given))
        return self.apply(Instance("all", done, between(roots, [done[n] for n in roots])))


def node_rule(
    name: str,
    law: str,
    change: Callable[..., Change],
    provided: tuple[str, ...] = (),
    *,
    infinite: bool = False,
    cancels: bool = False,
    relabel: Relabel | None = None,
) -> Rule:
    """A rule for single nodes, which matches every node under terms that changes.

    Args:
        change: gives the change, given the terms.
    """

    def matches(terms: Sequence[Node], *given: Any) -> Iterator[Instance]:
        made = change(terms, *given)
        for n in postorder(terms):
            new = made(n, n.args)
            if new is not None and new is not n:
                yield one_node(n, new)

    return Rule(
        name, law, matches, provided, infinite, cancels=cancels, change=change, relabel=relabel
    )


def between(before: Sequence[Node], after: Sequence[Node]) -> Callable[[], Sides]:
    """The two sides of a law that are known."""
    return lambda: (before, after)


def one_node(n: Node, new: Node, same_size: Mapping[str, str] | None = None) -> Instance:
    """The instance that puts a node in the place of another."""
    where = f"{n.op} [{' '.join(n.axes)}]"
    return Instance(where, new, between([n], [new]), same_size or {})


def verifying() -> bool:
    """Whether applications are verified."""
    return VERIFYING


class LawError(AssertionError):
    """An application of a rule that changed a value."""


_HELD = set[object]()


def verified(rule: Rule, found: Instance) -> None:
    """Report an instance to the tracer, and evaluate both sides, or run it in its ways, where that
    is asked for.

    Raises:
        LawError: the sides differ at a point.
    """
    before, after = found.sides()
    if (tracer := active()) is not None:
        tracer.stepped(rule.name, rule.law, before, after, found.kernel)
    if verifying() and rule.ways:
        hold_ways(rule, before, found)
    elif verifying():
        hold_terms(rule, before, after, found)


def hold_terms(rule: Rule, before: Sequence[Node], after: Sequence[Node], found: Instance) -> None:
    """Evaluate both sides of an instance.

    Raises:
        LawError: they differ at a point.
    """
    pairs = tuple((b, a) for b, a in _closed(before, after) if b is not a)
    if not pairs or (rule, pairs) in _HELD:
        return
    both = [n for pair in pairs for n in pair]
    for point in points(both, found.same_size, found.splits, rule.empty, rule.infinite):
        if rule.cancels and not point.exact:
            continue
        exact = [pair for pair in pairs if is_rational(pair)] if point.exact else pairs
        with suppress(ZeroDivisionError):  # a rational number that has no value: nothing is claimed
            _hold(rule, point, exact, found.splits)
    _HELD.add((rule, pairs))


def hold_ways(rule: Rule, roots: Sequence[Node], found: Instance) -> None:
    """Compare values of terms that an instance finds in other ways with those on the whole, in
    floats, as states begin in floats.

    Raises:
        LawError: they differ at a point.
    """
    assert rule.ways is not None
    for point in points(roots, {}, (), rule.empty, rule.infinite):
        if point.exact:
            continue
        wanted = point.values(roots)
        for how, values in rule.ways(found, point):
            for n, value, whole in zip(roots, values, wanted, strict=True):
                if not agree(value, whole, point, n):
                    raise LawError(
                        f"rule {rule.name!r} broke its law, {rule.law}: {text(n, {})}, {how}, at "
                        f"{point}:\n{whole} is\n{value}"
                    )


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
        if _of_nothing(b, point):
            value = np.where(np.isnan(np.asarray(value, float)), old, value)
        if not agree(value, old, point, b, infinite=rule.infinite):
            raise LawError(_message(rule, b, a, point, old, value))


def _defined(term: Node, point: Point) -> bool:
    """Whether all that a term is computed from are numbers. A mean of nothing is none, of which a
    sum of nothing leaves no trace, and another order of sums does (docs/semantics.md)."""
    return not any(np.isnan(np.asarray(v, float)).any() for v in point.values(_real([term])))


def _of_nothing(term: Node, point: Point) -> bool:
    """Whether a term has an extremum of nothing, which is infinite: where that moves out of a sum
    of nothing, which is 0, their product is no number (docs/semantics.md)."""
    found = [n for n in _real([term]) if n.op in REDUCTIONS] if 0 in point.sizes.values() else []
    return any(np.isinf(np.asarray(v, float)).any() for v in point.values(found))


def _joined(
    point: Point, pairs: Sequence[tuple[Node, Node]], splits: Sequence[Split]
) -> list[Array]:
    """The values of terms over places and residues, residue by residue, as positions again."""
    steps = {s.residue: s.step for s in splits}
    kind = object if point.exact else float
    out = [np.zeros([point.sizes[a] for a in b.axes], kind) for b, _ in pairs]
    for residues in itertools.product(*map(range, steps.values())):
        at = dict(zip(steps, residues, strict=True))
        found = point.at(at, splits).values([a for _, a in pairs])
        for (b, a), whole, value in zip(pairs, out, found, strict=True):
            of = {s.axis: s for s in splits if s.place in a.axes}  # else a tensor's own
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
    if point.exact and bool(np.all(found == wanted)):
        return True
    floats = any(isinstance(x, float) for v in (found, wanted) for x in np.ravel(v))
    if point.exact and not floats and folds_exactly(term):
        return False  # the quotient of two whole numbers is a float
    found = np.broadcast_to(np.asarray(found, float), np.shape(wanted))
    wanted = np.asarray(wanted, float)
    finite = np.isfinite(wanted)
    lost = finite & np.isnan(found)
    if lost.any() and not infinite and _cut_off(term, point):
        finite &= ~lost
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
    values = point.values(_real([term]))
    if any(map(_at_the_ends, values)):  # another order may leave the range of floats
        finite = finite & np.isfinite(found)
    allowed += EPSILONS * max(map(largest, values), default=0.0)
    return _gap(found, wanted, finite) <= allowed


def _cut_off(term: Node, point: Point) -> bool:
    """Whether a choice leaves out what is no number, or a step reads it later on. Another order of
    terms may have NaN there (docs/semantics.md)."""
    for n in postorder([term]):
        if n.op == "steps" and not all(_finite(x) for x in point.values(n.args)):
            return True
        if n.op == "where" and n.kind == "real":
            parts = [a for a in n.args[1:] if not a.constant]
            value, *given = point.values([n, *parts])
            chosen = np.isfinite(np.asarray(value, float))
            laid = (aligned(x, a.axes, n.axes) for a, x in zip(parts, given, strict=True))
            if any((chosen & ~np.isfinite(np.asarray(x, float))).any() for x in laid):
                return True
    return False


def _finite(value: Array) -> bool:
    return bool(np.isfinite(np.asarray(value, float)).all())


def _at_the_ends(value: Array) -> bool:
    """Whether some number, infinities and 0 aside, is near either end of the range of floats."""
    sizes, (least, most) = np.abs(np.asarray(value, float)), ENDS
    return bool((((sizes > 0) & (sizes < least)) | ((sizes > most) & (sizes < np.inf))).any())


def _real(terms: Sequence[Node]) -> list[Node]:
    return [n for n in postorder(terms) if n.kind == "real"]


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
