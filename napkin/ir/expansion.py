"""Composite operators opened into reductions by a monoid and pointwise operators.

Each rule is an identity; nothing here knows what the result will be used for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from napkin.errors import InputError
from napkin.ir.behind import behind, places_of
from napkin.ir.infer import Parts, along, joined, part_of, parts_of, pointwise, reals, renamed
from napkin.ir.key_sets import from_arguments, query_axes, spec_of
from napkin.ir.node import (
    COMPOSITES,
    FLOOR,
    Node,
    Pairs,
    names_of,
    node,
    number,
    ones,
    over,
    postorder,
)
from napkin.ir.operators import POINTWISE
from napkin.ir.rewrite import rewrite
from napkin.ir.selecting import position
from napkin.ir.slots import Slots, slots_of, spread
from napkin.ir.slotted import places, read_slots
from napkin.ir.storage import beside_memory, own_type, widens
from napkin.ir.taking import TABLES, own_axes, spans_of, take, taken_axes, taken_of


def count(axes: tuple[str, ...]) -> Node:
    """How many positions `axes` have, as a reduction: streamed, it counts those seen so far."""
    return along("sum", ones(axes), axes)


def shifted(parts: Parts) -> tuple[Node, list[Node]]:
    """The maximum of all arrays, and exp(x - maximum) of each, which stays in range."""
    # No whole number lies as far below all others as FLOOR.
    real = [x if x.kind == "real" else pointwise("cast", (x,), ("fp32",)) for x, _ in parts]
    tops = [along("max", x, axes, (FLOOR,)) for x, (_, axes) in zip(real, parts, strict=True)]
    top = joined("maximum", tops)
    return top, [pointwise("exp", (pointwise("sub", (x, top)),)) for x in real]


def _total(weights: Sequence[Node], parts: Parts) -> Node:
    sums = [along("sum", w, axes) for w, (_, axes) in zip(weights, parts, strict=True)]
    return joined("add", sums)


def maximum_and_sum(parts: Parts) -> tuple[Node, Node]:
    """The numbers m and z of a row whose log-sum-exp is m + log z."""
    top, weights = shifted(parts)
    return top, _total(weights, parts)


def _divisor(weights: Sequence[Node], parts: Parts) -> Node:
    """The sum that the weights are divided by. A row without a single finite score has total 0:
    its weights are 0, not 0/0."""
    total = _total(weights, parts)
    empty = pointwise("equal", (total, number(0)))
    return pointwise("where", (empty, number(1.0), total))


def _softmax(parts: Parts, which: int) -> Node:
    _, weights = shifted(parts)
    return pointwise("div", (weights[which], _divisor(weights, parts)))


def softmax_by_rows(parts: Parts, which: int) -> Node:
    """A softmax as exp((x - m) - log z): another kernel computes it from m and log z, two numbers
    of each row. In their sum log z would lose its digits beside a large m."""
    _, weights = shifted(parts)
    difference = weights[which].args[0]
    level = pointwise("log", (_divisor(weights, parts),))
    return pointwise("exp", (pointwise("sub", (difference, level)),))


def _logsumexp(parts: Parts, _: int) -> Node:
    top, total = maximum_and_sum(parts)
    return pointwise("add", (top, pointwise("log", (total,))))


def _levels(old: Node, new: Node) -> tuple[Node, ...]:
    """The m and log z of a log-sum-exp that is opened; () of another term."""
    while widens(old):
        old, new = old.args[0], new.args[0]
    return new.args if old.op == "logsumexp" != new.op else ()


def _from_level(old: Node, args: tuple[Node, ...]) -> Node | None:
    """A difference from a log-sum-exp m + log z, from m first: a large m cancels, and log z keeps
    its digits."""
    left, right = map(_levels, old.args, args)
    if right:
        m, log = right
        apart = pointwise("sub", (left[0] if left else args[0], m))
        apart = pointwise("add", (apart, left[1])) if left else apart
        return pointwise("sub", (apart, log))
    if left:
        m, log = left
        return pointwise("sub", (log, pointwise("sub", (args[1], m))))
    return None


def _mean(parts: Parts, _: int) -> Node:
    ((x, axes),) = parts
    return pointwise("div", (along("sum", reals(x), axes), count(axes)))


RULES: dict[str, Callable[[Parts, int], Node]] = {
    "softmax": _softmax,
    "logsumexp": _logsumexp,
    "mean": _mean,
}
assert set(RULES) == COMPOSITES


def expanded(roots: Iterable[Node]) -> dict[Node, Node]:
    """The map from every node under `roots` to its form without composites, in which only inputs
    and results of reductions are read under other axis names."""
    return rewrite(roots, opened)


def opened(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: a composite, a difference from one, a renaming or a move of values as what it
    stands for."""
    if old.op == "sub":
        return _from_level(old, args)
    rule = RULES.get(old.op)
    if rule:
        return rule(parts_of(old, args), part_of(old))
    if old.op == "rename":
        return sunk(args[0], names_of(old))
    if old.op == "take":
        return behind(args[0], places_of(old, args[1:]))
    if old.op == "spread":
        return dispersed(args[0], args[1], slots_of(old))
    return beside_memory(old, args)


