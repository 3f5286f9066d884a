"""Split-K: a streamed axis in parts that groups fold side by side, and a kernel that merges states.

A fold's merge joins the states of two parts (arXiv 2412.03317, section 2.3; flash-decoding is the
case of attention with few queries). So where a kernel has too few groups to fill a machine, the
streamed axis is cut into parts, one more grouped axis: each group folds one part and stores its
states, and a second kernel streams over the parts, with the fold's merge for its step and the
fold's own tail. Nothing here knows which fold it is.

An output that is stored as the axis streams, and that needs none of the states, is stored by the
groups of the parts as before: of a gradient that is an array and the sum of one over its rows, both
come from one reading. Where every state is merged as a reduction joins two results, or is the sum
of both sides' once these are brought to such a result, the second kernel is that reduction over the
parts, and takes many of them at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import permutations

import numpy as np

from napkin.algebra.fold import Emit, Pass, State, Stream
from napkin.algebra.law import Chunk, advance, chunk_of, chunks, finished, folded, ranges, start
from napkin.algebra.law_points import Point, scalars_of
from napkin.algebra.rule import Instance, Rule, Ways, between
from napkin.algebra.terms import combined, is_read
from napkin.derive.kernel import Kernel, tensor_of
from napkin.derive.label import weaved
from napkin.derive.rules.stream import as_results, cut, inputs, results, sizes_at
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.evaluate import Array, aligned, evaluate
from napkin.ir.infer import along
from napkin.ir.names import underscored
from napkin.ir.node import REDUCTIONS, Kind, Node, node, postorder
from napkin.ir.rewrite import substitute
from napkin.ir.storage import leaf


def part_axis(axis: str, number: int) -> str:
    """The name of the axis of `number` parts of `axis`."""
    return f"{axis}_part{number}"


def why_not_parted(kernel: Kernel) -> str:
    """The condition that fails for cutting a kernel's stream into parts; "" where none does."""
    if why := why_not_cut(kernel) or why_paired(kernel):
        return why
    for emit in kernel.stream.passes[0].emits:
        if any(n.op == "state" for n in postorder([emit.node])):
            return (
                f"output {emit.output} needs at each {kernel.stream.axis} what is folded before it"
            )
    return ""


def why_not_cut(kernel: Kernel) -> str:
    """The condition that fails for any cut of a kernel's stream; "" where none does."""
    s = kernel.stream
    if not s.axes:
        return "nothing is streamed"
    if len(s.axes) > 1:
        return f"{s.axis} are streamed jointly, and their boxes have no order to cut"
    if len(s.passes) > 1:
        return f"{s.axis} is read in {len(s.passes)} passes: the next needs what the last found"
    if not s.states:
        return f"nothing is folded over {s.axis}"
    if kernel.stepped:
        return f"a step takes the state along {s.axis}, and no two parts of it are joined"
    if kernel.fills:
        return f"slots of {kernel.fills[0].output} without a key are stored after the loop"
    if kernel.visits is not None:
        return f"a key set says which chunks of {s.axis} each group visits"
    if kernel.splits:
        return f"{kernel.splits[0].axis} is split by residue"
    return ""


def why_paired(kernel: Kernel) -> str:
    """Why a kernel's stream is no stream of chunks of any length; "" where it is."""
    s = kernel.stream
    return f"positions of {s.axis} are paired in chunks of one length" if s.twin else ""


def parted(kernel: Kernel, number: int) -> tuple[Kernel, Kernel]:
    """The kernel that folds `number` parts of the streamed axis, and the one that merges them.

    States pass between the two through memory, as float32: one tensor for each, called after it,
    with an axis of parts before its own.

    Raises:
        Refusal: the stream cannot be cut into parts.
    """
    first: Kernel | None = PARTED.first(kernel, number)
    if first is not None:
        return first, merging(kernel, first, number)
    raise Refusal(
        f"part {kernel.stream.axis}".strip(),
        kernel.name,
        why_not_parted(kernel),
        "group more axes, or run it as it is",
    )


