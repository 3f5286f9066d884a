"""The law of folds, executed: fold(xs + ys) == merge(fold(xs), fold(ys)).

Every derived fold is run on chunks of any lengths, and its merge on any split, with the same
nodes that kernels are written from (arXiv 2505.09326, Def. 1).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from napkin.derive.fold import Pass, Stream
from napkin.diagram.evaluate import Array, evaluate
from napkin.diagram.node import Node

States = dict[str, Array]


def chunk_of(bind: Mapping[Node, Array], axis: str, part: range) -> dict[Node, Array]:
    """The slice of every bound array that carries `axis`."""
    out: dict[Node, Array] = {}
    for n, value in bind.items():
        if axis in n.axes:
            where: list[Any] = [slice(None)] * value.ndim
            where[n.axes.index(axis)] = slice(part.start, part.stop)
            value = value[tuple(where)]
        out[n] = value
    return out


def start(stream: Stream, step: Pass, extents: Mapping[str, int]) -> States:
    """The states before the first chunk."""
    return {s.name: np.full([extents[a] for a in s.axes], s.init) for s in step.states}


def advance(
    stream: Stream,
    step: Pass,
    states: States,
    known: Mapping[Node, Array],
    part: range,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    box: Mapping[str, range] | None = None,
) -> tuple[States, list[Array]]:
    """One step: the states after the chunk `part`, and the values of the pass's emits.

    `known` binds the leaves of the chunk, and final states of earlier passes.
    """
    bind = dict(known)
    for s in step.states:
        bind[s.leaf("old")] = states[s.name]
    box = {**(box or {}), stream.axis: part}
    out: States = {}
    for s in step.states:
        (value,) = evaluate([s.step], bind, sizes, scalars, box)
        out[s.name] = np.array(np.broadcast_to(value, states[s.name].shape))
        bind[s.leaf("new")] = out[s.name]
    emitted = evaluate([e.node for e in step.emits], bind, sizes, scalars, box)
    return out, emitted


def folded(
    stream: Stream,
    bind: Mapping[Node, Array],
    sizes: Mapping[str, int],
    parts: Sequence[range],
    scalars: Mapping[str, float] | None = None,
) -> tuple[States, dict[str, Array]]:
    """Final states and outputs, streamed over `parts`, consecutive pieces of the axis."""
    finals, known = States(), dict(bind)
    outputs: dict[str, Array] = {}
    for step in stream.passes:
        states = start(stream, step, sizes)
        pieces: list[list[Array]] = []
        for part in parts:
            inside = chunk_of(known, stream.axis, part)
            states, emitted = advance(stream, step, states, inside, part, sizes, scalars)
            pieces.append(emitted)
        for s in step.states:
            known[s.leaf("new")] = states[s.name]
        finals |= states
        for i, e in enumerate(step.emits):
            at = e.node.axes.index(stream.axis)
            outputs[e.output] = np.concatenate([p[i] for p in pieces], axis=at)
    tails = evaluate([e.node for e in stream.tails], known, sizes, scalars)
    outputs |= {e.output: value for e, value in zip(stream.tails, tails, strict=True)}
    return finals, outputs


def merged(
    step: Pass,
    left: States,
    right: States,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
) -> States:
    """The states of two joined parts from the states of each."""
    bind: dict[Node, Array] = {}
    for s in step.states:
        bind[s.leaf("left")], bind[s.leaf("right")] = left[s.name], right[s.name]
    out: States = {}
    for s in step.states:
        (value,) = evaluate([s.merge], bind, sizes, scalars)
        out[s.name] = np.array(np.broadcast_to(value, left[s.name].shape))
        bind[s.leaf("new")] = out[s.name]
    return out
