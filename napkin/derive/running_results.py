"""Running states: a sum held at the current value of the results in its body.

When a chunk changes the results, the sum is rescaled (`napkin.algebra.rescale`) before the chunk is
added; a merge rescales both sides to the joined results. The rescale needs the sums of a few more
functions than the body. Those that other states give already, or that are 0, are read off them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy

from napkin.algebra.fold import State, Tag, state_leaf
from napkin.algebra.meaning import Meaning
from napkin.algebra.rescale import Rescale, filled, tidy
from napkin.algebra.sides import NotSeparable
from napkin.algebra.signs import sign
from napkin.algebra.terms import (
    EXTREMA,
    JOINS,
    added,
    carrying,
    combined,
    is_count,
    is_read,
    scaled,
    starting,
    value_at,
)
from napkin.derive.far_results import refuse_far
from napkin.derive.folding import Folding
from napkin.ir.infer import along, joined, pointwise, rebuilt
from napkin.ir.node import FLOOR, REDUCTIONS, Node, in_kind, number, over, postorder, union_axes
from napkin.ir.operators import POINTWISE
from napkin.ir.rewrite import substitute
from napkin.rewrite.together import write_exponent

BEFORE: tuple[Tag, ...] = ("old", "left", "right")
"""The sides that a rescale starts from: one step, or the two halves of a merge."""

TAGS: tuple[Tag, ...] = (*BEFORE, "new")

_FAR = (-(2.0**96), 2.0**96, -(2.0**48), 2.0**48)
"""Starts from which an exponential vanishes, and whose multiples, or squares, are floats."""

Sums = Mapping[Tag, Node]
"""The sum of one function of a basis on each side; nothing where it is 0."""


def hold(f: Node, p: int, rescale: Rescale, folding: Folding, stem: str) -> Node:
    """Hold the sum `f` of a rescale's body running in pass `p`: its leaf after the step.

    The results that the rescale is by get states of their own where nothing carries them yet.

    Raises:
        NotSeparable: no start makes the rescale finite, no operator computes it, or it takes
            differences from a result that may have seen nothing of a chunk.
    """
    nodes = rescale.meaning.nodes
    old = [nodes[s] for s in rescale.old]
    if len(rescale.basis) > 1:
        _refuse_unseen(f, old, folding)
        _refuse_small(p, [nodes[s] for s in rescale.divisors], folding)
    _refuse_undefined(p, old, folding)
    _refuse_read(p, old, folding)
    if len(rescale.basis) > 1:
        refuse_far(f, p, rescale, folding)
    start = rescale.start([_choices(r, p, folding, rescale.exponential) for r in old])
    results = {s: _result(nodes[s], p, folding, start[s]) for s in rescale.old}
    return _Running(f, p, rescale, folding, results).held(stem)


@dataclass(frozen=True, eq=False)
class _Running:
    """The sum `f` of a rescale's body in pass `p`, and the states of the results that it is by."""

    f: Node
    p: int
    rescale: Rescale
    folding: Folding
    results: Mapping[Any, State]

    def held(self, stem: str) -> Node:
        """The states of the sums of all functions of the basis: the leaf of the first."""
        f, folding, functions = self.f, self.folding, range(len(self.rescale.basis))
        names = [folding.name(f, f"{stem}_{i}" if i else stem) for i in functions]
        axes, sums, own = self._axes(), list[Sums](), list[int]()
        found: dict[object, Sums] = {}
        for i, name in enumerate(names):
            what = self._summed(i)
            known = self._read_off(i) if i else None
            known = folding.running.get(what) if known is None else known
            if known is None:
                own.append(i)
                known = found[what] = {tag: state_leaf(name, tag, axes, f.kind) for tag in TAGS}
            sums.append(known)
        for i in own:
            old, left, right = (self._moved(i, tag, sums) for tag in BEFORE)
            step = pointwise("add", (old, self._chunk(i)))
            merge = pointwise("add", (left, right))
            state = State(names[i], axes, f.kind, 0.0, step, merge, "running")
            folding.states[self.p].append(state)
        folding.running.update(found)
        return sums[0]["new"]

    def _leaves(self, tag: Tag) -> dict[Any, Node]:
        """The results on a side, by their symbols."""
        return {s: state.leaf(tag) for s, state in self.results.items()}

    def _along(self, body: Node) -> Node:
        """A sum over the axes that `f` removes."""
        return along("sum", carrying(body, over(self.f)), over(self.f))

    def _axes(self) -> tuple[str, ...]:
        """The axes of the sums: those of `f` that only a factor of the tail has are none.

        So a sum that is shared by several reductions has the same axes in each.
        """
        used = set[Any]().union(*(basis.free_symbols for basis in self.rescale.basis))
        in_basis = {a for s in used for a in self.rescale.meaning.stands_for(s).axes}
        return tuple(a for a in self.f.axes if a in in_basis)

    def _summed(self, i: int) -> tuple[object, ...]:
        """What the sum of a basis function is: equal for sums that are equal at every step."""
        basis, meaning = self.rescale.basis[i], self.rescale.meaning
        by = [(meaning.nodes[s], x.name) for s, x in self.results.items() if basis.has(s)]
        return (self.p, self._along(meaning.node(basis)), tuple(by))

    def _moved(self, row: int, tag: Tag, sums: Sequence[Sums]) -> Node:
        """One row of the rescale: a sum of side `tag` as it is at the new results."""
        rescale, now = self.rescale, self._leaves("new")
        values = self._leaves(tag)
        values |= {new: now[s] for s, new in zip(rescale.old, rescale.new, strict=True)}
        terms: list[Node] = []
        for column, known in enumerate(sums):
            if known and (factor := rescale.entry(row, column, values)) is not None:
                terms.append(scaled(known[tag], factor))
        return added(terms)

    def _chunk(self, i: int) -> Node:
        """The sum of a basis function over one chunk, at the new results."""
        basis, meaning, folding = self.rescale.basis[i], self.rescale.meaning, self.folding
        body, values = meaning.node(basis), self._leaves("new")
        written = substitute([body], {meaning.nodes[s]: n for s, n in values.items()})[body]
        beside = {u for u in folding.uses(written) if folding.pass_of[u] == self.p}
        if beside and not any(map(is_count, beside)) and basis.free_symbols <= set(meaning.nodes):
            # It also reads what a result is read off, and that may be 0/0 where it is carried.
            written = filled(basis, values, meaning)
        return self._along(folding.current(written, self.p))

    def _read_off(self, i: int) -> Sums | None:
        """The sum of a basis function from folds that are held anyway; None where they do not give
        it.

        Chan's merge needs no sum of deviations because that sum is s - n * (s / n) = 0. A square of
        a deviation is not read off: s2 - 2 r s + r**2 n loses twice the digits that s - n r does.
        """
        rescale, meaning = self.rescale, self.rescale.meaning
        if not _linear(rescale.rows[i], rescale.old):
            return None
        total, states = sympy.Integer(0), dict[Any, State]()
        for b, a in zip(rescale.rows[i], rescale.columns, strict=True):
            if b == 0:
                continue
            state = self._column(a)
            if state is None:
                return None
            symbol = sympy.Symbol(f"fold_{state.name}", real=True)
            states[symbol] = state
            total += b * symbol
        by_state = {state.name: symbol for symbol, state in states.items()}
        nodes = {s: meaning.nodes[s] for s in rescale.old}
        known = {s: _over_folds(n, by_state, self.p, self.folding) for s, n in nodes.items()}
        if all(e is not None for e in known.values()) and tidy(total.subs(known)) == 0:
            return {}
        states |= self.results

        def read(tag: Tag) -> Node:
            return filled(total, {s: state.leaf(tag) for s, state in states.items()}, meaning)

        begun = {state.leaf("old"): state.init for state in states.values()}
        if not math.isfinite(value_at(read("old"), begun)):
            return None  # before the first chunk, as 0/0: a state of its own begins at 0
        return {tag: read(tag) for tag in BEFORE}

    def _column(self, a: Any) -> State | None:
        """The fold that sums a function of x alone; of a condition, also the one that counts it."""
        meaning, folding, p = self.rescale.meaning, self.folding, self.p
        fold = self._along(meaning.node(a))
        if is_count(fold):
            return folding.plain(fold, p)
        state, test = folding.found(fold, p), meaning.condition(a)
        if state is not None or test is None or not set(over(self.f)) <= set(test.axes):
            return state
        return folding.found(along("sum", test, over(self.f)), p)


