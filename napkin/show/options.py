"""What is written on the command line: parsed strictly, never evaluated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from napkin.diagram.sizes import MAX_SIZE
from napkin.errors import InputError

_EXAMPLE = "write --sizes q=4096,x=4096,d=128"
_AXIS = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS = 20
"""More digits than any size has: a longer number is not even read."""


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Axis sizes from every ``--sizes`` that was given, such as ``["q=4096,x=4096", "d=128"]``.

    Whether a diagram has these axes is for `Diagram.check_sizes` to say.

    Raises:
        InputError: an entry is not AXIS=SIZE with a size from 1 to 2**40, or an axis has two.
    """
    out: dict[str, int] = {}
    for text in texts:
        for entry in text.split(","):
            axis, size = _entry(entry.strip(), text)
            if axis in out:
                raise InputError(f"--sizes: axis {axis} is given twice; write {axis}={size} once")
            out[axis] = size
    return out


def parse_storage(texts: Sequence[str]) -> dict[str, str]:
    """Storage types from every ``--storage`` that was given, such as ``["K=fp8,V=fp8"]``.

    Whether there are such inputs and types is for `Diagram.stored` to say.

    Raises:
        InputError: an entry is not INPUT=TYPE, or an input has two.
    """
    out: dict[str, str] = {}
    for text in texts:
        for entry in text.split(","):
            name, equals, dtype = (part.strip() for part in entry.partition("="))
            if not (name and equals and dtype):
                raise InputError(
                    f"--storage: {_short(entry.strip())} is not INPUT=TYPE; "
                    "write --storage K=fp8,V=fp8"
                )
            if name in out:
                raise InputError(f"--storage: {name} is given twice; write {name}={dtype} once")
            out[name] = dtype
    return out


def _entry(entry: str, text: str) -> tuple[str, int]:
    if not entry:
        raise InputError(f"--sizes {_short(text)}: an entry is empty; {_EXAMPLE}")
    axis, equals, value = (part.strip() for part in entry.partition("="))
    if not equals:
        raise InputError(f"--sizes: {_short(entry)} has no '='; {_EXAMPLE}")
    if not _AXIS.fullmatch(axis):
        raise InputError(f"--sizes: {_short(axis)} is not the name of an axis; {_EXAMPLE}")
    instead = f"write a whole number from 1, as in {axis}=4096"
    if not _WHOLE.fullmatch(value):
        raise InputError(f"--sizes: {axis}={_short(value)} is not a whole number; {instead}")
    if len(value) > _DIGITS or int(value) > MAX_SIZE:
        raise InputError(f"--sizes: {axis}={_short(value)} is larger than 2**40; {instead}")
    if int(value) < 1:
        raise InputError(f"--sizes: {axis}={int(value)} is too small; {instead}")
    return axis, int(value)


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")


def sizes_text(sizes: Mapping[str, int]) -> str:
    """Sizes as the command line takes them."""
    return ",".join(f"{a}={n}" for a, n in sizes.items())
