"""Scans: what a term holds that runs along a streamed axis and is emitted position by position.

A scan is a fold whose state is not only finished but seen at every position. Of a chunk it is the
scan that begins with the state of all chunks before it:
scan(x (+) y) = scan(x) (+) scan(y, from fold(x)). A running sum needs the state of a sum. A
recurrence h_t = a_t h_(t-1) + b_t needs its last value; as maps h -> a h + b are composed to such a
map, parts of it merge by the product of the a. A state that any step takes is carried as it is: a
chunk is one position, and no two parts merge. What sorts has no such state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from napkin.algebra.fold import State, Twin, state_leaf
from napkin.algebra.terms import EXTREMA, carrying, repeated
from napkin.ir.infer import along, pointwise, recurrence
from napkin.ir.node import Node, over, steps_of
from napkin.ir.operators import REDUCTIONS
from napkin.ir.rewrite import substitute
from napkin.ir.selecting import first_of, last_of, position
from napkin.rewrite.pair import PAIRED, Scanned
from napkin.rewrite.solve import SOLVED

CARRIED = frozenset({"cumsum", "recurrence", "steps"})
"""The scans of which a state says all that comes before."""


class Held(Protocol):
    """What a scan needs of the states that an axis is folded into."""

    names: dict[Node, str]
    states: list[list[State]]
    stepped: dict[object, Sequence[Node]]
    twin: Twin | None
    paired: Mapping[Node, Node]
    pairs: dict[tuple[Node, int], Scanned]

    def plain(self, f: Node, p: int) -> State: ...
    def name(self, n: Node, stem: str = "") -> str: ...


def on_chunk(n: Node, alone: Node, p: int, folding: Held) -> Node:
    """The value of a scan on a chunk of pass `p`, from its value on the chunk alone; its state is
    added to those of the pass."""
    stem = f"{folding.names.get(n, n.op)}_before"
    if n.op == "recurrence":
        return _recurrence(n, alone, p, folding, stem)
    if n.op == "steps":
        paired = n in folding.paired.values()
        return _solved(n, alone, p, folding, stem) if paired else _stepped(alone, p, folding, stem)
    total = along("sum", n.args[0], over(n))
    folding.names.setdefault(total, stem)
    old = folding.plain(total, p).leaf("old")
    found = pointwise("add", (old, alone))
    folding.pairs[n, p] = Scanned(found, None, alone.args[0], old)
    return found


def _recurrence(n: Node, alone: Node, p: int, folding: Held, stem: str) -> Node:
    """A recurrence that begins with the last value before the chunk."""
    name, (axis,), (a, b) = folding.name(n, stem), over(n), alone.args
    axes = tuple(x for x in n.axes if x != axis)
    old, left, right = (state_leaf(name, tag, axes, "real") for tag in ("old", "left", "right"))
    begun = pointwise("add", (b, pointwise("mul", (a, old))))
    first = pointwise("equal", (position(axis), first_of(axis)))
    inside = recurrence(a, pointwise("where", (first, begun, b)), axis)
    last = last_of(inside, axis)
    folding.pairs[n, p] = Scanned(inside, a, b, old)
    if n in folding.paired.values():
        last = PAIRED.tried(last, folding.pairs[n, p], folding.twin)
    decay = folding.plain(along("prod", carrying(n.args[0], (axis,)), (axis,)), p)
    merge = pointwise("add", (pointwise("mul", (decay.leaf("right"), left)), right))
    folding.states[p].append(State(name, axes, "real", 0.0, last, merge, "running"))
    return inside


def _solved(n: Node, alone: Node, p: int, folding: Held, stem: str) -> Node:
    """The states of a step on a chunk that begins with the last one before it, by pairs."""
    steps, (axis,), name = steps_of(alone), over(n), folding.name(n, stem)
    (m,) = (m for m in steps.leaves if m.op == "previous")
    old = state_leaf(name, "old", m.axes, m.kind)
    inside, scanned = SOLVED.first(alone, old, folding.twin)
    folding.pairs[n, p] = replace(scanned, value=inside)
    last = PAIRED.tried(last_of(inside, axis), folding.pairs[n, p], folding.twin)
    start = steps.starts[0]
    folding.states[p].append(State(name, m.axes, m.kind, start, last, None, "running"))
    return inside


def _stepped(alone: Node, p: int, folding: Held, stem: str) -> Node:
    """A state after its step at the one position of a chunk."""
    steps = steps_of(alone)
    key = (alone.args, p, steps.made, steps.starts)
    if key not in folding.stepped:
        leaves = steps.leaves
        names = [folding.name(alone, stem) for _ in steps.made]
        read = {m: alone.args[i] for m, i in leaves.items() if m.op == "operand"}
        own = {m: i for m, i in leaves.items() if m not in read}
        old = {m: state_leaf(names[i], "old", m.axes, m.kind) for m, i in own.items()} | read
        done = substitute(steps.made, old)
        folding.stepped[key] = [done[n] for n in steps.made]
        for m, i in own.items():
            made = repeated(done[steps.made[i]], m.axes)  # a loop keeps its axes
            new = along("max", made, over(alone), (REDUCTIONS["max"].identity,))
            state = State(names[i], m.axes, m.kind, steps.starts[i], new, None, "stepped")
            folding.states[p].append(state)
    return folding.stepped[key][steps.which]


def is_end(n: Node) -> bool:
    """Whether a reduction is the first or the last position of a chunk."""
    return n.op in EXTREMA and n.args[0].op == "index"