def _refuse_unseen(f: Node, results: Sequence[Node], folding: Folding) -> None:
    """Refuse sums of powers of differences from a result that leaves out positions which the sum
    has: where it has seen none yet it is 0, and K**2 - 2 r K + r**2 of K and r far from 0 has lost
    the digits of (K - r)**2.

    Raises:
        NotSeparable: there is such a result.
    """
    own = set(_tests(postorder(f.args, set(results)), folding))
    if any(test not in own for r in results for test in _tests(postorder([r]), folding)):
        raise NotSeparable("sum", "it takes differences from a result that leaves positions out")


def _refuse_small(p: int, divisors: Sequence[Node], folding: Folding) -> None:
    """Refuse to divide by a sum so far that may be 0, or as good as 0, for a while: of exponentials
    that no running maximum keeps in range, or one that is tested for 0.

    Raises:
        NotSeparable: there is such a sum.
    """
    for r in divisors:
        uses = folding.uses(r)
        tested = any(n.op == "where" for n in postorder([r], uses))
        for u in uses:
            plain = folding.found(u, p) is not None and u.op == "sum" and not is_count(u)
            if plain and (tested or any(n.op == "exp" for n in postorder(u.args))):
                raise NotSeparable("sum", "it divides by a sum that may be 0 for a while")


