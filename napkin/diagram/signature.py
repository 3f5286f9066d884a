"""Signatures: "q d, x d, x d -> q d" names the axes of every input and output array."""

from __future__ import annotations

import re
from dataclasses import dataclass

from napkin.diagram.node import Kind
from napkin.errors import InputError

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
_RESERVED = re.compile(r"[gs]_")
_PYTHON = frozenset(
    [
        "and",
        "as",
        "assert",
        "async",
        "await",
        "break",
        "class",
        "continue",
        "def",
        "del",
        "elif",
        "else",
        "except",
        "finally",
        "for",
        "from",
        "global",
        "if",
        "import",
        "in",
        "is",
        "lambda",
        "nonlocal",
        "not",
        "or",
        "pass",
        "raise",
        "return",
        "try",
        "while",
        "with",
        "yield",
        "tl",
        "triton",
        "range",
    ]
)
_KINDS: dict[str, Kind] = {"real": "real", "int": "int", "bool": "bool"}


@dataclass(frozen=True)
class Shape:
    """The axes of one array, in order, and its item type."""

    axes: tuple[str, ...]
    kind: Kind = "real"

    def __str__(self) -> str:
        text = " ".join(self.axes) or "()"
        return text if self.kind == "real" else f"{text}:{self.kind}"


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
    names = tuple(text.split())
    for name in names:
        if not _NAME.match(name) or name in _PYTHON:
            raise InputError(
                f"{where}: {name!r} is not an axis name; "
                "write lower-case letters and digits, a letter first, such as 'q' or 'x0'"
            )
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
    axes, colon, kind = text.partition(":")
    if colon and kind.strip() not in _KINDS:
        raise InputError(f"{where}: item type {kind.strip()!r} is not one of real, int, bool")
    axes = "" if axes.strip() == "()" else axes
    return Shape(axis_names(axes, where), _KINDS[kind.strip()] if colon else "real")


def parse(text: str) -> Signature:
    """Read a signature.

    Raises:
        InputError: there is no single "->", or a name is not an axis name.
    """
    sides = text.split("->")
    if len(sides) != 2:
        raise InputError(f"signature '{text}': write inputs -> outputs, as in 'q d, x d -> q x'")
    left, right = sides
    inputs = [_shape(part, text) for part in left.split(",")] if left.strip() else []
    if not right.strip():
        raise InputError(f"signature '{text}': no output; write its axes, or () for a scalar")
    return Signature(tuple(inputs), tuple(_shape(part, text) for part in right.split(",")))
