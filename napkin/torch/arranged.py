"""Calls of attention and of functions on rows: arranged for their diagrams, and prepared once for
each kind of tensors.

Launches read memory, so a call that is prepared takes the tensors as they are given, and gives
outputs as its caller sees them: views are made to prepare it, and not for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from napkin.run.prepared import Layout, Prepared, facts, row_major
from napkin.torch.function import Function
from napkin.torch.given import Captured, beside_tensors, captured
from napkin.torch.keys import built, called
from napkin.torch.ops import Call, Gradient, asked, recorded, run
from napkin.torch.ready_tables import remember


@dataclass(frozen=True)
class Result:
    """An output as its caller sees it.

    Attributes:
        shape: its shape.
        order: its axes, as they lie in memory.
    """

    shape: Sequence[int]
    order: Sequence[int]

    def shown(self, out: torch.Tensor) -> torch.Tensor:
        """The output of the diagram in this shape."""
        stored = out.reshape([self.shape[i] for i in self.order])
        places = list(range(len(self.order)))
        if places == [*self.order]:
            return stored
        return stored.permute([self.order.index(i) for i in places])


def in_order(shape: Sequence[int]) -> Result:
    """An output whose axes lie in memory one after another."""
    return Result(shape, range(len(shape)))


@dataclass(frozen=True)
class Arranged:
    """How a call is computed.

    Attributes:
        arguments: those of the diagram's builder.
        views: the tensors as the diagram takes them; of each, in the order of its numbers.
        results: the outputs, as the caller sees them.
    """

    arguments: tuple[Any, ...]
    views: list[torch.Tensor]
    results: list[Result]


def graph_call(family: str, made: Arranged, scalars: tuple[float, ...]) -> list[torch.Tensor]:
    """A family's function as a node of the graph that is being captured."""
    out = run(made.views, f"{family}{made.arguments!r}", scalars)
    return [r.shown(t) for r, t in zip(made.results, out, strict=True)]


_CALLS: dict[Any, _Prepared] = {}


def known_call(
    family: str,
    known: Any,
    seen: Captured,
    tensors: Sequence[torch.Tensor],
    scalars: tuple[float, ...],
    arrange: Callable[[], Arranged],
) -> Sequence[torch.Tensor]:
    """The outputs of a family's function, of which derivatives are recorded or not.

    Args:
        known: the function, and all that its arrangement and its launches depend on.
    """
    needed = asked(tensors) if seen == "recorded" else ()
    call = _CALLS.get((known, needed))
    if call is None:
        made = arrange()
        key = built(family, *made.arguments).key
        shapes = [t.shape for t in tensors]
        call = remember(_CALLS, (known, needed), _Prepared(key, needed, scalars, made, shapes))
    return recorded(call, *tensors) if seen == "recorded" else call.prepared(tensors)


class _Prepared(Call):
    """A call on tensors of one kind."""

    def __init__(
        self,
        key: str,
        needed: tuple[bool, ...],
        scalars: tuple[float, ...],
        made: Arranged,
        shapes: Sequence[torch.Size],
    ) -> None:
        super().__init__(key, needed, scalars)
        function = called(self.key)
        self.shapes = shapes
        self.sizes = function.diagram.sizes_of([tuple(v.shape) for v in made.views])
        more = function.diagram.outputs[self.count :]
        results = [*made.results, *(in_order([self.sizes[a] for a in o.axes]) for o in more)]
        self.orders = [tuple(r.order) for r in results]
        layouts = [permuted(r.shape, r.order) for r in results]
        self.prepared = function.prepare(made.views, function.named(scalars), layouts)
        self._ready: dict[Any, tuple[Prepared, list[int]]] = {}

    def outputs(self, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        return self.prepared(arrays)

    def gradients(
        self, made: Gradient, arrays: list[torch.Tensor], places: tuple[int, ...]
    ) -> list[torch.Tensor]:
        function = made.function
        if captured(function.diagram.name, arrays):
            found = run(self._views(function, arrays, places), function.key, self.scalars)
        else:
            key = function, places, beside_tensors(self.scalars), *map(facts, arrays)
            ready = self._ready.get(key)
            if ready is None:
                ready = remember(self._ready, key, self._made_ready(made, arrays, places))
            prepared, copied = ready
            if copied:
                views = self._views(function, arrays, places)
                for i in copied:
                    arrays[i] = views[i]
            found = prepared(arrays)
        shapes = (self.shapes[i] for i in made.wanted)
        each = zip(made.reads.held, shapes, strict=True)
        return [found[i] if found[i].shape == s else found[i].reshape(s) for i, s in each]

    def _made_ready(
        self, made: Gradient, arrays: Sequence[torch.Tensor], places: tuple[int, ...]
    ) -> tuple[Prepared, list[int]]:
        """What computes gradients in the shapes of inputs; and which of the arrays lie so that they
        have to be copied for it."""
        function, held = made.function, made.reads.held
        views = self._views(function, arrays, places)
        each = enumerate(zip(views, arrays, strict=True))
        copied = [i for i, (v, t) in each if v.data_ptr() != t.data_ptr()]
        first = [made.wanted[held.index(i)] for i in sorted({*held})]
        layouts = [row_major(self.shapes[i]) for i in first]
        return function.prepare(views, function.named(self.scalars), layouts), copied

    def _views(
        self, function: Function, arrays: Sequence[torch.Tensor], places: tuple[int, ...]
    ) -> list[torch.Tensor]:
        """The arrays as the diagram of a gradient takes them."""
        stored = list(arrays)
        for i, place in enumerate(places, len(arrays) - len(places)):
            stored[i] = arrays[i].permute(self.orders[place])
        each = zip(stored, function.diagram.inputs, strict=True)
        return [t.reshape([self.sizes[a] for a in n.axes]) for t, n in each]


def permuted(shape: Sequence[int], order: Sequence[int]) -> Layout:
    """The layout of a tensor of this shape whose axes lie in memory in that order."""
    steps = row_major([shape[i] for i in order])[1]
    by_axis = dict(zip(order, steps, strict=True))
    return tuple(shape), tuple(by_axis[i] for i in range(len(shape)))
