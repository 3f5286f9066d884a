"""Sizes and scalars that a user gives, held against what a diagram says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sized
from typing import TYPE_CHECKING

from napkin.diagram.keys.keyset import check_sizes as check_keys
from napkin.diagram.storage import own_type
from napkin.diagram.taking import spans_of, taken_axes
from napkin.diagram.types import PACKED
from napkin.diagram.windows import settle
from napkin.errors import InputError, did_you_mean

if TYPE_CHECKING:
    from napkin.diagram.diagram import Diagram

MAX_SIZE = 2**40
"""No axis is longer: it is a slip of the keyboard, not a size."""


def by_axis(sizes: Mapping[str, int]) -> dict[str, int]:
    """Sizes that a user gave.

    Raises:
        InputError: they are no dictionary.
    """
    if not isinstance(sizes, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"sizes={sizes!r} is no dictionary from axes to sizes; write sizes={{'q': 1024}}"
        )
    return dict(sizes)


def check_sizes(
    diagram: Diagram, sizes: Mapping[str, int], *, empty: bool = False, partial: bool = False
) -> dict[str, int]:
    """Sizes for every axis: those given, over the defaults.

    Args:
        empty: 0 is a size, too.
        partial: axes may be left without a size.

    Raises:
        InputError: an axis is unknown or missing, or a size is not a whole number in range.
    """
    same, out = diagram.same_size, dict[str, int]()
    sizes = by_axis(sizes)
    for axis, value in sizes.items():
        if axis not in diagram.axes:
            known = did_you_mean(str(axis), diagram.axes)
            raise InputError(f"sizes: {diagram.name} has no axis {axis!r}; {known}")
        if isinstance(value, bool) or not isinstance(value, int):  # pyright: ignore
            raise InputError(
                f"sizes: {axis}={value!r} is not a whole number; write one from 1, as in "
                f"{axis}=1024"
            )
        if value < (0 if empty else 1) or value > MAX_SIZE:
            low = 0 if empty else 1
            raise InputError(f"sizes: {axis}={value} is not between {low} and 2**40")
        root = same.get(axis, axis)
        if root in out and out[root] != value:
            for n in diagram.key_sets:
                check_keys(n, sizes)
        if out.setdefault(root, value) != value:
            raise InputError(
                f"sizes: {axis}={value}, but {axis} is {root} under another name and "
                f"{root}={out[root]}; give one size"
            )
    for axis, (count, text) in diagram.slots.items():
        value = out.setdefault(same.get(axis, axis), count)
        if value != count:
            raise InputError(
                f"sizes: {axis}={value}, but {axis} is the slots of {text}, which has {count}"
            )
    settle(diagram, out, diagram.sizes, empty=empty)
    for axis, value in diagram.sizes.items():
        out.setdefault(same.get(axis, axis), value)
    missing = [a for a in diagram.axes if same.get(a, a) not in out]
    if missing and not partial:
        raise InputError(
            f"sizes: {diagram.name} needs a size for {', '.join(missing)}; "
            f"write {','.join(f'{a}=1024' for a in missing)}"
        )
    found = {a: out[same.get(a, a)] for a in diagram.axes if same.get(a, a) in out}
    for n in diagram.key_sets:
        check_keys(n, found)
    for n in diagram.inputs:
        last = n.axes[-1] if own_type(n) in PACKED else ""
        if found.get(last, 0) % 2:
            raise InputError(
                f"sizes: {last}={found[last]}, but {n.params[0]} is {own_type(n)}, two values to a "
                f"byte along {last}; it must be even"
            )
    for n in diagram.takes:
        for axis, span in zip(taken_axes(n), spans_of(n), strict=True):
            if span is None and found.get(axis) == 0:
                raise InputError(
                    f"sizes: {axis}=0, but {diagram.name} reads along {axis} at computed "
                    "positions; it must be at least 1"
                )
    return found


def sizes_of(diagram: Diagram, shapes: Iterable[tuple[int, ...]]) -> dict[str, int]:
    """Axis sizes from the shapes of the inputs, in order.

    Raises:
        InputError: the shapes do not fit the signature, or disagree.
    """
    shapes = tuple(tuple(s) for s in shapes)
    check_count(diagram, shapes)
    found: dict[str, tuple[int, str]] = {}
    for n, shape in zip(diagram.inputs, shapes, strict=True):
        if len(shape) != len(n.axes):
            raise InputError(
                f"{diagram.name}: {n.params[0]} has axes '{' '.join(n.axes)}' but an array of "
                f"shape {shape} was given"
            )
        for axis, value in zip(n.axes, shape, strict=True):
            have, who = found.setdefault(axis, (value, str(n.params[0])))
            if have != value:
                raise InputError(
                    f"{diagram.name}: axis {axis} is {have} in {who} but {value} in {n.params[0]}"
                )
    return check_sizes(diagram, {a: v for a, (v, _) in found.items()}, empty=True)


def check_count(diagram: Diagram, given: Sized) -> None:
    """Check that as many arrays are given as the diagram takes.

    Raises:
        InputError: there are more or fewer.
    """
    if len(given) != len(diagram.inputs):
        raise InputError(
            f"{diagram.name} takes {len(diagram.inputs)} arrays "
            f"({', '.join(str(n.params[0]) for n in diagram.inputs)}), not {len(given)}"
        )


def check_scalars(diagram: Diagram, scalars: Mapping[str, float]) -> dict[str, float]:
    """Values for every user scalar.

    Raises:
        InputError: a scalar is unknown, has no value, or one that is no number.
    """
    for name in scalars:
        if name not in diagram.scalars:
            raise InputError(
                f"{diagram.name} has no scalar {name!r}; {did_you_mean(name, diagram.scalars)}"
            )
    given = {name: _number(diagram, name, value) for name, value in scalars.items()}
    out = {**diagram.scalars, **given}
    missing = [name for name, value in out.items() if value != value]
    if missing:
        raise InputError(f"{diagram.name} needs a value for the scalar {', '.join(missing)}")
    return out


def _number(diagram: Diagram, name: str, value: object) -> float:
    """The value of a scalar.

    Raises:
        InputError: it is no number.
    """
    if not isinstance(value, str | bytes):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(value)  # pyright: ignore[reportArgumentType]
    raise InputError(
        f"{diagram.name}: the scalar {name}={value!r} is no number; write one, as in {name}=1.0"
    )
