"""Folds, executed. Their law is B(f(x), y) == f(x (+) y), and merge(f(x), f(y)) == f(x (+) y).

A fold is run on chunks of any lengths, and its merge on any split, with the same nodes that
kernels are written from (arXiv 2505.09326, Def. 1).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from napkin.algebra.fold import Pass, State, Stream
from napkin.ir.evaluate import Array, aligned, evaluate, evaluate_more
from napkin.ir.node import Node, in_kind, postorder
from napkin.ir.taking import taken_of

States = dict[str, Array]
Chunk = Mapping[str, range]
"""The positions of each streamed axis that one step reads."""

_ALL = slice(None)


def chunk_of(bind: Mapping[Node, Array], chunk: Chunk) -> dict[Node, Array]:
    """The part of every bound array that lies in `chunk`, by axis."""
    out: dict[Node, Array] = {}
    for n, value in bind.items():
        where = [chunk.get(a, _ALL) for a in n.axes]
        out[n] = value[tuple(slice(p.start, p.stop) for p in where)] if n.axes else value
    return out


def chunks(stream: Stream, parts: Sequence[range], sizes: Mapping[str, int]) -> list[Chunk]:
    """Pieces of the first streamed axis, with every position of the others."""
    first, *rest = stream.axes
    twins = stream.twin.names if stream.twin else ()
    return [dict.fromkeys([first, *twins], p) | {a: range(sizes[a]) for a in rest} for p in parts]


def start(
    step: Pass, extents: Mapping[str, int], known: Mapping[Node, Array] | None = None
) -> States:
    """The states before the first chunk; `known` binds what some begin with, of one part."""
    out: States = {}
    for s in step.states:
        begun = np.asarray(in_kind(s.init, s.kind))
        if s.begin is not None:
            own = [a for a in s.begin.axes if a in s.axes]
            begun = aligned((known or {})[s.begin].reshape([extents[a] for a in own]), own, s.axes)
        out[s.name] = np.array(np.broadcast_to(begun, [extents[a] for a in s.axes]))
    return out


def advance(
    step: Pass,
    states: States,
    known: Mapping[Node, Array],
    part: Chunk,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    box: Mapping[str, range] | None = None,
) -> tuple[States, list[Array]]:
    """One step: the states after the chunk `part`, and the values of the pass's emits.

    `known` binds the leaves of the chunk, and final states of earlier passes.
    """
    if step.stepped and any(len(where) > 1 for where in part.values()):
        return _one_by_one(step, states, known, part, sizes, scalars, box)
    bind = dict(known)
    for s in step.states:
        bind[s.leaf("old")] = states[s.name]
    box = {**(box or {}), **part}
    if not all(part.values()):
        # Nothing joined on is no step: a mean so far must not be read off no values at all.
        bind |= {s.leaf("new"): states[s.name] for s in step.states}
        return states, evaluate([e.node for e in step.emits], bind, sizes, scalars, box)
    out: States = {}
    for s in step.states:
        (value,) = evaluate_more([s.step], bind, sizes, scalars, box)
        out[s.name] = _as_state(value, s.step, states[s.name], s)
        bind[s.leaf("new")] = out[s.name]
    emitted = evaluate_more([e.node for e in step.emits], bind, sizes, scalars, box)
    return out, emitted


def _one_by_one(
    step: Pass,
    states: States,
    known: Mapping[Node, Array],
    part: Chunk,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None,
    box: Mapping[str, range] | None,
) -> tuple[States, list[Array]]:
    """`advance` over a chunk whose positions are taken one after another."""
    ((axis, where),) = part.items()
    pieces: list[list[Array]] = []
    for i in range(len(where)):
        inside = chunk_of(known, {axis: range(i, i + 1)})
        here = {axis: where[i : i + 1]}
        states, emitted = advance(step, states, inside, here, sizes, scalars, box)
        pieces.append(emitted)
    return states, _whole(step, pieces, axis)


def _whole(step: Pass, pieces: Sequence[Sequence[Array]], axis: str) -> list[Array]:
    """What a pass emits along an axis, of what it emits on consecutive pieces; the last where that
    does not carry the axis."""
    return [
        np.concatenate(each, axis=e.node.axes.index(axis)) if axis in e.node.axes else each[-1]
        for e, *each in zip(step.emits, *pieces, strict=True)
    ]


def _as_state(value: Array, term: Node, like: Array, s: State) -> Array:
    """The value of a step or a merge with the axes of its state, in the state's order."""
    return np.array(np.broadcast_to(aligned(value, term.axes, s.axes), like.shape))


def folded(
    stream: Stream,
    bind: Mapping[Node, Array],
    sizes: Mapping[str, int],
    parts: Sequence[range],
    scalars: Mapping[str, float] | None = None,
) -> tuple[States, dict[str, Array]]:
    """Final states and outputs, streamed over `parts`, consecutive pieces of the axis.

    Of several streamed axes the first is cut and the others stay whole. `bind` has the whole
    tensors of readings at positions that a pass finds.
    """
    finals, known = States(), dict(bind)
    needs = _waited_for(stream)
    outputs: dict[str, Array] = {}
    for step in stream.passes:
        states = start(step, sizes)
        pieces: list[list[Array]] = []
        for part in chunks(stream, parts, sizes):
            inside = chunk_of(known, part)
            states, emitted = advance(step, states, inside, part, sizes, scalars)
            pieces.append(emitted)
        for s in step.states:
            known[s.leaf("new")] = states[s.name]
        found = [n for n, needed in needs.items() if needed <= known.keys()]
        known |= zip(found, evaluate(found, known, sizes, scalars), strict=True)
        finals |= states
        whole = _whole(step, pieces, stream.axes[0])
        outputs |= {e.output: value for e, value in zip(step.emits, whole, strict=True)}
    return finals, outputs | finished(stream, finals, known, sizes, scalars)


def _waited_for(stream: Stream) -> dict[Node, set[Node]]:
    """The readings at positions that a pass finds, and the states that say where."""
    takes = (n for n in postorder(stream.terms) if taken_of(n))
    found = {n: {m for m in postorder(n.args) if m.op == "state"} for n in takes}
    return {n: states for n, states in found.items() if states}


def merged(
    step: Pass,
    left: States,
    right: States,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    known: Mapping[Node, Array] | None = None,
) -> States:
    """The states of two joined parts from the states of each.

    `known` binds what does not carry the axis and final states of earlier passes.
    """
    bind = dict(known or {})
    for s in step.states:
        bind[s.leaf("left")], bind[s.leaf("right")] = left[s.name], right[s.name]
    out: States = {}
    for s in step.states:
        (value,) = evaluate_more([s.joined], bind, sizes, scalars)
        out[s.name] = _as_state(value, s.joined, left[s.name], s)
        bind[s.leaf("new")] = out[s.name]
    return out


def finished(
    stream: Stream,
    states: States,
    bind: Mapping[Node, Array],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
) -> dict[str, Array]:
    """The outputs that do not carry the axis, from final states."""
    known = {**bind, **{s.leaf("new"): states[s.name] for s in stream.states}}
    values = evaluate([e.node for e in stream.tails], known, sizes, scalars)
    return {e.output: value for e, value in zip(stream.tails, values, strict=True)}


def ranges(lengths: Sequence[int]) -> list[range]:
    """Consecutive pieces of an axis, from their lengths."""
    ends = [0, *np.cumsum(lengths, dtype=int).tolist()]
    return [range(a, b) for a, b in itertools.pairwise(ends)]
