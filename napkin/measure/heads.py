"""A problem as libraries for attention take it: heads in front, and keys as numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from napkin.diagram.diagram import Diagram
from napkin.ir.key_sets import boxes_of
from napkin.measure.attention import Attention, NotAttention, attention_of
from napkin.torch.reference import terms


@dataclass(frozen=True)
class Problem:
    """What is computed, on which tensors.

    Attributes:
        gradient_of: the diagram that `diagram` is the gradient of, if it is one.
    """

    diagram: Diagram
    sizes: Mapping[str, int]
    dtype: str
    tensors: Sequence[torch.Tensor]
    gradient_of: Diagram | None = None


@dataclass(frozen=True)
class Heads:
    """Queries, keys and values with heads in front: (1, heads, positions, values)."""

    form: Attention
    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    sizes: Mapping[str, int]

    @property
    def grouped(self) -> bool:
        """Whether several heads of queries share one of keys."""
        return self.query.shape[1] != self.key.shape[1]

    @property
    def reads(self) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """What a library is given."""
        return self.query, self.key, self.value

    def repeated(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values with a copy for every head of queries."""
        times = self.query.shape[1] // self.key.shape[1]
        return self.key.repeat_interleave(times, 1), self.value.repeat_interleave(times, 1)

    def outputs(self, found: torch.Tensor) -> Sequence[torch.Tensor]:
        """A result (1, heads, positions, values) under the diagram's axes."""
        f = self.form
        axes = (*f.batch, *f.shared, *f.queries, f.width)
        whole = found.reshape([self.sizes[a] for a in axes])
        return [whole.permute([axes.index(a) for a in f.out])]


def heads(p: Problem) -> Heads:
    """A problem's tensors in that layout.

    Raises:
        NotAttention: the diagram has another form.
    """
    f = attention_of(p.diagram)

    def packed(at: tuple[int, tuple[str, ...]], *groups: Sequence[str]) -> torch.Tensor:
        place, axes = at
        order = [axes.index(a) for g in groups for a in g]
        shape = [math.prod(p.sizes[a] for a in g) for g in groups]
        return p.tensors[place].permute(order).reshape(1, *shape).contiguous()

    return Heads(
        f,
        packed(f.query, (*f.batch, *f.shared), f.queries, [f.depth]),
        packed(f.key, f.batch, f.keys, [f.depth]),
        packed(f.value, f.batch, f.keys, [f.width]),
        p.sizes,
    )


@dataclass(frozen=True)
class Seen:
    """Which keys each query sees, as numbers: for each box and key axis the first key and the end
    of every query, and the step."""

    boxes: tuple[tuple[tuple[torch.Tensor, torch.Tensor, int], ...], ...]
    layout: tuple[int, ...]

    def __call__(self, q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        """Whether query q sees key k; positions count through all axes."""
        found: Any = None
        for box in self.boxes:
            inside, rest = None, k
            for (first, end, step), size in reversed(list(zip(box, self.layout, strict=True))):
                at, rest = rest % size, rest // size
                test = (at >= first[q]) & (at < end[q])
                if step > 1:
                    test = test & ((at - first[q]) % step == 0)
                inside = test if inside is None else inside & test
            found = inside if found is None else found | inside
        return found

    @property
    def plain(self) -> str:
        """ "all" or "causal" where that is what it is, else ""."""
        if len(self.boxes) != 1 or len(self.layout) != 1:
            return ""
        ((first, end, step),) = self.boxes[0]
        if step != 1 or bool((first > 0).any()):
            return ""
        places = torch.arange(len(end), device=end.device)
        if bool((end >= self.layout[0]).all()):
            return "all"
        square = len(end) == self.layout[0]
        return "causal" if square and bool((end == places + 1).all()) else ""


def seen_of(p: Problem, f: Attention) -> Seen | None:
    """The keys that a problem's queries see, or None for all.

    Raises:
        NotAttention: that differs from head to head.
    """
    if f.seen is None:
        return None
    rows = f.seen.args  # the first key and the end along each key axis of each box
    more = sorted({a for n in rows for a in n.axes} - set(f.queries))
    if more:
        raise NotAttention(f"which keys are seen differs along {' '.join(more)}")
    found = terms(p.diagram, p.sizes, [(n, f.queries) for n in rows])(*p.tensors)
    bounds = iter([t.reshape(-1).to(torch.int32) for t in found])
    return Seen(
        tuple(
            tuple((next(bounds), next(bounds), i.step) for i in box.intervals)
            for box in boxes_of(f.seen)
        ),
        tuple(p.sizes[a] for a in f.keys),
    )
