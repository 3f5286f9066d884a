"""The patterns of the sparse-attention literature as key sets: each says its interval per axis.

A pattern without axis names takes them where it is attached. `at` says where a query lies among
the keys, where the two do not share one layout (cross attention); by default it is the query's own
position.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import cast

from napkin.errors import InputError
from napkin.ir.array import Array, Operand, lifted
from napkin.ir.infer import pointwise
from napkin.ir.key_sets import MAX_BOXES, Box, Interval, bounds_of
from napkin.ir.node import Node, node, number, postorder
from napkin.ir.taking import take
from napkin.ir.whole_numbers import (
    FARTHEST,
    flag,
    greater,
    length,
    lesser,
    modulo,
    over,
    plus,
    times,
    whole,
)
from napkin.keys.axes import axes_of, place_of
from napkin.keys.keyset import KeySet, ending_within

Axes = str | None
At = Array | None

_MOVING = frozenset({"add", "sub", "mul", "minimum", "maximum"})


def _past(i: Node, right: int, size: Node) -> Node:
    """One past key i + right, within the axis; a query's own place always lies there."""
    end = plus(i, right + 1)
    return end if i.op == "index" and right == 0 else lesser(end, size)


def _within(interval: Interval, size: Node) -> Interval:
    """The same keys with bounds inside the axis, wherever the query lies."""
    first = interval.first
    clipped = first.op == "maximum" and number(0) in first.args
    if interval.step == 1 and first.op != "number" and not clipped:
        first = greater(first, number(0))
    return ending_within(replace(interval, first=first), size)


def _flat(
    text: str,
    queries: Axes,
    keys: Axes,
    at: At,
    bounds: Callable[[Node, Node], Sequence[Interval]],
    most: int | None = None,
) -> KeySet:
    """A set over one key axis from its intervals, given the query's place and the axis's size, of
    which a query sees `most` keys."""
    (q,), (x,) = axes_of(queries, keys, 1, text)
    if at is not None and queries is None:
        raise InputError(f"{text}: at=... names axes of the diagram; name queries and keys, too")
    intervals = bounds(place_of(at, q, text), length(x))
    if at is not None:
        intervals = [_within(i, length(x)) for i in intervals]
    boxes = tuple(Box((i,)) for i in intervals)
    moves = (n.args for n in postorder(bounds_of(boxes)) if n.op in _MOVING)
    for by in (cast(float, a.params[0]) for args in moves for a in args if a.op == "number"):
        if abs(by) > FARTHEST:
            raise InputError(
                f"{text}: a position beside {by} may leave int32; 2**30 is past every key, so "
                "write less"
            )
    return KeySet(text, (q,), (x,), boxes, at is None, most=(most,))


def _window(left: int, right: int, step: int = 1) -> Callable[[Node, Node], Sequence[Interval]]:
    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        end = _past(i, right * step, size)
        if step == 1:
            return [Interval(greater(plus(i, -left), number(0)), end)]
        # Not before the axis: the first key of the same residue.
        back = lesser(over(i, step), number(left))
        first = pointwise("sub", (i, times(back, step)))
        return [Interval(first, end, step)]

    return bounds


