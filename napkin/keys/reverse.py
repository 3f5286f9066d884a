"""Which queries see a key: what a sum over queries, as in a backward pass, runs over.

Near borders this is not the mirrored window: of 7 tokens with windows of 3, query 0 sees key 2, and
query 2 does not see key 0.
"""

from __future__ import annotations

from napkin.ir.infer import pointwise
from napkin.ir.key_sets import Box, Interval, position
from napkin.ir.node import Node, number
from napkin.ir.whole_numbers import length, lesser, over, plus, times
from napkin.keys.axes import axes_of
from napkin.keys.keyset import KeySet
from napkin.keys.neighbors import PerAxis, PerAxisFlag, Window, needs_of, placed, shown, windows


def queries_of(
    kernel_size: PerAxis,
    stride: PerAxis = 1,
    dilation: PerAxis = 1,
    is_causal: PerAxisFlag = False,
    *,
    queries: str | None = None,
    keys: str | None = None,
) -> KeySet:
    """The transpose of `neighborhood` with the same parameters: the queries that see each key.

    The keys are what the set's `query_axes` name, the queries are its `key_axes`: one box, which
    within each dilation group is a contiguous run on every axis.

    Raises:
        InputError: a parameter is out of range, or their lengths differ.
    """
    dims = next((len(a.split()) for a in (keys, queries) if a is not None), None)
    each = windows(kernel_size, stride, dilation, is_causal, dims, "queries_of")
    text = f"queries_of({shown(each)})"
    theirs, ours = axes_of(queries, keys, len(each), text)
    intervals = tuple(
        _seeing(position(x), length(q), w) for q, x, w in zip(theirs, ours, each, strict=True)
    )
    return KeySet(text, ours, theirs, (Box(intervals),), True, needs_of(theirs, each))


def _seeing(j: Node, size: Node, w: Window) -> Interval:
    """The queries that see key j along one axis."""
    k, s = w.kernel_size, w.stride
    at = placed(j, size, w.dilation)
    inner = plus(at.group, -k)
    if w.is_causal:
        late = pointwise("greater_equal", (at.place, inner))
        blocks = pointwise("add", (over(plus(at.place, k), s), late))
        return at.tokens(at.place, lesser(times(blocks, s), at.group))
    # Queries of one stride block have one window, so a run ends where a block does.
    ahead = s - s // 2
    first = times(over(plus(at.place, ahead - 1 - (k - 1) // 2), s), s)
    end = times(over(plus(at.place, ahead + k // 2), s), s)
    early = pointwise("less", (at.place, number(k)))
    late = pointwise("greater_equal", (at.place, inner))
    return at.tokens(
        pointwise("where", (early, number(0), first)),
        pointwise("where", (late, at.group, end)),
    )
