"""Sizes and scalars that a user gives, held against what a diagram says."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence, Sized
from numbers import Integral

from napkin.diagram.interface import Interface
from napkin.errors import InputError, check_known
from napkin.ir.storage import own_type, packed_axis
from napkin.ir.taking import spans_of, taken_axes
from napkin.ir.windows import Slide
from napkin.keys.keyset import check_sizes as check_keys

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
    diagram: Interface, sizes: Mapping[str, int], *, empty: bool = False, partial: bool = False
) -> dict[str, int]:
    """Sizes for every axis: those given, over the defaults.

    Args:
        empty: 0 is a size, too.
        partial: axes may be left without a size.

    Raises:
        InputError: an axis is unknown or missing, or a size is not a whole number in range.
    """
    of, out = diagram.sized_as, dict[str, int]()
    sizes = by_axis(sizes)
    for axis, value in sizes.items():
        value = _size(diagram, axis, value, 0 if empty else 1)
        root = of(axis)
        if root in out and out[root] != value:
            for n in diagram.key_sets:
                check_keys(n, sizes)
        if out.setdefault(root, value) != value:
            raise InputError(
                f"sizes: {axis}={value}, but {axis} is {root} under another name and "
                f"{root}={out[root]}; give one size"
            )
    for axis, (count, reason) in diagram.counted.items():
        value = out.setdefault(of(axis), count)
        if value != count:
            raise InputError(f"sizes: {axis}={value}, but {reason}")
    settle(diagram, out, diagram.sizes, empty=empty)
    for axis, value in diagram.sizes.items():
        out.setdefault(of(axis), value)
    missing = [a for a in diagram.axes if of(a) not in out]
    if missing and not partial:
        raise InputError(
            f"sizes: {diagram.name} needs a size for {', '.join(missing)}; "
            f"write {','.join(f'{a}=1024' for a in missing)}"
        )
    found = {a: out[of(a)] for a in diagram.axes if of(a) in out}
    for n in diagram.key_sets:
        check_keys(n, found)
    _check_readings(diagram, found)
    return found


def _size(diagram: Interface, axis: str, value: object, low: int) -> int:
    """A size of an axis that there is, numpy's whole numbers as Python's."""
    check_known(axis, diagram.axes, f"sizes: {diagram.name} has no axis {axis!r}")
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise InputError(
            f"sizes: {axis}={value!r} is not a whole number; write one from 1, as in {axis}=1024"
        )
    size = int(value)
    if not low <= size <= MAX_SIZE:
        raise InputError(f"sizes: {axis}={value} is not between {low} and 2**40")
    return size


def _check_readings(diagram: Interface, sizes: Mapping[str, int]) -> None:
    """Refuse sizes at which half a byte, or a position of an empty axis, would be read."""
    for n in diagram.inputs:
        last = packed_axis(n)
        if sizes.get(last, 0) % 2:
            raise InputError(
                f"sizes: {last}={sizes[last]}, but {n.params[0]} is {own_type(n)}, two values to a "
                f"byte along {last}; it must be even"
            )
    for n in diagram.takes:
        read = all(sizes.get(a) != 0 for a in n.axes)
        for axis, span in zip(taken_axes(n), spans_of(n), strict=True):
            if read and span is None and sizes.get(axis) == 0:
                raise InputError(
                    f"sizes: {axis}=0, but {diagram.name} reads along {axis} at computed "
                    "positions; it must be at least 1"
                )


def sizes_of(diagram: Interface, shapes: Iterable[tuple[int, ...]]) -> dict[str, int]:
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


def check_count(diagram: Interface, given: Sized) -> None:
    """Check that as many arrays are given as the diagram takes.

    Raises:
        InputError: there are more or fewer.
    """
    if len(given) != len(diagram.inputs):
        raise InputError(
            f"{diagram.name} takes {len(diagram.inputs)} arrays "
            f"({', '.join(diagram.input_names)}), not {len(given)}"
        )


def check_scalars(diagram: Interface, scalars: Mapping[str, float]) -> dict[str, float]:
    """Values for every user scalar.

    Raises:
        InputError: a scalar is unknown, has no value, or one that is no number.
    """
    if not isinstance(scalars, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"scalars={scalars!r} is no dictionary from names to numbers; write "
            "scalars={'scale': 0.125}"
        )
    for name in scalars:
        check_known(name, diagram.scalars, f"{diagram.name} has no scalar {name!r}")
    given = {name: _number(diagram, name, value) for name, value in scalars.items()}
    missing = [name for name, v in diagram.scalars.items() if name not in given and v != v]
    if missing:
        raise InputError(
            f"{diagram.name} needs a value for the scalar {', '.join(missing)}; give it in the call"
            f" or as the function's default, as in {missing[0]}=1.0"
        )
    return {**diagram.scalars, **given}


def _number(diagram: Interface, name: str, value: object) -> float:
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


def settle(
    diagram: Interface, given: dict[str, int], defaults: Mapping[str, int], *, empty: bool = False
) -> None:
    """Add to `given` the sizes that follow from windows: how many there are, or where only this is
    given, the shortest axis that has as many.

    Args:
        given: sizes that were asked for, of axes by the name that stands for all of one size.

    Raises:
        InputError: a given size does not fit.
    """
    base = {diagram.sized_as(a): n for a, n in defaults.items()}
    named = [[*map(diagram.sized_as, (s.axis, s.out, s.tap))] for s in diagram.slides]
    shortest, made = dict(given), {out for _, out, _ in named}
    fixed = {tap for s, (_, _, tap) in zip(diagram.slides, named, strict=True) if s.span.window}
    # Of windows of windows, the last may be what is given.
    for s, (axis, out, tap) in reversed(list(zip(diagram.slides, named, strict=True))):
        taps = given.get(tap, base.get(tap, s.span.window))
        if out in shortest and axis not in fixed | given.keys() and taps:
            shortest[axis] = max(shortest.get(axis, 1), s.least(shortest[out], taps))
    given.update((a, n) for a, n in shortest.items() if a not in made)
    later = list(zip(diagram.slides, named, strict=True))
    while later:  # the taps or the axis of one may be the windows of another
        found = [each for each in later if not _settled(diagram, *each, given, base, empty)]
        if len(found) == len(later):
            return
        later = found


def _settled(
    diagram: Interface,
    s: Slide,
    named: Sequence[str],
    given: dict[str, int],
    base: Mapping[str, int],
    empty: bool,
) -> bool:
    """Add the number of windows to `given`; whether the axis and the taps have sizes.

    Args:
        named: the axis, the windows and the taps by the names that stand for all of one size.
        base: default sizes, by the same names.
    """
    axis, out, tap = named
    taps, length = given.get(tap, base.get(tap)), given.get(axis, base.get(axis))
    if taps is None or length is None:
        return False
    _check_windows(diagram, s, length, taps, empty)
    windows = max(s.count(length, taps), 0)
    asked = given.setdefault(out, windows)
    if asked != windows:
        raise InputError(
            f"sizes: {s.out}={asked}, but with {s.axis}={length} and {s.tap}={taps} "
            f"{diagram.name} has {windows} windows, as it reads {s}; leave out {s.out} or "
            f"{s.axis}"
        )
    return True


def _check_windows(diagram: Interface, s: Slide, length: int, taps: int, empty: bool) -> None:
    """Refuse an axis that is shorter than a window, or has not the windows that it is said to."""
    windows = s.count(length, taps)
    if diagram.sized_as(s.axis) == diagram.sized_as(s.out) and windows != length:
        raise InputError(
            f"sizes: {diagram.name} reads {s}, and {s.out} is {s.axis} under another name, but "
            f"with {s.axis}={length} and {s.tap}={taps} there are {windows} windows; pad by "
            f"{s.reach(taps)} in all, with stride 1"
        )
    if windows < 1 and not empty:
        raise InputError(
            f"sizes: {s.axis}={length} is shorter than a window of {diagram.name}, which "
            f"reads {s}; write {s.axis}={s.least(1, taps)} or more"
        )
