"""Masks: what padded lanes of a tile hold, and where they must be told apart.

A tile may reach past the end of an axis. Loads put 0 there, so most sums need no mask; a reduction
needs one only where the value that its body has on padded lanes is not the reduction's identity.
Following that value through the term puts the fewest masks: in attention one, on the scores, and
exp(-inf - m) = 0 serves the sum and the product after it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from napkin.derive.kernel import is_read
from napkin.derive.terms import identity
from napkin.diagram.node import REDUCTIONS, SCANS, Node, factors, node, over, postorder, rewrite
from napkin.diagram.operators import POINTWISE


def mask(n: Node, axis: str, fill: float) -> Node:
    """`n`, with `fill` on the lanes past the end of `axis`."""
    return node("mask", (n,), (axis, fill), n.axes, n.kind)


def pad(n: Node, axis: str, known: dict[tuple[Node, str], float | None]) -> float | None:
    """The value of `n` on lanes past the end of `axis`, or None where it is not known."""
    key = (n, axis)
    if key not in known:
        known[key] = _pad(n, axis, known)
    return known[key]


def _pad(n: Node, axis: str, known: dict[tuple[Node, str], float | None]) -> float | None:
    if is_read(n):
        return 0.0
    if n.op == "number":
        return float(str(n.params[0])) if not isinstance(n.params[0], bool) else None
    if n.op == "ones":
        return 1.0
    if n.op == "mask" and n.params[0] == axis:
        return float(str(n.params[1]))
    if n.op in REDUCTIONS:  # over another axis
        inner = pad(n.args[0], axis, known)
        if n.op in {"max", "min"}:
            return inner
        return inner if inner == identity(n) else None
    if n.op == "mask":  # of another axis: its own padded lanes hold the fill
        inner = pad(n.args[0], axis, known)
        return inner if inner == n.params[1] else None
    if n.op not in POINTWISE:
        return None
    if n.op == "mul":
        within = [pad(p, axis, known) for p in factors(n) if axis in p.axes or p.op == "number"]
        if 0.0 in within and all(v is not None and math.isfinite(v) for v in within):
            return 0.0
    values = [
        pad(a, axis, known) if axis in a.axes or a.op == "number" else math.nan for a in n.args
    ]  # NaN stands for "some finite value"
    if n.op == "div" and values[0] == 0.0 and values[1] is not None and math.isnan(values[1]):
        return 0.0
    if n.op in {"add", "sub"} and values[0] == -math.inf and values[1] is not None:
        return -math.inf if values[1] != (-math.inf if n.op == "sub" else math.inf) else None
    if n.op == "where" and values[1] is not None and values[1] == values[2]:
        return values[1]
    if n.op == "where" or any(v is None or math.isnan(v) for v in values):
        return None
    with np.errstate(all="ignore"):
        found = float(POINTWISE[n.op].numpy(np, *(np.float64(v) for v in values if v is not None)))
    return None if math.isnan(found) else found


def masked(roots: Sequence[Node], axes: Iterable[str]) -> dict[Node, Node]:
    """`roots` with masks where padded lanes of the axes in `axes` would change a result."""
    known: dict[tuple[Node, str], float | None] = {}
    made: dict[str, dict[Node, Node]] = {a: {} for a in axes}

    def guard(body: Node, axis: str, fill: float) -> Node:
        if pad(body, axis, known) == fill:
            return body
        reused = _using(made[axis], [body])[body]
        if pad(reused, axis, known) == fill:
            return reused
        if fill == 0.0 and body.op == "mul":
            parted = _zeroed(body, axis, known)
            if pad(parted, axis, known) == fill:
                return parted
        wrapped = mask(body, axis, fill)
        if math.isinf(fill):
            made[axis][body] = wrapped
        return wrapped

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old.op not in REDUCTIONS and old.op not in SCANS:
            return None
        body = args[0]
        fill = math.inf if old.op == "sort" else 0.0
        if old.op in REDUCTIONS:
            fill = identity(old) if old.op not in {"max", "min"} else _worst(old.op)
        for axis in over(old):
            if axis in made and axis in body.axes:
                body = guard(body, axis, fill)
        return None if body is old.args[0] else _on(old, body)

    done = rewrite(roots, change)
    # Where the masked form serves every reader, the plain one need not be kept beside it.
    for axis, table in made.items():
        shared = _using(table, done.values())
        if all(_sound(shared[n], axis, known) for n in done.values()):
            done = {old: shared[new] for old, new in done.items()}
    return done


def _zeroed(body: Node, axis: str, known: dict[tuple[Node, str], float | None]) -> Node:
    """A matrix product with its operands masked: the product itself is a larger array, which
    `tl.dot` never holds. Other products stay as they are."""
    parts = [p for p in factors(body) if axis in p.axes]
    if any(set(p.axes) == set(body.axes) for p in parts):
        return body
    loose = {p for p in parts if (at := pad(p, axis, known)) is None or not math.isfinite(at)}
    if not loose and all(pad(p, axis, known) != 0.0 for p in parts):
        loose = {min(parts, key=lambda p: len(p.axes))}
    return _with_factors(body, {p: mask(p, axis, 0.0) for p in loose})


def _with_factors(body: Node, by: Mapping[Node, Node]) -> Node:
    if body.op != "mul":
        return by.get(body, body)
    args = tuple(_with_factors(a, by) for a in body.args)
    return node("mul", args, body.params, body.axes, body.kind)


def _using(table: Mapping[Node, Node], roots: Iterable[Node]) -> dict[Node, Node]:
    """The terms under `roots` with each masked node of `table` in place of its plain form."""
    kept = set(table.values())
    return rewrite(roots, lambda old, _: old if old in kept else table.get(old))


def _sound(root: Node, axis: str, known: dict[tuple[Node, str], float | None]) -> bool:
    return all(
        pad(n.args[0], axis, known) == (_worst(n.op) if n.op in {"max", "min"} else identity(n))
        for n in postorder([root])
        if n.op in REDUCTIONS and axis in over(n)
    )


def _worst(op: str) -> float:
    return -math.inf if op == "max" else math.inf


def _on(old: Node, body: Node) -> Node:
    return node(old.op, (body,), old.params, old.axes, old.kind)
