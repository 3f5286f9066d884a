"""The value of a diagram in torch, in float64 on any device: what kernels are compared with where
numpy would take minutes.

It reads the same table of operators as `napkin.diagram.evaluate`, with the same meaning at the
edges. Arrays that do not fit in memory are evaluated in chunks along axes that the whole diagram is
weaved over, which changes no result.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from napkin.derive.kernel import weaved
from napkin.diagram.diagram import Diagram
from napkin.diagram.evaluate import needs
from napkin.diagram.expand import expanded
from napkin.diagram.keys.slots import slots_of
from napkin.diagram.keys.terms import boxes_of, member
from napkin.diagram.node import Node, factors, in_kind, over
from napkin.diagram.operators import POINTWISE
from napkin.diagram.storage import own_type
from napkin.diagram.taking import reading_of, taken_axes, taken_of
from napkin.diagram.types import PACKED, RANGES

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
        run = _Run(self, dict(box or {}), tensors[0].device)
        by_name = {
            str(n.params[0]): unpacked(t, own_type(n))
            for n, t in zip(self.diagram.inputs, tensors, strict=True)
        }
        for n, gone in zip(self.steps, self.last, strict=True):
            run.values[n] = run.read(n, by_name) if n.op == "input" else run.value(n)
            for m in gone:
                del run.values[m]
        return [
            run.aligned(n, axes).expand([run.length(a) for a in axes])
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
    steps = _ordered(roots)
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
    steps, axes = _ordered(roots), tuple(tuple(a) for _, a in found)
    scalars = diagram.check_scalars({})
    last = _last(steps, roots)
    return Evaluation(diagram, sizes, scalars, roots, axes, steps, last, tuple(cut))


def _ordered(roots: Sequence[Node]) -> tuple[Node, ...]:
    out: dict[Node, None] = {}
    stack = [(r, False) for r in reversed(roots)]
    while stack:
        n, ready = stack.pop()
        if n in out:
            continue
        if ready:
            out[n] = None
        else:
            stack.append((n, True))
            stack.extend((a, False) for a in reversed(needs(n)))
    return tuple(out)


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
    def floor_divide(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        # As numpy has it, a whole number divided by 0 is 0.
        return torch.where(b == 0, 0, torch.floor_divide(a, torch.where(b == 0, 1, b)))


NAMES: Any = _Names()
"""torch as the table of operators calls it."""


def unpacked(t: torch.Tensor, dtype: str) -> torch.Tensor:
    """The values of bytes that hold two each (int8, twice as many along the last axis); other
    tensors as they are."""
    if dtype not in PACKED or t.element_size() > 1:
        return t
    bits = t.view(torch.uint8)
    found = torch.stack((bits & 15, bits >> 4), -1).flatten(-2).to(torch.int8)
    return torch.where(found > RANGES[dtype][-1], found - 16, found)


@dataclass
class _Run:
    of: Evaluation
    box: dict[str, range]
    device: torch.device
    values: dict[Node, torch.Tensor] = field(default_factory=dict[Node, torch.Tensor])

    def length(self, axis: str) -> int:
        return len(self.box[axis]) if axis in self.box else self.of.sizes[axis]

    def aligned(self, n: Node, target: Sequence[str]) -> torch.Tensor:
        """The value of `n`, with length-1 axes to broadcast as `target`."""
        return _aligned(self.values[n], n.axes, target)

    def read(self, n: Node, by_name: Mapping[str, torch.Tensor]) -> torch.Tensor:
        if taken_of(n) is not None:
            return self.gathered(n)
        found = by_name[str(n.params[0])]
        for i, a in enumerate(n.axes):
            if a in self.box:
                found = found.narrow(i, self.box[a].start, len(self.box[a]))
        if n.kind == "bool":
            return found != 0
        return found.to(self.of.real if n.kind == "real" else torch.int64)

    def constant(self, value: float) -> torch.Tensor:
        real = isinstance(value, float)
        return torch.tensor(value, dtype=torch.float64 if real else None, device=self.device)

    def value(self, n: Node) -> torch.Tensor:
        op = n.op
        if op == "number":
            return self.constant(n.params[0])  # pyright: ignore[reportArgumentType]
        if op == "size":
            return self.constant(self.of.sizes[str(n.params[0])])
        if op == "scalar":
            return self.constant(float(self.of.scalars[str(n.params[0])]))
        if op == "index":
            start = self.box[n.axes[0]].start if n.axes[0] in self.box else 0
            return torch.arange(start, start + self.length(n.axes[0]), device=self.device)
        if op == "ones":
            shape = [self.length(a) for a in n.axes]
            return torch.ones(shape, dtype=torch.int64, device=self.device)
        if op == "listed":
            return torch.tensor(n.params[0], dtype=torch.int64, device=self.device)
        if op == "take":
            return self.gathered(n)
        if op in {"rename", "scatter"}:
            return self.values[n.args[0]]
        if op in {"compress", "spread"}:
            return self.moved(n)
        if op == "keys":
            found = self.aligned(member(n), n.axes)
            return found.expand([self.length(a) for a in n.axes])
        if op in POINTWISE:
            return self.pointwise(n)
        if op == "sum":
            return self.contraction(n)
        return self.reduced(n)

    def pointwise(self, n: Node) -> torch.Tensor:
        arrays = [self.aligned(a, n.axes) for a in n.args]
        if n.kind != "bool" and n.op != "cast":
            first = 1 if n.op == "where" else 0
            arrays[first:] = [self.numbers(a, n.kind) for a in arrays[first:]]
        out = POINTWISE[n.op].evaluate(NAMES, *arrays)
        if n.op == "cast":
            if n.kind == "bool":
                return out != 0
            return out.to(self.of.real if n.kind == "real" else torch.int64)
        return out.expand([self.length(a) for a in n.axes])

    def numbers(self, x: torch.Tensor, kind: str) -> torch.Tensor:
        """`x` in the numbers that a result of this kind is computed in."""
        if kind == "real":
            return x if x.is_floating_point() else x.to(self.of.real)
        return x.to(torch.int64) if x.dtype == torch.bool else x

    def contraction(self, n: Node) -> torch.Tensor:
        parts = factors(n.args[0])
        if len(parts) == 1:
            value = self.values[parts[0]]
            return value.sum([parts[0].axes.index(a) for a in over(n)])
        letters: dict[str, int] = {}
        operands: list[Any] = []
        scale: torch.Tensor | float = 1.0
        for p in parts:
            # Products of whole numbers on a GPU are computed in float64, exact below 2**53.
            exact = torch.float64 if n.kind == "int" else self.of.real
            value = self.values[p].to(exact)
            if not p.axes:
                scale = scale * value
            else:
                operands += [value, [letters.setdefault(a, len(letters)) for a in p.axes]]
        found = torch.einsum(*operands, [letters[a] for a in n.axes]) * scale
        return found.round().to(torch.int64) if n.kind == "int" else found.to(self.of.real)

    def reduced(self, n: Node) -> torch.Tensor:
        value = self.values[n.args[0]]
        where = [n.args[0].axes.index(a) for a in over(n)]
        if n.op in {"max", "min"}:
            value = self.numbers(value, "int")
            start = torch.tensor(
                in_kind(float(str(n.params[1])), n.kind), dtype=value.dtype, device=self.device
            )
            if any(value.shape[i] == 0 for i in where):
                shape = [s for i, s in enumerate(value.shape) if i not in where]
                return start.expand(shape)
            if n.op == "max":
                return torch.maximum(value.amax(where), start)
            return torch.minimum(value.amin(where), start)
        if n.op == "prod":
            for i in sorted(where, reverse=True):
                value = value.prod(i)
            return value
        if n.op == "cumsum":
            return value.cumsum(where[0])
        if n.op == "sort":
            return value.sort(where[0]).values
        raise AssertionError(f"no value for {n!r}")

    def gathered(self, n: Node) -> torch.Tensor:
        """As `napkin.diagram.taking.gathered`."""
        table, positions, taken = reading_of(n)
        value = self.values[table]
        where: list[torch.Tensor] = []
        outside = torch.zeros([1] * len(n.axes), dtype=torch.bool, device=self.device)
        for u, size in zip(taken.under, value.shape, strict=True):
            if isinstance(u, str):
                where.append(_aligned(torch.arange(size, device=self.device), (u,), n.axes))
                continue
            at = self.aligned(positions[u], n.axes)
            where.append(at.clamp(0, max(size - 1, 0)))
            if taken.spans[u] is not None:
                outside = outside | (at < 0) | (at >= size)
        if 0 in value.shape:
            shape = torch.broadcast_shapes(*(w.shape for w in where))
            return torch.zeros(shape, dtype=value.dtype, device=self.device)
        return value[tuple(where)].masked_fill(outside, 0)

    def moved(self, n: Node) -> torch.Tensor:
        """As `napkin.diagram.keys.moved`: between keys and slots."""
        s, (x, keys) = slots_of(n), n.args
        (box,) = boxes_of(keys)
        at = dict[str, torch.Tensor]()
        inside = torch.ones([1] * len(n.axes), dtype=torch.bool, device=self.device)
        for i, key, slot, count in zip(box.intervals, s.keys, s.slots, s.counts, strict=True):
            first, end = self.aligned(i.first, n.axes), self.aligned(i.end, n.axes)
            if n.op == "compress":
                slots = torch.arange(count, device=self.device)
                at[key] = first + i.step * _aligned(slots, (slot,), n.axes)
                inside = inside & (at[key] < end)
            else:
                places = torch.arange(self.length(key), device=self.device)
                k = _aligned(places, (key,), n.axes)
                at[slot] = torch.div(k - first, i.step, rounding_mode="floor")
                inside = inside & (first <= k) & (k < end) & ((k - first) % i.step == 0)
        value = self.values[x]
        fill = torch.tensor(
            s.fill if n.op == "compress" else 0, dtype=value.dtype, device=self.device
        )
        if 0 in value.shape:
            return torch.zeros_like(fill).expand([self.length(a) for a in n.axes])
        where = [
            at[a].clamp(0, size - 1)
            if a in at
            else _aligned(torch.arange(size, device=self.device), (a,), n.axes)
            for a, size in zip(x.axes, value.shape, strict=True)
        ]
        return torch.where(inside, value[tuple(where)], fill)


def _aligned(value: torch.Tensor, axes: Sequence[str], target: Sequence[str]) -> torch.Tensor:
    order = sorted(range(len(axes)), key=lambda i: target.index(axes[i]))
    held = {axes[i] for i in order}
    shape = iter([value.shape[i] for i in order])
    return value.permute(order).reshape([next(shape) if a in held else 1 for a in target])
