"""Walks over the terms of a loop program, and the chunks that its loops copy ahead."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence

from napkin.derive.terms import is_operand, is_read
from napkin.diagram.node import Node, factors, postorder
from napkin.lower.resources_home import Homes, narrowed

NARROWEST = 32
"""Bits of the narrowest asynchronous copy (PTX ISA, cp.async: 4, 8 or 16 bytes)."""


def arguments(n: Node) -> tuple[Node, ...]:
    """What a term is computed from; a contraction's factors one by one."""
    return factors(n.args[0]) if n.op == "sum" else n.args


def within(roots: Iterable[Node], steps: Mapping[str, Node]) -> Iterator[Node]:
    """Every term of one step under `roots`; final states are followed to their steps in `steps`."""
    seen: set[Node] = set()
    stack = list(roots)
    while stack:
        n = stack.pop()
        if n in seen or n.constant:
            continue
        seen.add(n)
        yield n
        if n.op == "state" and n.params[1] == "new" and n.params[0] in steps:
            stack.append(steps[str(n.params[0])])
        elif not is_read(n):
            stack.extend(arguments(n))


def invariants(roots: Sequence[Node], moving: frozenset[Node]) -> list[Node]:
    """Terms of a loop that are computed before it."""
    out: dict[Node, None] = {}
    seen: set[Node] = set()
    stack = list(roots)[::-1]
    while stack:
        n = stack.pop()
        if n in seen or n.constant or n.op in {"state", "ones"}:
            continue
        seen.add(n)
        if n not in moving:
            out[n] = None
        else:
            stack.extend(reversed(n.args))
    return list(out)


def rings(
    homes: Homes, roots: Sequence[Node], steps: Mapping[str, Node], stages: int
) -> dict[Node, int]:
    """The chunks that a loop copies ahead, with their slots.

    A chunk is copied ahead if it feeds an operand of a product, however indirectly, and each thread
    copies at least `NARROWEST` bits of it at once. One that only wgmma reads stays in use for one
    iteration more, so it has a slot more. Loads at loaded positions share the stages with those.
    """
    if stages < 2:
        return {}
    found: dict[Node, None] = {}
    straight: set[Node] = set()
    indirect: set[Node] = set()
    # mma.sync takes no transposed left operand from a ring, and wgmma reads bytes along the depth.
    turned: set[Node] = set()
    for n in within(roots, steps):
        dot = homes.dot(n)
        if dot is None:
            indirect.update(a for a in arguments(n) if is_read(a))
            continue
        unit = homes.unit(dot)
        for side, parts in enumerate(dot.sides):
            found.update((x, None) for x in within(parts, steps) if is_read(x))
            alone = len(parts) == 1 and unit == "wgmma" and dot.flat
            for p in filter(is_read, parts):
                whole = alone and is_operand(p, dot.parts) and not homes.folded(dot, p)
                (straight if whole else indirect).add(p)
            if side == 0 and unit == "mma" and dot.turned(0):
                turned.update(p for p in parts if is_operand(p, dot.parts))
            if unit == "wgmma" and homes.bits(dot) == 8:
                turned.update(p for p in parts if homes.fast(p) not in dot.gone)

    dots = [dot for n in within(roots, steps) if (dot := homes.dot(n)) is not None]

    def width(leaf: Node) -> int:
        """Bits that a thread copies at once; of a few values beside a product's columns, as many
        as its result has side by side."""
        found, mine = homes.tensors.width(leaf, homes.warps), homes.shape(leaf)
        for dot in dots:
            if homes.few(leaf) and mine == dot.columns:
                beside = narrowed(homes.result(dot), (*dot.rows, *dot.columns), mine).held
                run = next(i for i in itertools.count() if 1 << i not in beside)
                found = min(found, homes.tensors.bits(leaf) << run)
        return found

    def ahead(leaf: Node) -> bool:
        wide = leaf in homes.boxes or width(leaf) >= NARROWEST
        turns = leaf in turned and leaf not in homes.boxes
        return leaf in homes.moving and not turns and wide

    # Positions are needed a stage before what is read at them.
    depth = {leaf: 0 for leaf in found if ahead(leaf)}
    for leaf in list(depth):
        for n in postorder(leaf.args):
            if stages > 2 and is_read(n) and n in homes.moving:
                depth.setdefault(n, 1)
    slots = (stages - 1) // (1 + max(depth.values(), default=0))
    return {x: slots + (x in straight and x not in indirect) for x in depth}
