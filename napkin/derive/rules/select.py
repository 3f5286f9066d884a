"""Selection: what is found at an extremum, or at a rank, in the pass that finds these.

A position counts where a(x) == max_x a. When a chunk raises the maximum, no position before it
counts any more; when it does not, all that counted still do. So what was kept stays where the
maximum is as it was, and is dropped where it moved. The position of a maximum is the case
min_x where(a == max_x a, x, none), which takes the first of equal ones.

Of the k largest values and their positions, all positions so far are represented by the k that were
found: the largest of these and of a chunk are the largest of all. One that was s-th is not less
than s-th among more, so that only those up to rank r may be the r-th.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

from napkin.algebra.fold import Separation, State, Tag, state_leaf
from napkin.algebra.known import left_out
from napkin.algebra.rule import Instance, Rule
from napkin.algebra.terms import EXTREMA, WRITTEN, combined, identity
from napkin.derive.folding import Folding
from napkin.ir.infer import along, pointwise
from napkin.ir.listing import text
from napkin.ir.node import Node, in_kind, node, number, over
from napkin.ir.rewrite import substitute
from napkin.ir.selecting import at_extremum, position, ranked, where_all


@dataclass(frozen=True, eq=False)
class Selection:
    """The test that selects positions, and the extremum that they are at."""

    test: Node
    a: Node
    most: Node

    def still(self, before: Node, now: Node) -> Node:
        """Whether what was selected at an extremum is selected at that of more positions."""
        return substitute([self.test], {self.a: before, self.most: now})[self.test]

    def shown(self, name: str) -> str:
        """`still` in words, of an extremum that is called so."""
        before, now = (node("scalar", params=(f"{name}_{tag}",)) for tag in ("old", "new"))
        return text(self.still(before, now), {})


def selection(f: Node, same: Container[Node], folding: Folding) -> Selection | None:
    """How the body of a reduction selects by one of the results `same`; None where it does not, or
    uses other results of them as well."""
    body = f.args[0]
    if body.op != "where" or not _is_left_out(body.args[2], f):
        return None
    tests = _conjuncts(body.args[0])
    for found in _selections(tests, f):
        others = [n for n in (*tests, body.args[1]) if n is not found.test]
        if found.most in same and _free((found.a, *others), same, folding):
            return found
    return None


def _free(terms: Iterable[Node], same: Container[Node], folding: Folding) -> bool:
    """Whether terms use none of the results `same`."""
    return not any(g in same for n in terms for g in folding.uses(n))


def _is_left_out(n: Node, f: Node) -> bool:
    return n.op == "number" and n.params[0] == left_out(f)


def _conjuncts(test: Node) -> tuple[Node, ...]:
    if test.op != "and":
        return (test,)
    return tuple(n for a in test.args for n in _conjuncts(a))


def _selections(tests: tuple[Node, ...], f: Node) -> Iterator[Selection]:
    """The tests among some that hold at an extremum along the axes of `f`."""
    for test in tests:
        equal = test.args[0] if test.op == "or" else test
        for most, a in (equal.args, equal.args[::-1]) if equal.op == "equal" else ():
            along_same = most.op in EXTREMA and set(over(most)) == set(over(f))
            if along_same and test in (equal, at_extremum(a, most)) and _is_of(most, a, tests):
                yield Selection(test, a, most)


def _is_of(most: Node, a: Node, tests: tuple[Node, ...]) -> bool:
    """Whether an extremum is that of `a`, or of `a` where some of the tests hold."""
    body = most.args[0]
    if body is a:
        return True
    chosen = body.op == "where" and body.args[1] is a and _is_left_out(body.args[2], most)
    return chosen and set(_conjuncts(body.args[0])) <= set(tests)


def held_at(f: Node, p: int, found: Selection, folding: Folding) -> Node:
    """Hold a reduction in pass `p` at the extremum that selects its values: its leaf after the
    step."""
    name, nothing = folding.name(f), number(in_kind(identity(f), f.kind))
    extremum = folding.current(found.most, p)

    def kept(tag: Tag) -> Node:
        still = found.still(_tagged(extremum, tag), extremum)
        return pointwise("where", (still, state_leaf(name, tag, f.axes, f.kind), nothing))

    return _joined(f, p, name, kept, folding, [found.most])


# --- ranks ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Rank:
    """A value or a position of a ranking.

    Attributes:
        better: the values and positions of better ranks.
        value: of a position, its value; None of a value.
    """

    better: list[tuple[Node, Node]]
    value: Node | None

    @property
    def by(self) -> list[Node]:
        """The results that it is found beside."""
        return [n for pair in self.better for n in pair] + ([self.value] if self.value else [])


def rank(f: Node, same: Container[Node], folding: Folding) -> Rank | None:
    """The rank that a reduction finds beside the results `same`; None where it is no such."""
    body = f.args[0]
    if body.op != "where":
        return None
    tests = _conjuncts(body.args[0])
    place = next(_selections(tests, f), None)
    most, x = (f, body.args[1]) if place is None else (place.most, place.a)
    if most.op not in EXTREMA or len(over(f)) != 1:
        return None
    (axis,) = over(f)
    taken = [n for n in tests if n.op == "not_equal" and n.args[0] is position(axis)]
    if not taken or axis not in x.axes:  # equal values have no rank
        return None
    seen, own = tests[: tests.index(taken[0])], most.params[2:]
    for more in (own, (WRITTEN,)):  # the last value, of no position, is compared with nothing
        *better, last = ranked(most.op, x, axis, len(taken) + 1, seen, more, own)
        found = Rank(better, place and most)
        if f in last and all(n in same for n in found.by) and _free((x, *seen), same, folding):
            return found
    return None


def held_in_rank(f: Node, p: int, found: Rank, folding: Folding) -> Node:
    """Hold a value or a position of a ranking in pass `p`: its leaf after the step."""
    name = folding.name(f)
    own = state_leaf(name, "new", f.axes, f.kind)
    better = [(folding.current(m, p), folding.current(at, p)) for m, at in found.better]
    value = None if found.value is None else folding.current(found.value, p)

    def still(m: Node, at: Node, tag: Tag, now: Sequence[tuple[Node, Node]]) -> Node:
        """What was kept of a rank, where no better rank has it now."""
        tests = [pointwise("not_equal", (_tagged(at, tag), taken)) for _, taken in now]
        tests += [at_extremum(_tagged(m, tag), value)] if value else []
        return where_all(tests, _tagged(at if value else m, tag), identity(f))

    def kept(tag: Tag) -> Node:
        pairs = [*better, (value or own, own)]
        each = [still(m, at, tag, better[s:]) for s, (m, at) in enumerate(pairs)]
        return reduce(lambda a, b: combined(f.op, a, b), each)

    return _joined(f, p, name, kept, folding, found.by)


def _tagged(leaf: Node, tag: Tag) -> Node:
    """The leaf of the same state at another time."""
    return state_leaf(str(leaf.params[0]), tag, leaf.axes, leaf.kind)


def _joined(
    f: Node,
    p: int,
    name: str,
    kept: Callable[[Tag], Node],
    folding: Folding,
    by: Iterable[Node],
) -> Node:
    """The state of what is kept of all before, joined with a chunk: its leaf after the step. The
    chunk's values use the results `by` of the pass, and no others."""
    chunk = along(f.op, folding.with_final_counts(f.args[0], p, by), over(f), f.params[1:])
    step, merge = combined(f.op, kept("old"), chunk), combined(f.op, kept("left"), kept("right"))
    made = State(name, f.axes, f.kind, identity(f), step, merge, "running")
    folding.states[p].append(made)
    return made.leaf("new")


