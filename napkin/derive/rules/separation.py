"""Separation: a reduction whose body uses results of its pass, over reductions whose bodies do not.

g(x, r) = sum_k a_k(x) b_k(r) gives fold_x g = sum_k b_k(r) fold_x a_k (`napkin.algebra.separate`).
Results inside an exponential or a square are held running (`napkin.derive.running_results`), the
rest are deferred to the tail.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import sympy

from napkin.algebra.fold import Separation
from napkin.algebra.meaning import Meaning
from napkin.algebra.relabel import listed
from napkin.algebra.rescale import rescaled
from napkin.algebra.rule import Instance, Rule, between
from napkin.algebra.separate import Parts, additive, running_symbols, separate, separate_by
from napkin.algebra.sides import NotSeparable, Side, by_side
from napkin.algebra.terms import EXTREMA, added, as_written, carrying, like, scaled
from napkin.derive.exponents import Body
from napkin.derive.folding import Folding
from napkin.derive.rules.select import SELECTED
from napkin.derive.running_results import hold as hold_running
from napkin.ir.infer import along, pointwise
from napkin.ir.listing import text
from napkin.ir.node import REDUCTIONS, Node, number, over, postorder
from napkin.ir.operators import POINTWISE, RELATIONS
from napkin.ir.operators.meant import joins_as
from napkin.ir.rewrite import substitute
from napkin.rewrite.divide import one_by_one, scaled_by
from napkin.rewrite.nest import joined_with_inner
from napkin.rewrite.together import write_exponent

_ONE = sympy.Integer(1)


class Separating:
    """Finds the forms of reductions over results of their pass.

    Args:
        hold: names of results to hold running even where deferring them would do.

    Attributes:
        separations: what was found, for trails.
    """

    def __init__(self, folding: Folding, hold: frozenset[str]) -> None:
        self.folding, self.hold, self.carried = folding, hold, folding.streamed
        self.separations: list[Separation] = []
        self.compared = self._compared()

    def form(self, f: Node, p: int, same: set[Node]) -> tuple[Rule, Instance]:
        """The form of a reduction in pass `p`, and the rule that gives it.

        Args:
            same: the results of that pass in its body.

        Raises:
            NotSeparable: it has none.
        """
        for selected in SELECTED.matches(self.folding, f, p, same):
            self.separations.append(selected.of)
            return SELECTED, selected
        noted = len(self.separations)
        try:
            found = self._found(f, p, same)
            if any(n.op == "state" for n in postorder([found])):
                return HELD, Instance(self._name(f), found)
            if f in self.compared or as_written(f):
                raise NotSeparable(f.op, "positions are compared with it as it is rounded")
            if f.op in EXTREMA and f.kind == "int":
                raise NotSeparable(f.op, "the extremum of no whole numbers is no infinity")
        except NotSeparable:
            del self.separations[noted:]
            raise
        return SEPARATED, Instance(self._name(f), found, between([f], [found]))

    def _name(self, f: Node) -> str:
        return self.folding.names.get(f, f.op)

    def _compared(self) -> frozenset[Node]:
        """The reductions that positions of the stream are compared with: x == max_x x holds where
        both are computed alike, and b max_x a is not rounded as max_x (a b)."""
        tests = (n for n in self.folding.order if n.op in RELATIONS and self.carried(n.axes))
        return frozenset[Node]().union(*map(self.folding.uses, tests))

    def _found(self, f: Node, p: int, same: set[Node]) -> Node:
        """A reduction over what its body separates into: as it is written; with the results that
        were separated before it opened, as in max_x (r + a) = r + max_x a an r may cancel; or as
        another order of reductions."""
        noted = len(self.separations)
        try:
            return like(self._separated(f, p, f.args[0], same), f)
        except NotSeparable as why:
            for way in (self._opened, self._joined, self._nested):
                del self.separations[noted:]
                with suppress(NotSeparable):
                    return like(way(f, p, same), f)
            raise why

    def _opened(self, f: Node, p: int, same: set[Node]) -> Node:
        known = self.folding.separated(p)
        folded = {g: g for g in self.folding.pass_of}  # a reduction that folds is not rewritten
        term = substitute([f.args[0]], folded | known)[f.args[0]]
        if term is f.args[0]:
            raise NotSeparable(f.op, "no result in it was separated")
        opened = {n for n in known.values() if n.op in POINTWISE}  # a reduction stays a result
        return self._separated(f, p, term, self._used(term, p), opened)

    def _joined(self, f: Node, p: int, same: set[Node]) -> Node:
        """sum_x sum_a g = sum_{x a} g, which has g as it is, where sum_a g would be opened."""
        joined = joined_with_inner(f, lambda n: bool(self.folding.uses(n) & same))
        if joined is None:
            raise NotSeparable(f.op, "it is of no other reduction")
        return self._found(joined, p, same)

    def _nested(self, f: Node, p: int, same: set[Node]) -> Node:
        """sum_{c x} g = sum_c sum_x g, where results in g carry c."""
        below = postorder([f.args[0]], {n for n in self.folding.uses(f.args[0])})
        results = [n for n in below if self._side(n, same, ()) == "r" and self._used(n, p)]
        outer = tuple(a for a in over(f) if any(a in n.axes for n in results))
        if not outer:
            raise NotSeparable(f.op, "no result in it carries an axis that it removes")
        axes, start = tuple(a for a in over(f) if a not in outer), f.params[1:]
        found = self._found(along(f.op, f.args[0], axes, start), p, same)
        return along(f.op, carrying(found, outer), outer, start)

    def _used(self, n: Node, p: int) -> set[Node]:
        """The results of a pass that a term is computed from."""
        return {g for g in self.folding.uses(n) if self.folding.pass_of.get(g) == p}

    def _separated(
        self, f: Node, p: int, term: Node, same: set[Node], opened: Container[Node] = ()
    ) -> Node:
        """A reduction of `term`, its body, which uses results of its pass, over reductions whose
        bodies do not; what is `opened` is looked into."""
        g = self._read(f, p, term, same, opened, ())
        plain = {g.meaning.nodes[s] for s in running_symbols(g.body) if s in g.meaning.nodes}
        plain = {n for n in plain if not self.folding.uses(n)}
        if plain:  # no result, and in a square or an exponential no factor of the tail either
            g = self._read(f, p, term, same, opened, plain)
        for s in by_side(g.body)[1]:
            here = [a for a in over(f) if a in g.meaning.stands_for(s).axes]
            if here:
                raise NotSeparable(f.op, f"a result carries {' '.join(here)}, which it removes")
        if REDUCTIONS[f.op].order:
            return self._extremum(g)
        parts = separate(g.body)
        adds = joins_as(REDUCTIONS[f.op]) == "add"
        return self._summed(g, parts) if adds else self._outside(g, parts)

    def _read(
        self,
        f: Node,
        p: int,
        term: Node,
        same: Container[Node],
        opened: Container[Node],
        chunk: Container[Node],
    ) -> Body:
        """What a body means, with the terms of `chunk` on the side of the chunk."""

        def side(n: Node) -> Side:
            if n in chunk:
                return "x"
            return "mixed" if n in opened else self._side(n, same, over(f))

        meaning = Meaning(side, write_exponent)
        body = meaning.of(term)
        if any(side(n) == "mixed" for n in meaning.nodes.values()):  # its symbol hides a result
            raise NotSeparable(f.op, "it mixes the chunk with a running result")
        return Body(self.folding, f, p, meaning, body)

    def _side(self, n: Node, results: Container[Node], gone: Collection[str]) -> Side:
        uses = any(f in results for f in self.folding.uses(n))
        removed = not set(gone).isdisjoint(n.axes)
        if self.carried(n.axes) or (removed and n.op in POINTWISE):
            return "mixed" if uses else "x"
        # What neither carries an axis that is removed nor depends on a fold may stand on either
        # side; left with the running results it is applied once, in the tail.
        return "r" if uses or not removed else "x"

    def _folded(self, g: Body, a: Any) -> Node:
        """The reduction of an expression in the chunk alone."""
        return self.folding.folded(g.f.op, g.meaning.body(a, g.f), g.f, g.p)

    def _extremum(self, g: Body) -> Node:
        if running_symbols(g.body):  # max exp(x - r) = exp(max x - r), where exp(x) may overflow
            return self._distributed(g)
        try:
            return self._outside(g, separate(g.body))
        except NotSeparable:
            with suppress(NotSeparable):
                return self._distributed(g)
            raise

    def _distributed(self, g: Body) -> Node:
        """max_x max(r, a(x)) = max(r, max_x a(x)), as `napkin.algebra.lattice` does."""

        def kind(e: Any) -> str:
            xs, rs = by_side(e)
            return "mixed" if xs and rs else "x" if xs else ""

        found, inner = g.meaning.extremum(g.f, g.body, kind)
        value = g.meaning.node(found)
        own = {g.meaning.symbol(n) for n in inner}
        self._note(g, [(found, _ONE)], deferred=by_side(found)[1] - own, of=g.f)
        for n in inner:
            self.folding.found_for(n, g.f, g.p)
        return value

    def _outside(self, g: Body, parts: Parts) -> Node:
        """The reduction of a(x) o b is that of a(x), and then o b, where o distributes over it. Of
        prod_x a(x) b = b**n prod_x a(x) both factors may overflow, and so it stays as it is."""
        record = REDUCTIONS[g.f.op]
        scales = record.over == "mul"
        if record.order:
            scales = all(b.is_nonnegative for _, b in parts)
        if scales and len(parts) == 1 and not running_symbols(g.body):  # whose factors may overflow
            (a, b), op, shown = parts[0], "mul", parts
        elif record.over == "add":
            a, b = additive(parts, by_side, g.f.op)
            op, shown = "add", [(a, _ONE), (_ONE, b)]
        else:
            raise NotSeparable(g.f.op, "what mixes the chunk with a running result stays inside it")
        self._note(g, shown, deferred=by_side(b)[1])
        return pointwise(op, (self._folded(g, a), g.meaning.node(b)))

    def _summed(self, g: Body, parts: Parts) -> Node:
        must = self._must(g)
        terms = sympy.Add.make_args(g.body) if must else ()
        shifted = [g.shifted(t, must) for t in terms]
        if any(factor is not None for _, factor in shifted):
            return self._scaled_back(g, shifted)
        return self._held_or_deferred(g, parts)

    def _must(self, g: Body) -> set[Any]:
        """The results that a sum has to hold running."""
        nodes = g.meaning.nodes
        return {s for s in running_symbols(g.body) if s in nodes and self.folding.uses(nodes[s])}

    def _held_or_deferred(self, g: Body, parts: Parts) -> Node:
        must = self._must(g)
        running = must | self._asked(g)
        if not running:
            return self._deferred(g, parts)
        try:
            return self._held(g, running)
        except NotSeparable:
            if must:  # deferred, it would cancel or overflow: the next pass knows the results
                raise
            return self._deferred(g, parts)

    def _scaled_back(self, g: Body, shifted: list[tuple[Any, Node | None]]) -> Node:
        """The sum of terms that are shifted, each with its factor."""
        by: dict[Node | None, Any] = {}
        for body, factor in shifted:
            by[factor] = by.get(factor, 0) + body
        factors = {f: _ONE if f is None else g.meaning.symbol(f) for f in by}
        self._note(g, [(body, factors[f]) for f, body in by.items()], deferred=factors.values())
        terms: list[Node] = []
        for factor, body in by.items():
            inner = self._held_or_deferred(replace(g, body=body), separate(body))
            terms.append(inner if factor is None else scaled(inner, factor))
        return added(terms)

    def _asked(self, g: Body) -> set[Any]:
        """The results that the caller wants held running, and that may be: where one has no value
        for a while, or for good, no rescale brings a sum back from there."""
        names, folds = self.folding.names, self.folding.folds
        return {
            s
            for s, n in g.meaning.nodes.items()
            if g.meaning.side_of(n) == "r"
            and self.folding.uses(n)
            and self.hold
            & {names.get(u, "") for u in ({n} if n in folds else self.folding.uses(n))}
            and self.folding.has_value_at_start(n, g.p)
        }

    def _deferred(self, g: Body, parts: Parts) -> Node:
        """sum_k b_k(r) sum_x a_k(x), the factors b_k applied in the tail."""
        power: Any
        for power in sympy.Mul(*(b for _, b in parts)).atoms(sympy.Pow):
            n = g.meaning.nodes.get(power.base)
            if n is not None and n.op in EXTREMA and power.exp.is_number and power.exp <= -2:
                raise NotSeparable(g.f.op, "a power of its body may overflow before it is scaled")
        terms: list[Node] = []
        for a, b in parts:
            terms.append(self._of_chosen(g, a, b, scaled_by(self._folded(g, a), b, g.meaning)))
        self._note(g, parts, deferred=set[Any]().union(*(by_side(b)[1] for _, b in parts)))
        return added(terms)  # a body that is identically 0 has no parts

    def _of_chosen(self, g: Body, a: Any, b: Any, found: Node) -> Node:
        """A sum of what conditions choose of a chunk times results of which one may be an infinity,
        as a quotient by a count of 0 is: 0 where they choose nothing, as 0 times infinity is no
        number."""
        factors: tuple[Any, ...] = sympy.Mul.make_args(a)  # of a sum of choices none is one
        chosen = sympy.Mul(*(c for c in factors if c.is_Symbol and c not in g.meaning.nodes))
        terms = [self.folding.current(g.meaning.stands_for(s), g.p) for s in by_side(b)[1]]
        if chosen == 1 or all(map(self.folding.is_finite_of_none, terms)):
            return found
        none = pointwise("equal", (self._folded(g, chosen), number(0)))
        return pointwise("where", (none, number(0.0), found))

    def _held(self, g: Body, running: set[Any]) -> Node:
        """A sum whose body holds some results running; factors of the others are deferred."""

        def split(e: Any) -> tuple[set[Any], set[Any]]:
            xs, rs = by_side(e)
            return xs | (rs & running), rs - running

        terms: list[Node] = []
        for i, (inner, b) in enumerate(separate_by(g.body, split)):
            nodes = [g.meaning.nodes.get(s) for s in by_side(inner)[1]]
            moves = any(n is None or self._used(n, g.p) for n in nodes)
            # What earlier passes have found is known, and never moves.
            leaf = self._running(g, inner, i) if moves else self._folded(g, inner)
            factor = None if b == 1 else one_by_one(leaf, b, g.meaning)
            terms.append(leaf if b == 1 else factor or scaled(leaf, g.meaning.node(b)))
        return added(terms)

    def _running(self, g: Body, inner: Any, i: int) -> Node:
        stem = self.folding.names.get(g.f, "sum")
        rescale = rescaled(inner, g.meaning)
        leaf = hold_running(g.f, g.p, rescale, self.folding, f"{stem}_{i}" if i else stem)
        others = by_side(g.body)[1] - set(rescale.old)
        shown = rescale.shown(self.folding.names)
        self._note(g, [(inner, _ONE)], rescale.old, others, shown)
        return leaf

    # --- for the trail ----------------------------------------------------------------------

    def _note(
        self,
        g: Body,
        parts: Parts,
        running: Iterable[Any] = (),
        deferred: Iterable[Any] = (),
        rescale: str = "",
        of: Node | None = None,
    ) -> None:
        names = {n: name for n, name in self.folding.names.items() if n is not g.f}

        def shown(n: Node) -> str:
            return text(n, names, top=False)

        def results(symbols: Iterable[Any]) -> tuple[str, ...]:
            nodes = [g.meaning.nodes[s] for s in symbols if s in g.meaning.nodes]
            return tuple(sorted(shown(n) for n in nodes if self.folding.uses(n)))

        pairs = tuple((shown(g.meaning.node(a)), shown(g.meaning.node(b))) for a, b in parts)
        place, body = self._name(g.f), shown(of or g.f.args[0])
        self.separations.append(
            Separation(place, body, pairs, results(running), results(deferred), rescale)
        )


# --- the rules ------------------------------------------------------------------------------


def _of(name: str) -> Callable[..., Iterator[Instance]]:
    """The forms that the rule of a name gives; none of a reduction that has no such form."""

    def matches(of: Separating, f: Node, p: int, same: set[Node]) -> Iterator[Instance]:
        with suppress(NotSeparable):
            rule, found = of.form(f, p, same)
            if rule.name == name:
                yield found

    return matches


SEPARATED = Rule(
    "separate",
    "sum_x sum_k a_k(x) b_k(r) = sum_k b_k(r) sum_x a_k(x), and so of max and min",
    _of("separate"),
    (
        "no b_k carries an axis that the sum removes",
        "no square and no exponential of a difference is multiplied out",
        "a b_k that scales a maximum is not negative",
        "x is not empty: of nothing the left side is 0, and b_k may be a mean of nothing",
    ),
    empty=False,
)
HELD = Rule(
    "hold",
    "sum_x f(x, r_new) = B(r_new) B(r_old)^-1 sum_x f(x, r_old), where f(x, r) = B(r) a(x)",
    _of("hold"),
    ("B(r) is invertible at every r", "the rescale is finite from the start on"),
    empty=False,
    relabel=listed("hold"),
)
"""Its law holds at each chunk, so that the law of streams verifies it."""
