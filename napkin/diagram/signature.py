"""Signatures: "q d, x d, x d -> q d" names the axes of every input and output array.

After a colon stands what an array holds, `n:int`, or how an input is stored, `x d:fp8`.
"""

from __future__ import annotations

import keyword
import re
from dataclasses import dataclass

from napkin.diagram.node import Kind
from napkin.diagram.types import PACKED, STORAGE
from napkin.errors import InputError, did_you_mean

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_RESERVED = re.compile(r"[gs]_")
_KERNELS = frozenset(["tl", "triton", "range"])
"""Names that every kernel uses."""
_KINDS: dict[str, Kind] = {"real": "real", "int": "int", "bool": "bool"}


@dataclass(frozen=True)
class Shape:
    """The axes of one array, in order, its item type, and its storage type where it is its own."""

    axes: tuple[str, ...]
    kind: Kind = "real"
    storage: str = ""

    def __str__(self) -> str:
        text = " ".join(self.axes) or "()"
        what = self.storage or ("" if self.kind == "real" else self.kind)
        return f"{text}:{what}" if what else text


@dataclass(frozen=True)
class Signature:
    """Shapes of the inputs and of the outputs."""

    inputs: tuple[Shape, ...]
    outputs: tuple[Shape, ...]

    def __str__(self) -> str:
        left, right = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return f"{left} -> {right}"


def axis_names(text: str, where: str) -> tuple[str, ...]:
    """The axis names in `text`, separated by spaces.

    Raises:
        InputError: a name is not an axis name, or stands twice.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"{where}: axes are named; write a name, such as 'q' or 'x0'")
    names = tuple(text.split())
    for name in names:
        if not _NAME.match(name):
            raise InputError(
                f"{where}: {name!r} is not an axis name; "
                "write lower-case letters and digits, a letter first, such as 'q' or 'x0'"
            )
        if keyword.iskeyword(name) or name in _KERNELS:
            whose = "a name of kernels" if name in _KERNELS else "a reserved word of Python"
            raise InputError(f"{where}: {name!r} is {whose}; choose another name, such as {name}_")
        if _RESERVED.match(name):
            raise InputError(
                f"{where}: {name!r} is reserved, since g_a and s_a are the group and stream sizes "
                "of axis a; choose another name"
            )
        if names.count(name) > 1:
            raise InputError(f"{where}: axis {name!r} stands twice in '{text.strip()}'")
    return names


def _shape(text: str, signature: str) -> Shape:
    where = f"signature '{signature}'"
    axes, colon, what = text.partition(":")
    what = what.strip() if colon else "real"
    if what not in _KINDS and what not in STORAGE:
        raise InputError(
            f"{where}: {what!r} is neither an item type (real, int, bool) nor a storage type; "
            + did_you_mean(what, STORAGE)
        )
    names = axis_names("" if axes.strip() == "()" else axes, where)
    if what in PACKED and not names:
        raise InputError(f"{where}: {what} lies two to a byte along an axis, and () has none")
    if what in _KINDS:
        return Shape(names, _KINDS[what])
    return Shape(names, STORAGE[what].kind, what)


def parse(text: str) -> Signature:
    """Read a signature.

    Raises:
        InputError: there is no single "->", or a name is not an axis name.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(
            f"signature {text!r} is no text; write inputs -> outputs, as in 'q d, x d -> q x'"
        )
    sides = text.split("->")
    if len(sides) != 2:
        raise InputError(f"signature '{text}': write inputs -> outputs, as in 'q d, x d -> q x'")
    left, right = sides
    inputs = [_shape(part, text) for part in left.split(",")] if left.strip() else []
    if not right.strip():
        raise InputError(f"signature '{text}': no output; write its axes, or () for a scalar")
    outputs = tuple(_shape(part, text) for part in right.split(","))
    for o in outputs:
        if o.storage:
            raise InputError(
                f"signature '{text}': {o.storage!r} stands behind an output; write "
                f"nk.cast(..., {o.storage!r}) in the function to say how an output is stored"
            )
    return Signature(tuple(inputs), outputs)
