"""Which level holds what, and how much: shared memory for operands of products, registers for the
rest. In values or bytes of one group, for given tiles.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeVar

from napkin.algebra.contraction import EXACT_SUM, MIN_DOT, Contraction
from napkin.algebra.terms import is_operand, is_read
from napkin.derive.kernel import Kernel, tensor_of
from napkin.ir.node import LEAVES, REDUCTIONS, Node, built_on, inside_sums, over, postorder
from napkin.ir.sliding import slides
from napkin.ir.storage import own_type
from napkin.ir.types import stored_bytes

Axes = tuple[str, ...]
T = TypeVar("T")


@dataclass(frozen=True)
class LiveSet:
    """Arrays that a group holds, by axes: at which level, and for how long.

    Attributes:
        streamed_operands: operands of products that are read chunk by chunk (shared memory, as
            many copies as the pipeline is deep), with their tensors.
        streamed_others: other arrays that kernels with products read chunk by chunk, with their
            tensors. They are copied ahead, too (shared memory); () where the address of some
            reading is itself read.
        fixed_operands: operands read once, or at addresses that iterations compute, which no
            pipeline copies ahead (shared memory), with their tensors.
        states: accumulators (registers, float32, for the whole loop).
        chunk: the largest arrays computed from a chunk (registers, float32).
        products: rows, columns and reduced axes of every matrix product.
        addressed: of kernels with products, the tiles that an iteration reads at an address for
            each value, or that are stored so (registers). Others use an address at once.
        gathered: the tiles that are read so before the loop (registers, until it begins).
        rounded: operands that are computed, rounded for their product (registers).
        windowed: whether operands are read in windows, which no tensor descriptor serves.
        converted: operands that are read in a type of their own, in the product's (registers and
            shared memory), beside how they lie in memory (a streamed operand).
        partial: accumulators of products of fp8, which Hopper sums up in parts (registers), with
            the depth of each that is one part if it is short; () where it is added to something.
        narrow: the reduced axes of products of operands that are read in 8 bits.
        across: of kernels without products, what each reduction holds: arrays of which it is
            computed, and of which something is that reads its result (registers, float32); in a
            loop also what stays in it.
        waited: whether an iteration waits for what such a reduction finds of its chunk.
        together: of kernels without loops, the results of products that one array is computed of
            (registers, float32, until it is).
    """

    streamed_operands: tuple[tuple[str, Axes], ...]
    streamed_others: tuple[tuple[str, Axes], ...]
    fixed_operands: tuple[tuple[str, Axes], ...]
    states: tuple[Axes, ...]
    chunk: tuple[Axes, ...]
    products: tuple[tuple[Axes, Axes, Axes], ...]
    addressed: tuple[Axes, ...] = ()
    gathered: tuple[Axes, ...] = ()
    rounded: tuple[Axes, ...] = ()
    windowed: bool = False
    converted: tuple[Axes, ...] = ()
    partial: tuple[tuple[Axes, Axes], ...] = ()
    narrow: frozenset[Axes] = frozenset()
    across: tuple[tuple[Axes, ...], ...] = ()
    waited: bool = False
    together: tuple[tuple[Axes, ...], ...] = ()

    @cached_property
    def temporaries(self) -> tuple[Axes, ...]:
        """The arrays of a chunk that are no state, which is computed on in place."""
        states = {frozenset(axes) for axes in self.states}
        return tuple(axes for axes in self.chunk if frozenset(axes) not in states)


Copies = Mapping[frozenset[str], int]
"""How many threads hold each value of arrays with these axes, where it is more than one."""

NO_COPIES: Copies = {}

ADDRESS_BYTES = 8
"""Bytes of registers for the address of one value."""

CONVERTED_BYTES = 2
"""Bytes of registers of a value that is converted for a product, which has 16 bits."""


@lru_cache(maxsize=64)
def live_set(kernel: Kernel) -> LiveSet:
    """What a group of `kernel` holds at each level."""
    products, every = kernel.products, list(postorder(kernel.terms))
    operands, computed = _factors(products)
    converted = [p for p in computed if is_read(p) and own_type(p)]
    # What lies behind another product may be what that one starts from.
    inside = postorder(computed, {c.node for c in products})
    behind = [n for n in inside if is_read(n) and own_type(n)]
    ahead = [p for p in (*operands, *behind) if _copied_ahead(kernel, p)]
    # What is inside a sum is no array of its own, and operands come from shared memory.
    elsewhere = {*inside_sums(kernel.terms), *operands, *converted}
    arrays = [n for n in every if (is_read(n) or n.op not in LEAVES) and n not in elsewhere]
    in_chunk = [n.axes for n in arrays if not n.constant]
    # The factors of a sum that is no product are multiplied out in registers, then summed.
    in_chunk += [c.axes for c in kernel.contractions.values() if not c.is_product]
    joined = [axes for c in products for axes in _joined(c)]
    # What is read before the loop needs no address in it.
    loops = kernel.stream
    placed = [n for n in every if is_read(n) and any(a.axes for a in n.args)]
    read_at = [n.axes for n in placed if not slides(n)]
    before = [axes for axes in read_at if loops.axes and not loops.carried(axes)]
    read_at = [axes for axes in read_at if axes not in before]
    stored = [o.node for o in kernel.outputs if o.node.op == "compress"]
    across = [] if products else list(_across(kernel))
    return LiveSet(
        streamed_operands=tuple((tensor_of(p), p.axes) for p in ahead),
        streamed_others=_distinct(_others(kernel, ahead)) if products else (),
        fixed_operands=tuple((tensor_of(p), p.axes) for p in operands if p not in ahead),
        states=tuple(s.axes for s in kernel.stream.states),
        chunk=_distinct([*in_chunk, *joined]),
        products=_distinct((c.rows, c.columns, c.gone) for c in products),
        addressed=_distinct([*read_at, *(n.args[0].axes for n in stored)]) if products else (),
        gathered=_distinct(before) if products else (),
        rounded=_distinct([*(p.axes for p in computed), *joined]),
        windowed=any(slides(p) for p in operands),
        converted=_distinct(p.axes for p in converted),
        partial=_distinct(_partial(every, c) for c in products if c.dtype == "fp8"),
        narrow=frozenset(c.gone for c in products if c.least_depth > MIN_DOT),
        across=_distinct(tuple(n.axes for part in held for n in part) for held in across),
        waited=any(kernel.stream.carried(n.axes) for _, held in across for n in held),
        together=() if loops.axes else _distinct(_met(kernel, {c.node for c in products})),
    )


def _partial(every: Sequence[Node], c: Contraction[str]) -> tuple[Axes, Axes]:
    """The axes of a product, and its depth; () where the product begins with a sum."""
    added = any(n.op == "add" and c.node in n.args for n in every) and not c.outside
    return c.node.axes, () if added else c.gone


def _met(kernel: Kernel, products: Collection[Node]) -> Iterator[tuple[Axes, ...]]:
    """The results of products that each term is computed of."""
    for root in kernel.terms:
        found = [n for n in postorder([root]) if n in products]
        if len(found) > 1:
            yield tuple(n.axes for n in found)


def _across(kernel: Kernel) -> Iterator[tuple[list[Node], list[Node]]]:
    """What stays in the loop of each reduction of a kernel, and what it holds, whatever the order
    in which terms are computed."""
    s = kernel.stream
    tails = tuple(e.node for e in s.tails)
    for roots, looped in (*((p.computed, True) for p in s.passes), (tails, False)):
        inside = inside_sums(roots)
        order = [n for n in postorder(roots) if n not in inside]
        moves = built_on(order, s.moves) if looped else {*order}
        reads = {n: [a for a in read_by(n, inside) if _is_array(a)] for n in order}
        stay = dict.fromkeys(a for n in order if n in moves for a in reads[n] if a not in moves)
        for r in (n for n in order if n.op in REDUCTIONS and n in moves):
            later = built_on(order, {r}.__contains__)
            below = {*filter(_is_array, postorder(r.args))} - {*stay}
            after = [n for n in order if n in later and n is not r]
            wanted = dict.fromkeys(a for n in after for a in reads[n] if a not in {*later, *stay})
            yield [*stay], [a for a in wanted if not below.isdisjoint(postorder([a]))]


def read_by(n: Node, inside: Collection[Node]) -> Iterator[Node]:
    """The arrays that an operator reads; those inside a sum are none."""
    for a in () if is_read(n) else n.args:
        yield from read_by(a, inside) if a in inside else (a,)


def _is_array(n: Node) -> bool:
    """Whether a term is an array of numbers."""
    some = is_read(n) or n.op not in LEAVES  # states are counted apart
    return some and bool(n.axes) and not n.constant and n.kind != "bool"


def _factors(products: Iterable[Contraction[str]]) -> tuple[list[Node], list[Node]]:
    """The factors of products that are operands as they lie in memory, and the others, which are
    computed or converted first."""
    found = {(p, is_operand(p, c.parts)): None for c in products for p in c.parts}
    return [p for p, as_is in found if as_is], [p for p, as_is in found if not as_is]


def _joined(c: Contraction[str]) -> Iterator[Axes]:
    """The operands of a product that several factors make, and that are wider than each of them."""
    for parts, span in zip(c.sides, c.spans, strict=True):
        if all(set(p.axes) < set(span) for p in parts):
            yield span


def _others(kernel: Kernel, operands: Collection[Node]) -> list[tuple[str, Axes]]:
    """The arrays that loops read chunk by chunk beside operands; none where the address of some
    reading is itself read, which takes a stage of the pipeline from all others."""
    computed = postorder(n for p in kernel.stream.passes for n in p.computed)
    read = [n for n in computed if is_read(n) and kernel.stream.carried(n.axes)]
    if not all(_copied_ahead(kernel, n) for n in read):
        return []
    return [(tensor_of(n), n.axes) for n in read if n not in operands]


def _copied_ahead(kernel: Kernel, read: Node) -> bool:
    """Whether a pipeline copies a reading ahead: chunk by chunk, at an address that no iteration
    computes."""
    carried = kernel.stream.carried
    fixed = bool(slides(read)) or not any(carried(index.axes) for index in read.args)
    return carried(read.axes) and fixed


def _distinct(found: Iterable[T]) -> tuple[T, ...]:
    return tuple(dict.fromkeys(found))


def batched(kernel: Kernel) -> frozenset[str]:
    """Axes that both sides of a matrix product carry, and its result: one product for each
    position of them."""
    return frozenset(a for c in kernel.products for a in c.single.difference(over(c.node)))


def summed_beside(kernel: Kernel) -> frozenset[str]:
    """Axes that a matrix product is summed over and only one of its sides carries: one product for
    each position of them, too."""
    return frozenset(a for c in kernel.products for a in c.single.intersection(over(c.node)))


def chained(kernel: Kernel, stored: bool = True) -> bool:
    """Whether the products and the arithmetic of a loop wait for each other: it computes on with
    the result of a matrix product, or stores it, or computes an operand of one in every iteration.
    A result that is only added up is not waited for.

    Args:
        stored: whether what iterations store counts.
    """
    passes = kernel.stream.passes
    folded = [s.step for p in passes for s in p.states]
    found = [n for p in passes for n in p.computed] if stored else folded
    steps = found or list(kernel.terms)  # without a loop all is done once, one after another
    added = {n for step in (folded or steps) if step.op == "add" for n in step.args}
    products: set[Node] = set()
    sums = kernel.contractions
    for n in postorder(steps):
        if n not in sums or not sums[n].is_product:
            continue
        products.add(n)
        inside = [p for p in sums[n].parts if kernel.stream.carried(p.axes)]
        if any(not is_operand(p, inside) for p in inside) or len(inside) > 2:
            return True
    waited = products - (added - {a for n in postorder(steps) if n not in steps for a in n.args})
    return bool(waited)


def computes(kernel: Kernel) -> bool:
    """Whether an operand of a product is computed from what is read alone: its tiles pass through
    registers in the layout of loads."""
    products = {c.node for c in kernel.products}
    for c in kernel.products:
        inside = [p for p in c.parts if kernel.stream.carried(p.axes)]
        plain = [p for p in inside if products.isdisjoint(postorder([p]))]
        plain = [p for p in plain if not own_type(p)]
        if len(plain) > 2 or not all(map(is_operand, plain)):
            return True
    return False


def extent(axes: Iterable[str], tiles: Mapping[str, int]) -> int:
    """Values of a tile with these axes."""
    return math.prod([tiles[a] for a in axes])


def _copied(axes: Axes, tiles: Mapping[str, int], copies: Copies) -> int:
    """Values of a tile with these axes, in all its copies."""
    values = extent(axes, tiles)
    return values * copies.get(frozenset(axes), 1) if copies else values


def operand_bytes(
    h: LiveSet, tiles: Mapping[str, int], dtypes: Mapping[str, str]
) -> tuple[int, int, int]:
    """Bytes of shared memory of the operands that are held, of a copy of all that are streamed, and
    of the largest of these."""
    streamed = [stored_bytes(extent(axes, tiles), dtypes[t]) for t, axes in h.streamed_operands]
    fixed = [stored_bytes(extent(axes, tiles), dtypes[t]) for t, axes in h.fixed_operands]
    return sum(fixed), sum(streamed), max(streamed, default=0)


def register_bytes(h: LiveSet, tiles: Mapping[str, int], copies: Copies = NO_COPIES) -> int:
    """Bytes of registers: every state, which is computed on in place, the two largest other arrays
    of a chunk, in float32, or all that a reduction holds, the largest operand that is converted,
    and the addresses of the largest tile that has one for each value; so many copies of arrays with
    these axes."""
    found = [_copied(axes, tiles, copies) for axes in h.temporaries]
    largest = sorted(found, reverse=True)[:2]
    inside = largest[0] + largest[1] // 2 if len(largest) > 1 else sum(largest)
    for each in (*h.across, *h.together):
        inside = max(inside, sum([extent(axes, tiles) for axes in each]))
    addresses = ADDRESS_BYTES * max([extent(axes, tiles) for axes in h.addressed], default=0)
    converted = CONVERTED_BYTES * max([extent(axes, tiles) for axes in h.converted], default=0)
    parts = [a for a, depth in h.partial if not depth or extent(depth, tiles) > EXACT_SUM]
    states = sum([extent(axes, tiles) for axes in (*h.states, *parts)])
    return max(4 * (states + inside) + converted + addresses, _gathered_bytes(h, tiles))


def _gathered_bytes(h: LiveSet, tiles: Mapping[str, int]) -> int:
    """Bytes of registers before a loop: of the largest tile that is read at computed positions
    there, each value and its address."""
    return (4 + ADDRESS_BYTES) * max([extent(axes, tiles) for axes in h.gathered], default=0)


def tile_bytes(
    h: LiveSet, tiles: Mapping[str, int], item_bytes: int, copies: Copies = NO_COPIES
) -> int:
    """Bytes of registers of the tiles alone, where nothing has an address: every state, the largest
    array of a chunk, on which is computed in place, and the largest operand rounded to
    `item_bytes` bytes a value; so many copies of arrays with these axes."""

    states = sum([extent(axes, tiles) for axes in h.states])
    chunk = max([_copied(axes, tiles, copies) for axes in h.temporaries], default=0)
    for each in h.together:
        chunk = max(chunk, sum([_copied(axes, tiles, copies) for axes in each]))
    rounded = max([_copied(axes, tiles, copies) for axes in h.rounded], default=0)
    return max(4 * (states + chunk) + item_bytes * rounded, _gathered_bytes(h, tiles))
