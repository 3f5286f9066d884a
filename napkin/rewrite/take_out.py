"""Takes out of reductions: all rows of a tensor are reduced, and some of the results picked.

fold_d g(A, T[p(q, x), d]) reads a row of T for every q and x. Where the positions do not go along
what is reduced, fold_d g(A, T[r, d]) is computed for every row r, and read at the positions
afterwards: the product is then one of plain arrays, and single values are read at computed
addresses (the scores between contents and positions of DeBERTa, arXiv 2006.03654, section 3.2).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from napkin.algebra.rule import Instance, Rule, one_node
from napkin.algebra.terms import EXTREMA, compared, in_float32, is_count, is_read
from napkin.ir.names import numbered
from napkin.ir.node import MOVES, REDUCTIONS, SCANS, Node, node, over, postorder
from napkin.ir.rewrite import substitute
from napkin.ir.taking import own_axes, take, taken_of

MOVED = MOVES | {"rename", "scatter", "take"}
"""Operators whose result has values at other positions than their arguments have."""

Picked: TypeAlias = "tuple[tuple[str, Node], ...]"
"""The axes of rows of a tensor, and the positions that pick some."""


def _matches(terms: Sequence[Node], sizes: Mapping[str, int]) -> Iterator[Instance]:
    """The reductions whose rows may be picked afterwards, with no more operations."""
    order = list(postorder(terms))
    every, once = set(order), compared(terms)
    if not any(taken_of(n) for n in order if is_read(n)):
        return
    for n in order:
        if n.op in REDUCTIONS and not is_count(n):
            for picked, leaves in _picking(n).items():
                if n in once and _sums_inside(n, leaves):
                    continue
                fresh = _fresh(n, picked)
                whole = substitute([n], {leaf: _table(leaf, fresh) for leaf in leaves})[n]
                known = {**sizes, **{new: sizes[own] for own, new in fresh.items()}}
                if _work(whole, known) <= _work(n, known):
                    whole = in_float32(whole) if in_float32(n) in every else whole
                    made = take(whole, [at for _, at in picked], tuple(fresh[a] for a, _ in picked))
                    new = {new: own for own, new in fresh.items() if new != own}
                    yield one_node(n, made, new)


TAKEN_OUT = Rule(
    "pick rows last",
    "fold_d g(A, T[p, d]) = (fold_d g(A, T[r, d]) for every row r) at r = p",
    _matches,
    (
        "p does not carry d",
        "p is no window",
        "nothing between the row and the sum moves the axes of p",
        "there are no more values to reduce",
        "under a comparison, no sum of these rows lies inside: the other side may have it, too",
    ),
    infinite=True,
    alternative=True,
)


def _picking(n: Node) -> dict[Picked, list[Node]]:
    """The readings under a reduction at positions that do not go along what it reduces, by these
    positions."""
    body, found = n.args[0], dict[Picked, list[Node]]()
    reads = {m for m in postorder([body]) if is_read(m)}
    inside = list(postorder([body], reads))
    gone = {a for m in (n, *inside) for a in over(m)}
    moved_later = {*postorder(a for m in inside if m.op in MOVED for a in m.args)}
    for leaf in inside:
        taken = taken_of(leaf) if leaf in reads else None
        if taken is None or any(taken.spans) or leaf in moved_later:
            continue
        moved = {a for at in leaf.args for a in at.axes}
        if moved and moved.isdisjoint(gone):
            under = zip(own_axes(leaf), taken.under, strict=True)
            picked = tuple((own, leaf.args[u]) for own, u in under if isinstance(u, int))
            found.setdefault(picked, []).append(leaf)
    return {p: some for p, some in found.items() if any(set(over(n)) & {*m.axes} for m in some)}


def _sums_inside(n: Node, leaves: Sequence[Node]) -> bool:
    """Whether what is reduced has sums of some readings."""
    sums = (REDUCTIONS.keys() | SCANS) - EXTREMA
    inside = [m for m in postorder([n]) if m is not n and m.op in sums]
    return not {*leaves}.isdisjoint(postorder(inside))


def _fresh(n: Node, picked: Picked) -> dict[str, str]:
    """The axes of rows, under names that no array has which a reduction is computed from."""
    known = {a for m in postorder([n]) for a in m.axes}
    return {own: numbered(own, known) for own, _ in picked}


def _table(leaf: Node, fresh: Mapping[str, str]) -> Node:
    """All rows of the tensor that a reading picks some of."""
    taken, own = taken_of(leaf), own_axes(leaf)
    assert taken is not None
    pairs = zip(own, taken.under, strict=True)
    under = tuple(fresh[o] if isinstance(u, int) else u for o, u in pairs)
    params = leaf.params[:1] if under == own else leaf.params[:2]
    return node("input", params=params, axes=under, kind=leaf.kind)


def _work(n: Node, sizes: Mapping[str, int]) -> int:
    """The values that a reduction goes over."""
    return math.prod(sizes[a] for a in n.args[0].axes)
