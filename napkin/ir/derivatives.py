"""The derivatives of operators and reductions as terms, by what their records say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from napkin.ir.array import Array, applied, lifted
from napkin.ir.infer import along
from napkin.ir.node import Node, number, over
from napkin.ir.operators.meant import joins_as
from napkin.ir.operators.record import POINTWISE, REDUCTIONS


@dataclass(frozen=True)
class Functions:
    """The operators by name, as derivatives are written with them.

    Attributes:
        axes: of `along`, the axes of the reduction.
    """

    axes: tuple[str, ...] = ()

    def __getattr__(self, name: str) -> Callable[..., Array]:
        return partial(applied, name)

    def along(self, how: str, x: Array) -> Array:
        """A reduction along the axes."""
        return Array(along(how, x.node, self.axes))


def of_operator(n: Node) -> list[Node | None] | None:
    """The derivatives of a pointwise operator by its arguments, None for 0; None where it has
    none."""
    given = POINTWISE[n.op].derivative
    if given is None:
        return None
    found = given(Functions(), Array(n), *map(Array, n.args))
    each = cast("tuple[Any, ...]", found if isinstance(found, tuple) else (found,))
    return [None if d is None else lifted(d) for d in each]


def of_reduction(n: Node, values: Node) -> Node | None:
    """The derivative of a reduction by each of its values; None where it has none."""
    record = REDUCTIONS[n.op]
    if record.derivative is not None:
        return lifted(record.derivative(Functions(over(n)), Array(n), Array(values)))
    return number(1) if joins_as(record) == "add" else None
