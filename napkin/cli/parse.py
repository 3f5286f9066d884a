"""What is written on the command line: parsed strictly, never evaluated."""

from __future__ import annotations

import math
import re
import zipfile
import zlib
from collections.abc import Sequence
from typing import Any

from napkin.diagram.sizes import MAX_SIZE
from napkin.errors import InputError
from napkin.show.words import Range

_AXIS = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]{1,3})?", re.ASCII | re.I)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_POINTS = 256
"""Sizes of one sweep, at most."""
_DIGITS = 20
"""More digits than any size has: a longer number is not even read."""


def parse_sizes(texts: Sequence[str], option: str = "--sizes") -> dict[str, int]:
    """Axis sizes from every `option` that was given, such as ``["q=4096,x=4096", "d=128"]``.

    Whether a diagram has these axes is for `Diagram.check_sizes` to say.

    Raises:
        InputError: an entry is not AXIS=SIZE with a size from 1 to 2**40, or an axis has two.
    """
    example = "q=4096,x=4096,d=128"
    out: dict[str, int] = {}
    for axis, value in _entries(texts, option, example).items():
        if not _AXIS.fullmatch(axis):
            wrong = f"{option}: {_short(axis)} is not the name of an axis"
            raise InputError(f"{wrong}; write {option} {example}")
        out[axis] = _size(axis, value, option)
    return out


def parse_cuts(texts: Sequence[str]) -> dict[tuple[str, str], int]:
    """Pieces of arrays from every ``--cut``, such as ``["O_x.d=32"]``: O_x in pieces of 32 along d.

    Raises:
        InputError: an entry is not ARRAY.AXIS=SIZE, or is given twice.
    """
    out: dict[tuple[str, str], int] = {}
    for key, value in _entries(texts, "--cut", "O_x.d=32").items():
        name, dot, axis = key.rpartition(".")
        if not (dot and name and _AXIS.fullmatch(axis)):
            raise InputError(f"--cut: {_short(key)} is not ARRAY.AXIS; write --cut O_x.d=32")
        out[name, axis] = _size(key, value, "--cut")
    return out


def parse_types(texts: Sequence[str]) -> dict[str, str]:
    """Types of tensors from every ``--storage``, such as ``["Q=fp8,K=fp8"]``.

    Raises:
        InputError: an entry is not TENSOR=TYPE, or a tensor has two.
    """
    return _entries(texts, "--storage", "Q=fp8,K=fp8,V=fp16")