def _refuse_undefined(p: int, results: Sequence[Node], folding: Folding) -> None:
    """Refuse results that may have no value for a while, such as the logarithm of a sum that is
    negative so far: what is rescaled by it once is NaN for good. Nor may a result go far from where
    it ends, as a quotient does whose divisor changes its sign on the way: what is summed of
    differences from it loses its digits, and exponentials overflow.

    Raises:
        NotSeparable: there is such a result.
    """
    for n in postorder(results, {u for r in results for u in folding.uses(r)}):
        record = POINTWISE.get(n.op)
        if record and record.pole and not sign(n.args[-1]):
            far = {u for u in folding.uses(n.args[-1]) if folding.pass_of[u] == p}
            if not all(map(is_count, far)):
                far_off = "go far: its divisor may change sign"
                why = "have no value" if record.arity == 1 else far_off
                raise NotSeparable("sum", f"{n.op} of a result so far may {why}")


def _refuse_read(p: int, results: Sequence[Node], folding: Folding) -> None:
    """Refuse results that are read from memory at positions so far: each chunk would read again.

    Raises:
        NotSeparable: there is such a result.
    """
    own = {state.leaf("new") for state in folding.states[p]}
    for n in postorder(folding.current(r, p) for r in results):
        if is_read(n) and not own.isdisjoint(postorder(n.args)):
            raise NotSeparable("sum", "it is by what is read at a position so far")


def _tests(terms: Iterable[Node], folding: Folding) -> Iterator[Node]:
    """The conditions of choices that differ from chunk to chunk."""
    return (n.args[0] for n in terms if n.op == "where" and folding.streamed(n.args[0].axes))


def _choices(r: Node, p: int, folding: Folding, exponential: bool) -> list[float]:
    """Values that a result may have before the first chunk, the best first.

    That is its value on nothing where possible. Where it has none (0/0), or the rescale from it is
    not finite, any value does that keeps its sign: what it rescales is still all zero. But where an
    exponential vanishes at an infinite result, so does what it sums, and no rescale brings it back.
    """
    nothing = _on_nothing(r, p, folding)
    if nothing is not None and abs(nothing) >= -FLOOR and exponential:
        return [nothing]
    if sign(r) == "positive":
        return [1.0] if nothing is None else [nothing, 1.0]
    guesses = [0.0, 1.0, FLOOR, -FLOOR]
    return guesses if nothing is None else [nothing, *guesses, *_FAR]


def _on_nothing(r: Node, p: int, folding: Folding) -> float | None:
    """The value of a result before the first chunk; None where inputs have a say in it."""
    value = folding.current(r, p)
    if any(n.op == "input" for n in postorder([value])):
        return None
    return value_at(value, folding.starts())


def _result(r: Node, p: int, folding: Folding, first: float) -> State:
    """The state that has a result before and after a step: its own fold, if that starts from the
    value `first`, or a state that only carries it from there."""
    plain, key = folding.found(r, p), (r, p, first)
    if key not in folding.carried:
        if plain is not None and plain.init == first and math.isfinite(first):
            return plain
        folding.carried[key] = _carrier(r, p, folding, first)
        folding.states[p].append(folding.carried[key])
    return folding.carried[key]


