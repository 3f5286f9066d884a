"""Accumulate: groups add their sums to one array in memory, in place of storing them side by side.

Where a fold's merge is addition, memory itself can merge: each group adds its float32 sums to an
array that begins as zeros, and a second kernel computes what follows, a scale and a cast, say. Such
groups come about in two ways. The parts of a streamed axis (`napkin.derive.rules.part`) add their
states, which a second kernel would else merge. And an axis that one result is summed over, and that
others carry, is cut into groups: all results then share what a group computes. Attention's backward
pass so is one kernel of five products (arXiv 2307.08691, section 3.2). Nothing here knows what is
summed.

Groups add in any order. A sum of floats depends on it, so two runs may differ in their last bits.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from napkin.algebra.law import chunk_of
from napkin.algebra.law_points import Point, scalars_of
from napkin.algebra.rule import Instance, Rule, Ways, between
from napkin.algebra.terms import in_float32, is_read
from napkin.derive.kernel import Kernel, leaves, tensor_of
from napkin.derive.label import label, weaved
from napkin.derive.rules.part import PARTED, handing, in_parts, reading, reduction_of
from napkin.derive.rules.stream import results, streamed
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.evaluate import Array, aligned, evaluate, evaluate_more
from napkin.ir.infer import pointwise
from napkin.ir.node import Node, number, over, postorder, preorder
from napkin.ir.operators import POINTWISE
from napkin.ir.rewrite import substitute
from napkin.ir.storage import stored_as

Both = tuple[Kernel, Kernel]
"""The kernel whose groups add, and the one that computes what follows."""


# --- parts ----------------------------------------------------------------------------------


def adding_parts(kernel: Kernel, number: int) -> Iterator[Both]:
    """The kernels that fold `number` parts of the streamed axis and add their states in memory;
    none where the states of parts are not joined by addition."""
    for found in PARTED.matches(kernel, number):
        for made in ADDED_PARTS.matches(kernel, PARTED.apply(found), number):
            yield ADDED_PARTS.apply(made)


def _parts(kernel: Kernel, first: Kernel, number: int) -> Iterator[Instance]:
    """The kernels of a stream in parts, of which the first stores the states of each part; none
    where these are not joined by addition, or several groups have one, which would all add it."""
    states = kernel.stream.passes[0].states
    if any(x.kind != "real" or reduction_of(x) != "sum" for x in states):
        return
    if any(a not in x.axes for x in states for a in first.group if a != first.part):
        return
    if any(o.node.op == "compress" for o in kernel.outputs):
        return
    taken = {*kernel.tensors}
    sums = [reading(f"{x.name}_sum", x.axes, "real", taken) for x in states]
    kept = [o for o in first.outputs if o.name not in {e.output for e in first.stream.tails}]
    tails = zip(first.stream.tails, sums, strict=True)
    stream = replace(first.stream, tails=tuple(replace(e, output=tensor_of(n)) for e, n in tails))
    adding = replace(_adding(first, kept, sums), name=f"{kernel.name}_adds", stream=stream)
    known = {x.leaf("new"): n for x, n in zip(states, sums, strict=True)}
    after = {e.output: e.node for e in kernel.stream.tails}
    done = substitute([*after.values()], known)
    ends = [
        replace(o, node=stored_as(o.node, _computed(done[after[o.name]])))
        for o in kernel.outputs
        if o.name in after
    ]
    with suppress(Refusal):
        ending = label(f"{kernel.name}_ends", ends, kernel.names)
        roots = results(kernel)
        both = adding, ending
        yield Instance(kernel.stream.axis, both, between(roots, roots), of=(kernel, number))


def _in_parts(found: Instance, point: Point) -> Ways:
    """The outputs of both kernels, on parts."""
    (kernel, number), (first, second) = found.of, found.made
    return in_parts(kernel, first, second, number, point)


# --- groups ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Cut:
    """Results in groups along axes that some of them carry and others are summed over.

    Attributes:
        kept: the results that carry the axes.
        sums: the sums over them that the others are computed from, with the readings of what groups
            add up to.
        ends: the others, over these readings.
    """

    kept: Sequence[Output]
    sums: dict[Node, Node]
    ends: Sequence[Output]


def sums_along(
    outputs: Sequence[Output], names: Mapping[Node, str]
) -> Iterator[tuple[str, Sequence[Node]]]:
    """The axes that some results carry and others are summed over, one or several together, and
    may be cut into groups that add in memory, with these sums."""
    sums = [n for n in postorder(o.node for o in outputs) if n.op == "sum"]
    together = [over(n) for n in sums if len(over(n)) > 1]
    for axes in dict.fromkeys([*((a,) for o in outputs for a in o.axes), *together]):
        if (found := _cut(outputs, names, axes)) is not None:
            yield " ".join(axes), list(found.sums)


def _groups(
    name: str, outputs: Sequence[Output], names: Mapping[Node, str], axis: str, stream: str
) -> Iterator[Instance]:
    """The kernel with groups along an axis, or several, that some results carry and others are
    summed over, which streams other axes or none, and the kernel that computes what follows the
    sums; none where something else depends on more than one group."""
    axes = tuple(axis.split())
    found = _cut(outputs, names, axes)
    if found is None:
        return
    adds = [Output(tensor_of(m), in_float32(n), m.axes) for n, m in found.sums.items()]
    with suppress(Refusal):
        made = label(f"{name}_adds", [*found.kept, *adds], names, streamed=stream)
        ending = label(f"{name}_ends", found.ends, names)
        if {*axes} <= {*made.whole} and not made.fills:
            first = _adding(streamed(made), found.kept, [*found.sums.values()])
            first = replace(
                first,
                group=(*made.group, *axes),
                whole=tuple(a for a in made.whole if a not in axes),
            )
            roots = [o.node for o in outputs]
            yield Instance(axis, (first, ending), between(roots, roots), of=(outputs, found))


def _cut(
    outputs: Sequence[Output], names: Mapping[Node, str], axes: tuple[str, ...]
) -> _Cut | None:
    """Results in groups along axes; None where they have none, or one alone."""
    kept = [o for o in outputs if {*axes} <= {*o.axes}]
    others = [o for o in outputs if o not in kept]
    found = [_sums(o.node, axes) for o in others]
    sums = list(dict.fromkeys(n for own in found for n in own))
    if not kept or not sums or not all(found):
        return None
    inside = [Output("", n.args[0], n.args[0].axes) for n in sums]
    if not {*axes} <= {*weaved([*kept, *inside])}:
        return None
    taken = {o.name for o in outputs} | {str(n.params[0]) for n in leaves(o.node for o in outputs)}
    known: dict[Node, Node] = {}
    for n in sums:
        o = next(o for o, own in zip(others, found, strict=True) if n in own)
        own = sorted(n.axes, key=lambda a: o.axes.index(a) if a in o.axes else -1)
        known[n] = reading(f"{names.get(n, o.name)}_sum", tuple(own), "real", taken)
    done = substitute([o.node for o in others], known)
    return _Cut(kept, known, [replace(o, node=_computed(done[o.node])) for o in others])


def _sums(n: Node, axes: tuple[str, ...]) -> list[Node]:
    """The sums over axes that a result is computed from, value by value; none where something
    else stands between."""

    def summed(m: Node) -> bool:
        return m.op == "sum" and {*axes} <= {*over(m)} and m.kind == "real" and not m.constant

    def between(m: Node) -> bool:
        return m.constant or m.op in POINTWISE or (is_read(m) and {*axes}.isdisjoint(m.axes))

    found = list(preorder([n], lambda m: between(m) and not m.constant))
    return list(filter(summed, found)) if all(summed(m) or between(m) for m in found) else []


def _in_groups(found: Instance, point: Point) -> Iterator[tuple[str, list[Array]]]:
    """The results, of which groups of one position along the axes add some."""
    (outputs, made), axes, (roots, _) = found.of, found.where.split(), found.sides()
    bind, scalars, sizes = point.bound(leaves(roots)), scalars_of(roots), point.sizes
    nodes = [*(o.node for o in made.kept), *made.sums]
    places = list(itertools.product(*(range(sizes[a]) for a in axes)))
    boxes = [{a: range(i, i + 1) for a, i in zip(axes, at, strict=True)} for at in places]
    each = [evaluate_more(nodes, chunk_of(bind, b), sizes, scalars, b) for b in boxes]
    groups = list(zip(*each, strict=True))
    own = len(made.kept)
    values = {
        o.name: _joined(v, o.node.axes, axes, sizes)
        for o, v in zip(made.kept, groups[:own], strict=True)
    }
    for (n, m), v in zip(made.sums.items(), groups[own:], strict=True):
        with np.errstate(all="ignore"):
            bind[m] = aligned(np.sum(v, axis=0), n.axes, m.axes)
    ends = [o.node for o in made.ends]
    axes = {o.name: o.node.axes for o in outputs}
    pairs = zip(made.ends, evaluate(ends, bind, sizes, scalars), strict=True)
    values |= {o.name: aligned(v, o.node.axes, axes[o.name]) for o, v in pairs}
    yield f"{found.where} in groups of 1 that add", [values[o.name] for o in outputs]


def _joined(
    groups: Sequence[Array], own: Sequence[str], axes: Sequence[str], sizes: Mapping[str, int]
) -> Array:
    """An array of groups of one position along some of its axes, the last of these fastest."""
    for a in reversed(axes):
        at, number = own.index(a), max(sizes[a], 1)
        pieces = range(0, len(groups), number)
        groups = [np.concatenate(groups[i : i + number], axis=at) for i in pieces]
    (whole,) = groups
    return whole


# --- both -----------------------------------------------------------------------------------


def _adding(kernel: Kernel, kept: Sequence[Output], sums: Sequence[Node]) -> Kernel:
    """A kernel whose groups store some results and add to what others read."""
    return replace(handing(kernel, kept, sums), added=tuple(map(tensor_of, sums)))


def _computed(n: Node) -> Node:
    """What follows a sum, as a term: a real reading alone would be stored in float32, as read."""
    return pointwise("mul", (n, number(1.0))) if is_read(n) and n.kind == "real" else n


ADDED_PARTS = Rule(
    "add_parts",
    "merge_p fold(x_p) = sum_p fold(x_p), of parts x_p that add in memory, where states are sums",
    _parts,
    (
        "every state is merged by addition, and begins at 0",
        "every state carries all grouped axes",
        "sums are stored in float32",
    ),
    empty=False,
    ways=_in_parts,
)
ACCUMULATED = Rule(
    "accumulate",
    "sum(x) = sum_g sum(x_g), of groups x_g of an axis that add in memory",
    _groups,
    (
        "nothing else but what carries the axis depends on it",
        "what follows a sum is computed value by value",
        "sums are stored in float32",
    ),
    empty=False,
    ways=_in_groups,
)
