"""What a diagram is given by another one: item types, scalars, axes, and names of outputs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from napkin.diagram.interface import Interface, Output
from napkin.errors import InputError
from napkin.ir.infer import pointwise, widest
from napkin.ir.names import numbered
from napkin.ir.node import Node

_CASTS = {"real": "fp32", "int": "int32"}
"""Into which type values are cast that an input of a kind is given."""


def as_input(given: Node, n: Node, name: str) -> Node:
    """An array in the item type of an input of the diagram `name`.

    Raises:
        InputError: the input holds whole numbers or tests, and the array other numbers.
    """
    if given.kind == n.kind:
        return given
    if widest([given, n]) != n.kind:
        instead = "X != 0" if n.kind == "bool" else "nk.cast(X, 'int32')"
        raise InputError(
            f"{name}: {n.params[0]} holds values of kind {n.kind!r}, and the array given "
            f"{given.kind!r}; write {instead} of it"
        )
    return pointwise("cast", (given,), (_CASTS[n.kind],))


def check_scalars(first: Interface, second: Interface) -> None:
    """Refuse a scalar of the second of two diagrams in a row whose name says another number in the
    first."""
    names, what = first.input_names, f"{first.name} >> {second.name}"
    for k, value in second.scalars.items():
        own = first.scalars.get(k, value)
        same = own == value or (math.isnan(own) and math.isnan(value))
        if k not in names and same:
            continue
        why = f"is {own:g} in the one and {value:g} in the other by default"
        if k in names:
            why = "is an input of the one and a scalar of the other"
        raise InputError(f"{what}: {k} {why}; give one of the two another name")


def check_axes(first: Interface, second: Interface) -> None:
    """Refuse an axis of two diagrams in a row that the one does not hand to the other, and that is
    something else in each."""
    between = [a for o in first.outputs for a in o.axes]
    for a in second.axes:
        if a in between or a not in first.axes:
            continue
        own, other = (_axis(d, a, between) for d in (first, second))
        if own != other:
            raise InputError(
                f"{first.name} >> {second.name}: {a} is {own} in the one and {other} in the other; "
                "give it another name in one of the two"
            )


def check_sizes(first: Interface, second: Interface) -> None:
    """Refuse two sizes of one axis."""
    for a, size in second.sizes.items():
        if first.sizes.get(a, size) != size:
            raise InputError(
                f"{first.name} >> {second.name}: {a} is {first.sizes[a]} in the one and {size} in "
                f"the other; write {first.name}.with_sizes({a}={size}), or the other way round"
            )


def _axis(d: Interface, axis: str, between: Sequence[str]) -> str:
    """What an axis is in a diagram, in words."""
    for a in between:
        if d.sized_as(a) == d.sized_as(axis):
            return f"{a} under another name"
    for s in d.slides:
        if axis == s.out:
            return f"the windows along {s.axis}"
        if axis == s.tap and s.span.window:
            return f"the {s.span.window} places of a window"
    return f"{d.counted[axis][0]} slots" if axis in d.counted else "an axis of its own"


def outputs(first: Interface, second: Interface, done: Mapping[Node, Node]) -> tuple[Output, ...]:
    """The outputs of two diagrams in a row, under names that no input or scalar has."""
    taken = {*first.input_names, *first.scalars, *second.scalars}
    own = {o.name for o in second.outputs} - taken
    taken |= own
    found = list[Output]()
    for o in second.outputs:
        name = o.name if o.name in own else numbered(o.name, taken)
        taken.add(name)
        found.append(replace(o, name=name, node=done[o.node]))
    return tuple(found)
