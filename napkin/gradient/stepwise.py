"""The transpose of a scan by any step: the steps' transposes, from the end.

Of h_t = f(h_(t-1), a_t) the cotangents are l_t = g_t + (df/dh at t+1)' l_(t+1), which is a scan by
another step, linear in l or not; and each argument has (df/da)' l_t. The states before each
position are those of the scan itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from napkin.diagram.stepping import stepping
from napkin.gradient.products import ZERO, filled
from napkin.gradient.reached import Handed, Reached
from napkin.gradient.transposes import from_end, read_at
from napkin.ir.array import Array
from napkin.ir.infer import iterated, pointwise
from napkin.ir.node import Node, Steps, node, number, over, steps_of
from napkin.ir.rewrite import substitute
from napkin.ir.selecting import position
from napkin.ir.whole_numbers import lesser, plus

Pull: TypeAlias = "Callable[[Reached, Mapping[Node, list[Node]]], dict[Node, Node]]"
"""The cotangents of nodes, from those that arrive at some."""


def steps_rule(at: Reached, n: Node, g: Node, pull: Pull) -> Handed:
    """What the cotangent of one of the states hands to each argument."""
    (axis,), steps = over(n), steps_of(n)
    states = [
        iterated(axis, Steps(i, steps.made, steps.starts), n.args) for i in range(len(steps.made))
    ]
    real = [i for i, s in enumerate(states) if s.kind == "real"]
    arrives = {i: _leaf(f"cotangent {i}", states[i]) for i in real}
    before = {i: _leaf(f"before {i}", s) for i, s in enumerate(states)}
    leaves = {m: i for m, i in steps.leaves.items() if m.op == "operand"}
    made = substitute(
        steps.made, {m: before[i] for m, i in steps.leaves.items() if m not in leaves}
    )
    bodies = [made[x] for x in steps.made]
    inner = at.within(bodies, [*before.values(), *leaves])
    found = pull(inner, _arrived(bodies, arrives))

    def step(*each: Array) -> list[Array]:
        """The cotangents at t from those at t + 1; of the last, from nothing."""
        later = {m: read_at(n.args[i], axis, from_end(at, axis, 0)) for m, i in leaves.items()}
        later |= {before[i]: read_at(s, axis, ago) for i, s in enumerate(states)}
        later |= {arrives[i]: x.node for i, x in zip(real, each, strict=True)}
        done = substitute(found.values(), later)
        moved = [done[found[before[i]]] if before[i] in found else ZERO for i in real]
        # After the last position there is no step, and the last one stands for it. Of the last
        # state it may have no slope, which times the cotangent 0 of what is not chosen is NaN.
        moved = [x if x is ZERO else pointwise("where", (first, ZERO, x)) for x in moved]
        own = read_at(filled(g, (axis,)), axis, from_end(at, axis, 1))
        return [
            Array(pointwise("add", (own if i == steps.which else ZERO, x)))
            for i, x in zip(real, moved, strict=True)
        ]

    first = pointwise("equal", (position(axis), number(0)))
    ago = lesser(from_end(at, axis, 1), plus(at.sums.length(axis), -2))
    axes = [[a for a in states[i].axes if a != axis] for i in real]
    back = stepping(step, [number(0.0)] * len(real), axes, axis)
    total = [read_at(x.node, axis, from_end(at, axis, 1)) for x in back]
    now = dict(zip(arrives.values(), total, strict=True))
    for i, s in enumerate(states):
        earlier = read_at(s, axis, plus(position(axis), -1))
        now[before[i]] = pointwise("where", (first, number(steps.starts[i]), earlier))
    now |= {m: n.args[i] for m, i in leaves.items()}
    done = substitute(found.values(), now)
    for m, i in leaves.items():
        if m in found and n.args[i] in at.needed:
            yield n.args[i], done[found[m]]


def _leaf(name: str, like: Node) -> Node:
    """A leaf that stands for a value at each position."""
    return node("input", params=(name,), axes=like.axes, kind=like.kind)


def _arrived(bodies: Sequence[Node], by: Mapping[int, Node]) -> dict[Node, list[Node]]:
    """The cotangents of steps; two states may have the same."""
    found = dict[Node, list[Node]]()
    for i, leaf in by.items():
        found.setdefault(bodies[i], []).append(leaf)
    return found
