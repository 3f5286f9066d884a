"""Reductions of the user's language: what works along axes that it names.

Products that are summed, reductions by a monoid, softmax and logsumexp, over all positions of an
axis or over those of a key set.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, cast, overload

from napkin.errors import SPELLED, InputError, did_you_mean, meant
from napkin.ir import infer, selecting
from napkin.ir.array import Array, Operand, check_operands, lifted
from napkin.ir.expansion import count
from napkin.ir.infer import joined, pointwise
from napkin.ir.key_sets import query_axes
from napkin.ir.names import axis_names
from napkin.ir.node import REDUCTIONS, Kind, Node, factors, in_kind, number
from napkin.ir.operators import POINTWISE
from napkin.keys.keyset import KeySet, attached

LARGEST_K = 16
"""The most values that `topk` finds."""


def axes_of(names: object, word: str = "over") -> tuple[str, ...]:
    """The axes that the argument `word` names."""
    each = each_of(names)
    if not all(isinstance(a, str) for a in each):
        raise InputError(
            f"{word}={names!r} is no name of an axis: axes are named, not numbered; "
            f"write {word}='d', or {word}='h d' for several"
        )
    text = " ".join(each)
    return axis_names(text, f"{word}='{text}'")


def each_of(names: object) -> list[Any]:
    """Those that are given, be it one or several."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        return [names]
    return list(names)


def contract(*arrays: Operand, over: str, keys: KeySet | None = None) -> Array:
    """The product of `arrays`, aligned by axis name, summed over the axes named in `over`.

    Args:
        keys: the positions that count; the others are left out (see `napkin.keys`).

    Raises:
        InputError: an axis of `over` is on none of the arrays, or they do not fit `keys`.
    """
    if not arrays:
        raise InputError("contract needs at least one array")
    value = Array(lifted(arrays[0]))
    for a in arrays[1:]:
        value = value * a
    product, axes = value.node, axes_of(over)
    if keys is not None:
        product = _seen(attached(keys, product, axes), product)
    return Array(infer.along("sum", product, axes))


def _seen(seen: Node, body: Node) -> Node:
    """What a sum adds up: `body` inside a key set, 0 outside. Of a product only the factors with a
    query axis are cleared, which clears all of it; those that all queries share stay operands of a
    matrix product."""
    queries = set(query_axes(seen))
    shared = [p for p in factors(body) if not queries & set(p.axes)]
    own = [p for p in factors(body) if p not in shared]
    if not own:
        own, shared = [body], []
    cleared = pointwise("where", (seen, joined("mul", own), _left_out("sum", body.kind)))
    return joined("mul", [cleared, *shared])


_TESTS = {"any": ("max", 0.0), "all": ("min", 1.0)}
"""The extremum that says whether any or all tests hold, of 1 for each that does, and its start."""


def _reduced(how: str, x: Node, axes: tuple[str, ...]) -> Node:
    """A reduction; a maximum or a minimum of tests says whether any or all of them hold."""
    record = REDUCTIONS.get(how)
    order = record.order if record is not None else ""
    if how in _TESTS or (order and x.kind == "bool"):
        most, start = _TESTS[how] if how in _TESTS else (order, float(order == "min"))
        return _held(infer.along(most, _counted(x), axes, (start,)))
    start = (record.identity,) if record is not None and order else ()
    return infer.along(how, x, axes, start)


def _counted(x: Node) -> Node:
    """1 for each test that holds, and 0 for the others."""
    return pointwise("where", (x, number(1), number(0)))


def _held(extremum: Node) -> Node:
    """Whether the test holds that an extremum of `_counted` found."""
    return pointwise("greater", (extremum, number(0)))