def key_set(
    text: str,
    runs: Callable[[Array, Array], Sequence[tuple[Operand, ...]]],
    queries: Axes = None,
    keys: Axes = None,
    at: At = None,
) -> KeySet:
    """A pattern of one's own over one key axis.

    Args:
        text: the set in words, for listings and messages.
        runs: given the place of a query and the number of keys, the runs of keys that the query
            sees: pairs (first, end), or (first, end, step) for every `step`-th key. Bounds are
            whole numbers, and those outside the axis are moved into it.

    Raises:
        InputError: a run is no such pair, or a bound is no whole number.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"key_set {text!r}: the first argument says in words what the set is")
    if not callable(runs):  # pyright: ignore[reportUnnecessaryComparison]
        raise InputError(f"{text}: {runs!r} is no function; write lambda i, size: [(0, i + 1)]")

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        made = runs(Array(i), Array(size))
        if not isinstance(made, Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InputError(f"{text}: {made!r} is no list of runs; write [(0, i + 1)]")
        found = [_run(text, run, size) for run in made]
        if not found:
            raise InputError(f"{text}: there is no run of keys; write one, such as (0, i + 1)")
        return found

    return _flat(text, queries, keys, at, bounds)


def _run(text: str, run: tuple[Operand, ...], size: Node) -> Interval:
    if not isinstance(run, tuple) or len(run) not in {2, 3}:  # pyright: ignore
        raise InputError(f"{text}: {run!r} is no run of keys; write (first, end) or with a step")
    first, end = (lifted(x) for x in run[:2])
    step = whole(run[2], f"{text}: step", 1) if len(run) == 3 else 1
    if {first.kind, end.kind} != {"int"}:
        raise InputError(f"{text}: bounds are whole numbers; write // for a quotient of positions")
    if step > 1:  # the first key of the same residue that is not before the axis
        first = greater(first, modulo(first, step))
    return _within(Interval(first, end, step), size)


def causal(queries: Axes = None, keys: Axes = None, at: At = None) -> KeySet:
    """Keys 0..i of query i."""

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        return [Interval(number(0), _past(i, 0, size))]

    return _flat("causal", queries, keys, at, bounds)


def sliding(
    left: int, right: int = 0, queries: Axes = None, keys: Axes = None, at: At = None
) -> KeySet:
    """Keys i-left..i+right of query i, clipped to the axis.

    A causal window of w keys (Mistral) is `sliding(w - 1, 0)`; Longformer's is `sliding(w, w)`.
    """
    left, right = whole(left, "sliding: left"), whole(right, "sliding: right")
    text, bounds = f"sliding({left}, {right})", _window(left, right)
    return _flat(text, queries, keys, at, bounds, left + right + 1)


def dilated(
    left: int,
    right: int = 0,
    step: int = 2,
    queries: Axes = None,
    keys: Axes = None,
    at: At = None,
) -> KeySet:
    """Keys i-left*step..i+right*step in steps of `step`, clipped to the axis."""
    left, right = whole(left, "dilated: left"), whole(right, "dilated: right")
    step = whole(step, "dilated: step", 1)
    text = f"dilated({left}, {right}, step={step})"
    return _flat(text, queries, keys, at, _window(left, right, step), left + right + 1)


def strided(
    stride: int, queries: Axes = None, keys: Axes = None, at: At = None, *, local: bool = True
) -> KeySet:
    """The last `stride` keys, and every key a multiple of `stride` back (Sparse Transformer,
    arXiv 1904.10509, strided attention); causal.

    Args:
        local: whether the last `stride` keys belong to it; where heads of their own see those, not.
    """
    stride, local = whole(stride, "strided: stride", 1), flag(local, "strided: local")

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        end = _past(i, 0, size)
        near = Interval(greater(plus(i, 1 - stride), number(0)), end)
        if stride == 1:
            return [Interval(number(0), end)]
        back = Interval(pointwise("mod", (i, number(stride))), end, stride)
        return [near, back] if local else [back]

    text = f"strided({stride})" if local else f"strided({stride}, local=False)"
    return _flat(text, queries, keys, at, bounds)


def fixed(
    block: int, columns: int, queries: Axes = None, keys: Axes = None, at: At = None
) -> KeySet:
    """The query's own block so far, and the last `columns` keys of every block before it (Sparse
    Transformer, arXiv 1904.10509, fixed attention); causal."""
    block = whole(block, "fixed: block", 1)
    columns = whole(columns, "fixed: columns", 1)
    if columns > block:
        raise InputError(f"fixed: columns={columns} exceed the block of {block}")

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        start = times(over(i, block), block)
        start = lesser(start, size)
        before = (Interval(number(block - c), start, block) for c in range(columns, 0, -1))
        return [Interval(start, _past(i, 0, size)), *before]

    return _flat(f"fixed({block}, {columns})", queries, keys, at, bounds)


def blocked(
    block: int,
    before: int = 0,
    after: int = 0,
    queries: Axes = None,
    keys: Axes = None,
    at: At = None,
) -> KeySet:
    """The query's own block of keys, with `before` blocks before it and `after` behind it."""
    block = whole(block, "blocked: block", 1)
    before, after = whole(before, "blocked: before"), whole(after, "blocked: after")

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        own = times(over(i, block), block)
        first, end = plus(own, -before * block), lesser(plus(own, (after + 1) * block), size)
        first = greater(first, number(0)) if before else lesser(first, size)
        return [Interval(first, end)]

    text, most = f"blocked({block}, {before}, {after})", (before + after + 1) * block
    return _flat(text, queries, keys, at, bounds, most)


def sinks(count: int, queries: Axes = None, keys: Axes = None, at: At = None) -> KeySet:
    """The first `count` keys (StreamingLLM, arXiv 2309.17453)."""
    count = whole(count, "sinks: count", 1)

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        return [Interval(number(0), lesser(size, number(count)))]

    return _flat(f"sinks({count})", queries, keys, at, bounds, count)


