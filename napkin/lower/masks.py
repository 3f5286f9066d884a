"""Masks: what padded lanes of a tile hold, and where they must be told apart.

A tile may reach past the end of an axis. Loads put 0 there, so most sums need no mask; a reduction
needs one only where the value that its body has on padded lanes is not the reduction's identity.
Following that value through the term puts the fewest masks: in attention one, on the scores, and
exp(-inf - m) = 0 serves the sum and the product after it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence

from napkin.algebra.known import ANY, Known, left_out, value_at
from napkin.algebra.terms import is_read
from napkin.ir.node import REDUCTIONS, SCANS, Node, factors, node, over, postorder
from napkin.ir.rewrite import rewrite


def mask(n: Node, axis: str, fill: float) -> Node:
    """`n`, with `fill` on the lanes past the end of `axis`."""
    return node("mask", (n,), (axis, fill), n.axes, n.kind)


def masked(
    roots: Sequence[Node], axes: Iterable[str], read: Collection[str] = ()
) -> dict[Node, Node]:
    """`roots` with masks where padded lanes of the axes in `axes` would change a result.

    Args:
        read: axes of which a tile that a descriptor reads holds other values past their end, not 0.
    """
    reads = [n for n in postorder(roots) if is_read(n)] if read else []
    known: Known = {(n, a): ANY for n in reads for a in read if a in n.axes}
    made: dict[str, dict[Node, Node]] = {a: {} for a in axes}

    def guard(body: Node, axis: str, fill: float) -> Node:
        if value_at(body, axis, known) == fill:
            return body
        reused = _reused(made[axis], body, axis) if made[axis] else body
        if value_at(reused, axis, known) == fill:
            return reused
        if fill == 0.0 and body.op == "mul":
            parted = _zeroed(body, axis, known)
            if value_at(parted, axis, known) == fill:
                return parted
        wrapped = mask(body, axis, fill)
        if math.isinf(fill):
            made[axis][body] = wrapped
        return wrapped

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op not in REDUCTIONS and old.op not in SCANS:
            return None
        if old.op == "recurrence":  # no position reads what comes after it
            return None
        body = args[0]
        for axis in over(old):
            if axis in made and axis in body.axes:
                body = guard(body, axis, left_out(old))
        return (
            None if body is old.args[0] else node(old.op, (body,), old.params, old.axes, old.kind)
        )

    done = rewrite(roots, change)
    # Where the masked form serves every reader, the plain one need not be kept beside it.
    for axis, table in ((a, t) for a, t in made.items() if t):
        shared = _using(table, done.values())
        if _sound([shared[n] for n in done.values()], axis, known):
            done = {old: shared[new] for old, new in done.items()}
    return done


def _zeroed(body: Node, axis: str, known: Known) -> Node:
    """A matrix product with its operands masked: the product itself is a larger array, which
    `tl.dot` never holds. Other products stay as they are."""
    parts = [p for p in factors(body) if axis in p.axes]
    if any(set(p.axes) == set(body.axes) for p in parts):
        return body
    loose = {p for p in parts if (at := value_at(p, axis, known)) is None or math.isinf(at)}
    if not loose and all(value_at(p, axis, known) != 0.0 for p in parts):
        loose = {min(parts, key=lambda p: len(p.axes))}
    return _with_factors(body, {p: mask(p, axis, 0.0) if p in loose else p for p in factors(body)})


def _with_factors(body: Node, by: Mapping[Node, Node]) -> Node:
    if body in by:
        return by[body]
    args = tuple(_with_factors(a, by) for a in body.args)
    return node("mul", args, body.params, body.axes, body.kind)


def _using(
    table: Mapping[Node, Node], roots: Iterable[Node], but: Iterable[Node] = ()
) -> dict[Node, Node]:
    """The terms under `roots` with each masked node of `table` in place of its plain form; the
    nodes of `but` stay as they are, and so do readings at computed positions: what has positions
    of two forms is read twice."""
    roots = tuple(roots)
    given = {n: n for n in (*but, *(n for n in postorder(roots) if is_read(n) and n.args))}
    if not table or table.keys().isdisjoint(postorder(roots, given)):
        return {n: n for n in roots}
    kept = set(table.values())
    return rewrite(roots, lambda old, _: old if old in kept else table.get(old), given)


def _reused(table: Mapping[Node, Node], body: Node, axis: str) -> Node:
    """`body` with what is masked already, but within reductions along the axis: each of these has
    its own masks, and another may be wrong for it."""
    return _using(table, [body], [n for n in postorder([body]) if axis in over(n)])[body]


def _sound(roots: Iterable[Node], axis: str, known: Known) -> bool:
    """Whether padded lanes hold what every reduction and scan over `axis` under `roots` leaves
    out."""
    along = (n for n in postorder(roots) if axis in over(n) and n.op != "recurrence")
    return all(value_at(n.args[0], axis, known) == left_out(n) for n in along)
