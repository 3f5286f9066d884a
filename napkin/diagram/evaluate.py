"""The value of a diagram in numpy: what every kernel is compared with.

Real arrays are float64, integers int64. A reduction over an empty axis gives its identity (sum 0,
max -inf); softmax of a row that is all -inf gives weights 0; NaN in gives NaN out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache, reduce
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

KEPT = 4096
"""Orders of evaluation that are kept: a loop evaluates the same terms for every chunk."""

FEW = 2**12
"""Terms of a sum of products up to which numpy adds them as they come."""


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
    return evaluate_more(roots, dict(bind), sizes, scalars, box)


def evaluate_more(
    roots: Sequence[Node],
    values: dict[Node, Array],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    box: Mapping[str, range] | None = None,
) -> list[Array]:
    """`evaluate` that adds all that it computes to `values`, which it begins from."""
    held = {a: range(n) for a, n in sizes.items()} | dict(box or {})
    with np.errstate(all="ignore"):
        for n in _order(tuple(roots), frozenset(values)):
            values[n] = _value(n, values, sizes, scalars or {}, held)
    return [values[r] for r in roots]


@lru_cache(maxsize=KEPT)
def _order(roots: tuple[Node, ...], bound: frozenset[Node]) -> tuple[Node, ...]:
    """The terms to evaluate, each after what it is computed from."""
    done, out = set(bound), list[Node]()
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        current, ready = stack.pop()
        if current in done:
            continue
        if ready:
            done.add(current)
            out.append(current)
        else:
            stack.append((current, True))
            stack.extend((a, False) for a in needs(current))
    return tuple(out)


def aligned(value: Array, axes: Sequence[str], target: Sequence[str]) -> Array:
    """`value` with axes `axes`, transposed and given length-1 axes to broadcast as `target`."""
    order, where = _fitting(tuple(axes), tuple(target))
    return value if where is None else np.transpose(value, order)[where]


@lru_cache(maxsize=KEPT)
def _fitting(
    axes: tuple[str, ...], target: tuple[str, ...]
) -> tuple[tuple[int, ...], tuple[slice | None, ...] | None]:
    """The order in which axes stand in `target`, and an index that adds those of length 1; no
    index where they are the same."""
    order = tuple(sorted(range(len(axes)), key=lambda i: target.index(axes[i])))
    where = tuple(slice(None) if a in axes else None for a in target)
    return order, None if axes == target else where


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
    if op in POINTWISE:
        return _pointwise(n, values)
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


def _pointwise(n: Node, values: Mapping[Node, Array]) -> Array:
    arrays = [aligned(values[a], a.axes, n.axes) for a in n.args]
    if n.kind != "bool" and n.op != "where":  # numpy computes on booleans in bits or in fp16
        arrays = [a.astype(np.int64) if a.dtype == bool else a for a in arrays]
    out = np.asarray(POINTWISE[n.op].numpy(np, *arrays))
    if n.op == "cast":
        return (out != 0) if n.kind == "bool" else out.astype(_STORED[n.kind])
    shapes = {a.shape for a in arrays}
    shape = next(iter(shapes)) if len(shapes) == 1 else np.broadcast_shapes(*shapes)
    if out.shape == shape and out.base is None and all(out is not a for a in arrays):
        return out
    return np.broadcast_to(out, shape)


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
    lengths = {a: k for p in parts for a, k in zip(p.axes, values[p].shape, strict=True)}
    optimize = numbers and math.prod(lengths.values()) > FEW
    if not optimize and numbers and not all(np.isfinite(x).all() for x in operands[::2]):
        # einsum takes a factor out of its inner loop, and inf * (1 - 1) is not inf - inf.
        axes = (*kept, *gone)
        product = reduce(np.multiply, (aligned(values[p], p.axes, axes) for p in parts))
        return np.asarray(np.sum(product, axis=tuple(range(len(kept), len(axes)))))
    if not optimize:  # numpy adds up in the order of memory
        operands[::2] = [np.asarray(x, order="C") for x in operands[::2]]
    return np.asarray(np.einsum(*operands, out, optimize=optimize))


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
