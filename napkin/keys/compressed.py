"""`compress` and `spread` in the user's language: attention with its weights in memory.

S = contract(Q, K) over the window of each query, softmax over its slots, and the weights times V
are three kernels that pass queries x window values on through memory.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from napkin.errors import InputError, check_known
from napkin.ir import slots as nodes
from napkin.ir.array import Array, lifted
from napkin.ir.key_sets import query_axes
from napkin.ir.names import axis_names
from napkin.ir.node import Kind, Node, in_kind, postorder
from napkin.ir.slots import Slots
from napkin.ir.slotted import least
from napkin.keys.keyset import KeySet, attached, check_key_set

Names = str | Iterable[str]


def compress(
    x: Array, keys: KeySet, into: Names, over: Names | None = None, fill: float | None = None
) -> Array:
    """`x` at the keys that each query sees, one slot for each.

    Slot t of a query holds `x` at its key first + step * t. The axes of `into` take the places of
    the key axes; their sizes are the window's.

    Args:
        keys: a key set of one box, whose windows have a known length.
        into: an axis of slots for each key axis.
        over: the key axes, where the set does not name its own.
        fill: what slots past a query's last key hold: -inf (of booleans false) if not given.

    Raises:
        InputError: `x` does not fit `keys`, or the windows have no known length.
    """
    body, slots = lifted(x), _names(into, "compress into")
    key_axes = _key_axes(keys, over, "compress over")
    seen = attached(keys, body, key_axes)
    counts = _counts(keys, slots, "compress")
    taken = [a for a in slots if a in body.axes]
    if taken:
        raise InputError(
            f"compress into {' '.join(slots)}: the array has an axis {taken[0]!r} already; choose "
            "another name for the slots"
        )
    _refuse_inputs(seen, keys)
    value = least(body.kind) if fill is None else _filled(fill, body.kind)
    return Array(nodes.compress(body, seen, Slots(key_axes, slots, counts, value)))


def spread(x: Array, keys: KeySet, over: Names, into: Names | None = None) -> Array:
    """The way back: `x` at a key's slot where the query sees the key, and 0 elsewhere.

    Args:
        keys: the key set that `x` was compressed by.
        over: the axis of slots for each key axis.
        into: the key axes, where the set does not name its own.

    Raises:
        InputError: `x` does not fit `keys`, or the windows have no known length.
    """
    body, slots = lifted(x), _names(over, "spread over")
    for a in slots:
        check_known(a, body.axes, f"spread over {a!r}: the array has axes '{' '.join(body.axes)}'")
    key_axes = _key_axes(keys, into, "spread into")
    counts = _counts(keys, slots, "spread")
    keys = keys if keys.named else keys.over([a for a in body.axes if a not in slots], key_axes)
    for a in key_axes:
        if a in body.axes:
            raise InputError(f"spread into {a!r}: the array has that axis already")
    seen = keys.node
    for a in dict.fromkeys((*keys.query_axes, *query_axes(seen))):
        if a not in body.axes or a in slots:
            raise InputError(
                f"spread: query axis {a!r} of {keys.text} is not an axis of the array, which has "
                f"'{' '.join(body.axes)}'"
            )
    _refuse_inputs(seen, keys)
    return Array(nodes.spread(body, seen, Slots(key_axes, slots, counts)))


def _names(names: Names, what: str) -> tuple[str, ...]:
    one = isinstance(names, str) or not isinstance(names, Iterable)  # pyright: ignore
    each: list[object] = [names] if one else list(names)
    if not all(isinstance(a, str) for a in each):
        raise InputError(f"{what} {names!r}: axes are named; write 'w', or 'v w' for several")
    text = " ".join(map(str, each))
    return axis_names(text, f"{what} '{text}'")


def _filled(fill: float, kind: Kind) -> float:
    """What a user fills slots with.

    Raises:
        InputError: it is no value of an array of that kind.
    """
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        value = in_kind(float(fill), kind)
        if kind == "real" or (value == fill and (kind == "int" or value in (0.0, 1.0))):
            return value
    holds = {"real": "reals", "int": "int32 numbers", "bool": "booleans"}[kind]
    raise InputError(f"compress: fill={fill!r}, but the array holds {holds}; write one of these")


def _key_axes(keys: KeySet, given: Names | None, what: str) -> tuple[str, ...]:
    """The key axes: the set's own, or those that the call names for a set without names."""
    check_key_set(keys)
    if given is None and not keys.named:
        call, argument = what.split()
        raise InputError(
            f"{call}: {keys.text} has no names; write {argument}='...' with its key axes"
        )
    axes = keys.key_axes if given is None else _names(given, what)
    if keys.named and axes != keys.key_axes:
        raise InputError(
            f"{what} '{' '.join(axes)}': {keys.text} has key axes '{' '.join(keys.key_axes)}'"
        )
    return axes


def _counts(keys: KeySet, slots: tuple[str, ...], what: str) -> tuple[int, ...]:
    """Slots along each axis."""
    if len(keys.boxes) != 1:
        raise InputError(
            f"{what}: {keys.text} is a union of {len(keys.boxes)} boxes, so its keys are not one "
            "progression along each axis; give each box an array of its own"
        )
    if len(slots) != len(keys.key_axes):
        raise InputError(
            f"{what}: {keys.text} has {len(keys.key_axes)} key axes; '{' '.join(slots)}' names "
            f"{len(slots)}"
        )
    counts: list[int] = []
    for n in keys.slots:
        if n is None:
            raise InputError(
                f"{what}: no number bounds the keys of a query in {keys.text}; bound them with a "
                "window, as in sliding(255) & causal()"
            )
        counts.append(n)
    return tuple(counts)


def _refuse_inputs(seen: Node, keys: KeySet) -> None:
    for n in postorder(seen.args):
        if n.op in {"input", "scalar"}:
            raise InputError(
                f"{keys.text} depends on the value of {n.params[0]}; slots are found from "
                "positions and sizes alone"
            )
