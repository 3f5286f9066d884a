"""Attention, seen in a diagram: which inputs are queries, keys and values, and which keys count.

Libraries have calls for softmax(scale * Q K^T) V with heads in front. This finds that form in any
diagram that has it, however its axes are called and woven, so that such a call can be timed beside
the plan; what has another form is told in words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from napkin.diagram.diagram import Diagram
from napkin.ir.infer import parts_of
from napkin.ir.key_sets import query_axes, spec_of
from napkin.ir.node import Node, factors, number, over, postorder

AGAINST = ("torch", "compile", "sdpa", "flex", "fa3", "natten")
"""Baselines, by the names that --against takes (`napkin.measure.baselines`)."""


class NotAttention(Exception):
    """The diagram has another form; the message says which."""


@dataclass(frozen=True)
class Attention:
    """A diagram that is attention.

    Attributes:
        query, key, value: places among the diagram's inputs, and the axes as they are read.
        batch: axes of all three arrays; each position is a head of keys.
        shared: axes of queries alone whose positions share keys (grouped-query attention).
        queries, keys: the axes of positions.
        depth, width: the axis of a query's values, and of a value's.
        scores: the scores as a term; `dot` in it stands for the product of query and key.
        seen: the key set's node, or None where every query sees every key.
    """

    query: tuple[int, tuple[str, ...]]
    key: tuple[int, tuple[str, ...]]
    value: tuple[int, tuple[str, ...]]
    out: tuple[str, ...]
    batch: tuple[str, ...]
    shared: tuple[str, ...]
    queries: tuple[str, ...]
    keys: tuple[str, ...]
    depth: str
    width: str
    scores: Node
    dot: Node
    seen: Node | None

    def scale(self, sizes: Mapping[str, int]) -> float | None:
        """The factor of the scores, or None where they are more than a product scaled."""
        out = 1.0
        for f in factors(self.scores):
            if f is self.dot:
                continue
            if not f.constant:
                return None
            out *= constant(f, sizes)
        return out if self.dot in factors(self.scores) else None


def constant(n: Node, sizes: Mapping[str, int]) -> float:
    """The value of a term of numbers and sizes.

    Raises:
        NotAttention: a scalar of the user is in it.
    """
    import numpy as np

    from napkin.ir.evaluate import evaluate

    free = all(m.op != "scalar" for m in postorder([n]))
    _hold(free, "the scale of the scores is a scalar of the user")
    return float(np.asarray(evaluate([n], {}, sizes)[0]))


def attention_of(diagram: Diagram) -> Attention:
    """The diagram as attention.

    Raises:
        NotAttention: it is something else; the message says what.
    """
    _hold(len(diagram.outputs) == 1, f"it has {len(diagram.outputs)} outputs")
    (output,) = diagram.outputs
    weights, value = _product(output.node, "softmax")
    parts = parts_of(weights, weights.args)
    _hold(len(parts) == 1, "its softmax goes over several arrays")
    ((body, keys),) = parts
    same = set(keys) == set(over(output.node))
    _hold(same, "what is summed is not what the softmax goes over")
    seen, scores = _masked(body)
    dots = [n for n in postorder([scores]) if n.op == "sum"]
    _hold(len(dots) == 1, f"its scores have {len(dots)} products of queries and keys")
    (dot,) = dots
    beside = {*postorder([scores])} - {*postorder([dot])}
    _hold(all(n.op != "input" for n in beside), "something is added to its scores")
    both = factors(dot.args[0])
    one = len(both) == 2 and len(over(dot)) == 1
    _hold(one, "its scores are no product of two arrays over one axis")
    key, query = sorted(both, key=lambda n: not set(keys) <= set(n.axes))
    apart = set(keys) <= set(key.axes) and set(keys).isdisjoint(query.axes)
    _hold(apart, "its scores are no product of queries and keys")
    (depth,) = over(dot)
    batch = tuple(a for a in query.axes if a in key.axes and a != depth)
    ours = [a for a in query.axes if a not in batch and a != depth]
    queries = _queries(ours, seen)
    shared = tuple(a for a in ours if a not in queries)
    widths = [a for a in value.axes if a not in (*batch, *keys, *ours)]
    for what, have, need in (
        ("the keys", key.axes, {*batch, *keys, depth}),
        ("the values", value.axes, {*batch, *keys, *widths[:1]}),
        ("the result", output.axes, {*batch, *shared, *queries, *widths[:1]}),
    ):
        more = " ".join(sorted(need ^ {*have}))
        _hold(not more, f"{what} and the others do not share the axes {more}")
    _hold(bool(widths), "its values have no axis of their own")
    return Attention(
        _place(diagram, query), _place(diagram, key), _place(diagram, value), output.axes,
        batch, shared, queries, tuple(keys), depth, widths[0], scores, dot, seen,
    )  # fmt: skip


def _hold(holds: bool, otherwise: str) -> None:
    """Say why a diagram is something else where a condition fails."""
    if not holds:
        raise NotAttention(otherwise)


def _product(n: Node, op: str) -> tuple[Node, Node]:
    """The two factors of a sum of products, the one made by `op` first."""
    both = factors(n.args[0]) if n.op == "sum" else ()
    one = len(both) == 2 and sum(f.op == op for f in both) == 1
    _hold(one, f"its result is no sum of a {op} times an array")
    first, second = sorted(both, key=lambda f: f.op != op)
    return first, second


def _masked(body: Node) -> tuple[Node | None, Node]:
    """The key set of a softmax's scores, and the scores."""
    if body.op == "where" and body.args[0].op == "keys" and body.args[2] is number(-math.inf):
        return body.args[0], body.args[1]
    return None, body


def _queries(ours: list[str], seen: Node | None) -> tuple[str, ...]:
    """The axes of query positions: those that a key set asks for, or the last one."""
    if seen is None:
        return tuple(ours[-1:])
    asked = {*query_axes(seen), *(q for q, _ in spec_of(seen).tied)}
    return tuple(a for a in ours if a in asked) or tuple(ours[-1:])


def _place(diagram: Diagram, n: Node) -> tuple[int, tuple[str, ...]]:
    """Which input an array is, under the axis names that it is read by."""
    axes = n.axes
    while n.op == "rename":
        n = n.args[0]
    _hold(n.op == "input", "its queries, keys or values are computed")
    return diagram.input_names.index(str(n.params[0])), axes
