"""What is known of the signs of terms, by the records of their operators."""

from __future__ import annotations

from weakref import WeakKeyDictionary

from napkin.ir.node import REDUCTIONS, Node, landings
from napkin.ir.operators.record import POINTWISE, Sign

_SIGNS: WeakKeyDictionary[Node, Sign] = WeakKeyDictionary()


def sign(n: Node) -> Sign:
    """What is known of the sign of every value of `n` that is finite and computed of such values:
    "positive" may be divided by, so that nothing is that which is 0 of a masked score or cast."""
    for deep in landings([n], _SIGNS):
        _SIGNS[deep] = _sign(deep)
    if n not in _SIGNS:
        _SIGNS[n] = _sign(n)
    return _SIGNS[n]


def _sign(n: Node) -> Sign:
    if n.op in {"size", "ones"}:
        return "positive"
    if n.op in {"index", "corner"} or n.kind == "bool":
        return "nonnegative"
    if n.op == "number":
        value = float(str(n.params[0])) if not isinstance(n.params[0], bool) else 0.0
        return "positive" if value > 0 else "nonnegative" if value == 0 else ""
    if n.op in POINTWISE:
        return POINTWISE[n.op].sign(n, *map(sign, n.args))
    if n.op in REDUCTIONS:
        return REDUCTIONS[n.op].sign(sign(n.args[0]))
    return sign(n.args[0]) if n.op == "rename" else ""
