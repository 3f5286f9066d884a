"""The value of a diagram in torch, in float64 on any device: what kernels are compared with where
numpy would take minutes.

It reads the same table of operators as `napkin.ir.evaluate`, with the same meaning at the
edges. Arrays that do not fit in memory are evaluated in chunks along axes that the whole diagram is
weaved over, which changes no result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from napkin.derive.label import weaved
from napkin.diagram.diagram import Diagram
from napkin.ir.expansion import expanded
from napkin.ir.node import Kind, Node, over
from napkin.ir.storage import own_type
from napkin.ir.taking import taken_axes, taken_of
from napkin.ir.types import PACKED, RANGES
from napkin.ir.walk import Library, Walk, needs, ordered

Box = Mapping[str, range]
"""The part of some axes that arrays hold; of the others they hold all."""

BUDGET = 8 * 2**30
"""Bytes of arrays alive at once, about, in `Evaluation.chunks`."""


@dataclass(frozen=True)
class Evaluation:
    """How a diagram is evaluated at given sizes; made by `evaluation`.

    Attributes:
        steps: what is computed, each after what it needs.
        last: for each step, what nothing after it needs.
        axes: of each root, in order.
        cut: axes that everything is weaved over.
        real: what real arrays are computed in.
    """

    diagram: Diagram
    sizes: Mapping[str, int]
    scalars: Mapping[str, float]
    roots: tuple[Node, ...]
    axes: tuple[tuple[str, ...], ...]
    steps: tuple[Node, ...]
    last: tuple[tuple[Node, ...], ...]
    cut: tuple[str, ...]
    real: torch.dtype = torch.float64

    def __call__(self, *tensors: torch.Tensor, box: Box | None = None) -> list[torch.Tensor]:
        """The roots, with their axes in order; of the part of the axes that `box` names."""
        library, box = _Torch(self.real, tensors[0].device), dict(box or {})
        held = {a: range(n) for a, n in self.sizes.items()} | box
        walk = Walk(library, self.sizes, self.scalars, held, {})
        by_name = {
            str(n.params[0]): unpacked(t, own_type(n))
            for n, t in zip(self.diagram.inputs, tensors, strict=True)
        }
        for n, gone in zip(self.steps, self.last, strict=True):
            read = n.op == "input" and taken_of(n) is None
            tensor = _part(by_name[str(n.params[0])], n, box) if read else None
            walk.values[n] = walk.value(n) if tensor is None else library.cast(tensor, n.kind)
            for m in gone:
                del walk.values[m]
        return [
            library.expanded(walk.aligned(n, axes), walk.shape(axes))
            for n, axes in zip(self.roots, self.axes, strict=True)
        ]

    def chunks(
        self, *tensors: torch.Tensor, budget: int = BUDGET
    ) -> Iterator[tuple[Box, list[torch.Tensor]]]:
        """The outputs in parts, each with where it lies, so that about `budget` bytes are alive.

        Where the diagram is weaved over no axis, or one position is too much, there are more.
        """
        size = {a: self.sizes[a] for a in self.cut}
        while self.peak(size) > budget and any(n > 1 for n in size.values()):
            halves = [size | {a: -(-n // 2)} for a, n in size.items() if n > 1]
            size = min(halves, key=self.peak)
        parts = [
            [range(i, min(i + n, self.sizes[a])) for i in range(0, self.sizes[a], max(n, 1))]
            for a, n in size.items()
        ]
        for ranges in itertools.product(*parts):
            box = dict(zip(size, ranges, strict=True))
            yield box, self(*tensors, box=box)

    def peak(self, size: Mapping[str, int]) -> int:
        """Bytes of arrays alive at once, at most, where axes have the lengths in `size`."""
        known = {**self.sizes, **size}
        bytes_of = {n: 8 * math.prod(known.get(a, 1) for a in n.axes) for n in self.steps}
        alive = most = 0
        for n, gone in zip(self.steps, self.last, strict=True):
            alive += bytes_of[n]
            most = max(most, alive + bytes_of[n])  # once more for what an operator needs itself
            alive -= sum(bytes_of[m] for m in gone)
        return most


def evaluation(
    diagram: Diagram,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float] | None = None,
    real: torch.dtype = torch.float64,
) -> Evaluation:
    """The evaluation of a diagram at these sizes.

    Raises:
        InputError: a scalar has no value.
    """
    opened = expanded(diagram.roots)
    outputs = tuple(replace(o, node=opened[o.node]) for o in diagram.outputs)
    roots = tuple(o.node for o in outputs)
    steps = ordered(roots)
    read = {a for n in steps if n.op == "take" for a in taken_axes(n)}
    # An axis that some array of numbers is written out along is not cut.
    read |= {a for n in steps if n.op == "listed" for a in n.axes}
    cut = tuple(a for a in weaved(outputs) if a not in read)
    values = diagram.check_scalars(scalars or {})
    axes = tuple(o.axes for o in outputs)
    return Evaluation(diagram, sizes, values, roots, axes, steps, _last(steps, roots), cut, real)


def terms(
    diagram: Diagram,
    sizes: Mapping[str, int],
    found: Sequence[tuple[Node, Sequence[str]]],
    cut: Sequence[str] = (),
) -> Evaluation:
    """The evaluation of terms of a diagram, such as the bounds of a key set, each over the axes
    that go with it.

    Args:
        cut: axes that all of them are weaved over, for `Evaluation.chunks`.
    """
    opened = expanded([n for n, _ in found])
    roots = tuple(opened[n] for n, _ in found)
    steps, axes = ordered(roots), tuple(tuple(a) for _, a in found)
    scalars = diagram.check_scalars({})
    last = _last(steps, roots)
    return Evaluation(diagram, sizes, scalars, roots, axes, steps, last, tuple(cut))


def _last(steps: Sequence[Node], roots: Sequence[Node]) -> tuple[tuple[Node, ...], ...]:
    when = {a: i for i, n in enumerate(steps) for a in needs(n)}
    out: list[list[Node]] = [[] for _ in steps]
    for n, i in when.items():
        if n not in roots:
            out[i].append(n)
    return tuple(map(tuple, out))


_SPELT = {"equal": "eq", "power": "pow", "mod": "remainder"}


class _Names:
    """torch under the names that the table of operators calls numpy's functions by."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, _SPELT.get(name, name))

    @staticmethod
    def asarray(x: torch.Tensor, _: type) -> torch.Tensor:
        return x

    @staticmethod
    def vectorize(scalar: Callable[..., Any], **_: Any) -> Any:
        return getattr(torch, scalar.__name__)

    @staticmethod
    def max(x: torch.Tensor, axis: tuple[int, ...], initial: float) -> torch.Tensor:
        return _most(torch.amax, torch.maximum, x, axis, initial)

    @staticmethod
    def min(x: torch.Tensor, axis: tuple[int, ...], initial: float) -> torch.Tensor:
        return _most(torch.amin, torch.minimum, x, axis, initial)

    @staticmethod
    def sort(x: torch.Tensor, axis: int) -> torch.Tensor:
        return x.sort(axis).values

    @staticmethod
    def prod(x: torch.Tensor, axis: tuple[int, ...]) -> torch.Tensor:
        for i in sorted(axis, reverse=True):
            x = x.prod(i)
        return x

    @staticmethod
    def floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        # As numpy has it, a whole number divided by 0 is 0.
        return torch.where(b == 0, 0, torch.floor_divide(a, torch.where(b == 0, 1, b)))


