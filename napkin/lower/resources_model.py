"""The operations of a loop program in order, and the shared memory that each one takes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from napkin.derive.kernel import tile_axes
from napkin.derive.terms import is_operand, is_read
from napkin.diagram.node import REDUCTIONS, SCANS, Node, factors, landings, over, postorder
from napkin.diagram.operators import POINTWISE
from napkin.diagram.storage import packed_axis
from napkin.lower.lanes import EACH
from napkin.lower.program import Program, moving_terms
from napkin.lower.resources_convert import (
    convert_bytes,
    reduce_bytes,
    scan_bytes,
    sort_bytes,
    within_warps,
)
from napkin.lower.resources_dot import Dot
from napkin.lower.resources_home import WIDEST, Homes, Tensors, narrowed
from napkin.lower.resources_layout import Layout, blocked, ended_by, sliced, transposed
from napkin.lower.resources_place import (
    PLAIN,
    SCRATCH,
    Buffer,
    placed_bytes,
    swizzled_alignment,
)
from napkin.lower.resources_walk import arguments, invariants, rings, within

BARRIER = 8
"""Bytes of the barrier that waits for one box (PTX ISA, mbarrier)."""


class Model:
    """Walks a program once; `peak` is the answer. Times are counted in operations."""

    def __init__(
        self, program: Program, tensors: Tensors, capability: int, warps: int, stages: int
    ) -> None:
        self.program, self.tensors = program, tensors
        self.capability, self.warps, self.stages = capability, warps, stages
        self.moving = self.here = moving_terms(program)
        self.homes = Homes(program, tensors, capability, warps, self.moving)
        self.now = 0
        self.buffers: list[Buffer] = []
        self.done: dict[Node, int] = {}
        self.rings: dict[Node, int] = {}
        self.boxes: dict[Node, int] = {}  # those without a ring, by their place in `buffers`
        self.standing: dict[Node, int] = {}  # those from before the loops, likewise
        self.kept: list[tuple[tuple[Node, ...], Buffer]] = []
        self.held: dict[tuple[tuple[Node, ...], Buffer], int] = {}
        self.leaving: set[tuple[int, ...]] = set()  # shapes and bits of the boxes that were stored
        self.coming: list[tuple[Node, Layout | None, Sequence[int]]] = []  # to a product's layout
        self.loads: dict[Node, tuple[Node, ...] | None] = {}  # what terms are computed from
        self.again: dict[Node, bool] = {}  # whether they are loaded and computed again
        self.inside, self.begun, self.laned = False, 0, False
        self.ahead = 0  # what is brought to another layout before the loop, by its place
        self.steps: Mapping[str, Node] = {}  # of the loop that the walk is in

    def peak(self) -> int:
        """Bytes of shared memory."""
        program = self.program
        for loop in program.loops:
            for n in invariants((*loop.steps.values(), *loop.emits.values()), self.moving):
                self._visit(n)
        self.standing, self.boxes = self.boxes, {}
        for i in range(len(program.loops)):
            self._loop(i)
        for name, n in program.tails.items():
            self._store(name, n)
        self.buffers += [b._replace(last=end) for (_, b), end in self.held.items()]
        if program.persistent and self.homes.boxes:
            # The next group's chunks arrive while this one's tile leaves.
            end = self._tick()
            self.buffers = [b if b.scratch else b._replace(first=0, last=end) for b in self.buffers]
        return placed_bytes(self.buffers)

    # --- time -------------------------------------------------------------------------------

    def _tick(self) -> int:
        self.now += 1
        return self.now

    def _take(self, size: int) -> None:
        """`size` bytes for one operation."""
        now = self._tick()
        self.buffers.append(Buffer(now, now, size, SCRATCH, scratch=True))

    def _loop(self, index: int) -> None:
        loop = self.program.loops[index]
        roots = (*loop.steps.values(), *loop.emits.values())
        self.here = moving_terms(self.program, loop)
        for n in invariants(roots, self.here):  # what earlier loops have made final
            self._visit(n)
        before, self.ahead = dict(self.done), len(self.buffers)
        self._take(0)
        start = self.begun = self._tick()
        self.inside, self.steps, self.laned = True, loop.steps, bool(loop.joins)
        self.rings = rings(self.homes, roots, loop.steps, self.stages)
        for root in loop.steps.values():
            self._visit(root)
        for name, n in loop.emits.items():
            self._store(name, n)
        end = self._tick()
        for leaf, slots in self.rings.items():
            size = slots * self._bytes(leaf)
            self.buffers.append(Buffer(start, end, size, self._alignment(leaf, roots)))
        for slots in self._barriers(roots):
            self.buffers.append(Buffer(start, end, BARRIER * slots))
        # An operand from before the loops is held once for all of them.
        self.held |= dict.fromkeys(self.kept, end)
        for leaf in self._read_there(roots):
            at = self.standing[leaf]
            self.buffers[at] = self.buffers[at]._replace(last=end)
        self._late(roots)
        self.inside, self.rings, self.boxes, self.done = False, {}, {}, before
        self.steps, self.laned = {}, False
        self.kept.clear()

    def _read_there(self, roots: Sequence[Node]) -> Iterator[Node]:
        """Boxes from before the loops that a loop reads where they are: wgmma does, and mma.sync
        loads its operand in the loop where no other loop does."""
        loops = [(*x.steps.values(), *x.emits.values()) for x in self.program.loops]
        for n in self._within(roots):
            dot = self.homes.dot(n)
            if dot is None or n not in self.here:  # one before the loop is done with its operands
                continue
            for p in (*dot.sides[0], *dot.sides[1]):
                readers = sum(p in set(within(x, self.homes.steps)) for x in loops)
                there = self.homes.unit(dot) == "wgmma" and not self.homes.folded(dot, p)
                if p in self.standing and (there or readers == 1):
                    yield p

    def _barriers(self, roots: Sequence[Node]) -> Iterator[int]:
        """Slots of each ring of barriers: boxes that are asked for one after another, with as many
        slots, arrive together, until one of them is used."""
        boxes = [x for x in self.rings if x in self.homes.boxes]
        slots, until = 0, 0
        for leaf in sorted(boxes, key=lambda x: self.done[x]):
            if self.rings[leaf] != slots or self.done[leaf] >= until:
                slots, until = self.rings[leaf], self.now
                yield slots
            until = min(until, self._used(leaf, roots))

    def _used(self, leaf: Node, roots: Sequence[Node]) -> int:
        """When a box is first used: by its product; but as it comes where it is brought to
        registers, for arithmetic beside the product or as a left operand that mma.sync takes
        transposed or that is folded."""
        first = self.now
        for n in self._within(roots):
            if leaf not in arguments(n):
                continue
            dot = self.homes.dot(n)
            if dot is None or leaf not in dot.parts or self.homes.folded(dot, leaf):
                return self.done[leaf]
            if leaf in dot.sides[0] and self.homes.unit(dot) != "wgmma" and dot.turned(0):
                return self.done[leaf]
            first = min(first, self.done[n])
        return first

    def _alignment(self, leaf: Node, roots: Sequence[Node]) -> int:
        """Alignment of a chunk's ring."""
        if leaf in self.homes.boxes:
            return self._swizzled(leaf)
        for n in self._within(roots):
            dot = self.homes.dot(n)
            if dot is not None and self.homes.unit(dot) == "wgmma":
                for side in (0, 1):
                    if leaf in dot.sides[side] and len(dot.sides[side]) == 1:
                        return self._operand_alignment(dot, side)
        return PLAIN

    def _swizzled(self, leaf: Node) -> int:
        tiles = self.program.tiles
        return swizzled_alignment([tiles[a] for a in leaf.axes], self.tensors.bits(leaf) // 8)

    def _operand_alignment(self, dot: Dot, side: int) -> int:
        """Alignment of an operand in shared memory."""
        if self.homes.unit(dot) != "wgmma":
            return PLAIN
        shape = [self.program.extent(d) for d in dot.spans[side]]
        return swizzled_alignment(shape, self.homes.bits(dot) // 8)

    def _bytes(self, leaf: Node) -> int:
        return self.program.span(self.homes.shape(leaf)) * self.tensors.bits(leaf) // 8

    def _within(self, roots: Iterable[Node]) -> Iterator[Node]:
        return within(roots, self.steps)

    # --- operations -------------------------------------------------------------------------

    def _visit(self, n: Node) -> None:
        for deep in landings([n], self.done, self.program.alone):
            self._visit_one(deep)
        self._visit_one(n)

    def _visit_one(self, n: Node) -> None:
        if n in self.done or n.constant or n.op in {"state", "index", "ones"}:
            return
        if n.op == "add":
            for a, b in (n.args, n.args[::-1]):
                dot = self.homes.dot(b) if b not in self.done else None
                whole = dot is not None and len(dot.parts) == len(factors(b.args[0]))
                if dot is not None and whole and self.homes.shape(a) == self.homes.shape(n):
                    self._product(dot, a)
                    self.done[b] = self.done[n] = self.now
                    return
        dot = self.homes.dot(n)
        if dot is not None:
            self._product(dot, None)
            for p in factors(n.args[0]):
                if p not in dot.parts:  # a factor of the result, in float32
                    self._visit(p)
                    bits = self._moved_bits(p, n)
                    self._move(p, self.homes.work(n), self.homes.work_dims(n), bits)
        elif not is_read(n):
            for a in arguments(n):
                self._visit(a)
                self._convert(a, n)
            if n.op in REDUCTIONS:
                self._reduce(n)
            if n.op in SCANS and (home := self.homes.home(n)) is not None:
                at = next(i for i, d in enumerate(self.homes.shape(n)) if self._goes(n, d))
                sort = n.op == "sort"
                whole = ended_by(home, at)
                self._take(sort_bytes(whole, self.tensors.triton) if sort else scan_bytes(home, at))
        self.done[n] = self._tick()
        if n in self.homes.boxes and n not in self.rings:
            self.boxes[n] = len(self.buffers)
            self.buffers.append(Buffer(self.now, self.now, self._bytes(n), self._swizzled(n)))
            self.buffers.append(Buffer(self.now, self.now, BARRIER))

    def _convert(self, a: Node, n: Node) -> None:
        """Bring an argument to the layout in which `n` is computed."""
        self._move(a, self.homes.work(n), self.homes.work_dims(n), self._moved_bits(a, n))
        have, want = self.homes.home(a), self.homes.home(n)
        loaded = is_read(a) and self.inside and a in self.moving and a not in self.rings
        if loaded and have and want and self.homes.shape(a) == self.homes.shape(n):
            # What a chunk is added to goes on in both layouts.
            self._take(convert_bytes(want, have, 32, self.capability))

    def _moved_bits(self, a: Node, n: Node) -> int:
        """Bits of a value that is brought to the layout of `n`: of a register; or, where it is
        computed from one load of narrower values, of those, which Triton 3.6 moves instead. 3.9
        does where no thread then widens more values than before, and to what mma.sync starts
        from. Truth values are bytes."""
        want, dims, mine = self.homes.work(n), self.homes.work_dims(n), self.homes.shape(a)
        if not mine:
            return 32
        if a.kind == "bool":
            return 8
        if self.tensors.triton > (3, 6):
            have = self.homes.home(a)
            more = want and have and len(narrowed(want, dims, mine).held) > len(have.held)
            if more and not self._starts(n):
                return 32
        read = self._read_by(a)
        return self.tensors.bits(read[0]) if read is not None and len(read) == 1 else 32

    def _read_by(self, a: Node) -> tuple[Node, ...] | None:
        """The loads that a tile is computed from, two at most; None where it takes more than loads,
        positions and arithmetic."""
        for x in postorder([a], self.loads):
            if x in self.loads:
                continue
            below = [self.loads[y] for y in x.args if self.homes.shape(y)]
            if is_read(x):
                self.loads[x] = (x,)
            elif x.op in {"index", *POINTWISE} and None not in below:
                self.loads[x] = tuple(dict.fromkeys(y for b in below for y in b or ()))[:2]
            else:
                self.loads[x] = None
        return self.loads[a]

    def _starts(self, n: Node) -> bool:
        """Whether what `n` adds to a product is where the accumulator of mma.sync starts."""
        sums = [n, *(n.args if n.op == "add" else ())]
        dots = [dot for x in sums if (dot := self.homes.dot(x)) is not None]
        return any(self.homes.unit(dot) == "mma" for dot in dots)

    def _move(self, a: Node, want: Layout | None, dims: Sequence[int], bits: int) -> None:
        """Bring `a` to its part of a layout over `dims`."""
        have, mine = self.homes.home(a), self.homes.shape(a)
        if have is None or want is None or self._shared(a):
            return  # read from shared memory in any layout
        if self._again_cheaply(a):
            return
        size = convert_bytes(have, narrowed(want, dims, mine), bits, self.capability)
        if self.inside and a not in self.here:  # done once, before the loop
            before = self.buffers[self.ahead]
            self.buffers[self.ahead] = before._replace(size=max(before.size, size))
        else:
            self._take(size)

    def _again_cheaply(self, a: Node) -> bool:
        """Whether a tile is loaded and computed again in the layout that is wanted: fewer values
        than there are threads, of loads and arithmetic alone."""
        for n in postorder([a], self.again):
            if n in self.again:
                continue
            if is_read(n):
                self.again[n] = self.homes.few(n)
            elif n.op in POINTWISE:
                self.again[n] = all(self.again[x] for x in n.args if self.homes.shape(x))
            else:
                self.again[n] = n.op in {"index", "ones"}
        return self.again[a]

    def _reduce(self, n: Node) -> None:
        for size in self._reductions(n):
            if not self._by_threads(n):
                self._take(size)
        whole, dims = self.homes.work(n), self.homes.work_dims(n)
        if whole is not None and self.homes.shape(n) and not self.homes.fixed(n):
            left, home = narrowed(whole, dims, self.homes.shape(n)), self.homes.home(n)
            if home is not None:
                self._take(convert_bytes(left, home, 32, self.capability))

    def _reductions(self, n: Node) -> Iterator[int]:
        whole, dims = self.homes.work(n), list(self.homes.work_dims(n))
        if whole is None:
            return
        if self.laned and len(dims) > 1 and self.tensors.triton <= (3, 6):
            yield self._lanes_last(n)
            return
        for d in reversed([d for d in dims if self._goes(n, d)]):
            at = dims.index(d)
            yield reduce_bytes(whole, at, triton=self.tensors.triton)
            dims.pop(at)
            whole = narrowed(whole, (*dims[:at], d, *dims[at:]), dims)

    def _lanes_last(self, n: Node) -> int:
        """What a reduction of rows takes that lanes have folded: Triton 3.6 spreads threads along
        rows before lanes."""
        leaf = next(x for x in postorder([n]) if is_read(x) and self._goes_along(x, n))
        rows, values = (self.program.extent(d) for d in self.homes.work_dims(n))
        shape, each = (rows, values // EACH, EACH), min(EACH, WIDEST // self.tensors.bits(leaf))
        whole = blocked(shape, (1, 1, each), (2, 0, 1), self.warps).of(shape)
        return reduce_bytes(sliced(whole, 2), 1, triton=self.tensors.triton)

    @staticmethod
    def _goes_along(leaf: Node, n: Node) -> bool:
        return bool(set(over(n)) & set(leaf.axes))

    def _goes(self, n: Node, dim: int) -> bool:
        """Whether a reduction or a scan goes along a tile dimension."""
        return any(a in over(n) for a in self.program.dims[dim])

    def _by_threads(self, n: Node) -> bool:
        """Whether each thread keeps its own share of a sum over the loop, so that warps meet once,
        after it: done for float32 chunks that are summed as they are loaded."""
        body = n.args[0]
        plain = is_read(body) and self.tensors.bits(body) == 32 and len(body.axes) > 1
        return self.inside and plain and len(self.homes.shape(body)) > 1

    def _late(self, roots: Sequence[Node]) -> None:
        late = [n for n in self._within(roots) if n.op in REDUCTIONS and self._by_threads(n)]
        for n in late:
            for size in self._reductions(n):
                self._take(size)

    # --- products ---------------------------------------------------------------------------

    def _product(self, dot: Dot, start: Node | None) -> None:
        ready: list[int] = []
        asynchronous = self.homes.unit(dot) == "wgmma"
        for side in (0, 1):
            self._operand(dot, side)
        self._brought()
        for parts in dot.sides:
            same = len(parts) == 1 and (
                is_operand(parts[0], dot.parts) or self.homes.bits(dot) == 32
            )
            since = self.done.get(parts[0], self.now)
            # What mma.sync takes to its registers does not move over the wait for a box, but in
            # Triton 3.6 it is brought to shared memory before that.
            crossed = any(since < self.buffers[at].first for at in self.boxes.values())
            crossed = crossed and self.tensors.triton > (3, 6)
            late = crossed and not asynchronous and any(p in self.moving for p in parts)
            ready.append(since if same and not late else self._tick())
        if start is not None:
            self._visit(start)
            self._convert(start, dot.node)
        staged = [self._staged(dot, side) for side in (0, 1)]
        for side, (size, held) in enumerate(staged):
            if held:
                since = ready[side]
                made = Buffer(since, since, size, self._operand_alignment(dot, side))
                if self.inside and not self._moves(dot, side):
                    made = made._replace(first=min(since, self.begun))
                    self.kept.append((tuple(dot.sides[side]), made))
                else:
                    self.buffers.append(made._replace(last=self.now + 1))
            elif size:
                self.buffers.append(Buffer(ready[side], ready[side], size, SCRATCH, scratch=True))
        self._stay(dot, after=staged[0][1] and not dot.turned(1))
        self._tick()

    def _stay(self, dot: Dot, after: bool) -> None:
        """Boxes without a ring stay until the product where it reads them from shared memory:
        wgmma does, and mma.sync loads a right operand that is a matrix in memory `after` the left
        one."""
        for side in (0, 1):
            for p in dot.sides[side]:
                wgmma = self.homes.unit(dot) == "wgmma" and not self.homes.folded(dot, p)
                *outer, rows, columns = [1, 1, *(self.program.tiles[a] for a in p.axes)]
                flat = max(outer) == 1 < min(rows, columns)
                if p in self.boxes and (wgmma or (side == 1 and after and flat)):
                    at = self.boxes[p]
                    self.buffers[at] = self.buffers[at]._replace(last=self.now + 1)

    def _operand(self, dot: Dot, side: int) -> None:
        """Compute an operand, in its own layout or in the one that the product wants."""
        parts, into = dot.sides[side], self._wanted(dot, side)
        if (into is not None or self._unfolded(dot)) and self._again(dot, parts):
            for x in self._within(parts):
                if is_read(x) and self._here(x):
                    self._visit(x)
                    whole = len(self.homes.shape(x)) == len(dot.spans[side])
                    narrow = dot.turned(side) and self.tensors.bits(x) < self.homes.bits(dot)
                    if whole and not (narrow and not self.inside):
                        self._once(x)
                    else:
                        self.coming.append((x, into, dot.spans[side]))
                        if self.tensors.triton > (3, 6):
                            self._brought()
            return
        own = self.homes.side(dot, side)
        for p in parts:
            self._visit(p)
            if len(parts) > 1:
                self._move(p, own, dot.spans[side], 32)

    def _brought(self) -> None:
        """Bring what an operand is computed from to the layout that the product wants: as it is
        loaded, but in Triton 3.6 once both operands' tiles are."""
        for x, into, dims in self.coming:
            self._move(x, into, dims, self.tensors.bits(x))
        self.coming.clear()

    def _shared(self, leaf: Node) -> bool:
        """Whether a tile lies in shared memory as it was copied."""
        return leaf in self.rings or leaf in self.boxes or leaf in self.standing

    def _once(self, leaf: Node) -> None:
        """Pass a tile without a ring through shared memory as it is loaded."""
        if not self._shared(leaf):
            now = self.done[leaf]
            self.buffers.append(Buffer(now, now, self._bytes(leaf)))

    def _wanted(self, dot: Dot, side: int) -> Layout | None:
        """The layout of an operand's tile that a product takes from registers, if it does."""
        if side == 1 and self.homes.unit(dot) == "wgmma":
            return None
        into = self.homes.operand(dot, side)
        return transposed(into) if into is not None and dot.turned(side) else into

    def _unfolded(self, dot: Dot) -> bool:
        """Whether the layout that mma.sync wants goes through the reshape of its operands to their
        loads: done where one is taken from bytes that hold two values."""
        found = any(packed_axis(x) for x in self._within(dot.parts))
        return found and not dot.flat and self.homes.unit(dot) == "mma"

    def _here(self, n: Node) -> bool:
        """Whether a term is computed where the walk is: in this loop, not before it."""
        return n in self.moving or not self.inside

    def _moves(self, dot: Dot, side: int) -> bool:
        return any(p in self.here for p in dot.sides[side])

    def _staged(self, dot: Dot, side: int) -> tuple[int, bool]:
        """Bytes for an operand beside its ring, and whether it stays until the product."""
        parts, unit = dot.sides[side], self.homes.unit(dot)
        size = self.program.span(dot.spans[side]) * self.homes.bits(dot) // 8
        alone = len(parts) == 1 and is_operand(parts[0], dot.parts) and dot.flat
        if alone and self._shared(parts[0]):
            return 0, False
        if self._unfolded(dot) and (self._shared(parts[0]) or self._again(dot, parts)):
            return 0, False
        into, source = self._wanted(dot, side), self.homes.side(dot, side)
        if into is None or (unit == "wgmma" and alone):
            return size, True
        if alone:
            if not dot.turned(side) or source is None:
                return size, True
            if side == 0 and self.inside:
                self._once(parts[0])
                return 0, False
            return convert_bytes(source, into, self.homes.bits(dot), self.capability), False
        if self._again(dot, parts):
            return 0, False
        if source is not None and within_warps(source, into):
            return 0, False
        return size, True

    def _again(self, dot: Dot, parts: Sequence[Node]) -> bool:
        """Whether an operand is arithmetic on what is loaded beside the product, in the same loop:
        it is computed in the layout that the product wants. Where two values of a byte are not
        neighbours in depth, a product wants them in different threads."""
        if len(parts) == 1 and is_operand(parts[0], dot.parts):
            return False
        below = [n for n in self._within(parts) if self._here(n)]
        if any(n.op in REDUCTIONS or n.op == "state" for n in below):
            return False
        tiles = [n for n in below if len(self.homes.shape(n)) > 1]
        if any(packed_axis(n) not in {"", *over(dot.node)} for n in tiles):
            return False
        return any(is_read(n) for n in below)

    # --- stores -----------------------------------------------------------------------------

    def _leaves_there(self, shape: Sequence[int], bits: int) -> bool:
        """Whether a box leaves from where another of a persistent instance did: those of one shape
        and type share their memory, one waiting for the other."""
        key = (*shape, bits)
        again = self.program.persistent > 0 and key in self.leaving
        self.leaving.add(key)
        return again

    def _store(self, name: str, n: Node) -> None:
        placed = self.tensors.addressed(n) if n.op == "scatter" else ""
        n = n.args[0] if placed else n
        self._visit(n)
        have = self.homes.home(n)
        o = next(o for o in self.program.kernel.outputs if o.name == name)
        axes = tile_axes(o)
        dims = self.program.shape_of(axes)
        if have is None or self.homes.shape(n) != dims:
            return
        bits = self.tensors.bits_of(name)
        if name in self.homes.stores:
            now, shape = self._tick(), [self.program.tiles[a] for a in axes]
            if self._leaves_there(shape, bits):
                return
            size = self.program.span(dims) * bits // 8
            self.buffers.append(Buffer(now, now, size, swizzled_alignment(shape, bits // 8)))
            return
        if self._again_cheaply(n):
            return
        want: Layout = self.tensors.layout(name, axes, self.warps, placed)
        rounded = bits if self.homes.fixed(n) else 32
        self._take(convert_bytes(have, want, rounded, self.capability))
