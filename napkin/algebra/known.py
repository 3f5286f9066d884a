"""Constant propagation: what a term is past the end of an axis, or outside a key set.

Past the end of an axis, loads give 0. Outside a key set, the set's node is False. Followed through
a term, these constants say where a reduction needs no mask, and which chunks of a streamed axis
need no visit at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias, TypeGuard

import numpy as np

from napkin.algebra.signs import sign
from napkin.algebra.terms import identity, is_read
from napkin.ir.key_sets import spec_of
from napkin.ir.node import (
    INT32,
    REDUCTIONS,
    SCANS,
    Node,
    factors,
    in_kind,
    landings,
    postorder,
)
from napkin.ir.operators import POINTWISE
from napkin.ir.slotted import guard

Where: TypeAlias = "str | Node"
"""Past the end of the axis of this name, or outside the key set of this node."""

Value: TypeAlias = "float | None"
"""A constant; `ANY`, which is some finite number; or None, where nothing is known."""

Known = dict[tuple[Node, Where], Value]
"""The values found so far."""

ANY = math.nan


def value_at(n: Node, where: Where, known: Known) -> Value:
    """The value of `n` there; `known` is added to."""
    for deep in landings([n]):  # first, so that no recursion is deep
        _found_at(deep, where, known)
    return _found_at(n, where, known)


def _found_at(n: Node, where: Where, known: Known) -> Value:
    key = (n, where)
    if key not in known:
        known[key] = _value(n, where, known)
    return known[key]


def depends(n: Node, where: Where) -> bool:
    """Whether `n` is another value there than elsewhere."""
    if isinstance(where, str):
        return where in n.axes
    return any(m is where for m in postorder([n]))


def _is_constant(found: Value) -> TypeGuard[float]:
    return found is not None and not math.isnan(found)


def _has_constants(n: Node, where: Where) -> bool:
    return depends(n, where) or n.op == "number"


def _value(n: Node, where: Where, known: Known) -> Value:
    if n is where:
        return 0.0
    if is_read(n):
        return 0.0 if isinstance(where, str) or guard(n) is where else ANY
    if n.op == "number":
        return None if isinstance(n.params[0], bool) else float(str(n.params[0]))
    if n.op == "ones":
        return 1.0
    if n.op == "mask":  # of another axis: some lanes hold the fill, others the argument
        axis, fill = n.params[0], in_kind(float(str(n.params[1])), n.kind)
        return fill if axis == where or _found_at(n.args[0], where, known) == fill else None
    if n.op in REDUCTIONS:  # over another axis
        return _reduced(n, _found_at(n.args[0], where, known))
    return _held(n, _pointwise(n, where, known)) if n.op in POINTWISE else None


def _reduced(n: Node, inner: Value) -> Value:
    """A reduction over positions that all hold `inner`, or over none."""
    order = REDUCTIONS[n.op].order
    if not order:
        return inner if inner == identity(n) else None
    if not _is_constant(inner):
        return inner
    return {"max": max, "min": min}[order](inner, in_kind(identity(n), n.kind))


def _held(n: Node, found: Value) -> Value:
    """A value as a kernel holds it, in float32 or int32; None where that is not certain."""
    if not _is_constant(found) or n.kind == "bool":
        return found
    if n.kind == "int":
        return found if INT32[0] <= found <= INT32[-1] else None  # whole numbers wrap
    with np.errstate(over="ignore"):
        return float(np.float32(found))


def _pointwise(n: Node, where: Where, known: Known) -> Value:
    if n.op == "mul" and (product := _product(n, where, known)) is not None:
        return product
    values = [_found_at(a, where, known) if _has_constants(a, where) else ANY for a in n.args]
    if n.op == "where" and n.args[0] is where:
        return values[2]
    if n.op == "where":
        return values[1] if values[1] == values[2] else None
    if None in values:
        return None
    constants, record = [v for v in values if _is_constant(v)], POINTWISE[n.op]
    if len(constants) == len(values):
        return _computed(n, constants) if record.certain(n, *constants) else None
    if record.pole and not isinstance(where, str):
        # Past the keys of a visit an array along them is 0, and 0 / 0 is no number.
        keys = set(spec_of(where).keys)
        if any(keys & set(a.axes) for a in n.args[1:]):
            return None
    return values[0] if values[0] == record.absorbing else None


def _product(n: Node, where: Where, known: Known) -> Value:
    """A product of a 0, or of an infinity that the other factors do not change; else None. Past
    the end of an axis, any number that is read counts as a finite one."""
    parts = factors(n)
    values = [_found_at(p, where, known) for p in parts if _has_constants(p, where)]
    endless = math.isinf if isinstance(where, str) else _not_finite
    if 0.0 in values and not any(v is None or endless(v) for v in values):
        return 0.0
    infinite = [v for v in values if v is not None and math.isinf(v)]
    if len(infinite) != 1 or any(v is None or not v > 0 for v in values if v not in infinite):
        return None
    # What is positive in mathematics may underflow to 0, but what is known before a launch.
    others = (p for p in parts if not _has_constants(p, where))
    return infinite[0] if all(p.constant and sign(p) == "positive" for p in others) else None


def _not_finite(v: float) -> bool:
    return not math.isfinite(v)


def _computed(n: Node, values: Sequence[float]) -> Value:
    """A pointwise operator of constants."""
    with np.errstate(all="ignore"):
        found = float(POINTWISE[n.op].evaluate(np, *map(np.float64, values)))
    return None if math.isnan(found) else found


def left_out(n: Node) -> float:
    """What a position holds that a reduction or a scan along its axis leaves out: with it the
    result is the same as without the position."""
    if n.op in SCANS:
        return in_kind(math.inf if n.op == "sort" else 0.0, n.args[0].kind)
    # An extremum may start from less than its least value.
    return in_kind(REDUCTIONS[n.op].identity, n.args[0].kind)


def vanishes(n: Node, where: Where, known: Known) -> bool:
    """Whether a reduction's body is its identity there, so that these positions do not count."""
    return value_at(n.args[0], where, known) == left_out(n)
