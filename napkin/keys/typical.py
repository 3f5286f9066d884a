"""What the inputs that a key set reads hold where their values are not known.

Plans are made for pieces of equal lengths and for blocks that lie anywhere; checks draw both at
random.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from napkin.ir.linear import whole_number
from napkin.ir.node import Node, postorder
from napkin.ir.taking import table_of, taken_of

Array = np.ndarray[Any, Any]


TYPICAL = {
    "lengths": "equal lengths",
    "places": "any places",
    "starts": "starts of pieces of equal lengths",
    "ends": "ends of pieces of equal lengths",
}
"""What plans take inputs for, in words."""


@dataclass(frozen=True)
class Needed:
    """What a key set makes of an input of whole numbers.

    Attributes:
        what: lengths of pieces of the key axis, places on it, or where pieces begin and end, one
            after another.
        unit: keys from one place to the next, as of blocks.
    """

    what: Literal["lengths", "places", "starts", "ends"]
    unit: int = 1


def needed(bounds: Sequence[Node]) -> dict[Node, Needed]:
    """The inputs under the bounds of key sets, first keys and ends by turns, and what they are
    there."""
    order = list(postorder(bounds))
    units: dict[Node, int] = {}
    for n in order:
        if n.op == "mul" and (unit := whole_number(n.args[1])) is not None:
            units[n.args[0]] = unit
    out: dict[Node, Needed] = {}
    for n in order:
        if n.op == "cumsum" and _source(n.args[0]).op == "input":
            out[_source(n.args[0])] = Needed("lengths")
    for first, end in zip(bounds[::2], bounds[1::2], strict=True):
        if first.op == end.op == "input" and first.axes == end.axes and not first.args + end.args:
            out |= {first: Needed("starts"), end: Needed("ends")}
    for n in sorted(order, key=lambda n: n.op != "take"):  # before what they take
        read = _read(n)
        if read is not None:
            out.setdefault(read, Needed("places", units.get(n, 1)))
    return out


def _source(n: Node) -> Node:
    while n.op == "rename":
        n = n.args[0]
    return n


def _read(n: Node) -> Node | None:
    """The input that a term reads, as a leaf that evaluation asks for."""
    if n.op == "take":
        source = _source(n.args[0])
        return source if source.op == "input" else None
    return table_of(n) if n.op == "input" and (taken_of(n) or not n.args) else None


def typical(bounds: Sequence[Node], sizes: Mapping[str, int], keys: int) -> dict[Node, Array]:
    """Values of the inputs under the bounds of a key set over `keys` keys, to plan with."""
    out: dict[Node, Array] = {}
    for leaf, of in needed(bounds).items():
        shape = [sizes[a] for a in leaf.axes]
        if of.what == "lengths":
            out[leaf] = np.full(shape, keys // max(shape[-1], 1))
        elif of.what != "places":
            each = np.arange(of.what == "ends", math.prod(shape) + (of.what == "ends"))
            out[leaf] = (each * keys // max(each.size, 1)).reshape(shape)
        elif leaf.kind == "int":
            out[leaf] = np.random.default_rng(0).integers(0, _places(of, keys), size=shape)
        else:
            out[leaf] = np.zeros(shape)
    return out


def drawn(of: Needed, shape: tuple[int, ...], keys: int, rng: np.random.Generator) -> Array:
    """Random values of such an input: lengths that fit the key axis, or places on it."""
    if of.what != "lengths":
        return rng.integers(0, _places(of, keys), size=shape)
    cuts = np.sort(rng.integers(0, keys + 1, size=(*shape[:-1], shape[-1] + 1)))
    return np.diff(cuts)


def _places(of: Needed, keys: int) -> int:
    return max(-(-keys // of.unit), 1)
