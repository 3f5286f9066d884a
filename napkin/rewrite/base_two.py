"""Exponentials to base 2, with what scales their argument folded in.

A GPU has 2**x and not e**x. In a streamed softmax the scores c t, with a positive constant c, are
held unscaled: max_x c t = c max_x t, so the state is the maximum of t, and exp(c t - c m) becomes
exp2(b t - b m) with b = c log2(e), one multiply-add per score; b m is computed once per row. From
one maximum to the next, the factor is exp2(b (m_old - m_new)): compilers contract b m_old - b m,
which is then the rounding of b m where m stays, and sums would grow by it with every chunk.

Where memory holds the maximum and the logarithm l of the sum of a row, as for gradients, weights
are exp((c t - m) - l). They become exp2(log2(e) (c t - m) - log2(e) l), two multiply-adds a score.
The difference comes first. That of large equal scores is 0, and 1 / n is left of n of them; beside
a large m, the sum m + l has no digits left for l.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from napkin.algebra.fold import Pass, State
from napkin.algebra.rule import Instance, Rule, Sides, hold_terms, verifying
from napkin.algebra.signs import sign
from napkin.algebra.terms import is_read, rounded_alike
from napkin.ir.infer import pointwise
from napkin.ir.node import FLOOR, Node, node, number, postorder
from napkin.ir.rewrite import rewrite, substitute

_LOG2E = math.log2(math.e)
_ONE = number(1.0)
_TAGS = ("old", "new", "left", "right")


def in_base_two(
    passes: Sequence[Pass], terms: Sequence[Node], written: Iterable[Node] = ()
) -> Mapping[Node, Node]:
    """The steps of `passes` and `terms`, which may read their states, with exponentials to base 2
    where a running maximum keeps them in range; merges of states among the terms join what is
    held. What is rounded as other kernels round it, as `written` is, keeps base e."""
    found = BASE_TWO.first(passes, [*terms], written)
    return {n: n for n in _roots(passes, terms)} if found is None else found


def _roots(passes: Sequence[Pass], terms: Iterable[Node]) -> list[Node]:
    return [*(s.step for p in passes for s in p.states), *terms]


def _matches(
    passes: Sequence[Pass], terms: Sequence[Node], written: Iterable[Node] = ()
) -> Iterator[Instance]:
    roots = _roots(passes, terms)
    alike = rounded_alike(roots, written)
    maxima = [s for p in passes for s in p.states if _is_maximum(s)]
    used = {*postorder(n for n in postorder(roots) if n.op == "exp" and n not in alike)}
    scale = {s.name: _factored(s.step.args[1].args[0])[0] for s in maxima}
    # Without a constant to fold in, log2(e) itself would take the largest scores out of range.
    maxima = [s for s in maxima if s.leaf("new") in used and scale[s.name] is not _ONE]
    if not maxima and not any(map(_below_rows, postorder(roots))):
        return
    leaves = {s.leaf(tag): s.name for s in maxima for tag in _TAGS}

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op == "greater" and old.args[0] in leaves and old.args[1] is number(FLOOR):
            return old  # whether there was a score: the lowest float, scaled, may be larger
        if old.op != "exp":
            return None
        below = substitute(args, {n: known[leaf] for leaf, n in kept.items()})
        args = tuple(below[a] for a in args)
        if old in alike:
            return pointwise("exp", (substitute(args, rows)[args[0]],))
        if _below_rows(old):
            return pointwise("exp2", (_scaled_difference(args[0]),))
        if _of_states(old, leaves):
            a, b = old.args[0].args
            if leaves.get(a) == leaves[b]:  # 1 where both are one number, however that is rounded
                factor = _product(number(_LOG2E), scale[leaves[b]])
                return pointwise("exp2", (pointwise("mul", (pointwise("sub", (a, b)), factor)),))
            return pointwise("exp2", (_times(args[0], _LOG2E),))
        return pointwise("exp", (substitute(args, rows)[args[0]],))

    # The maximum itself, from the one that is held.
    known = {leaf: pointwise("mul", (leaf, scale[name])) for leaf, name in leaves.items()}
    rows = {m: _row(m) for m in known.values()}
    # Sums that move by powers of the difference of two maxima have none of infinities.
    kept = {leaf: rows[m] for leaf, m in known.items() if not _shrinks(scale[leaves[leaf]])}
    before = {s.leaf(tag) for s in maxima for tag in _TAGS if tag != "new"}
    still = [n for n in terms if before.isdisjoint(postorder([n]))]
    done = rewrite(still, change, known)
    done |= rewrite([n for n in roots if n not in still], change, {**known, **kept})
    for s in maxima:
        chunk = s.step.args[1]
        raw = _factored(done[chunk.args[0]])[1]
        largest = node(chunk.op, (raw,), chunk.params, chunk.axes, chunk.kind)
        done[s.step] = pointwise(s.step.op, (s.leaf("old"), largest))
        done[s.joined] = s.joined
    whole = {n: scale[s.name] for s in maxima for n in (s.step, s.joined)}

    def sides() -> Sides:
        """Each term with c m for m, and c times what becomes a maximum."""
        ends = list(dict.fromkeys((*roots, *whole)))
        before = substitute(ends, known)
        after = (pointwise("mul", (done[n], whole[n])) if n in whole else done[n] for n in ends)
        return [before[n] for n in ends], [*after]

    yield Instance("exponentials", done, sides)


def _held(rule: Rule, found: Instance) -> None:
    """Hold an instance to the law where that is asked for. It is not traced: every setting that is
    looked at closely has its program, with the same steps.

    Raises:
        LawError: the two sides differ.
    """
    if verifying():
        hold_terms(rule, *found.sides(), found)


BASE_TWO = Rule(
    "base 2",
    "exp(c t - c m) = 2 ** (log2(e) c (t - m))",
    _matches,
    (
        "a maximum of c t is held as that of t, and c is constant and positive",
        "what is rounded as other kernels round it keeps base e",
    ),
    check=_held,
)


def _shrinks(c: Node) -> bool:
    """Whether a positive constant is known to be 1 at most."""
    return c.op == "number" and float(str(c.params[0])) <= 1


def _is_maximum(s: State) -> bool:
    assert s.begin is None or s.init != FLOOR, f"{s.name} begins with a number of another base"
    if s.kind != "real" or s.held != "fold" or s.init != FLOOR or s.step.op != "maximum":
        return False
    return s.step.args[0] is s.leaf("old") and s.step.args[1].op == "max"


def _of_states(n: Node, leaves: Mapping[Node, str]) -> bool:
    """Whether an exponential is kept in range by one of these maxima: exp(... - m)."""
    inner = n.args[0]
    return inner.op == "sub" and inner.args[1] in leaves


def _below_rows(n: Node) -> bool:
    """Whether a term is an exponential less a number of each row that memory holds."""
    return n.op == "exp" and _below_row(n.args[0])


def _below_row(n: Node) -> bool:
    return n.op == "sub" and is_read(n.args[1]) and set(n.args[1].axes) < set(n.axes)


def _scaled_difference(n: Node) -> Node:
    """log2(e) times a term less a number of its row: that number is multiplied once a row where
    another difference stands before it."""
    a, b = n.args
    if not _below_row(a):
        return pointwise("mul", (n, number(_LOG2E)))
    return pointwise("sub", tuple(pointwise("mul", (x, number(_LOG2E))) for x in (a, b)))


def _factored(n: Node) -> tuple[Node, Node]:
    """A positive constant c and a term t with n = c t."""
    if n.op == "mul":
        for c, t in (n.args, n.args[::-1]):
            if c.constant and not c.axes and sign(c) == "positive":
                inner, rest = _factored(t)
                return _product(c, inner), rest
    if n.op == "where" and n.args[2] in (number(-math.inf), number(math.inf)):
        c, t = _factored(n.args[1])
        return c, pointwise("where", (n.args[0], t, n.args[2]))
    return _ONE, n


def _product(a: Node, b: Node) -> Node:
    if a is _ONE:
        return b
    return a if b is _ONE else pointwise("mul", (a, b))


def _times(n: Node, factor: float) -> Node:
    """`n` times a number, folded into the constants of its terms."""
    if n.op == "sub":
        a, b = n.args
        return pointwise("sub", (_times(a, factor), _row(_times(b, factor))))
    c, t = _factored(n)
    return pointwise("mul", (t, _product(number(factor), c)))


def _row(n: Node) -> Node:
    """A scaled maximum, kept finite: before the first score it is the lowest float."""
    return pointwise("maximum", (n, number(FLOOR)))
