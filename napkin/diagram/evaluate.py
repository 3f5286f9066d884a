"""The value of a diagram in numpy: what every kernel is compared with.

Real arrays are float64, integers int64. A reduction over an empty axis gives its identity (sum 0,
max -inf); softmax of a row that is all -inf gives weights 0; NaN in gives NaN out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from napkin.diagram.keys import slots
from napkin.diagram.keys.terms import member
from napkin.diagram.node import MOVES, Node, factors, in_kind, over
from napkin.diagram.operators import POINTWISE
from napkin.diagram.taking import gathered, table_of, taken_of
from napkin.diagram.types import LARGEST, NEAR

Array = np.ndarray[Any, Any]
_STORED = {"real": np.float64, "int": np.int64}


def needs(n: Node) -> tuple[Node, ...]:
    """What the value of a node is computed from."""
    # The sum of a product is one contraction: its full product is never formed.
    if n.op == "sum":
        return factors(n.args[0])
    if n.op == "keys":
        return (member(n),)
    if n.op in MOVES:
        return slots.bounds(n)
    if taken_of(n) is not None:
        return (table_of(n), *n.args)
    return n.args[:1] if n.op == "scatter" else n.args


def evaluate(
    roots: Sequence[Node],
    bind: Mapping[Node, Array],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    box: Mapping[str, range] | None = None,
) -> list[Array]:
    """The values of `roots` (without composites), each with its node's axes in order.

    `bind` gives the leaves' values (and may give any other node's). `box` names the part of an
    axis that the arrays hold, where it is not the whole; size leaves still give the whole.
    """
    values: dict[Node, Array] = dict(bind)
    held = {a: range(n) for a, n in sizes.items()} | dict(box or {})
    stack = [(r, False) for r in reversed(roots)]
    with np.errstate(all="ignore"):
        while stack:
            current, ready = stack.pop()
            if current in values:
                continue
            if ready:
                values[current] = _value(current, values, sizes, scalars or {}, held)
            else:
                stack.append((current, True))
                stack.extend((a, False) for a in needs(current))
    return [values[r] for r in roots]


def aligned(value: Array, axes: Sequence[str], target: Sequence[str]) -> Array:
    """`value` with axes `axes`, transposed and given length-1 axes to broadcast as `target`."""
    order = sorted(range(len(axes)), key=lambda i: target.index(axes[i]))
    held = {axes[i] for i in order}
    shape = iter(value.shape[i] for i in order)
    return np.transpose(value, order).reshape([next(shape) if a in held else 1 for a in target])


def aligned_to(
    value: Array, axes: Sequence[str], target: Sequence[str], held: Mapping[str, range]
) -> Array:
    """`value` as an array with every axis of `target`."""
    shape = [len(held[a]) for a in target]
    return np.broadcast_to(aligned(value, axes, target), shape)


def _value(
    n: Node,
    values: Mapping[Node, Array],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    held: Mapping[str, range],
) -> Array:
    op = n.op
    if op == "number":
        return np.asarray(n.params[0])
    if op == "size":
        return np.asarray(sizes[str(n.params[0])])
    if op == "scalar":
        return np.asarray(float(scalars[str(n.params[0])]))
    if op == "index":
        return np.asarray(held[n.axes[0]], dtype=np.int64)
    if op == "ones":
        return np.ones([len(held[a]) for a in n.axes], dtype=np.int64)
    if op == "listed":
        return np.asarray(n.params[0], dtype=np.int64)
    if op == "take" or taken_of(n) is not None:
        return gathered(n, values)
    if op in {"rename", "scatter"}:
        return values[n.args[0]]
    if op in MOVES:
        from napkin.diagram.keys import moved  # it aligns arrays as this module does

        move = moved.compressed if op == "compress" else moved.dispersed
        return move(n, values, held)
    if op == "keys":
        return aligned_to(values[member(n)], member(n).axes, n.axes, held)
    if op in POINTWISE:
        arrays = [aligned(values[a], a.axes, n.axes) for a in n.args]
        if n.kind != "bool" and op != "where":  # numpy computes on booleans in bits or in fp16
            arrays = [a.astype(np.int64) if a.dtype == bool else a for a in arrays]
        out = np.asarray(POINTWISE[op].numpy(np, *arrays))
        if op == "cast":
            return (out != 0) if n.kind == "bool" else out.astype(_STORED[n.kind])
        return np.broadcast_to(out, np.broadcast_shapes(*(a.shape for a in arrays)))
    if op == "sum":
        return _contraction(factors(n.args[0]), over(n), n.axes, values)
    where = tuple(n.args[0].axes.index(a) for a in over(n))
    value = values[n.args[0]]
    if op in {"max", "min"}:
        start = in_kind(float(str(n.params[1])), n.kind)
        if value.dtype == bool:
            value = value.astype(np.int64)
        reduce = np.max if op == "max" else np.min
        return np.asarray(reduce(value, axis=where, initial=start))
    if op == "prod":
        return np.asarray(np.prod(value, axis=where))
    if op == "cumsum":
        return np.cumsum(value, axis=where[0])
    if op == "sort":
        return np.sort(value, axis=where[0])
    raise AssertionError(f"no value for {n!r}")


def _contraction(
    parts: Iterable[Node],
    gone: tuple[str, ...],
    kept: tuple[str, ...],
    values: Mapping[Node, Array],
) -> Array:
    parts = tuple(parts)
    letters: dict[str, int] = {}
    operands: list[Any] = []
    for p in parts:
        value = values[p]
        if value.dtype == bool:
            value = value.astype(np.int64)
        operands += [value, [letters.setdefault(a, len(letters)) for a in p.axes]]
    if len(parts) == 1:  # exact pairwise summation instead of einsum's
        axes = tuple(parts[0].axes.index(a) for a in gone)
        return np.asarray(np.sum(operands[0], axis=axes))
    out = [letters[a] for a in kept]
    # An axis that was made longer than 52 names would not fit einsum's alphabet.
    numbers = all(values[p].dtype != object for p in parts)  # and no rational numbers
    return np.asarray(np.einsum(*operands, out, optimize=len(parts) > 1 and numbers))


def close_to(found: Array, wanted: Array, dtype: str = "") -> float:
    """Relative error by norm, ||found - wanted|| / ||wanted||; inf where special values differ.

    Args:
        dtype: the storage type of what was found; numbers past its largest are as good as that.
    """
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    if found.shape != wanted.shape:
        return math.inf
    if dtype in LARGEST:
        most = LARGEST[dtype]
        past = np.isfinite(wanted) & (np.abs(wanted) >= NEAR * most)
        found = np.where(past, np.clip(found, -most, most), found)
        wanted = np.where(past, np.clip(wanted, -most, most), wanted)
    special = ~np.isfinite(wanted)
    if not np.array_equal(found[special], wanted[special], equal_nan=True):
        return math.inf
    f, w = found[~special], wanted[~special]
    if not np.isfinite(f).all():
        return math.inf
    scale = float(np.linalg.norm(w))
    gap = float(np.linalg.norm(f - w))
    return gap / scale if scale else gap
