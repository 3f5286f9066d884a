"""Streams: folded over chunks, and over parts that are merged, a term has the value that it has on
the whole (arXiv 2505.09326, Def. 1)."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import reduce

from napkin.algebra.fold import Emit
from napkin.algebra.law import advance, chunk_of, chunks, finished, folded, merged, ranges, start
from napkin.algebra.law_points import Point, scalars_of
from napkin.algebra.relabel import Relabel
from napkin.algebra.rule import Instance, Rule
from napkin.derive.kernel import Kernel, leaves
from napkin.ir.evaluate import Array, aligned
from napkin.ir.node import Node


def streamed(kernel: Kernel) -> Kernel:
    """The kernel, whose stream is traced, and run on chunks where that is asked for.

    Raises:
        LawError: an output differs from its value on the whole.
    """
    STREAMED.first(kernel)
    return kernel


def _matches(kernel: Kernel) -> Iterator[Instance]:
    """The stream of a kernel; none of one that merges states."""
    if kernel.stream.axes and not kernel.merges:
        yield Instance(
            kernel.stream.axis, kernel, lambda: (results(kernel), kernel.terms), kernel=kernel
        )


def results(kernel: Kernel) -> list[Node]:
    """What each output holds; of a compressed one, before it is stored in slots."""
    return [o.node.args[0] if o.node.op == "compress" else o.node for o in kernel.outputs]


def _ways(instance: Instance, point: Point) -> Iterator[tuple[str, list[Array]]]:
    """The outputs of a kernel, chunk by chunk and of merged parts."""
    kernel: Kernel = instance.made
    s, roots, bind = kernel.stream, results(kernel), inputs(kernel, point)
    scalars, sizes = scalars_of(roots), sizes_at(kernel, point)
    lengths, emits = cut(sizes[s.axes[0]], random.Random(point.seed)), (*s.tails, *s.emits)
    whose = f"{kernel.name} {s.axis}"
    found = folded(s, bind, sizes, ranges(lengths), scalars)[1]
    yield f"{whose} in chunks of {lengths}", as_results(kernel, emits, found)
    step = s.passes[0]
    if len(s.passes) > 1 or step.emits or kernel.visits is not None:
        return
    nothing = start(step, sizes)
    parts = [
        advance(step, nothing, chunk_of(bind, c), c, sizes, scalars)[0]
        for c in chunks(s, ranges(lengths), sizes)
    ]
    states = reduce(lambda a, b: merged(step, a, b, sizes, scalars, bind), parts, nothing)
    found = finished(s, states, bind, sizes, scalars)
    yield f"{whose} in parts of {lengths}", as_results(kernel, emits, found)


def inputs(kernel: Kernel, point: Point) -> dict[Node, Array]:
    """What a kernel reads at a point."""
    return point.bound(leaves(results(kernel)))


def sizes_at(kernel: Kernel, point: Point) -> dict[str, int]:
    """The sizes of a kernel's axes at a point, 1 for those that it makes itself."""
    return {a: 1 for a in kernel.axes} | dict(point.sizes)


def as_results(kernel: Kernel, emits: Iterable[Emit], found: Mapping[str, Array]) -> list[Array]:
    """Values that were found for emits and tails, as a kernel's results have them."""
    axes = {e.output: e.node.axes for e in emits}
    pairs = zip(kernel.outputs, results(kernel), strict=True)
    return [aligned(found[o.name], axes[o.name], n.axes) for o, n in pairs]


def cut(size: int, rng: random.Random, number: int = 4) -> list[int]:
    """A cut of an axis in consecutive lengths, of which some may be 0."""
    cuts = sorted(rng.randint(0, size) for _ in range(number - 1))
    return [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]


STREAMED = Rule(
    "stream",
    "fold(x (+) y) = step(fold(x), y) = merge(fold(x), fold(y))",
    _matches,
    (
        "no factor of the tail carries an axis that its sum removes",
        "no square and no exponential of a difference is multiplied out",
        "the axis is not empty as a whole",
    ),
    empty=False,
    relabel=Relabel(
        lambda labels, m: replace(labels, stream=m.argument, passes=m.value or 1),
        lambda labels, m: replace(labels, stream="", passes=1),
    ),
    ways=_ways,
)
