"""Work: floating-point operations of a kernel, matrix products apart from the rest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy

from napkin.derive.kernel import Kernel, is_read
from napkin.diagram.node import REDUCTIONS, Node, factors, inside_sums, over, postorder
from napkin.diagram.operators import POINTWISE
from napkin.diagram.symbols import group_symbol, size_symbol, stream_symbol

SPECIAL = frozenset({"exp", "log", "sqrt", "rsqrt", "tanh", "sigmoid", "erf", "pow", "div"})
"""Operators that the special-function unit serves."""


@dataclass(frozen=True)
class Count:
    """Operations on one array.

    Attributes:
        pipe: "product", "arithmetic" or "special".
        per_value: operations per value.
        axes: the array's axes.
        repeated: grouped axes that it does not carry: each of their groups computes it again.
        chunked: the streamed axis, if it is computed once for each chunk of it; else "".
    """

    pipe: str
    per_value: int
    axes: tuple[str, ...]
    repeated: tuple[str, ...]
    chunked: str = ""

    @property
    def extra(self) -> tuple[str, ...]:
        """The streamed axis, where its chunks repeat the work."""
        return (self.chunked,) if self.chunked else ()

    @property
    def total(self) -> Any:
        """Operations in total, symbolic."""
        sizes = [size_symbol(a) for a in self.axes]
        again = [size_symbol(a) / group_symbol(a) for a in self.repeated]
        if self.chunked:
            again.append(size_symbol(self.chunked) / stream_symbol(self.chunked))
        return self.per_value * sympy.prod(sizes) * sympy.prod(again)

    def number(self, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> float:
        """Operations in total."""
        again = math.prod(-(-sizes[a] // tiles[a]) for a in (*self.repeated, *self.extra))
        return float(self.per_value * math.prod(sizes[a] for a in self.axes) * again)


def counts(kernel: Kernel) -> tuple[Count, ...]:
    """Every operation of a kernel; a second pass over the stream computes again."""
    s = kernel.stream
    blocks = [[*(x.step for x in p.states), *(e.node for e in p.emits)] for p in s.passes]
    blocks.append([e.node for e in s.tails])
    out: list[Count] = []
    for i, roots in enumerate(blocks):
        streamed = s.axis if i < len(s.passes) else ""
        inside = inside_sums(roots)
        for n in postorder(roots):
            if not is_read(n) and not n.constant and n not in inside:
                out += _counts(n, kernel, streamed)
    return tuple(out)


def _counts(n: Node, kernel: Kernel, streamed: str) -> Iterable[Count]:
    def made(pipe: str, per_value: int, axes: tuple[str, ...]) -> Count:
        repeated = tuple(a for a in kernel.group if a not in axes)
        return Count(pipe, per_value, axes, repeated, "" if streamed in axes else streamed)

    if n.op in REDUCTIONS:
        parts = [p for p in factors(n.args[0]) if p.op != "ones"] if n.op == "sum" else [n.args[0]]
        axes = tuple(dict.fromkeys(a for p in parts for a in p.axes))
        held = [p for p in parts if set(over(n)) & set(p.axes)]
        if len(held) > 1 and not _same(held):
            yield made("product", 2, axes)
        elif parts:
            yield made("arithmetic", len(parts), axes)
    elif n.op in POINTWISE and n.axes:
        pipe = "special" if n.op in SPECIAL else "arithmetic"
        yield made(pipe, POINTWISE[n.op].flops, n.axes)


def _same(parts: list[Node]) -> bool:
    return all(set(p.axes) == set(parts[0].axes) for p in parts)


def flops(kernel: Kernel) -> Any:
    """Operations of the matrix products, symbolic: 2 for each multiply-add; where a kernel has no
    product, its arithmetic."""
    every = counts(kernel)
    products = [c.total for c in every if c.pipe == "product"]
    chosen = products or [c.total for c in every if not c.chunked]
    return sympy.expand(sympy.Add(*chosen))


def work(kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> dict[str, float]:
    """Operations per pipe: "product", "arithmetic" and "special"."""
    out = {"product": 0.0, "arithmetic": 0.0, "special": 0.0}
    for c in counts(kernel):
        out[c.pipe] += c.number(sizes, tiles)
    return out