# --- the rule -------------------------------------------------------------------------------


def _matches(folding: Folding, f: Node, p: int, same: Container[Node]) -> Iterator[Instance]:
    """A reduction that is held beside the results `same` of pass `p` which select its values; none
    of other reductions."""
    at = selection(f, same, folding)
    ranks = rank(f, same, folding) if at is None else None
    by = [at.most] if at else ranks.by if ranks else []
    if not by or any(folding.current(n, p).op != "state" for n in by):
        return
    names = {n: name for n, name in folding.names.items() if n is not f}
    called, body = [names.get(n, n.op) for n in by], text(f.args[0], names, top=False)
    if at is not None:
        made, how = held_at(f, p, at, folding), f"where {at.shown(called[0])}"
    else:
        assert ranks is not None
        made, how = held_in_rank(f, p, ranks, folding), "the best of those kept"
    where = folding.names.get(f, f.op)
    noted = Separation(where, body, ((body, "1"),), tuple(called), (), how)
    yield Instance(where, made, of=noted)


SELECTED = Rule(
    "select",
    "R_{x in X + Y} [a = m] v = (R_X [a = m_X] v where m_X = m) R (R_Y [a = m_Y] v where m_Y = m), "
    "m = max_{X + Y} a; the k largest of X + Y are those of the k largest of X and of Y",
    _matches,
    ("a, v and other tests use no result of the pass", "R leaves out what is not selected"),
    empty=False,
)
"""Its law holds at each chunk, so that the law of streams verifies it."""
