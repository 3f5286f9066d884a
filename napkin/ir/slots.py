"""Slots: the places of the keys that a query sees, in the parameters of nodes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import cast

from napkin.ir.node import Node, node


@dataclass(frozen=True)
class Slots:
    """Where keys and slots stand in for each other.

    Attributes:
        keys: the key axes, in the key set's order.
        slots: the axis of slots for each of them.
        counts: slots along each.
        fill: what slots past a query's last key hold.
        sign: of the fill: 0.0 and -0.0 are equal, but not the same.
    """

    keys: tuple[str, ...]
    slots: tuple[str, ...]
    counts: tuple[int, ...]
    fill: float = 0.0
    sign: float = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sign", math.copysign(1.0, self.fill))

    def renamed(self, table: Mapping[str, str]) -> Slots:
        """The same under other axis names."""
        keys, slots = (tuple(table.get(a, a) for a in axes) for axes in (self.keys, self.slots))
        return Slots(keys, slots, self.counts, self.fill)

    def compressed(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Axes with those of slots for those of keys."""
        table = dict(zip(self.keys, self.slots, strict=True))
        return tuple(table.get(a, a) for a in axes)

    def spread(self, axes: Iterable[str]) -> tuple[str, ...]:
        """Axes with those of keys for those of slots."""
        table = dict(zip(self.slots, self.keys, strict=True))
        return tuple(table.get(a, a) for a in axes)


def slots_of(n: Node) -> Slots:
    """How `n`, a compress or a spread, pairs keys and slots."""
    return cast(Slots, n.params[0])


def compress(x: Node, keys: Node, slots: Slots) -> Node:
    """`x` with the key axes turned into slots."""
    return node("compress", (x, keys), (slots,), slots.compressed(x.axes), x.kind)


def spread(x: Node, keys: Node, slots: Slots) -> Node:
    """`x` with the slots turned into key axes, 0 outside the key set."""
    return node("spread", (x, keys), (slots,), slots.spread(x.axes), x.kind)
