"""Random numbers of the user's language: functions of a seed and of positions.

They are terms like all others: nothing is stored, and whatever draws a number again draws the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from functools import reduce
from numbers import Integral, Real

from napkin.diagram.reductions import axes_of
from napkin.errors import InputError
from napkin.ir.array import Array, Operand, applied, lifted
from napkin.ir.infer import pointwise
from napkin.ir.node import INT32, Node, number
from napkin.ir.operators.randomness import BITS, mixed
from napkin.ir.selecting import position

_PLACE, _SEED = 0x3C6EF372, 0x9E3779B9 - 2**32
"""What positions and seeds are mixed with, so that the first ones are as random as others. With one
number for both, position i of seed s would draw as position s of seed i. These two differ in the
sign, so no seed and position from 0 on can be exchanged."""


def uniform(seed: Operand, along: str | Iterable[str]) -> Array:
    """Random numbers between 0 and 1, one for each position along axes; neither 0 nor 1.

    They are a hash of the seed and of the positions, along the axes in their order: 2^23 numbers,
    equally likely and exact in float32. Along other axes, woven ones among them, they repeat.

    Args:
        seed: a whole number, or an array of such: an input `():int` gives other numbers at each
            call of the same kernel.

    Raises:
        InputError: `seed` is no whole number, or `along` names no axis.
    """
    if isinstance(along, Set):
        raise InputError(
            f"along={along!r} has no order, and the numbers depend on it; write along='q x'"
        )
    axes = axes_of(along, "along")
    if not axes:
        raise InputError(
            "uniform names no axis; write along='...' with those that it differs along"
        )
    places = [_mixed(position(a), number(_PLACE)) for a in axes]
    bits = pointwise("high_bits", (reduce(_mixed, places, _key(seed)),))
    return Array(pointwise("fraction", (bits,)))


def _key(seed: Operand) -> Node:
    """A seed, as random as what follows."""
    if isinstance(seed, Array) and seed.node.kind == "int" and not seed.node.constant:
        return _mixed(seed.node, number(_SEED))
    if isinstance(seed, Integral) and seed is not True and seed is not False:
        value = int(seed)
        if value in INT32:  # as an input of that number
            return number(_number(value, _SEED))
        return number(_number(_number((value >> 32) % 2**32, _SEED), value % 2**32))
    raise InputError(
        f"seed={seed!r} is no whole number; write one, or an input of whole numbers, as in "
        "'q x, ():int -> q x'"
    )


def _number(a: int, b: int) -> int:
    import numpy as np

    with np.errstate(over="ignore"):
        return int(mixed(np, np.int64(a), np.int64(b)))


def _mixed(a: Node, b: Node) -> Node:
    return pointwise("mixed", (a, b))


def dropout(
    x: Operand, p: Operand, seed: Operand, along: str | Iterable[str] | None = None
) -> Array:
    """`x` times 0 with probability `p`, times 1 / (1 - p) otherwise: a NaN stays NaN, as in torch.

    Args:
        seed: a whole number, or an array of such, as in `uniform`.
        along: axes of `x`, in the order in which `uniform` takes them. It is drawn apart for each
            position along these, by default along all axes of `x` in the order that they have.

    Raises:
        InputError: `p` is a number outside of 0 to 1, `seed` is no whole number, or `along` names
            no axis, or one that `x` lacks.
    """
    body = Array(lifted(x))
    axes = body.axes if along is None else axes_of(along, "along")
    if missing := [a for a in axes if a not in body.axes]:
        raise InputError(
            f"dropout along {' '.join(axes)}: the array has no axis {missing[0]}; write some of "
            f"'{' '.join(body.axes)}'"
        )
    if isinstance(p, Real):
        if not 0 <= p <= 1:
            raise InputError(f"dropout p={p!r}: a probability is between 0 and 1")
        p = round(float(p) * 2**BITS) / 2**BITS  # as many numbers are below it in any precision
    else:
        p = Array(lifted(p))
    kept = 0.0 if isinstance(p, float) and p >= 1 else 1.0 / (1.0 - p)
    return body * applied("where", uniform(seed, axes) < p, 0.0, kept)
