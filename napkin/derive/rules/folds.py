"""The law of streams, for every application: folded over chunks, and over parts that are merged, a
term has the value that it has on the whole (arXiv 2505.09326, Def. 1)."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from napkin.derive.fold import Pass
from napkin.derive.kernel import Kernel, leaves
from napkin.derive.law import advance, chunk_of, chunks, finished, folded, merged, ranges, start
from napkin.derive.rules.points import Point, points, scalars_of
from napkin.derive.rules.rule import LawError, Rule, agree, verifying
from napkin.derive.trace import active
from napkin.diagram.evaluate import Array, aligned
from napkin.diagram.node import Node, node, substitute

STREAMED = Rule(
    "stream",
    "fold(x (+) y) = step(fold(x), y) = merge(fold(x), fold(y))",
    (
        "no factor of the tail carries an axis that its sum removes",
        "no square and no exponential of a difference is multiplied out",
        "the axis is not empty as a whole",
    ),
    empty=False,
)


def verified_fold(kernel: Kernel) -> None:
    """Report the stream of a kernel to the tracer, and run it on chunks where that is asked for.

    Raises:
        LawError: an output differs from its value on the whole.
    """
    tracer = active()
    if (tracer is None and not verifying()) or not kernel.stream.axes or kernel.merges:
        return
    roots = [o.node.args[0] if o.node.op == "compress" else o.node for o in kernel.outputs]
    if tracer is not None:
        tracer.stepped(STREAMED.name, STREAMED.law, roots, kernel.terms, kernel)
    if verifying():
        _verify_fold(kernel, roots)


def _verify_fold(kernel: Kernel, roots: Sequence[Node]) -> None:
    """Compare the outputs of a kernel, chunk by chunk and of merged parts, with their terms."""
    for point in points(roots, {}, (), False, False):
        if point.exact:  # states begin in floats
            continue
        wanted = point.values(roots)
        for way, found in _ways(kernel, roots, point).items():
            for i, o in enumerate(kernel.outputs):
                value = aligned(*found[o.name], roots[i].axes)
                if not agree(value, wanted[i], point, roots[i]):
                    raise LawError(
                        f"rule 'stream' broke its law, {STREAMED.law}: output {o.name} of "
                        f"{kernel.name}, {kernel.stream.axis} {way} at {point}:\n"
                        f"{wanted[i]} is\n{value}"
                    )


PARTED = Rule(
    "cut into parts",
    "fold(x) = merge_p fold(x_p), of parts x_p of which some may be empty",
    ("the axis is not empty as a whole",),
    empty=False,
)


def verified_parts(kernel: Kernel, first: Kernel, second: Kernel, number: int) -> None:
    """Run the two kernels that fold parts and merge their states, where that is asked for.

    Raises:
        LawError: an output differs from its value on the whole.
    """
    if not verifying():
        return
    roots = [o.node for o in kernel.outputs]
    for point in points(roots, {}, (), False, False):
        if point.exact:  # states begin in floats
            continue
        found = _in_parts(kernel, first, second, number, point)
        for o, wanted in zip(kernel.outputs, point.values(roots), strict=True):
            if not agree(aligned(*found[o.name], o.node.axes), wanted, point, o.node):
                raise LawError(
                    f"rule {PARTED.name!r} broke its law, {PARTED.law}: output {o.name} of "
                    f"{kernel.name}, {kernel.stream.axis} in {number} parts at {point}:\n"
                    f"{wanted} is\n{found[o.name][0]}"
                )


def _in_parts(
    kernel: Kernel, first: Kernel, second: Kernel, number: int, point: Point
) -> dict[str, tuple[Array, Sequence[str]]]:
    """The outputs of both kernels, each with its axes."""
    roots, s = [o.node for o in kernel.outputs], first.stream
    scalars, read = scalars_of(roots), leaves(roots)
    sizes = {a: 1 for a in kernel.axes} | dict(point.sizes) | {first.part: number}
    bind = dict(zip(read, point.values(read), strict=True))
    lengths = _cut(sizes[s.axes[0]], random.Random(point.seed), number)
    one = {o.node: _of_one_part(o.node) for o in first.outputs}
    steps = [replace(x, step=substitute([x.step], one)[x.step]) for x in second.stream.states]
    join = Pass(tuple(steps), ())
    states = start(s, join, sizes)
    for c in chunks(s, ranges(lengths), sizes):
        nothing = start(s, s.passes[0], sizes)
        own, _ = advance(s, s.passes[0], nothing, chunk_of(bind, c), c, sizes, scalars)
        stored = finished(s, own, bind, sizes, scalars)
        part = {one[o.node]: stored[o.name] for o in first.outputs}
        states, _ = advance(s, join, states, bind | part, {}, sizes, scalars)
    found = finished(second.stream, states, bind, sizes, scalars)
    axes = {e.output: e.node.axes for e in second.stream.tails}
    return {name: (v, axes[name]) for name, v in found.items()}


def _of_one_part(stored: Node) -> Node:
    """The reading of a state of one part."""
    return node(
        "input", params=("of one part", *stored.params), axes=stored.axes[1:], kind=stored.kind
    )


Found = Mapping[str, tuple[Array, Sequence[str]]]


def _ways(kernel: Kernel, roots: Sequence[Node], point: Point) -> dict[str, Found]:
    """The outputs of a kernel, chunk by chunk and of merged parts, each with its axes."""
    s, scalars = kernel.stream, scalars_of(roots)
    sizes = {a: 1 for a in kernel.axes} | dict(point.sizes)
    read = leaves(roots)
    bind = dict(zip(read, point.values(read), strict=True))
    axes = {e.output: e.node.axes for e in (*s.tails, *(e for p in s.passes for e in p.emits))}
    lengths = _cut(sizes[s.axes[0]], random.Random(point.seed))
    out: dict[str, Found] = {}
    _, found = folded(s, bind, sizes, ranges(lengths), scalars)
    out[f"in chunks of {lengths}"] = {name: (v, axes[name]) for name, v in found.items()}
    step = s.passes[0]
    if len(s.passes) > 1 or step.emits or kernel.visits is not None:
        return out
    nothing = start(s, step, sizes)
    parts = [
        advance(s, step, nothing, chunk_of(bind, c), c, sizes, scalars)[0]
        for c in chunks(s, ranges(lengths), sizes)
    ]
    states = reduce(lambda a, b: merged(step, a, b, sizes, scalars, bind), parts, nothing)
    found = finished(s, states, bind, sizes, scalars)
    out[f"in parts of {lengths}"] = {name: (v, axes[name]) for name, v in found.items()}
    return out


def _cut(size: int, rng: random.Random, number: int = 4) -> list[int]:
    """A cut of an axis in consecutive lengths, of which some may be 0."""
    cuts = sorted(rng.randint(0, size) for _ in range(number - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
