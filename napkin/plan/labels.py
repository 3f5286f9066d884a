"""Every way to label the axes of a term as one kernel: which axis to stream, in how many passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from napkin.derive.apart import apart
from napkin.derive.kernel import Kernel, label, weaved
from napkin.derive.residues import sized
from napkin.diagram.diagram import Output
from napkin.diagram.keys.terms import spec_of
from napkin.diagram.node import Node, inside_sums, postorder
from napkin.errors import Refusal
from napkin.plan.tiles import MAX_TILE, power_of_two


def labellings(
    name: str, outputs: Sequence[Output], names: Mapping[Node, str], sizes: Mapping[str, int]
) -> Iterator[Kernel]:
    """Every labelling of a term as one kernel: each axis streamed in one pass or two, or none; as
    it is, and with the axes of dilated key sets split by residue."""
    for split in (None, *apart(outputs, names)):
        terms = split.outputs if split else outputs
        known = sized(sizes, split.splits) if split else sizes
        legal = set(weaved(terms))
        every = tuple(dict.fromkeys(a for n in postorder(o.node for o in terms) for a in n.axes))
        alone = [a for a in every if a not in legal]
        together = [" ".join(keys) for keys in _key_axes(terms) if len(keys) > 1]
        for axis in ("", *alone, *together):
            whole = [a for a in every if a not in legal and a not in axis.split()]
            if not _may_fit(terms, whole, known):
                continue
            for passes in (1, 2, 3) if axis else (1,):
                try:
                    yield label(name, outputs, names, streamed=axis, passes=passes, split=split)
                except Refusal:
                    continue
                break


def _key_axes(outputs: Sequence[Output]) -> list[tuple[str, ...]]:
    """The axes of every key set: a chunk of them is a box."""
    found = [spec_of(n).keys for n in postorder(o.node for o in outputs) if n.op == "keys"]
    return list(dict.fromkeys(found))


def _may_fit(outputs: Sequence[Output], whole: Sequence[str], sizes: Mapping[str, int]) -> bool:
    inside = inside_sums(o.node for o in outputs)
    return all(
        math.prod(power_of_two(sizes[a]) for a in n.axes if a in whole) <= MAX_TILE
        for n in postorder(o.node for o in outputs)
        if n not in inside and n.op != "compress"
    )