def merging(kernel: Kernel, first: Kernel, number: int = 3) -> Kernel:
    """The kernel that merges the states of the parts or blocks that another one stores; the law is
    executed on so many of them."""
    return MERGED.first(kernel, first, number)


def handed(kernel: Kernel) -> tuple[Output, ...]:
    """What a kernel stores for a second one alone, which reads it so: states of parts or of blocks,
    and sums that groups add up to."""
    return tuple(o for o in kernel.outputs if is_read(o.node) and tensor_of(o.node) == o.name)


def handing(kernel: Kernel, kept: Iterable[Output], read: Iterable[Node]) -> Kernel:
    """A kernel that stores some results, and besides what a second one reads so."""
    outputs = (*kept, *(Output(tensor_of(n), n, n.axes) for n in read))
    return replace(kernel, outputs=outputs, origin=outputs)


def _parts(kernel: Kernel, number: int) -> Iterator[Instance]:
    """The kernel that folds parts of a stream and stores their states; none where it cannot."""
    if why_not_parted(kernel):
        return
    s = kernel.stream
    axis, (states, emits) = part_axis(s.axis, number), (s.passes[0].states, s.passes[0].emits)
    stored, whole = readings(kernel, states, axis), {e.output for e in emits}
    tails = tuple(Emit(tensor_of(stored[x.name]), x.leaf("new")) for x in states)
    folded = {a for n in postorder(s.passes[0].terms) for a in n.axes}
    kept = [o for o in kernel.outputs if o.name in whole]
    made = replace(
        handing(kernel, kept, stored.values()),
        name=f"{kernel.name}_parts",
        group=(axis, *(a for a in kernel.group if a in folded)),
        stream=replace(s, tails=tails),
        part=axis,
    )
    yield Instance(s.axis, made)


def _merges(kernel: Kernel, first: Kernel, number: int) -> Iterator[Instance]:
    """The kernel that merges the states of parts that another one stores."""
    s, axis = kernel.stream, first.partial
    states = s.passes[0].states
    stored = {x.name: o.node for x, o in zip(states, handed(first), strict=True)}
    many = _of_many(states, stored, axis)
    steps = many or tuple(joined(x, states, stored) for x in states)
    stream = Stream((axis,), (Pass(steps, ()),), s.tails, ())
    finished = {e.output for e in s.tails}
    outputs = tuple(o for o in kernel.outputs if o.name in finished)
    used = {a for n in postorder(stream.terms) for a in n.axes}
    used |= {a for o in outputs for a in o.axes}  # repeated along some, perhaps
    group = (*kernel.group, *(_merged_alone(kernel, outputs) if many else ()))
    made = replace(
        kernel,
        name=f"{kernel.name}_merge",
        outputs=outputs,
        origin=outputs,
        group=tuple(a for a in group if a in used),
        whole=tuple(a for a in kernel.whole if a in used and a not in group),
        stream=stream,
        merges=axis,
        blocks=first.blocks,
    )
    roots = results(kernel)
    yield Instance(s.axis, made, between(roots, roots), of=(kernel, first, number))


def _merged_alone(kernel: Kernel, outputs: tuple[Output, ...]) -> tuple[str, ...]:
    """The axes that were held whole along which each position is merged by itself: all states carry
    them, and what follows works along none."""
    along = weaved([Output(e.output, e.node, e.node.axes) for e in kernel.stream.tails])
    carried = [set(x.axes) for x in kernel.stream.states] + [set(o.axes) for o in outputs]
    return tuple(a for a in along if a in kernel.whole and all(a in axes for axes in carried))


def readings(kernel: Kernel, states: Iterable[State], axis: str) -> dict[str, Node]:
    """For each state the reading of the tensor that holds it for every part."""
    taken = {a.tensor for a in kernel.reads} | {o.name for o in kernel.outputs}
    return {x.name: reading(f"{x.name}_part", (axis, *x.axes), x.kind, taken) for x in states}