def parse_ranges(texts: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Ranges of inputs from every ``--range``, such as ``["decay=0.9..1,S=-2..2"]``.

    Raises:
        InputError: an entry is not INPUT=LOW..HIGH, or an input has two.
    """
    out: dict[str, tuple[float, float]] = {}
    example = "decay=0.9..1"
    for name, value in _entries(texts, "--range", example).items():
        ends = [_NUMBER.fullmatch(end.strip()) for end in value.split("..")]
        if len(ends) != 2 or not all(ends):
            wrong = f"--range: {name}={_short(value)} is no range"
            raise InputError(f"{wrong}; write --range {example}")
        low, high = (float(end[0]) for end in ends if end)
        out[name] = low, high
    return out


def parse_scalars(texts: Sequence[str]) -> dict[str, float]:
    """Values of scalars from every ``--scalars``, such as ``["scale=0.125,bias=-1"]``.

    Raises:
        InputError: an entry is not SCALAR=NUMBER, a scalar has two, or its number is too large.
    """
    out: dict[str, float] = {}
    example = "scale=0.125"
    for name, value in _entries(texts, "--scalars", example).items():
        if not _NUMBER.fullmatch(value.strip()):
            wrong = f"--scalars: {name}={_short(value)} is no number"
            raise InputError(f"{wrong}; write --scalars {example}")
        out[name] = float(value)
        if not math.isfinite(out[name]):
            raise InputError(f"--scalars: {name}={_short(value)} is too large for a float64")
    return out


def read_inputs(path: str | None) -> dict[str, Any]:
    """The arrays of an ``.npz`` file, by name; pickled objects are never loaded.

    Raises:
        InputError: it cannot be read as one.
    """
    if path is None:
        return {}
    import numpy as np

    try:
        found = np.load(path, allow_pickle=False)
        if not isinstance(found, np.lib.npyio.NpzFile):
            raise InputError(f"--inputs {path}: one array has no name; save it with np.savez")
        with found:
            return {name: found[name] for name in found.files}
    except InputError:
        raise
    except OSError as error:
        why = error.strerror or "it is no .npz file"
    except (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error):
        why = "it is no .npz file of numbers, as np.savez writes it"
    raise InputError(f"--inputs {path} cannot be read: {why}")


def parse_share(text: str) -> float:
    """The number of ``--overhead``, from 0: a decimal, or a fraction such as 2/3.

    Raises:
        InputError: it is something else.
    """
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?(/[1-9][0-9]{0,8})?", text, re.ASCII):
        above, _, below = text.partition("/")
        return float(above) / float(below or 1)
    raise InputError(f"--overhead {_short(text)}: write a number from 0, as in 0.67 or 2/3")


def parse_shape(text: str, option: str) -> tuple[int, ...]:
    """Whole numbers joined by x, as in 30x48x80.

    Raises:
        InputError: `text` is something else.
    """
    if not re.fullmatch(r"[0-9]+(x[0-9]+)*", text.strip(), re.ASCII):
        wrong = f"{option} {_short(text)}: write whole numbers joined by x, one for every axis"
        raise InputError(f"{wrong}, as in 30x48x80")
    for part in text.strip().split("x"):
        if len(part) > _DIGITS:
            raise InputError(f"{option}: a number of {len(part)} digits is too large")
    return tuple(map(int, text.strip().split("x")))


def per_axis(text: str, option: str) -> int | tuple[int, ...]:
    """`parse_shape`, where one number stands for every axis."""
    values = parse_shape(text, option)
    return values[0] if len(values) == 1 else values


def parse_sweep(text: str) -> Range:
    """The sizes of ``--sweep``: "q,x=1024..65536" doubles, "q=1024..8192:1024" goes in steps.

    Raises:
        InputError: it is written in another way, runs backwards, or has more than `_POINTS` sizes.
    """
    example = "write --sweep q,x=1024..65536, or --sweep q=1024..8192:1024"
    names, value = _pair(text.strip(), text, "--sweep", example.removeprefix("write "))
    axes = tuple(name.strip() for name in names.split(","))
    for axis in axes:
        if not _AXIS.fullmatch(axis):
            raise InputError(f"--sweep: {_short(axis)} is not the name of an axis; {example}")
        if axes.count(axis) > 1:
            raise InputError(f"--sweep: axis {axis} stands twice; write it once")
    first, dots, rest = value.partition("..")
    last, colon, by = rest.partition(":")
    if "=" in rest or "," in rest:
        raise InputError(
            f"--sweep: {_short(text)} has more than one range; axes that are swept together stand"
            f" before it, so {example}"
        )
    if not dots:
        raise InputError(f"--sweep: {_short(value)} is no range; {example}")
    low, high = (_size(axes[0], n.strip(), "--sweep") for n in (first, last))
    if low > high:
        raise InputError(f"--sweep: {low}..{high} runs backwards; write {high}..{low}")
    step = _size("step", by.strip(), "--sweep") if colon else 0
    count = (high - low) // step + 1 if step else (high // low).bit_length()
    if count > _POINTS:
        raise InputError(f"--sweep: {count:,} sizes, at most {_POINTS}; take a larger step")
    return Range(axes, tuple(low + i * step if step else low << i for i in range(count)))


def parse_prices(text: str) -> dict[str, float]:
    """Prices of machines in USD per hour, such as "h100=2.5,a100=1.2".

    Raises:
        InputError: an entry is not MACHINE=PRICE, or a machine has two.
    """
    out: dict[str, float] = {}
    for name, value in _entries([text], "--prices", "h100=2.5,a100=1.2").items():
        number = re.fullmatch(r"[0-9]{1,9}(\.[0-9]{0,9})?", value, re.ASCII)
        if number is None or float(value) == 0:
            raise InputError(
                f"--prices: {name}={_short(value)} is no price; write USD per hour, as in h100=2.5"
            )
        out[name] = float(value)
    return out


def _entries(texts: Sequence[str], option: str, example: str) -> dict[str, str]:
    """What stands behind each key of an option that may be given several times.

    Raises:
        InputError: an entry is not KEY=VALUE, or a key has two values.
    """
    out: dict[str, str] = {}
    for text in texts:
        for entry in text.split(","):
            key, value = _pair(entry.strip(), text, option, f"{option} {example}")
            if key in out:
                raise InputError(f"{option}: {key} is given twice; write {key}={value} once")
            out[key] = value
    return out


def _pair(entry: str, text: str, option: str, example: str) -> tuple[str, str]:
    if not entry:
        raise InputError(f"{option} {_short(text)}: an entry is empty; write {example}")
    key, equals, value = (part.strip() for part in entry.partition("="))
    if not equals:
        raise InputError(f"{option}: {_short(entry)} has no '='; write {example}")
    return key, value


def _size(axis: str, value: str, option: str) -> int:
    instead = f"write a whole number from 1, as in {axis}=4096"
    if not _WHOLE.fullmatch(value):
        raise InputError(f"{option}: {axis}={_short(value)} is not a whole number; {instead}")
    if len(value) > _DIGITS or int(value) > MAX_SIZE:
        raise InputError(f"{option}: {axis}={_short(value)} is larger than 2**40; {instead}")
    if int(value) < 1:
        raise InputError(f"{option}: {axis}={int(value)} is too small; {instead}")
    return int(value)


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")
