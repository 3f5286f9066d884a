"""Steps that correct a state by what products read of it, as linear recurrences on a chunk.

In h_t = a_t h_(t-1) + w_t u_t + b_t with u_t = r_t + g_t . a_t h_(t-1), as in the delta rule, what
is added depends on the state, but by a sum of products alone. By pairs of positions that is a sum
of earlier u and b: u = r + G h_0 + N b + M u, where M pairs g_t with a_(s+1) .. a_t w_s for s < t,
and N with what is left of b_s. Where the state is read before it decays, a_t is left out of these
products: then gates are to have logarithms (RWKV-7, arXiv 2503.14456). M is strictly
lower triangular, so u is the solution of a triangular system (arXiv 2406.06484, section 3; arXiv
2412.06464, section 3.3). Its inverse is built up from blocks of 1, 2, 4 and more positions: that of
((A, 0), (-C, B)) is ((1/A, 0), (1/B C 1/A, 1/B)), which divides by nothing, as A and B are 1 on
their diagonals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from napkin.algebra.fold import Twin
from napkin.algebra.rule import Instance, Rule, one_node
from napkin.ir.infer import along, joined, pointwise, recurrence, renamed
from napkin.ir.node import Node, factors, number, over, postorder, steps_of, union_axes
from napkin.ir.rewrite import substitute
from napkin.ir.selecting import all_of, end_of, first_of, position
from napkin.rewrite.pair import (
    Scanned,
    adds_products,
    by_scores,
    has_logarithms,
    kept,
    later,
    read_by_sums,
    smaller,
    weights,
)


@dataclass(frozen=True, eq=False)
class Corrected:
    """A step a h + w u + b, with u = r + sum(g a h), or r + sum(g h).

    Attributes:
        a: the factors of what a state is multiplied by; none where it is 1.
        w: the factors of what u is multiplied by.
        r: what u is without the state.
        g: the factors of what the state is read by, but a.
        before: whether the state is read before it is multiplied by a.
        b: the products that are added beside, each by its factors.
        over: the axes of the sum.
        outside: the factors of the sum.
        state: the leaf of the state, and what it begins with.
    """

    a: tuple[Node, ...]
    w: tuple[Node, ...]
    r: Node
    g: tuple[Node, ...]
    before: bool
    b: tuple[tuple[Node, ...], ...]
    over: tuple[str, ...]
    outside: tuple[Node, ...]
    state: Node
    start: float

    @property
    def small(self) -> list[tuple[str, ...]]:
        """The axes of a, and of the factors of what is added."""
        inside = union_axes([self.r, *self.outside, *self.g, self.state])
        u = tuple(x for x in inside if x not in self.over)
        more = (p.axes for b in self.b for p in b)
        return [union_axes(self.a), u, *(p.axes for p in self.w), *more]


def corrected(n: Node) -> Corrected | None:
    """The form of a step that is one; None of another."""
    steps = steps_of(n)
    states = [m for m in steps.leaves if m.op == "previous"]
    if len(steps.made) != 1 or len(states) != 1 or n.kind != "real":
        return None
    read = {m: n.args[i] for m, i in steps.leaves.items() if m.op == "operand"}
    (state,), made = states, substitute(steps.made, read)[steps.made[0]]
    kept, moved = _terms(made, state)
    found = {one is state: (one, others) for one, others in _around(moved, state)}
    if len(moved) != 2 or len(found) != 2:
        return None
    (u, w), (_, a) = found[False], found[True]
    r, sums = _terms(u, state)
    inner = _around(sums, state)
    if len(sums) != 1 or len(inner) != 1 or inner[0][0].op != "sum":
        return None
    (total, outside), gone = inner[0], over(inner[0][0])
    read_by = factors(total.args[0])
    g, before = _without(read_by, (state, *a)), False
    if g is None and a and has_logarithms(joined("mul", a)):
        g, before = _without(read_by, (state,)), True
    rest = joined("add", [joined("mul", parts) for parts in r]) if r else number(0.0)
    again = {*gone} & {*union_axes([rest, *outside])}  # u is to lack what is summed over
    if g is None or any(_has(p, state) for p in g) or not {*gone} <= {*state.axes} or again:
        return None
    more = tuple(factors(joined("mul", b)) for b in kept)
    start = float(steps.starts[0])
    return Corrected(a, w, rest, g, before, more, gone, outside, state, start)


def _has(x: Node, state: Node) -> bool:
    return any(m is state for m in postorder([x]))


def _around(products: Iterable[Sequence[Node]], state: Node) -> list[tuple[Node, tuple[Node, ...]]]:
    """Of each product with one factor that has the state, that factor, and the others."""
    each = [(parts, [p for p in parts if _has(p, state)]) for parts in products]
    ones = [(parts, own[0]) for parts, own in each if len(own) == 1]
    return [(one, tuple(p for p in parts if p is not one)) for parts, one in ones]


def _without(parts: Sequence[Node], others: Iterable[Node]) -> tuple[Node, ...] | None:
    """The factors beside others; None where these are not among them."""
    left = list(parts)
    for p in others:
        if p not in left:
            return None
        left.remove(p)
    return tuple(left)


def _terms(x: Node, state: Node) -> tuple[list[tuple[Node, ...]], list[tuple[Node, ...]]]:
    """The products that a term adds up: those without the state, and those with it."""
    kept, moved = list[tuple[Node, ...]](), list[tuple[Node, ...]]()
    todo: list[tuple[Node, tuple[Node, ...]]] = [(x, ())]
    while todo:
        n, by = todo.pop()
        if not _has(n, state):
            kept.append((*by, n))
        elif n.op in {"add", "sub"}:
            second = (*by, number(-1.0)) if n.op == "sub" else by
            todo += [(n.args[1], second), (n.args[0], by)]
        elif n.op == "neg":
            todo.append((n.args[0], (*by, number(-1.0))))
        elif n.op == "div" and not _has(n.args[1], state):
            todo.append((n.args[0], (*by, pointwise("div", (number(1.0), n.args[1])))))
        else:
            moved.append((*by, *factors(n)))
    return kept, moved


def by_pairs(
    order: Sequence[Node], roots: Iterable[Node], axis: str, rounded: bool
) -> dict[Node, Node]:
    """The sums that may read the states of a scan by pairs of positions, with the scan of each;
    `rounded` as `Twin` has it."""
    return {c: n for c, n in read_by_sums(order, roots, axis).items() if _may_pair(n, rounded)}


def _may_pair(n: Node, rounded: bool) -> bool:
    if n.op != "steps":
        return adds_products(n)
    c = corrected(n)
    return c is not None and smaller(n, c.small) and (rounded or not c.before)


# --- the terms ------------------------------------------------------------------------------


def solved(c: Corrected, old: Node, twin: Twin) -> Scanned:
    """The step as a linear recurrence on a chunk, whose sum adds what the system gives."""
    (axis,) = [twin.axis]
    a = joined("mul", c.a) if c.a else None
    s = Scanned(old, a, old, old)
    queries = [later(p, twin) for p in c.g]
    outside = [later(p, twin) for p in c.outside]
    seen = joined("mul", [*queries, *kept(s, twin, c.before), old])
    left = weights(s, twin, c.before)
    begins = joined("mul", [*outside, along("sum", seen, c.over)])
    here = position(axis)
    after = pointwise("greater", (later(here, twin), here))
    earlier = pointwise("where", (after, left, number(0.0)))
    read = [*queries, *outside, left if c.before else earlier]
    added = (by_scores([*read, *b], c.over, twin) for b in c.b)
    right = joined("add", [later(c.r, twin), begins, *added])
    parts = [*queries, left, *c.w]
    inner = [p for p in parts if not {*c.over}.isdisjoint(p.axes)]
    rest = [p for p in parts if p not in inner]
    pairs = joined("mul", [*outside, *rest, along("sum", joined("mul", inner), c.over)])
    inverse = _inverse(pairs, twin)
    u = along("sum", pointwise("mul", (inverse, _earlier(right, twin))), (axis,))
    products = [[*c.w, _earlier(u, twin)], *c.b]
    return replace(s, b=joined("add", [joined("mul", p) for p in products]))


def _earlier(x: Node, twin: Twin) -> Node:
    """An array at the earlier position of a pair."""
    return renamed(x, [(twin.name, twin.axis)])


def _inverse(pairs: Node, twin: Twin) -> Node:
    """1 / (1 - M), of which M is `pairs` where the one position is before the other."""
    here = pointwise("sub", (position(twin.axis), first_of(twin.axis)))
    there, inside = later(here, twin), later(position(twin.axis), twin)
    inside = pointwise("less_equal", (inside, end_of(twin.axis)))
    same = pointwise("equal", (there, here))
    found = pointwise("where", (same, number(1.0), number(0.0)))
    step = 1
    while step < twin.length:
        blocks = [[pointwise("floordiv", (x, number(k))) for x in (there, here)]
                  for k in (2 * step, step)]  # fmt: skip
        tests = [pointwise("equal", blocks[0]), pointwise("greater", blocks[1]), inside]
        test = all_of(tests)
        assert test is not None
        below = pointwise("where", (test, pairs, number(0.0)))
        if step > 1:
            below = _times(_times(found, below, twin), found, twin)
        found = pointwise("add", (found, below))
        step *= 2
    return found


def _times(x: Node, y: Node, twin: Twin) -> Node:
    """The matrix product of two arrays on pairs of positions."""
    left, right = (renamed(z, [(a, twin.between)]) for z, a in ((x, twin.axis), (y, twin.name)))
    return along("sum", pointwise("mul", (left, right)), (twin.between,))


# --- the rule -------------------------------------------------------------------------------


def _matches(n: Node, old: Node, twin: Twin) -> Iterator[Instance]:
    """The states of a step on a chunk, from the state before it, as a linear recurrence."""
    c = corrected(n) if n.op == "steps" else None
    if c is None:
        return

    def form(old: Node) -> Node:
        s = solved(c, old, twin)
        first = pointwise("equal", (position(twin.axis), first_of(twin.axis)))
        a = number(1.0) if s.a is None else s.a
        begun = pointwise("add", (s.b, pointwise("mul", (a, old))))
        return recurrence(a, pointwise("where", (first, begun, s.b)), twin.axis)

    law = one_node(n, form(number(c.start)), {x: twin.axis for x in twin.names})
    yield replace(law, made=(form(old), solved(c, old, twin)))


SOLVED = Rule(
    "solve",
    "h_t = a_t h_(t-1) + w_t u_t + b_t, where u = r + G h_0 + N b + M u, is so where "
    "u = (r + G h_0 + N b) / (1 - M)",
    _matches,
    (
        "w, u and the factors of b each lack an axis of the state, as a does",
        "u reads the state in one sum, times a or, where a is never negative, as it is",
    ),
)
