"""Points: the terms that kernels may end with. Each is stored where one does, whatever it is.

At first these are reductions, scans, results, and arrays that are read at computed addresses;
`napkin.cut.changes` has more of them, or fewer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set

from napkin.algebra.terms import is_count, is_read
from napkin.diagram.interface import Output
from napkin.ir.node import REDUCTIONS, SCANS, Node, over, postorder
from napkin.ir.storage import packed_axis
from napkin.ir.taking import own_axes

READ_AGAIN = frozenset({"rename", "spread", "take"})
"""Operators whose argument is read from memory, under other axis names or at computed addresses."""


def points_of(outputs: Sequence[Output], sizes: Mapping[str, int]) -> set[Node]:
    """The points of a term, before any change.

    Those are its reductions and scans, but not those that only say where a key set begins and
    ends, which the kernel computes whose loops that governs; such bounds that are read from what
    others of these store; and what is computed of no other point and stored in any case: pointwise
    results, and arrays that are read at computed addresses.
    """
    roots = {o.node for o in outputs}
    order = list(postorder(roots))
    bounds = _bounds(order, roots)
    heavy = {n for n in order if is_heavy(n) and n not in bounds}
    heavy |= _computed_bounds(order, heavy)
    light = _light(order, heavy, {n for n in roots if narrow(n, sizes)})
    return heavy | light | _unpacked(order)


def with_read_again(outputs: Sequence[Output], points: Set[Node]) -> Set[Node]:
    """Points, and arrays that are read at computed addresses and are computed of none of them."""
    return points | _light(list(postorder(o.node for o in outputs)), points, set())


def is_heavy(n: Node) -> bool:
    """Whether a term is more than pointwise."""
    return (n.op in REDUCTIONS or n.op in SCANS or n.op == "compress") and not is_count(n)


def is_pointwise(n: Node) -> bool:
    """Whether a kernel computes each value of a term from values at the same place."""
    return not (n.constant or is_read(n) or is_heavy(n) or n.op in {*READ_AGAIN, "keys"})


def _bounds(order: Sequence[Node], roots: Iterable[Node]) -> set[Node]:
    """Whole numbers of which nothing but the bounds of key sets is computed. Positions and inputs
    may be read elsewhere, too."""
    sets = [n for n in order if n.op == "keys"]
    others = set(postorder(roots, set(sets)))
    under = postorder(a for n in sets for a in n.args)
    whole = set[Node]()
    for n in under:
        if n.kind != "real" and (not n.args or (n not in others and whole.issuperset(n.args))):
            whole.add(n)
    return whole


def _computed_bounds(order: Sequence[Node], heavy: Set[Node]) -> set[Node]:
    """Bounds of key sets that are read at computed addresses of what a point is under."""
    above, read = set[Node](), set[Node]()
    for n in order:
        if n in heavy or not above.isdisjoint(n.args):
            above.add(n)
        if (n.op == "take" and n.args[0] in above) or not read.isdisjoint(n.args):
            read.add(n)
    return {a for n in order if n.op == "keys" for a in n.args if a in read}


def _light(order: Sequence[Node], heavy: Set[Node], results: Set[Node]) -> set[Node]:
    """Terms that are stored in any case: with no point below, pointwise results and what is read at
    computed addresses, but for inputs as they lie there; and what is so read and is computed of a
    point that is read again, which no kernel does that stores the point."""
    found, above, after = set[Node](), set[Node](), set[Node]()
    for n in order:
        x = n.args[0] if n.op in READ_AGAIN else n
        alone = x not in above and (x.args or not is_read(x))
        if x is not n and not x.constant and (alone or (x in after and is_pointwise(x))):
            found.add(x)
            above.add(x)
        if n in heavy or any(a in above for a in n.args):
            above.add(n)
        elif n in results:
            found.add(n)
            above.add(n)
        if n not in heavy and (x in above if x is not n else not after.isdisjoint(n.args)):
            after.add(n)
    return found


def _unpacked(order: Sequence[Node]) -> set[Node]:
    """What steps take in that is computed of values of which two share a byte along their axis: a
    kernel reads such values by twos, and takes steps one by one."""
    found, of = set[Node](), dict[Node, frozenset[str]]()
    for n in order:
        of[n] = frozenset({packed_axis(n)} - {""})
        if is_pointwise(n):
            of[n] = of[n].union(*(of[a] for a in n.args))
        if n.op == "steps":
            found |= {a for a in n.args if is_pointwise(a) and of[a].intersection(over(n))}
    return found


def narrow(n: Node, sizes: Mapping[str, int]) -> bool:
    """Whether a kernel that reads a pointwise result moves no more than one that computes it."""
    if not is_pointwise(n):
        return False
    reads = [own_axes(m) for m in postorder([n]) if is_read(m)]
    return values(n.axes, sizes) <= sum(values(axes, sizes) for axes in reads)


def values(axes: Iterable[str], sizes: Mapping[str, int]) -> int:
    """The number of values of an array with these axes."""
    return math.prod(sizes[a] for a in axes)