def _carrier(r: Node, p: int, folding: Folding, first: float) -> State:
    """A state that carries a result from the value `first` on: a step and a merge read it off the
    results that stand before it ("new"), but for what those give at their starts."""
    value, starts = folding.current(r, p), folding.starts()
    name = folding.name(r, folding.names.get(r) or "r")
    plain = State(name, r.axes, r.kind, first, value, value, "carried")
    if math.isinf(first) or (abs(first) == -FLOOR and _on_nothing(r, p, folding) is None):
        # A maximum over scores that are all -inf so far must not be subtracted from -inf.
        bound, op = (FLOOR, "maximum") if first < 0 else (-FLOOR, "minimum")
        clamped = pointwise(op, (value, number(bound)))
        return replace(plain, init=bound, step=clamped, merge=clamped)
    if math.isfinite(value_at(value, starts)):
        return plain
    # As 0/0. After a step that counts something it no longer is; a merge may be of two starts.
    guarded = _over_carried(r, p, folding) or pointwise(
        "where", (_at_start(value, starts), number(first), value)
    )
    counts = (folding.found(f, p) for f in folding.uses(r) if is_count(f))
    counted = not {c.leaf("new") for c in counts if c}.isdisjoint(postorder([value]))
    return replace(plain, step=value if counted else guarded, merge=guarded)


def _over_carried(r: Node, p: int, folding: Folding) -> Node | None:
    """A result over those that are carried, where that gives it a value before they have one.

    A chunk may be written over them alone, and both must be of one guess. A maximum is not read so:
    it leaves out the -inf that a guess would stand for.
    """
    carried = {n: state.leaf("new") for (n, q, _), state in folding.carried.items() if q == p}
    inside = substitute([r], carried)[r]
    if inside is r or any(n.op in EXTREMA | JOINS for n in postorder([inside])):
        return None
    nothing = _on_nothing(inside, p, folding)
    return None if nothing is None or not math.isfinite(nothing) else folding.current(inside, p)


def _at_start(value: Node, starts: Mapping[Node, float]) -> Node:
    """Whether what a value is read off is as it was at the start, at each position of the value.

    Of positions that are reduced away it takes all; or one, where one spoils the reduction.
    """
    tests: dict[Node, list[Node]] = {}
    for n in postorder([value]):
        if n in starts:
            tests[n] = [pointwise("equal", (n, number(in_kind(starts[n], n.kind))))]
            continue
        found = list(dict.fromkeys(t for a in n.args for t in tests[a]))
        if n.op == "rename":
            found = [rebuilt(n, (t,)) for t in found]
        elif found and not set(union_axes(found)) <= set(n.axes):
            found = [_reduced(joined("and", found), n, starts)]
        tests[n] = found
    return joined("and", tests[value])


def _reduced(test: Node, n: Node, starts: Mapping[Node, float]) -> Node:
    """A test of the positions that `n` reduces, as a test of its value."""
    gone = tuple(a for a in test.axes if a not in n.axes)
    # A sum with one 0/0 has no value yet; a maximum with one -inf is that of the others.
    spoilt = n.op in REDUCTIONS and not math.isfinite(
        value_at(combined(n.op, n.args[0], number(1.0)), starts)
    )
    op = "max" if spoilt else "min"
    value = along(op, pointwise("where", (test, number(1.0), number(0.0))), gone, starting(op))
    return pointwise("equal", (value, number(1.0)))


def _linear(row: Sequence[Any], results: Sequence[Any]) -> bool:
    """Whether the coefficients of a basis function, without a factor that all have, are at most
    linear in the results together."""
    columns = [sympy.Dummy() for _ in row]
    total = sympy.factor_terms(sum(b * c for b, c in zip(row, columns, strict=True)))
    own = [f for f in sympy.Mul.make_args(total) if f.free_symbols & set(columns)]
    if len(own) != 1:
        return True
    polynomial = bool(own[0].is_polynomial(*results))
    return polynomial and int(sympy.Poly(own[0], *results).total_degree()) <= 1


def _over_folds(r: Node, by_state: Mapping[str, Any], p: int, folding: Folding) -> Any:
    """A result as an expression over the symbols of states; None where it needs another state."""
    value = folding.current(r, p)
    leaves = {n: by_state.get(str(n.params[0])) for n in postorder([value]) if n.op == "state"}
    if any(symbol is None for symbol in leaves.values()):
        return None
    inner = Meaning(lambda n: "x" if n.op == "state" else "mixed", write_exponent)
    try:
        expression = inner.of(value)
    except NotSeparable:
        return None
    return expression.subs({inner.symbol(n): symbol for n, symbol in leaves.items()})