def global_tokens(count: int, queries: Axes = None, keys: Axes = None, at: At = None) -> KeySet:
    """The first `count` tokens are seen by all and see all (Longformer, arXiv 2004.05150)."""
    count = whole(count, "global_tokens: count", 1)

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        first = pointwise("less", (i, number(count)))
        end = pointwise("where", (first, size, lesser(size, number(count))))
        return [Interval(number(0), end)]

    return _flat(f"global_tokens({count})", queries, keys, at, bounds)


def bigbird(
    block: int,
    window: int,
    globals_: int,
    blocks: Sequence[Array | Sequence[int]],
    queries: Axes = None,
    keys: Axes = None,
) -> KeySet:
    """Global blocks, a window of blocks, and random blocks (BigBird, arXiv 2007.14062).

    Args:
        block: the tokens of a block.
        window: the blocks on each side of the query's own that it sees.
        globals_: the blocks at the start that all see and that see all.
        blocks: for each random block of a query, an array that holds its number for each block of
            queries, along the array's last axis; axes before it are of heads or batches. -1 is
            none. To look at the set, a list of numbers does as well.
    """
    block = whole(block, "bigbird: block", 1)
    window, globals_ = whole(window, "bigbird: window"), whole(globals_, "bigbird: globals_")
    most = MAX_BOXES - 1 - bool(globals_)
    if isinstance(blocks, str | Array) or not isinstance(blocks, Collection):  # pyright: ignore
        raise InputError(
            f"bigbird: blocks={blocks!r} is no list of arrays; write one array for each random "
            "block of a query, as in [R], and [] for none"
        )
    if len(blocks) > most:
        raise InputError(f"bigbird: {len(blocks)} random blocks are more than {most}")
    found = blocked(block, window, window, queries, keys)
    if globals_:
        found = global_tokens(globals_ * block, queries, keys) | found
    for i, table in enumerate(blocks):
        found |= _listed(_table(table, f"bigbird: blocks[{i}]"), block, queries, keys)
    return replace(found, text=f"bigbird({block}, {window}, {globals_}, {len(blocks)} random)")


def _table(given: Array | Sequence[int], what: str) -> Node:
    """Numbers of blocks, along the last axis of an array."""
    if not isinstance(given, Collection | Array):  # pyright: ignore
        raise InputError(
            f"{what}={given!r} is no array of numbers of blocks; write an input of whole numbers, "
            "or a list such as [0, 2]"
        )
    if not isinstance(given, Array):
        numbers = tuple(whole(n, f"{what}[{m}]", -1) for m, n in enumerate(given))
        return node("listed", params=(numbers,), axes=("?listed",), kind="int")
    n = lifted(given)
    if n.kind != "int" or not n.axes:
        raise InputError(f"{what} must be an input of whole numbers, as in 'm:int'")
    return n


def _listed(table: Node, block: int, queries: Axes, keys: Axes) -> KeySet:
    """The block of keys whose number a table holds for the query's own block."""

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        first = times(take(table, (over(i, block),), table.axes[-1:]), block)
        end = lesser(plus(first, block), size)
        return [Interval(lesser(greater(first, number(0)), size), end)]

    return _flat("listed", queries, keys, None, bounds)


def documents(lengths: Array, queries: Axes = None, keys: Axes = None, at: At = None) -> KeySet:
    """Packed sequences: the keys of the query's own document.

    Args:
        lengths: whole numbers along one axis of their own, the tokens of each document in order;
            what lies behind the last document is one more. Axes beyond it are batch axes.
    """
    from napkin.ir import infer

    n = lifted(lengths)
    if n.kind != "int" or not n.axes:
        raise InputError("documents: lengths must be an input of whole numbers, as in 'n:int'")
    axis = n.axes[-1]
    ends = infer.along("cumsum", n, (axis,))

    def bounds(i: Node, size: Node) -> Sequence[Interval]:
        passed = pointwise("less_equal", (ends, i))
        begin = pointwise("where", (passed, ends, number(0)))
        close = pointwise("where", (passed, size, ends))
        first = infer.along("max", begin, (axis,), (float("-inf"),))
        end = infer.along("min", close, (axis,), (float("inf"),))
        return [Interval(greater(first, number(0)), lesser(end, size))]

    return _flat("documents", queries, keys, at, bounds)
