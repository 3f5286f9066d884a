"""What a term is where part of it is known: past the end of an axis, or outside a key set.

Past the end of an axis, loads give 0. Outside a key set, the set's node is False and all else is
some finite value. Following what is known through a term says where a reduction needs no mask, and
which chunks of a streamed axis need no visit at all.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from napkin.derive.meaning import sign
from napkin.derive.terms import identity, is_read
from napkin.ir.node import (
    INT32,
    REDUCTIONS,
    SCANS,
    Node,
    factors,
    in_kind,
    landings,
    over,
    postorder,
)
from napkin.ir.operators import POINTWISE
from napkin.ir.slotted import guard

Where: TypeAlias = "str | Node"
"""Past the end of the axis of this name, or outside the key set of this node."""

Known = dict[tuple[Node, Where], "float | None"]

ANY = math.nan
"""Some finite value."""


def value_at(n: Node, where: Where, known: Known) -> float | None:
    """The value of `n` there, `ANY` if it is some finite value, or None if nothing is known."""
    for deep in landings([n]):
        _found_at(deep, where, known)
    return _found_at(n, where, known)


def _found_at(n: Node, where: Where, known: Known) -> float | None:
    key = (n, where)
    if key not in known:
        known[key] = _value(n, where, known)
    return known[key]


def depends(n: Node, where: Where) -> bool:
    """Whether `n` is another value there than elsewhere."""
    if isinstance(where, str):
        return where in n.axes
    return any(m is where for m in postorder([n]))


def _value(n: Node, where: Where, known: Known) -> float | None:
    if n is where:
        return 0.0
    if is_read(n):
        return 0.0 if isinstance(where, str) or guard(n) is where else ANY
    if n.op == "number":
        return float(str(n.params[0])) if not isinstance(n.params[0], bool) else None
    if n.op == "ones":
        return 1.0
    if n.op == "mask" and n.params[0] == where:
        return in_kind(float(str(n.params[1])), n.kind)
    if n.op in REDUCTIONS:  # over another axis
        return _reduced(n, _found_at(n.args[0], where, known))
    if n.op == "mask":  # of another axis: its own padded lanes hold the fill
        inner = _found_at(n.args[0], where, known)
        return inner if inner == in_kind(float(str(n.params[1])), n.kind) else None
    if n.op not in POINTWISE:
        return None
    return _held(n, _pointwise(n, where, known))


def _reduced(n: Node, inner: float | None) -> float | None:
    """A reduction over positions that all hold `inner`, or over none."""
    order = REDUCTIONS[n.op].order
    if not order:
        return inner if inner == identity(n) else None
    start = in_kind(identity(n), n.kind)
    if inner is None or math.isnan(inner):
        return inner
    return max(inner, start) if order == "max" else min(inner, start)


def _held(n: Node, found: float | None) -> float | None:
    """A value as a kernel holds it, in float32 or int32; None where that is not certain."""
    if found is None or math.isnan(found) or n.kind == "bool":
        return found
    if n.kind == "int":
        return found if INT32[0] <= found <= INT32[-1] else None  # whole numbers wrap
    with np.errstate(over="ignore"):
        return float(np.float32(found))


def _pointwise(n: Node, where: Where, known: Known) -> float | None:
    def at(a: Node) -> float | None:
        return _found_at(a, where, known) if depends(a, where) or a.op == "number" else ANY

    if n.op == "mul":
        within = [at(p) for p in factors(n) if depends(p, where) or p.op == "number"]
        if 0.0 in within and all(v is not None and math.isfinite(v) for v in within):
            return 0.0
        scaled = [v for v in within if v is not None and math.isinf(v)]
        others = [p for p in factors(n) if not depends(p, where) and p.op != "number"]
        plain = all(v is not None and v > 0 for v in within if v not in scaled)
        # What is positive in mathematics may underflow to 0, but what is known before a launch.
        if len(scaled) == 1 and plain and all(p.constant and sign(p) == "positive" for p in others):
            return scaled[0]
    values = [at(a) for a in n.args]
    if n.op == "div" and values[0] == 0.0 and values[1] is not None and math.isnan(values[1]):
        return 0.0
    if n.op in {"add", "sub"} and values[0] == -math.inf and values[1] is not None:
        return -math.inf if values[1] != (-math.inf if n.op == "sub" else math.inf) else None
    if n.op == "where":
        if n.args[0] is where:
            return values[2]
        return values[1] if values[1] is not None and values[1] == values[2] else None
    if any(v is None or math.isnan(v) for v in values):
        return None
    return _computed(n, [v for v in values if v is not None])


def _computed(n: Node, values: Sequence[float]) -> float | None:
    """A pointwise operator of known values, where a kernel computes the same."""
    if n.op == "cast":
        kept = n.kind == "real" and n.params[0] != "fp8" and math.isinf(values[0])
        return values[0] if kept or values[0] in {0.0, 1.0} else None  # what every type holds
    if n.op in {"floordiv", "mod"} and values[1] == 0.0:
        return None
    if n.op == "pow" and n.args[1].kind == "real" and (values[0] < 0 or values[1] == 0.0):
        return None  # by logarithms
    record = POINTWISE[n.op]
    if record.definition and any(map(math.isinf, values)):  # its text may say otherwise there
        return None
    with np.errstate(all="ignore"):
        found = float(record.evaluate(np, *map(np.float64, values)))
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


def reductions_along(n: Node, axes: set[str]) -> list[Node]:
    """The reductions under `n` that work along one of `axes`."""
    return [m for m in postorder([n]) if m.op in REDUCTIONS and axes & set(over(m))]
