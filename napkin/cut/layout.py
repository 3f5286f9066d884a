"""The order of axes in which arrays between kernels lie in memory.

An array lies as its term has its axes, unless a matrix product or a state goes over its last one
position by position: the values of one product, or of one state, would each lie in a sector of
their own. Those axes go first; of a state, all but those that a step reduces, which every group
holds whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from napkin.algebra.contraction import in_axes
from napkin.ir.infer import along, joined
from napkin.ir.node import REDUCTIONS, Node, factors, node, over, postorder, steps_of
from napkin.ir.operators import POINTWISE


def layouts(order: Sequence[Node], sizes: Mapping[str, int]) -> dict[Node, tuple[str, ...]]:
    """The axes of every array that is to lie otherwise than its term has them.

    Args:
        order: all terms, arguments first.
    """
    one = {n: _one_by_one(n, sizes) for n in order if n.op == "sum"}
    one |= {n: _but_whole(n) for n in order if n.op == "steps"}
    around: dict[Node, set[str]] = {n: set(one.get(n, ())) for n in order}
    for n in order:
        if n.op in POINTWISE:
            around[n].update(*(around[a] for a in n.args))
    for n in reversed(order):
        for a in n.args:
            around[a] |= one.get(n) or _before(n, around[n])
    found = {n: _moved(n.axes, around[n]) for n in order}
    return {n: axes for n, axes in found.items() if axes != n.axes}


def _one_by_one(n: Node, sizes: Mapping[str, int]) -> frozenset[str]:
    """The axes of a sum, at every position of which it is a matrix product of its own."""
    alone = along("sum", joined("mul", [_as_read(p) for p in factors(n.args[0])]), over(n))
    found = in_axes(alone, alone.args[0].axes)
    tiles = {a: 1 if a in found.single else sizes[a] for a in alone.args[0].axes}
    return found.single & {*n.axes} if found.at(tiles).is_product else frozenset()


def _but_whole(n: Node) -> frozenset[str]:
    """The axes of the states of a scan by any step, but for those that a step reduces, under
    whatever name."""
    made = list(postorder(steps_of(n).made))
    whole = {a for m in made if m.op in REDUCTIONS for a in over(m)}
    for m in reversed(made):
        whole |= _before(m, whole) if m.op == "rename" else set()
    first = frozenset(n.axes) - whole
    return first if len(first) < len(n.axes) else frozenset(over(n))


def _as_read(p: Node) -> Node:
    """A tensor in the place of a computed factor; what that is computed of does not matter."""
    if p.op == "input" or not p.axes:
        return p
    return node("input", params=("computed",), axes=p.axes, kind=p.kind)


def _before(n: Node, axes: set[str]) -> set[str]:
    """Axes of a term of single values as its arguments have them; none of any other term."""
    if n.op == "rename":
        back = {new: old for old, new in cast("tuple[tuple[str, str], ...]", n.params[0])}
        return {back.get(a, a) for a in axes}
    return axes if n.op in POINTWISE else set()


def _moved(axes: tuple[str, ...], first: set[str]) -> tuple[str, ...]:
    """Axes, some of them first where the last is one of these."""
    if not axes or axes[-1] not in first:
        return axes
    return (*(a for a in axes if a in first), *(a for a in axes if a not in first))