def reading(stem: str, axes: tuple[str, ...], kind: Kind, taken: set[str]) -> Node:
    """The reading of a tensor, in float32 where it holds reals, that passes from one kernel to
    another under a name that is not taken; it is from now on."""
    name = underscored(stem, taken)
    taken.add(name)
    return leaf(name, axes, kind, "fp32" if kind == "real" else "")


def joined(x: State, states: Sequence[State], stored: Mapping[str, Node]) -> State:
    """The state whose step is the merge with that of the next part."""
    return replace(x, step=substitute([x.joined], _sides(states, stored))[x.joined])


def _sides(states: Iterable[State], stored: Mapping[str, Node]) -> dict[Node, Node]:
    """What stands on the left and on the right of a merge with the next part."""
    sides = {y.leaf("left"): y.leaf("old") for y in states}
    return sides | {y.leaf("right"): stored[y.name] for y in states}


def _of_many(
    states: Sequence[State], stored: Mapping[str, Node], axis: str
) -> tuple[State, ...] | None:
    """The states whose steps merge many parts at once; None where one is merged otherwise."""
    reductions = {x.name: reduction_of(x) for x in states}
    results = [x for x in states if reductions[x.name]]
    found = list[State]()
    for x in states:
        if op := reductions[x.name]:
            found.append(_reduced(x, op, stored[x.name], axis))
        elif sides := _brought(x, results):
            known = substitute(sides, _sides(states, stored))
            own, other = (known[n] for n in sides)
            found.append(replace(x, step=combined("sum", own, along("sum", other, (axis,)))))
        else:
            return None
    return tuple(found)


def _brought(x: State, results: Sequence[State]) -> tuple[Node, Node] | None:
    """The left and the right side of a merge that is the sum of both, each times a factor that
    brings it from its own results to those of both; None of another. As merges nest in any way, the
    factors of two steps multiply to that of both, and many parts are merged as the sum of them all,
    each brought to the results of all."""
    mirror: dict[Node, Node] = {y.leaf("left"): y.leaf("right") for y in (x, *results)}
    own, known = x.leaf("left"), {y.leaf(tag) for y in results for tag in ("left", "new")}
    two = x.joined.op == "add" and len(x.joined.args) == 2
    for left, right in permutations(x.joined.args) if two else ():
        factors = [n for n in left.args if n is not own]
        once = left.op == "mul" and len(factors) == 1
        read = {n for n in postorder(factors) if n.op == "state"}
        if once and read <= known and substitute([left], mirror)[left] is right:
            return left, right
    return None


def reduction_of(x: State) -> str:
    """The reduction that joins two results as a state's merge does; "" where none does."""
    sides = x.leaf("left"), x.leaf("right")
    found = (op for op, r in REDUCTIONS.items() if r.order or r.identity == x.init)
    return next((op for op in found if combined(op, *sides) is x.merge), "")


def _reduced(x: State, op: str, stored: Node, axis: str) -> State:
    """The state whose step is the reduction of the next parts."""
    start = (x.init,) if REDUCTIONS[op].order else ()
    return replace(x, step=combined(op, x.leaf("old"), along(op, stored, (axis,), start)))


# --- the law --------------------------------------------------------------------------------


def _ways(found: Instance, point: Point) -> Ways:
    kernel, first, number = found.of
    return in_parts(kernel, first, found.made, number, point)