def dispersed(x: Node, keys: Node, slots: Slots) -> Node:
    """`x` spread over key axes; arithmetic on inputs alone is done behind it, since no kernel
    stores it. What is the same for all queries is taken at the slots of the keys."""
    if x.op == "input" and not x.args and not set(query_axes(keys)) <= set(x.axes):
        return take(x, places(keys), slots.slots)
    if x.op not in POINTWISE or not all(_moves(n, slots) for n in postorder([x])):
        return spread(x, keys, slots)
    inner = [dispersed(a, keys, slots) if slots.slots[0] in a.axes else a for a in x.args]
    zero = number(False) if x.kind == "bool" else number(0 if x.kind == "int" else 0.0)
    return pointwise("where", (keys, pointwise(x.op, inner, x.params), zero))


def _moves(n: Node, slots: Slots) -> bool:
    """Whether a term is arithmetic, or an input with every axis of slots or none."""
    if n.op in POINTWISE:
        return True
    carried = set(slots.slots) & set(n.axes)
    return not n.args and (not carried or (n.op == "input" and carried == set(slots.slots)))


def view(x: Node, names: Pairs) -> Node:
    """An input read under other axis names: a leaf that knows the tensor's own names."""
    table = dict(names)
    axes = tuple(table.get(a, a) for a in x.axes)
    args = tuple(sunk(a, names) for a in x.args)
    ways = ((taken_of(x) or read_slots(x)).renamed(table),) if args else ()
    return node("input", args, (x.params[0], own_axes(x), *ways), axes, x.kind)


def sunk(x: Node, names: Pairs) -> Node:
    """`x` under other axis names, with the renaming moved below pointwise operators."""
    table = dict(names)
    if not any(a in table for a in x.axes):
        return x
    if x.op == "index":
        return position(table[x.axes[0]])
    if x.op == "input":
        return view(x, names)
    if x.op == "keys":
        return from_arguments([sunk(a, names) for a in x.args], spec_of(x).renamed(table))
    if x.op == "take":
        return _sunk_take(x, names)
    if x.op == "spread":
        slots = slots_of(x)
        for a in x.axes:
            if table.get(a) in slots.slots:
                raise InputError(
                    f"rename {a}={table[a]!r}: the array is spread over {table[a]!r}; choose "
                    "another name"
                )
        inner, keys = (sunk(a, names) for a in x.args)
        return spread(inner, keys, slots.renamed(table))
    if x.op in POINTWISE and not _stored(x):
        return pointwise(x.op, [sunk(a, names) for a in x.args], x.params)
    if x.op == "rename":
        inner = dict(names_of(x))
        joined = ((a, table.get(inner.get(a, a), inner.get(a, a))) for a in x.args[0].axes)
        return renamed(x.args[0], [(a, b) for a, b in joined if a != b])
    return renamed(x, names)


def _stored(x: Node) -> bool:
    """Whether a cast says how an array is stored that is then read under other names."""
    return x.op == "cast" and bool(own_type(x)) and any(over(n) for n in postorder([x]))


def _sunk_take(x: Node, names: Pairs) -> Node:
    """A take under other axis names; where another axis of the table gets the name of one that it
    takes, or the table is an input, that gets a name that no result has."""
    table, *positions = x.args
    stored, gone = table.op not in TABLES, taken_axes(x)
    new = {b for a, b in names if a in table.axes and a not in gone}
    taken = {a: a if stored and a not in new else f"?{i}" for i, a in enumerate(gone)}
    if stored and any(a != b for a, b in taken.items()):
        axis = next(a for a, b in taken.items() if a != b)
        raise InputError(
            f"rename to {axis}: the array is read along {axis} of one that is computed; choose "
            "another name"
        )
    pairs = [(a, b) for a, b in names if a in table.axes and a not in taken]
    pairs += [(a, b) for a, b in taken.items() if a != b]
    renamed_table = table if table.op == "listed" or not pairs else sunk(table, tuple(pairs))
    at = [sunk(p, names) for p in positions]
    return take(renamed_table, at, tuple(taken.values()), spans_of(x))