def _most(
    along: Any, two: Any, x: torch.Tensor, axis: tuple[int, ...], initial: float
) -> torch.Tensor:
    """An extremum along axes, beside a value to start from."""
    start = torch.tensor(initial, dtype=x.dtype, device=x.device)
    if any(x.shape[i] == 0 for i in axis):
        return start.expand([s for i, s in enumerate(x.shape) if i not in axis])
    return two(along(x, axis), start)


NAMES: Any = _Names()
"""torch as the table of operators calls it."""


def _part(t: torch.Tensor, n: Node, box: Box) -> torch.Tensor:
    """What an input leaf reads of a tensor in a part of its axes."""
    for i, a in enumerate(n.axes):
        if a in box:
            t = t.narrow(i, box[a].start, len(box[a]))
    return t


def unpacked(t: torch.Tensor, dtype: str) -> torch.Tensor:
    """The values of bytes that hold two each (int8, twice as many along the last axis); other
    tensors as they are."""
    if dtype not in PACKED or t.element_size() > 1:
        return t
    bits = t.view(torch.uint8)
    found = torch.stack((bits & 15, bits >> 4), -1).flatten(-2).to(torch.int8)
    return torch.where(found > RANGES[dtype][-1], found - 16, found)


class _Torch(Library):
    """torch's tensors, on a device."""

    xp = NAMES

    def __init__(self, real: torch.dtype, device: torch.device) -> None:
        self.real, self.device = real, device

    def constant(self, value: Any, whole: bool = False) -> torch.Tensor:
        dtype = torch.float64 if isinstance(value, float) else torch.int64 if whole else None
        return torch.tensor(value, dtype=dtype, device=self.device)

    def ones(self, shape: Sequence[int]) -> torch.Tensor:
        return torch.ones(tuple(shape), dtype=torch.int64, device=self.device)

    def positions(self, where: range) -> torch.Tensor:
        return torch.arange(where.start, where.stop, device=self.device)

    def permuted(self, x: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
        return x.permute(tuple(order))

    def numbers(self, x: torch.Tensor, kind: Kind) -> torch.Tensor:
        if kind == "real":
            return x if x.is_floating_point() else x.to(self.real)
        return x.to(torch.int64) if x.dtype == torch.bool else x

    def cast(self, x: torch.Tensor, kind: Kind) -> torch.Tensor:
        if kind == "bool":
            return x != 0
        return x.to(self.real if kind == "real" else torch.int64)

    def filled(self, value: float, like: torch.Tensor) -> torch.Tensor:
        return torch.tensor(value, dtype=like.dtype, device=self.device)

    def expanded(self, x: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return x.expand(tuple(shape))

    def spread(self, x: torch.Tensor, arrays: Sequence[torch.Tensor]) -> torch.Tensor:
        return x.expand(torch.broadcast_shapes(*(a.shape for a in arrays)))

    def added(
        self, shape: Sequence[int], where: Sequence[torch.Tensor], value: torch.Tensor
    ) -> torch.Tensor:
        out = value.new_zeros(list(shape))
        at = tuple(i.to(torch.int64) for i in where)
        return out.index_put(at, value, accumulate=True) if out.numel() else out

    def contraction(
        self, n: Node, parts: Sequence[Node], values: Mapping[Node, torch.Tensor]
    ) -> torch.Tensor:
        if len(parts) == 1:
            return values[parts[0]].sum([parts[0].axes.index(a) for a in over(n)])
        letters: dict[str, int] = {}
        operands: list[Any] = []
        scale: torch.Tensor | float = 1.0
        for p in parts:
            # Products of whole numbers on a GPU are computed in float64, exact below 2**53.
            value = values[p].to(torch.float64 if n.kind == "int" else self.real)
            if not p.axes:
                scale = scale * value
            else:
                operands += [value, [letters.setdefault(a, len(letters)) for a in p.axes]]
        found = torch.einsum(*operands, [letters[a] for a in n.axes]) * scale
        return found.round().to(torch.int64) if n.kind == "int" else found.to(self.real)
