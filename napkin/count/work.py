"""Work: floating-point operations of a kernel, matrix products apart from the rest."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import sympy

from napkin.algebra.contraction import Contraction
from napkin.algebra.terms import is_operand, is_read
from napkin.count.interior import read_sum, seen_sum
from napkin.count.shares import share
from napkin.count.split_axes import plain
from napkin.count.traffic import tile_symbol
from napkin.derive.kernel import Kernel
from napkin.ir.key_sets import query_axes
from napkin.ir.node import REDUCTIONS, Node, built_on, inside_sums, over, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.operators.record import Operator
from napkin.ir.storage import own_type
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol
from napkin.ir.types import STORAGE, Storage
from napkin.keys.residues import Split

COMPOSING = 6
"""Operations of a recurrence for each position: two maps are composed by 3, once where each thread
scans its own and once where these are joined (see `Spread.joining` for what threads tell each
other)."""

COMPARED = 6
"""Operations of a sort for each of its values in a round, about: half of the values come from
another thread, and each is compared and selected one to two times, at half the rate of an addition
(read off the code of Triton 3.6, sm_90; 4,096 rows of 1,024 values took 80.9 us on an H200)."""

CONVERTED = 2
"""Operations of a value that is read for an operand and computed on: it is made float32, and
rounded for the product."""


@dataclass(frozen=True)
class Count:
    """Operations on one array.

    Attributes:
        pipe: "product", "arithmetic" or "special".
        per_value: operations per value.
        axes: the array's axes.
        repeated: grouped axes that it does not carry: each of their groups computes it again.
        chunked: the streamed axes that it does not carry, and how much of each a chunk holds, if
            it is computed once for each chunk; else ().
        kernel: the kernel, where a key set says which of its values there are; else None.
        splits: the axes that are split by residue.
        part: the grouped axis of parts of the streamed axis, if there is one.
        tail: whether it is done after the loops, once a group; without loops, nothing is.
        dtype: of a product of operands of 8 bits, their type; else that of the plan, "".
        sum: the sum of products that it is part of; None of other terms.
        scanned: of a recurrence, its axis.
        sorted: of a sort, its axis: that is a bitonic network, which compares each value in
            log n (log n + 1) / 2 rounds.
        small: whether it is done only on tiles on which that sum, otherwise a matrix product, is
            none; other parts of a matrix product, only where it is one.
    """

    pipe: str
    per_value: int
    axes: tuple[str, ...]
    repeated: tuple[str, ...]
    chunked: tuple[tuple[str, Any], ...] = ()
    kernel: Kernel | None = None
    splits: tuple[Split, ...] = ()
    part: str = ""
    tail: bool = False
    dtype: str = ""
    sum: Contraction[str] | None = None
    scanned: str = ""
    sorted: str = ""
    small: bool = False

    @property
    def total(self) -> Any:
        """Operations in total, symbolic."""
        stages = sympy.ceiling(sympy.log(size_symbol(self.sorted), 2)) if self.sorted else 1
        return plain(self._total * stages * (stages + 1) / 2, self.splits, self.part)

    @property
    def _total(self) -> Any:
        if self.kernel is not None:
            return self.per_value * self._seen(self.kernel)
        sizes = [size_symbol(a) for a in self.axes]
        again = [size_symbol(a) / group_symbol(a) for a in self.repeated]
        again += [size_symbol(a) / tile for a, tile in self.chunked]
        return self.per_value * sympy.prod(sizes) * sympy.prod(again)

    def _seen(self, kernel: Kernel) -> Any:
        """Values of the array for the keys that are seen; computed once per chunk, those of the
        chunks that are visited."""
        seen = kernel.visits
        assert seen is not None
        queries = query_axes(seen.keys)
        own = set(queries) <= set(self.axes)
        pairs = seen_sum(seen, queries) if own else read_sum(kernel, seen)
        rest = [size_symbol(a) for a in self.axes if a not in (*queries, *kernel.stream.axes)]
        again = [size_symbol(a) / group_symbol(a) for a in self.repeated if a not in queries]
        lacking = [stream_symbol(a) for a in kernel.stream.axes if a not in self.axes]
        partly = [group_symbol(a) for a in queries if a in self.axes and not own]
        parts = [*rest, *again, *partly, *(1 / s for s in lacking)]
        return sympy.expand(pairs * sympy.prod(parts))

    def once(self, sizes: Mapping[str, int]) -> int:
        """Operations to compute the array once."""
        stages = (sizes[self.sorted] - 1).bit_length() if self.sorted else 1
        found = self.per_value * math.prod([sizes[a] for a in self.axes])
        return found * stages * (stages + 1) // 2

    @cached_property
    def again(self) -> tuple[str, ...]:
        """The axes of which every group and chunk computes it again."""
        return (*self.repeated, *(a for a, _ in self.chunked))

    def done(self, tiles: Mapping[str, int]) -> bool:
        """Whether kernels with these tiles do it."""
        return self.sum is None or self.sum.at(tiles).is_product != self.small

    def number(self, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> float:
        """Operations in total."""
        again = math.prod(-(-sizes[a] // tiles[a]) for a in self.again)
        found = float(self.once(sizes) * again)
        return found if self.kernel is None else found * share(self.kernel, sizes, tiles)[0]


@lru_cache(maxsize=256)
def counts(kernel: Kernel) -> tuple[Count, ...]:
    """Every operation of a kernel; a second pass over the stream computes again, but what neither
    carries the streamed axes nor reads a state is computed before the loops, once."""
    s = kernel.stream
    blocks = [*(p.computed for p in s.passes), tuple(e.node for e in s.tails)]
    out: list[Count] = []
    once = set[Node]()
    for i, roots in enumerate(blocks):
        streamed = s.axes if i < len(s.passes) else ()
        roots = [n.args[0] if n.op == "scatter" else n for n in roots]
        inside = inside_sums(roots)
        # Addresses are not counted, whatever they are computed from.
        reads = {n for n in postorder(roots) if is_read(n)}
        other, moving = reads - _converted(kernel), built_on(postorder(roots), s.moves)
        for n in postorder(roots, reads):
            if n in other or n.constant or n in inside or n in once:
                continue
            tail = bool(i) and i == len(s.passes)
            out += _counts(n, kernel, streamed if n in moving else (), tail)
            if n not in moving:
                once.add(n)
    return tuple(out)


@lru_cache(maxsize=256)
def _converted(kernel: Kernel) -> frozenset[Node]:
    """The readings of which operands of matrix products are computed: in 16 bits, whatever their
    type in memory."""
    computed = [p for c in kernel.products for p in c.parts if not is_operand(p, c.parts)]
    stop = {n for n in postorder(computed) if is_read(n)}
    return frozenset(n for n in postorder(computed, stop) if is_read(n) and own_type(n))


def _counts(n: Node, kernel: Kernel, streamed: Sequence[str], tail: bool) -> Iterable[Count]:
    def made(pipe: str, per_value: int, axes: Sequence[str], **of: Any) -> Count:
        axes = tuple(axes)
        chunked = tuple((a, tile_symbol(kernel, a)) for a in streamed if a not in axes)
        repeated = kernel.lacking((*axes, *(a for a, _ in chunked)))
        moves = kernel.stream.carried(axes) or bool(chunked)
        seen = kernel if moves and kernel.visits is not None else None
        split = (kernel.splits, kernel.part)
        return Count(pipe, per_value, axes, repeated, chunked, seen, *split, tail, **of)

    if is_read(n):
        for pipe, number in _operations(STORAGE[own_type(n)]).items():
            yield made(pipe, number, n.axes)
    elif n.op == "sum":
        yield from _of_sum(kernel.contractions[n], streamed, made)
    elif n.op in REDUCTIONS:
        for pipe, number in operations(REDUCTIONS[n.op].combine).items():
            yield made(pipe, number, n.args[0].axes)
    elif n.op == "recurrence":
        yield made("arithmetic", COMPOSING, n.axes, scanned=over(n)[0])
    elif n.op == "sort":
        yield made("arithmetic", COMPARED, n.axes, sorted=over(n)[0])
    elif n.op in POINTWISE and n.axes:
        # A matrix instruction adds to what its accumulator holds.
        sums = [kernel.contractions[a] for a in n.args if n.op == "add" and a.op == "sum"]
        taken = [c for c in sums if c.is_product and not c.outside]
        of = {"sum": taken[0], "small": True} if taken else {}
        for pipe, number in operations(n.op).items():
            yield made(pipe, number, n.axes, **of)


def _of_sum(
    c: Contraction[str], streamed: Sequence[str], made: Callable[..., Count]
) -> Iterable[Count]:
    """A sum of products: multiplied by matrix instructions, or its factors one after another."""
    parts = [p for p in c.parts if p.op != "ones"]
    if c.is_product:
        yield made("product", 2, c.axes, dtype=c.dtype, sum=c)
        for factors, span in zip(c.sides, c.spans, strict=True):
            again = not streamed or not set(streamed).isdisjoint(span)
            if again and _computed(factors, c):
                yield made("arithmetic", len(factors) - 1 + CONVERTED, span, sum=c)
    if parts:
        of = {"sum": c, "small": True} if c.is_product else {}
        yield made("arithmetic", len(parts), c.axes, **of)
    if c.outside:
        yield made("arithmetic", len(c.outside), c.node.axes)


def _computed(factors: Sequence[Node], c: Contraction[str]) -> bool:
    """Whether factors make an operand that is computed from readings alone, and not only
    converted."""
    if len(factors) > 1:
        return True
    if is_read(factors[0]) or any(n.op in REDUCTIONS for n in postorder(factors)):
        return False
    return not is_operand(factors[0], c.parts)


def operations(op: str) -> dict[str, int]:
    """Operations per value of a pointwise operator on the pipes that compute it."""
    return _operations(POINTWISE[op])


def _operations(row: Operator | Storage) -> dict[str, int]:
    return {k: v for k, v in (("arithmetic", row.flops), ("special", row.special)) if v}


def flops(kernel: Kernel) -> Any:
    """Operations of the matrix products, symbolic: 2 for each multiply-add; where a kernel has no
    product, its arithmetic."""
    every = [c for c in counts(kernel) if not c.small]
    products = [c.total for c in every if c.pipe == "product"]
    moving = len(kernel.stream.axes)
    chosen = products or [c.total for c in every if not moving or len(c.chunked) < moving]
    return sympy.expand(sympy.Add(*chosen))


def work(kernel: Kernel, sizes: Mapping[str, int], tiles: Mapping[str, int]) -> dict[str, float]:
    """Operations per pipe: "product", "arithmetic" and "special"."""
    out = {"product": 0.0, "arithmetic": 0.0, "special": 0.0}
    for c in counts(kernel):
        if c.done(tiles):
            out[c.pipe] += c.number(sizes, tiles)
    return out