@overload
def reduce(
    x: Operand, how: str, over: str | Iterable[str], keys: KeySet | None = None
) -> Array: ...
@overload
def reduce(
    x: Sequence[Operand],
    how: str,
    over: str | Sequence[str],
    keys: Sequence[KeySet | None] | None = None,
) -> Array: ...
def reduce(
    x: Operand | Sequence[Operand],
    how: str,
    over: str | Iterable[str],
    keys: KeySet | Sequence[KeySet | None] | None = None,
) -> Array:
    """`x` reduced over the axes named in `over`; `how` is sum, max, min, prod, mean, logsumexp,
    any, all or one that `nk.reduction` defined. The logsumexp of a list of arrays is one over all
    of them, as `softmax` has it.

    Args:
        keys: the positions that count; the others are left out (see `napkin.keys`).

    Raises:
        InputError: `how` is not a reduction, or `x` lacks an axis, or does not fit `keys`.
    """
    if how == "logsumexp":
        return Array(infer.jointly(how, _parts(how, x, over, keys)))
    names = [*REDUCTIONS, "mean", *_TESTS]
    if how not in names:
        word = str(how)
        known = meant(word) if word in SPELLED else did_you_mean(word, [*names, "logsumexp"])
        raise InputError(f"reduce {how!r} is not a reduction; {known}")
    if isinstance(x, Sequence) or (isinstance(keys, Sequence) and not isinstance(keys, str)):
        raise InputError(
            f"reduce {how!r} goes over one array; logsumexp alone goes over several. Join the "
            "results of two with arithmetic"
        )
    axes, body = axes_of(over), _as_joined(how, lifted(x))
    if keys is None:
        return Array(_reduced(how, body, axes))
    seen = attached(cast("KeySet", keys), body, axes)
    if how == "mean":
        total = infer.along("sum", _seen(seen, infer.reals(body)), axes)
        own = tuple(a for a in axes if a in seen.axes)
        counted = infer.along("sum", seen, own)
        if rest := tuple(a for a in axes if a not in own):  # of which the key set says nothing
            counted = pointwise("mul", (counted, count(rest)))
        return Array(pointwise("div", (total, counted)))
    if how == "sum":
        return Array(infer.along("sum", _seen(seen, body), axes))
    return Array(_reduced(how, pointwise("where", (seen, body, _left_out(how, body.kind))), axes))


def _as_joined(how: str, body: Node) -> Node:
    """What is reduced, as reals where only reals are joined: what such a reduction is of nothing
    may be no whole number. Tests that a user's operator joins to numbers are whole numbers."""
    if how not in REDUCTIONS:
        return body
    record, join = REDUCTIONS[how], POINTWISE[REDUCTIONS[how].combine]
    check_operands(join, {body.kind})
    if join.kind == "real" != body.kind:
        return pointwise("cast", (body,), ("fp32",))
    counted = record.definition and body.kind == "bool" != join.kind
    return pointwise("cast", (body,), ("int32",)) if counted else body


def _left_out(how: str, kind: Kind) -> Node:
    """What a position outside a key set counts as, in the item type of what is reduced."""
    value = REDUCTIONS[how].identity if how in REDUCTIONS else float(how == "all")
    if kind == "bool" or how in {"any", "all"}:
        return number(value > 0)
    return number(in_kind(value, kind))


@overload
def softmax(x: Operand, over: str | Iterable[str], keys: KeySet | None = None) -> Array: ...
@overload
def softmax(
    x: Sequence[Operand], over: str | Sequence[str], keys: Sequence[KeySet | None] | None = None
) -> tuple[Array, ...]: ...
def softmax(
    x: Operand | Sequence[Operand],
    over: str | Iterable[str],
    keys: KeySet | Sequence[KeySet | None] | None = None,
) -> Array | tuple[Array, ...]:
    """exp(x) / sum of exp(x) over the axes named in `over`, stabilised by the maximum.

    A row whose scores are all -inf gets weights 0. Of a list of arrays it is one softmax over all
    of them, with one maximum and one sum, and gives the weights of each: extra keys beside those of
    a window are `P, R = softmax([S, T], over=["x", "a"], keys=[window, None])`.

    Args:
        over: the axes; of a list of arrays those of each, or of all.
        keys: the key set of every query: other keys get weight 0 (see `napkin.keys`). Of a
            list of arrays one for each, None for all keys.

    Raises:
        InputError: an array lacks an axis, or does not fit `keys`.
    """
    parts = _parts("softmax", x, over, keys)
    if isinstance(x, Sequence):
        return tuple(Array(infer.jointly("softmax", parts, i)) for i in range(len(parts)))
    return Array(infer.jointly("softmax", parts))


