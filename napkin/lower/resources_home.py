"""The register layout in which each term of a loop program is computed.

Loads and products fix a layout; arithmetic between them takes the layout of a product where it has
one, else that of a load, and a reduction leaves the rest of its argument's layout.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from napkin.derive.kernel import tensor_of, tile_axes
from napkin.derive.terms import is_read, narrow_type
from napkin.diagram.node import REDUCTIONS, Node, factors, landings, over, postorder
from napkin.diagram.taking import read_axes
from napkin.diagram.types import PACKED, STORAGE
from napkin.lower.compiler import NEWEST, Version
from napkin.lower.launch import MIN_CAPABILITY, SEEN, fits, known_step
from napkin.lower.operands import multiplied_as
from napkin.lower.program import Program
from napkin.lower.resources_dot import Dot, Unit, dot_of, fma, mma, unit, wgmma
from napkin.lower.resources_layout import LANES, Layout, Mma, blocked, sliced
from napkin.lower.rows import each_placed, rows, tensor_axes

WIDEST = 128
"""Bits that one thread loads or stores at once."""


Addressed = Literal["", "reckoned", "loaded"]
"""Whether each value of a tile has an address of its own, from arithmetic on positions or read."""


class Tensors:
    """How tensors lie in memory, and how a group loads their tiles.

    `sizes` are the axis sizes of row-major tensors; without them every tensor is aligned.

    Attributes:
        boxes: the readings that tensor descriptors serve on a GPU of this capability.
        stores: the outputs, likewise.
    """

    def __init__(
        self,
        program: Program,
        dtypes: Mapping[str, str],
        sizes: Mapping[str, int] | None,
        capability: int = MIN_CAPABILITY,
        triton: Version = NEWEST,
    ) -> None:
        self.program, self.dtypes, self.sizes, self.triton = program, dtypes, sizes, triton
        described = capability >= MIN_CAPABILITY and self._all_described()
        self.boxes = program.boxes if described else {}
        self.stores = program.stores if described else {}

    def bits_of(self, tensor: str) -> int:
        """Bits of one value."""
        return STORAGE[self.dtypes[tensor]].bits

    def bits(self, leaf: Node) -> int:
        """Bits of one value of a reading."""
        return self.bits_of(tensor_of(leaf))

    def addressed(self, n: Node) -> Addressed:
        """How the addresses of a reading's or a scatter's values are found, if each has its own."""
        if n.op != "scatter" and not each_placed(n):
            return ""
        places = n.args[1:] if n.op == "scatter" else n.args
        return "loaded" if any(is_read(x) for x in postorder(places)) else "reckoned"

    def axes(self, leaf: Node) -> tuple[str, ...]:
        """The axes of a reading's tile, the one that is contiguous in memory last."""
        if not leaf.args or each_placed(leaf):
            return leaf.axes
        last = read_axes(leaf)[-1]
        return (*(a for a in leaf.axes if a != last), last)

    @cached_property
    def steps(self) -> dict[tuple[str, str], int]:
        """What a kernel is told to divide the rows of a tensor along an axis."""
        out: dict[tuple[str, str], int] = {}
        if self.sizes is None:
            return out
        own = tensor_axes(self.program.kernel)
        for axis, along in rows(self.program).items():
            strides = [s for t in along for s in self._strides(t, own[t], self.sizes)]
            step = known_step(self.sizes[axis], strides)
            out |= dict.fromkeys(((t, axis) for t in along), step)
        return out

    def _strides(self, tensor: str, axes: Sequence[str], known: Mapping[str, int]) -> list[int]:
        """The strides of rows, in what addresses count: values, or bytes that hold two."""
        sizes = [known[a] for a in axes]
        return [math.prod(sizes[i + 1 :]) // self._least(tensor) for i in range(len(sizes) - 1)]

    def _least(self, tensor: str) -> int:
        """Values at one address."""
        return 2 if self.dtypes[tensor] in PACKED else 1

    def begins(self, tensor: str, axes: Sequence[str]) -> int:
        """Values that rows are known to start at multiples of."""
        least = self._least(tensor)
        if self.sizes is None or all(
            s % SEEN == 0 for s in self._strides(tensor, axes, self.sizes)
        ):
            return SEEN * least
        return least * self.steps.get((tensor, axes[-1]), 1)

    def _all_described(self) -> bool:
        """Whether tensor descriptors can serve every tile that they may, at these sizes."""
        if self.sizes is None:
            return True
        for axes in (*self.program.boxes.values(), *self.program.stores.values()):
            own = [self.sizes[a] for a in axes]
            strides = [math.prod(own[i + 1 :]) for i in range(len(own))]
            if not fits(strides, self.program.described):
                return False
        return True

    def ends(self, tensor: str, axes: Sequence[str]) -> int:
        """Values that the mask at the end of a row is known to cut at multiples of."""
        if self.sizes is None or not axes:
            return SEEN
        size = self.sizes[axes[-1]]
        whole = size % SEEN == 0 or size % self.program.tiles[axes[-1]] == 0
        return SEEN if whole else self.steps.get((tensor, axes[-1]), 1)

    def _alone(self, tensor: str, axes: Sequence[str]) -> tuple[int, list[int]]:
        """Values that one access covers by its addresses, and the dimensions from the contiguous
        one: of the others the last first, but in Triton 3.6 the first."""
        dims, tiles = list(self.program.shape_of(axes)), self.program.tiles
        order = self._unordered(len(dims))
        inner = list(axes)
        if self.sizes is not None:  # the stride before an axis of one value is 1, too
            while len(inner) > 1 and self.sizes[inner[-1]] == 1:
                inner.pop()
        if not inner or tiles[inner[-1]] == 1:
            return 1, order
        fast = next(i for i, d in enumerate(dims) if inner[-1] in self.program.dims[d])
        order = [fast, *(i for i in order if i != fast)]
        if any(tiles[a] > 1 for a in axes[len(inner) :]):
            return self._least(tensor), order
        most = min(WIDEST // self.bits_of(tensor), self.program.extent(dims[fast]))
        return min(most, self.begins(tensor, inner)), order

    def _values(
        self, tensor: str, axes: Sequence[str], warps: int, placed: Addressed = ""
    ) -> tuple[int, list[int]]:
        """Values that one thread loads or stores at once, and the dimensions from the contiguous
        one: as many as any access to a tile of the same shape and order covers, but no more than
        there are for each thread, and for a store no more than it covers itself. Where each value
        has an address of its own, an access covers one."""
        dims = list(self.program.shape_of(axes))
        count, order = self._alone(tensor, axes)
        if placed:
            last = list(range(len(dims)))[::-1]
            count, order = 1, last if placed == "reckoned" else self._unordered(len(dims))
        packed = self.dtypes[tensor] in PACKED
        share = max(2 if packed else 1, self.program.span(dims) // (warps * LANES))
        if packed or tensor in self.outputs:
            return min(count, share), order
        shape = [self.program.extent(d) for d in dims]
        for other, its in self.accesses:
            mine = self.program.shape_of(its)
            if [self.program.extent(d) for d in mine] == shape:
                most, like = self._alone(other, its)
                count = max(count, most if like == order else 1)
        return min(count, share), order

    def _unordered(self, rank: int) -> list[int]:
        """The dimensions of a tile of which none is contiguous."""
        return list(range(rank)) if self.triton <= (3, 6) else list(range(rank))[::-1]

    @cached_property
    def outputs(self) -> frozenset[str]:
        """The tensors that are stored."""
        return frozenset(o.name for o in self.program.kernel.outputs)

    @cached_property
    def accesses(self) -> list[tuple[str, Sequence[str]]]:
        """Tensors, with their axes, whose neighbours in memory are neighbours in a tile."""
        kernel = self.program.kernel
        stores = [
            *self.program.tails.items(),
            *(e for x in self.program.loops for e in x.emits.items()),
        ]
        scattered = {name for name, n in stores if n.op == "scatter"}
        leaves = [a.leaf for a in kernel.reads if a.leaf not in self.boxes]
        alike = [(tensor_of(x), self.axes(x)) for x in leaves if not each_placed(x)]
        alike += [
            (o.name, tile_axes(o))
            for o in kernel.outputs
            if o.name not in {*scattered, *self.stores}
        ]
        return [(t, axes) for t, axes in alike if self.dtypes[t] not in PACKED]

    def layout(
        self, tensor: str, axes: Sequence[str], warps: int, placed: Addressed = ""
    ) -> Layout:
        """The layout in which a tile is loaded or stored: coalesced; `placed` where each value has
        an address of its own."""
        shape = tuple(self.program.extent(d) for d in self.program.shape_of(axes))
        count, order = self._values(tensor, axes, warps, placed)
        values = tuple(count if i in order[:1] else 1 for i in range(len(shape)))
        return blocked(shape, values, tuple(order), warps).of(shape)

    def order(self, leaf: Node) -> list[int]:
        """The dimensions of a reading's tile from the contiguous one."""
        return self._alone(tensor_of(leaf), self.axes(leaf))[1]

    def width(self, leaf: Node, warps: int) -> int:
        """Bits that one thread copies at once."""
        dims = self.program.shape(leaf)
        if not dims:
            return 0
        bits = self.bits(leaf)
        axes, tensor = self.axes(leaf), tensor_of(leaf)
        if each_placed(leaf):
            return bits
        ends, packed = self.ends(tensor, axes), self.dtypes[tensor] in PACKED
        if len(dims) == 1 and self.program.span(dims) < warps * LANES and not packed:
            # Fewer values than threads: loaded again in the layout that wants them.
            whole = min(WIDEST // bits, self.program.span(dims))
            return bits * min(whole, self.begins(tensor, axes), ends)
        own = self._alone(tensor, axes)[0]
        return bits * min(own, self._values(tensor, axes, warps)[0], ends)


@dataclass(frozen=True)
class Home:
    """Where a term is computed.

    Attributes:
        layout: of its tile; None for scalars and for what fits any layout.
        product: whether it is that of a product.
        fixed: whether a product or a load gives it, of a value or more for each thread.
    """

    layout: Layout | None
    product: bool
    fixed: bool


NOWHERE = Home(None, False, False)


def narrowed(whole: Layout, have: Sequence[int], want: Sequence[int]) -> Layout:
    """A layout without the dimensions that are not wanted."""
    left = list(have)
    for d in reversed([d for d in have if d not in want]):
        whole = sliced(whole, left.index(d))
        left.remove(d)
    return whole


class Homes:
    """Layouts of terms, found once each."""

    def __init__(
        self,
        program: Program,
        tensors: Tensors,
        capability: int,
        warps: int,
        moving: frozenset[Node],
    ) -> None:
        self.program, self.tensors = program, tensors
        self.capability, self.warps, self.moving = capability, warps, moving
        self.boxes, self.stores = tensors.boxes, tensors.stores
        self.steps = {name: n for loop in program.loops for name, n in loop.steps.items()}
        self._dots: dict[Node, Dot | None] = {}
        self._home: dict[Node, Home] = {}
        self._finding: set[Node] = set()
        self._waits: set[Node] = set()  # states whose own steps read what is being found
        self._shape: dict[tuple[str, ...], tuple[int, ...]] = {}
        self._result: dict[Node, Mma] = {}
        self._regions()
        for n in landings(program.roots):
            self._found(n)

    def shape(self, n: Node) -> tuple[int, ...]:
        """The tile dimensions of a term."""
        if n.axes not in self._shape:
            self._shape[n.axes] = self.program.shape(n)
        return self._shape[n.axes]

    # --- products ---------------------------------------------------------------------------

    def dot(self, n: Node) -> Dot | None:
        """The product that `n` is, if it is one."""
        if n.op != "sum":
            return None
        if n not in self._dots:
            self._dots[n] = dot_of(self.program, n)
        return self._dots[n]

    def _regions(self) -> None:
        """Accumulators: products of one loop are laid out together."""
        loops = [(*x.steps.values(), *x.emits.values()) for x in self.program.loops]
        for roots in (*loops, tuple(self.program.tails.values())):
            dots = [d for n in postorder(roots) if (d := self.dot(n)) is not None]
            first: Mma | None = None
            for d in reversed(dots):  # the compiler settles the last one first
                if d.node in self._result:  # an earlier pass has it among more products
                    continue
                rows, columns = self.program.span(d.rows), self.program.span(d.columns)
                kind = self.unit(d)
                if kind == "wgmma":
                    below = {d.node, *self._readers(roots, d.node)}
                    feeds = any(x.node in below for x in dots if x is not d)
                    self._result[d.node] = wgmma(rows, columns, self.warps, feeds)
                elif kind == "mma":
                    made = first or mma(rows, columns, self.warps, len(dots) > 1)
                    self._result[d.node] = made
                    first = made

    def _readers(self, roots: Sequence[Node], n: Node) -> set[Node]:
        """Terms of the same step that depend on `n`."""
        out = {n}
        grew = True
        while grew:
            grew = False
            for x in postorder(roots):
                via = x.op == "state" and x.params[1] == "new"
                args = (self.steps[str(x.params[0])],) if via else x.args
                if x not in out and any(a in out for a in args):
                    out.add(x)
                    grew = True
        return out

    def bits(self, dot: Dot) -> int:
        """Bits of an operand's values."""
        if narrow_type(dot.parts):
            return 8
        like = multiplied_as(self.program.kernel, dot.parts)
        return self.tensors.bits_of(like) if like else 32

    def unit(self, dot: Dot) -> Unit:
        """The instruction that computes it."""
        return unit(self.capability, self.bits(dot), self.program.span(dot.rows), self.warps)

    def folded(self, dot: Dot, leaf: Node) -> bool:
        """Whether a box is a left operand that wgmma takes from registers: more than a matrix of
        values, which a reshape makes one."""
        long = [a for a in leaf.axes if self.program.tiles[a] > 1]
        left = leaf in dot.sides[0] and leaf in self.boxes
        return left and self.unit(dot) == "wgmma" and len(long) > 2

    def result(self, dot: Dot) -> Layout:
        """The accumulator's layout."""
        rows, columns = self.program.span(dot.rows), self.program.span(dot.columns)
        if dot.node in self._result:
            made = self._result[dot.node].of((rows, columns))
        else:
            made = fma(rows, columns, self.warps)
        shape = tuple(self.program.extent(d) for d in (*dot.rows, *dot.columns))
        return Layout(shape, made.register, made.lane, made.warp)

    def operand(self, dot: Dot, side: int) -> Layout | None:
        """The layout of an operand in registers; None where it is read from shared memory."""
        if dot.node not in self._result or not dot.flat:
            return None
        shape = [self.program.span(dot.rows), self.program.span(dot.gone)]
        if side == 1:
            shape = [self.program.span(dot.gone), self.program.span(dot.columns)]
        return self._result[dot.node].operand(side, shape, self.bits(dot))

    def side(self, dot: Dot, side: int) -> Layout | None:
        """The layout in which an operand is computed."""
        return self._widest(dot.sides[side], dot.spans[side]).layout

    # --- terms ------------------------------------------------------------------------------

    def fast(self, leaf: Node) -> int:
        """The tile dimension of a reading that is contiguous in memory."""
        return self.shape(leaf)[self.tensors.order(leaf)[0]]

    def home(self, n: Node) -> Layout | None:
        """The layout of a term's tile; None for scalars and for what fits any layout."""
        return self._found(n).layout

    def from_product(self, n: Node) -> bool:
        """Whether a term takes its layout from a product."""
        return self._found(n).product

    def fixed(self, n: Node) -> bool:
        """Whether a load or a product fixes the layout of a term."""
        return self._found(n).fixed

    def plain(self, dims: Sequence[int]) -> Layout:
        """The layout of a tile that nothing fixes: one value a thread, the last dimension first."""
        shape = tuple(self.program.extent(d) for d in dims)
        order = tuple(range(len(shape)))[::-1]
        return blocked(shape, (1,) * len(shape), order, self.warps).of(shape)

    def few(self, n: Node) -> bool:
        """Whether a tile has fewer values than the group has threads."""
        return self.program.span(self.shape(n)) < self.warps * LANES

    def work_dims(self, n: Node) -> tuple[int, ...]:
        """The tile dimensions over which a term is computed: a reduction's include the reduced."""
        if n.op in REDUCTIONS and self.dot(n) is None:
            inner = factors(n.args[0]) if n.op == "sum" else n.args
            gone = set(over(n))
            inner = [p for p in inner if gone & set(p.axes)] or list(inner)
            return tuple(sorted({d for p in inner for d in self.shape(p)}))
        return self.shape(n)

    def work(self, n: Node) -> Layout | None:
        """The layout over `work_dims`."""
        return self._worked(n).layout

    def _worked(self, n: Node) -> Home:
        if n.op in REDUCTIONS and self.dot(n) is None:
            inner = factors(n.args[0]) if n.op == "sum" else n.args
            dims = self.work_dims(n)
            found = self._over(inner, dims)
            if found.layout is None and dims and not found.product:
                return Home(self.plain(dims), False, False)
            return found
        return self._found(n)

    def _found(self, n: Node) -> Home:
        if n in self._home:
            return self._home[n]
        if n in self._finding:
            self._waits.add(n)
            return NOWHERE  # a state that its own step reads: another argument decides
        outside, self._waits = self._waits, set[Node]()
        self._finding.add(n)
        found = self._find(n)
        self._finding.remove(n)
        self._waits.discard(n)
        if found.layout is not None or not self._waits:
            self._home[n] = found
        self._waits |= outside
        return found

    def _find(self, n: Node) -> Home:
        dims = self.shape(n)
        if not dims or n.constant:
            return NOWHERE
        if is_read(n):
            axes, placed = self.tensors.axes(n), self.tensors.addressed(n)
            if self.few(n):
                return Home(self.plain(dims), False, False)
            return Home(self.tensors.layout(tensor_of(n), axes, self.warps, placed), False, True)
        if n.op == "state":
            return self._found(self.steps[str(n.params[0])])
        dot = self.dot(n)
        if dot is not None:
            out = (*dot.rows, *dot.columns)
            return Home(self.result(dot) if out == tuple(dims) else None, True, True)
        if n.op in REDUCTIONS:
            wide = self.work_dims(n)
            found = self._worked(n)
            if found.layout is None or not set(dims) <= set(wide):
                return replace(found, layout=None)
            if not found.fixed:
                return Home(self.plain(dims), False, False)
            return replace(found, layout=narrowed(found.layout, wide, dims))
        return self._over(n.args, dims)

    def _over(self, args: Sequence[Node], dims: Sequence[int]) -> Home:
        """The layout of arithmetic over `dims`: of an argument that has all of them; else that of
        a store, or none in particular. Rows of a product are spread over a tile of its layout, a
        product over one of more dimensions is not."""
        found = self._widest(args, dims)
        below = [a for a in args if self.home(a) is not None]
        if found.layout is not None or len(dims) < 2 or len(below) < 2:
            return found
        if any(self.from_product(a) and len(self.shape(a)) < 2 for a in below):
            return found
        same = [o for o in self.program.kernel.outputs if self.program.shape_of(o.axes) == dims]
        if same:
            made = self.tensors.layout(same[0].name, same[0].axes, self.warps)
            return Home(made, False, True)
        return Home(self.plain(dims), False, False)

    def _widest(self, args: Sequence[Node], dims: Sequence[int]) -> Home:
        """The layout of arithmetic over `dims`: a product's if an argument has one, else that of
        an argument that a load fixes."""
        full = [self._found(a) for a in args if self.shape(a) == tuple(dims)]
        known = [x for x in full if x.layout is not None]
        return max(known, key=lambda x: (x.product, x.fixed), default=NOWHERE)
