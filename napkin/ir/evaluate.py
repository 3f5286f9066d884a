"""The value of a diagram in numpy: what every kernel is compared with.

Real arrays are float64, integers int64. A reduction over an empty axis gives its identity (sum 0,
max -inf); softmax of a row that is all -inf gives weights 0; NaN in gives NaN out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from napkin.ir.node import Kind, Node, over
from napkin.ir.types import LARGEST, NEAR, STEP
from napkin.ir.walk import Library, Walk, order_of
from napkin.ir.walk import needs as needs

Array = np.ndarray[Any, Any]
STORED: dict[Kind, Any] = {"real": np.float64, "int": np.int64, "bool": np.bool_}

FEW = 2**12
"""Terms of a sum of products up to which numpy adds them as they come."""


class Numpy(Library):
    """numpy's arrays."""

    xp = np

    def constant(self, value: Any, whole: bool = False) -> Array:
        return np.asarray(value, dtype=np.int64 if whole else None)

    def ones(self, shape: Sequence[int]) -> Array:
        return np.ones(shape, dtype=np.int64)

    def positions(self, where: range) -> Array:
        return np.asarray(where, dtype=np.int64)

    def permuted(self, x: Array, order: Sequence[int]) -> Array:
        return x.transpose(order)

    def numbers(self, x: Array, kind: Kind) -> Array:
        # numpy computes on booleans in bits or in fp16.
        return x.astype(np.int64) if x.dtype == bool else x

    def cast(self, x: Array, kind: Kind) -> Array:
        return (x != 0) if kind == "bool" else x.astype(STORED[kind])

    def filled(self, value: float, like: Array) -> Array:
        return np.asarray(value, dtype=like.dtype)

    def expanded(self, x: Array, shape: Sequence[int]) -> Array:
        return np.broadcast_to(x, tuple(shape))

    def spread(self, x: Array, arrays: Sequence[Array]) -> Array:
        out, shape = np.asarray(x), np.broadcast(*arrays).shape
        if out.shape == shape and out.base is None and not any([out is a for a in arrays]):
            return out
        return np.broadcast_to(out, shape)

    def contraction(self, n: Node, parts: Sequence[Node], values: Mapping[Node, Array]) -> Array:
        letters: dict[str, int] = {}
        operands: list[Any] = []
        for p in parts:
            value = self.numbers(values[p], n.kind)
            operands += [value, [letters.setdefault(a, len(letters)) for a in p.axes]]
        if len(parts) == 1:  # exact pairwise summation instead of einsum's
            axes = tuple(parts[0].axes.index(a) for a in over(n))
            return np.asarray(np.sum(operands[0], axis=axes))
        out = [letters[a] for a in n.axes]
        # An axis that was made longer than 52 names would not fit einsum's alphabet.
        numbers = all(values[p].dtype != object for p in parts)  # and no rational numbers
        lengths = {a: k for p in parts for a, k in zip(p.axes, values[p].shape, strict=True)}
        optimize = numbers and math.prod(lengths.values()) > FEW
        if not optimize and numbers and not all(np.isfinite(x).all() for x in operands[::2]):
            # einsum takes a factor out of its inner loop, and inf * (1 - 1) is not inf - inf.
            axes = (*n.axes, *over(n))
            product = reduce(np.multiply, (self.aligned(values[p], p.axes, axes) for p in parts))
            return np.asarray(np.sum(product, axis=tuple(range(len(n.axes), len(axes)))))
        if not optimize:  # numpy adds up in the order of memory
            operands[::2] = [np.asarray(x, order="C") for x in operands[::2]]
        return np.asarray(np.einsum(*operands, out, optimize=optimize))

    def added(self, shape: Sequence[int], where: Sequence[Array], value: Array) -> Array:
        out = np.zeros(shape, dtype=value.dtype)
        if out.size:
            np.add.at(out, tuple(where), value)
        return out


_NUMPY = Numpy()
aligned = _NUMPY.aligned
"""An array with given axes, transposed and given length-1 axes to broadcast as others."""


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
        walk = Walk(_NUMPY, sizes, scalars or {}, held, values)
        for n in order_of(tuple(roots), frozenset(values)):
            values[n] = np.asarray(walk.value(n))
    return [values[r] for r in roots]


def aligned_to(
    value: Array, axes: Sequence[str], target: Sequence[str], held: Mapping[str, range]
) -> Array:
    """`value` as an array with every axis of `target`."""
    shape = [len(held[a]) for a in target]
    return np.broadcast_to(aligned(value, axes, target), shape)


def at_positions(
    n: Node, axes: Sequence[str], sizes: Mapping[str, int], box: Mapping[str, range] | None = None
) -> Array:
    """A term that reads no input, with every axis of `axes`; `box` as in `evaluate`."""
    (value,) = evaluate([n], {}, sizes, box=box)
    held = {a: range(k) for a, k in sizes.items()} | dict(box or {})
    return aligned_to(value, n.axes, axes, held)


def close_to(found: Array, wanted: Array, dtype: str = "") -> float:
    """Relative error by norm, ||found - wanted|| / ||wanted||; inf where special values differ.

    Args:
        dtype: the storage type of what was found; numbers past its largest are as good as that, and
            half its step near 0 is no error.
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
    gap = float(np.linalg.norm(np.maximum(np.abs(f - w) - STEP.get(dtype, 0.0) / 2, 0.0)))
    return gap / scale if scale else gap