def _parts(
    op: str,
    x: Operand | Sequence[Operand],
    over: str | Iterable[str],
    keys: KeySet | Sequence[KeySet | None] | None,
) -> list[tuple[Node, tuple[str, ...]]]:
    """The bodies that a composite goes over, -inf outside their key sets, and the axes of each."""
    if not isinstance(x, Sequence):
        arrays, axes, sets = [x], [axes_of(over)], [keys]
    else:
        arrays = list(x)
        each = [over] * len(arrays) if isinstance(over, str) else each_of(over)
        axes = [axes_of(text) for text in each]
        sets = [None] * len(arrays) if keys is None else keys
    if not arrays:
        raise InputError(f"{op} of no array; give at least one")
    if not isinstance(sets, Sequence) or len({len(arrays), len(axes), len(sets)}) > 1:
        raise InputError(
            f"{op} of {len(arrays)} arrays: over=[...] and keys=[...] name axes and a key set for "
            "each, with None for all keys"
        )
    out: list[tuple[Node, tuple[str, ...]]] = []
    for array, gone, seen in zip(arrays, axes, sets, strict=True):
        body = lifted(array)
        infer.along(op, body, gone)  # says which axis is missing before `keys` does
        if seen is not None:
            if not isinstance(seen, KeySet):
                raise InputError(
                    f"{op}: keys={seen!r} is no key set of one array; write one such as "
                    "nk.causal('q', 'x')"
                )
            body = pointwise("where", (attached(seen, body, gone), body, number(-math.inf)))
        out.append((body, gone))
    return out


def argmax(x: Operand, over: str, keys: KeySet | None = None) -> Array:
    """The position of the maximum of `x` along an axis; of equal ones the first, and of NaNs the
    first NaN. Of no position it is 2^31 - 1.

    Args:
        keys: the positions that count (see `napkin.keys`).

    Raises:
        InputError: `over` is not one axis of `x`, or `x` does not fit `keys`.
    """
    return _position("max", x, over, keys)


def argmin(x: Operand, over: str, keys: KeySet | None = None) -> Array:
    """The position of the minimum of `x` along an axis, as `argmax`."""
    return _position("min", x, over, keys)


def _position(how: str, x: Operand, over: str, keys: KeySet | None) -> Array:
    ((_, place),) = _ranked(f"arg{how}", how, x, 1, over, keys)
    return Array(place)


def topk(
    x: Operand, k: int, over: str, keys: KeySet | None = None
) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
    """The `k` largest values of `x` along an axis, the largest first, and their positions: of equal
    ones the first, and NaN before all numbers. Where there are fewer, the value is -inf (of whole
    numbers -2^31, of tests False) and the position 2^31 - 1.

    Args:
        keys: the positions that count (see `napkin.keys`).

    Raises:
        InputError: `k` is not between 1 and `LARGEST_K`, `over` is not one axis of `x`, or `x` does
            not fit `keys`.
    """
    if type(k) is not int or not 1 <= k <= LARGEST_K:
        raise InputError(
            f"topk k={k!r}: each of the k costs a look at every value, so k is a whole number from "
            f"1 to {LARGEST_K}; of more, take a part of nk.sort"
        )
    pairs = _ranked("topk", "max", x, k, over, keys)
    return tuple(Array(most) for most, _ in pairs), tuple(Array(place) for _, place in pairs)


def _ranked(
    what: str, how: str, x: Operand, k: int, over: str, keys: KeySet | None
) -> list[tuple[Node, Node]]:
    body, axes = lifted(x), axes_of(over)
    infer.along("max", body, axes, (0.0,))  # says which axis is missing
    axis, *others = axes
    if others:
        raise InputError(
            f"{what} over '{' '.join(axes)}': a position is one along an axis; write over='{axis}'"
        )
    seen = () if keys is None else (attached(keys, body, axes),)
    if body.kind != "bool":
        return selecting.ranked(how, body, axis, k, seen)
    pairs = selecting.ranked(how, _counted(body), axis, k, seen)
    return [(_held(most), place) for most, place in pairs]


def cumsum(x: Operand, along: str) -> Array:
    """Running sums of `x` along one axis, which the result keeps."""
    return _moved("cumsum", x, along)


def sort(x: Operand, along: str) -> Array:
    """`x` sorted upwards along one axis, which the result keeps."""
    return _moved("sort", x, along)


def _moved(op: str, x: Operand, along: str) -> Array:
    axes, body = axes_of(along, "along"), lifted(x)
    if len(axes) > 1:
        raise InputError(
            f"{op} along '{' '.join(axes)}': values follow each other along one axis; write "
            f"along='{axes[0]}', and {op} again along another"
        )
    return Array(infer.along(op, body, axes))
