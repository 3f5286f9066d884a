"""What a term is where part of it is known: past the end of an axis, or outside a key set.

Past the end of an axis, loads give 0. Outside a key set, the set's node is False and all else is
some finite value. Following what is known through a term says where a reduction needs no mask, and
which chunks of a streamed axis need no visit at all.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np

from napkin.derive.meaning import sign
from napkin.derive.terms import identity, is_read
from napkin.diagram.keys.slots import guard
from napkin.diagram.node import REDUCTIONS, Node, factors, landings, over, postorder
from napkin.diagram.operators import POINTWISE

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
        return float(str(n.params[1]))
    if n.op in REDUCTIONS:  # over another axis
        inner = _found_at(n.args[0], where, known)
        if n.op in {"max", "min"}:
            return inner
        return inner if inner == identity(n) else None
    if n.op == "mask":  # of another axis: its own padded lanes hold the fill
        inner = _found_at(n.args[0], where, known)
        return inner if inner == n.params[1] else None
    if n.op not in POINTWISE:
        return None
    return _pointwise(n, where, known)


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
        if len(scaled) == 1 and plain and all(sign(p) == "positive" for p in others):
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
    with np.errstate(all="ignore"):
        found = float(POINTWISE[n.op].numpy(np, *(np.float64(v) for v in values if v is not None)))
    return None if math.isnan(found) else found


def vanishes(n: Node, where: Where, known: Known) -> bool:
    """Whether a reduction's body is its identity there, so that these positions do not count."""
    fill = identity(n)
    if n.op in {"max", "min"}:  # what it starts from may be less than the least value
        fill = -math.inf if n.op == "max" else math.inf
    return value_at(n.args[0], where, known) == fill


def reductions_along(n: Node, axes: set[str]) -> list[Node]:
    """The reductions under `n` that work along one of `axes`."""
    return [m for m in postorder([n]) if m.op in REDUCTIONS and axes & set(over(m))]