def in_parts(
    kernel: Kernel, first: Kernel, second: Kernel, number: int, point: Point
) -> Iterator[tuple[str, list[Array]]]:
    """The outputs of the two kernels that fold parts and merge their states."""
    roots, s, bind = results(kernel), kernel.stream, inputs(kernel, point)
    scalars = scalars_of(roots)
    sizes = sizes_at(kernel, point) | {first.partial: number}
    size = sizes[s.axes[0]]
    lengths = cut(size, random.Random(point.seed), number)
    if first.blocks:  # none is empty
        lengths = [n for n in (size // 2, size - size // 2) if n]
    parts = [of_part(first, bind, c, sizes, scalars) for c in chunks(s, ranges(lengths), sizes)]
    found = _merged(first, second, bind, parts, sizes, scalars)
    for e in s.passes[0].emits:
        at = e.node.axes.index(s.axes[0])
        found[e.output] = np.concatenate([part[e.output] for part in parts], axis=at)
    emits = (*second.stream.tails, *s.passes[0].emits)
    yield f"{kernel.name} {s.axis} in {number} parts", as_results(kernel, emits, found)


def _merged(
    first: Kernel,
    second: Kernel,
    bind: Mapping[Node, Array],
    parts: list[dict[str, Array]],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
) -> dict[str, Array]:
    """What the second kernel stores: one part after another, or two chunks of them, or what follows
    the sum of all."""
    if first.added:
        with np.errstate(all="ignore"):
            sums = {o.node: np.sum([part[o.name] for part in parts], 0) for o in handed(first)}
        return finished(second.stream, {}, {**bind, **sums}, sizes, scalars)
    if second.merges not in second.single:
        read = {o.node: np.stack([part[o.name] for part in parts]) for o in handed(first)}
        half, sizes = len(parts) // 2, {**sizes, second.merges: len(parts)}
        lengths = ranges([half, len(parts) - half])
        return folded(second.stream, {**bind, **read}, sizes, lengths, scalars)[1]
    join, one = of_one_part(first, second)
    states = start(join, sizes)
    for stored in parts:
        part = {n: stored[name] for name, n in one.items()}
        states, _ = advance(join, states, {**bind, **part}, {}, sizes, scalars)
    return finished(second.stream, states, bind, sizes, scalars)


def of_part(
    first: Kernel,
    bind: Mapping[Node, Array],
    part: Chunk,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
) -> dict[str, Array]:
    """What a kernel stores of one part, or of one block, in two chunks."""
    s, inside = first.stream, chunk_of(bind, part)
    step, here = s.passes[0], {**sizes, **{a: len(r) for a, r in part.items()}}
    where = part.get(s.axes[0], range(sizes[s.axes[0]]))
    half = (where.start + where.stop) // 2
    states = start(step, here, inside)
    pieces: list[list[Array]] = []
    for c in chunks(s, [range(where.start, half), range(half, where.stop)], sizes):
        own = chunk_of(bind, {**part, **c})
        states, now = advance(step, states, own, c, sizes, scalars, part)
        pieces.append(now)
    emitted = [
        np.concatenate(both, axis=e.node.axes.index(s.axes[0]))
        for e, *both in zip(step.emits, *pieces, strict=True)
    ]
    known = {**inside, **{x.leaf("new"): states[x.name] for x in step.states}}
    # As they are stored: behind the axis of parts, where they have one.
    axes = {o.name: tuple(a for a in o.axes if a != first.partial) for o in handed(first)}
    found = evaluate([e.node for e in s.tails], known, sizes, scalars, part)
    values = [aligned(v, e.node.axes, axes[e.output]) for e, v in zip(s.tails, found, strict=True)]
    return {e.output: v for e, v in zip((*s.tails, *step.emits), (*values, *emitted), strict=True)}


def of_one_part(first: Kernel, second: Kernel) -> tuple[Pass, dict[str, Node]]:
    """The pass of a second kernel over one part that a first one stores, and its readings."""
    one = {
        n: node("input", params=("of one part", *n.params), axes=n.axes[1:], kind=n.kind)
        for n in (o.node for o in handed(first))
    }
    (step,) = second.stream.passes
    steps = (replace(x, step=substitute([x.step], one)[x.step]) for x in step.states)
    return replace(step, states=tuple(steps)), {o.name: one[o.node] for o in handed(first)}


PARTED = Rule(
    "part",
    "fold(x) = merge_p fold(x_p), of parts x_p of which some may be empty",
    _parts,
    ("the axis is not empty as a whole",),
    empty=False,
)
MERGED = Rule(
    "merge",
    "merge_p fold(x_p) = fold(x), of parts x_p of which some may be empty",
    _merges,
    ("states are stored in float32",),
    empty=False,
    ways=_ways,
)
