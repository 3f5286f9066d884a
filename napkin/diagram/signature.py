"""Signatures: "q d, x d, x d -> q d" names the axes of every input and output array.

After a colon stands what an array holds, `n:int`, or how an input is stored, `x d:fp8`.
"""

from __future__ import annotations

from dataclasses import dataclass

from napkin.errors import InputError, did_you_mean
from napkin.ir.names import axis_names
from napkin.ir.node import Kind
from napkin.ir.types import PACKED, STORAGE

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
