"""What a setting of tiles is predicted to cost: warps, stages, bytes and time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from napkin.count.crossing import CacheTraffic
from napkin.count.residency import extent
from napkin.derive.kernel import Kernel, tile_axes
from napkin.lower.launch import LANES
from napkin.machine.machines import Machine
from napkin.schedule import Schedule
from napkin.settings.accesses import with_accesses
from napkin.settings.choice import DOUBT, ROUNDED, Choice, Unpriced, iterations_of
from napkin.settings.labelled import Labelled, described_bytes
from napkin.settings.swizzles import Traffic, swizzled
from napkin.settings.tiled import Tiled
from napkin.timing.execution import Execution, Time
from napkin.timing.kernel_time import least, predict
from napkin.timing.least_time import at_least, chaining, loading, narrow, starting

DEEPEST = 4
"""Stages of a loop at most: products 1536 x 14080 x 256 in tiles of 128 took 194, 108 and 79 us
with 2, 3 and 4 (H100)."""

ROW_STAGES = 2
"""Stages of a loop that multiplies nothing with which its groups still wait for loads: gradients of
norms, a row a chunk, took 181 and 194 us with 1, 168 and 179 with 2, 149 and 152 with 3 (H100)."""

WARPS = (1, 2, 4, 8)
"""Warps of a group whose every step waits for the one before: one warp has no barriers, and the
gated delta rule takes 1,650 us with 1, 3,196 with 2, 5,444 with 4 in tiles of 16 rows (H100)."""

FEWEST_WARPS, MOST_WARPS = 4, 8
"""Warps of a group that multiplies, at least and at most."""

FEWEST = 128
"""Values of a group that multiplies nothing, at least: of fewer, threads of its 4 warps hold
copies."""


@dataclass(frozen=True)
class _Resources:
    """Bytes of shared memory, by operands, and of registers that a group takes, and how many groups
    a multiprocessor holds at once."""

    shared: int
    registers: int
    resident: int


_Asked = tuple[Schedule, _Resources]
"""How groups are asked to run, and what each takes then."""


_Fit = tuple[int, Mapping[int, _Asked]]
"""Warps, and how groups with so many run that are not persistent, in the stages that may serve
them, by how many a multiprocessor holds at once."""


_Ranking = Callable[[float], float]
"""The first number of a rank that no choice at some tiles comes before, by seconds."""


class Pricing:
    """Prices the settings of a kernel on a machine.

    Args:
        sizes: of every axis of the kernel.
    """

    def __init__(
        self, kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
    ) -> None:
        self.of = Labelled(kernel, sizes, dtype, machine)
        self.machine = machine

    def unpriced(self, settings: Iterable[dict[str, int]]) -> Iterator[Unpriced]:
        """Each setting of tiles; it has choices where it fits registers and, by its operands,
        memory."""
        for tiles, accesses in with_accesses(self.of, settings):
            tiled = Tiled(self.of, tiles, accesses)
            loaded = self._loaded(tiled)
            if tiled.multiplies:
                rank = self._ranking(tiled)
                yield Unpriced((rank(loaded),), partial(self._nearer, tiled, rank))
            else:
                yield Unpriced((loaded * ROUNDED,), partial(self._settle, tiled))

    def _loaded(self, tiled: Tiled) -> float:
        """Seconds that no choice at these tiles undercuts, by what warps load and store: little is
        asked to know them."""
        asked = tiled.accesses
        if not tiled.multiplies:  # in rounds of all groups
            return loading(self.machine, asked.number, asked.lines)
        return loading(self.machine, asked.number, asked.lines, asked.singles, tiled.imbalance)

    def _ranking(self, tiled: Tiled) -> _Ranking:
        """What gives the first number of a rank, of seconds beside those in which groups start."""
        start = starting(self.machine, tiled.busiest, FEWEST_WARPS, self.of.lasting)
        longer = iterations_of(self.of.kernel, self.of.sizes, tiled.tiles) ** DOUBT
        return lambda seconds: (seconds + start) * longer

    def _nearer(self, tiled: Tiled, rank: _Ranking) -> Iterator[Unpriced]:
        """A setting of tiles that multiplies, by what it computes."""
        computed = self._computed(tiled)
        yield Unpriced((rank(computed),), partial(self._near, tiled, rank, computed))

    def _computed(self, tiled: Tiled) -> float:
        """Seconds that no choice at these tiles undercuts, by its products, its iterations, and
        what it computes between them."""
        of, (work, tail) = self.of, tiled.work(FEWEST_WARPS)
        # More of them compute as much, or some of it again.
        looped = {pipe: n - tail[pipe] for pipe, n in work.items()}
        multiplied = looped["product"]
        if of.dtype == "fp32":  # but each of their threads multiplies less
            more, last = tiled.work(MOST_WARPS)
            multiplied = min(multiplied, more["product"] - last["product"])
        multiplied *= narrow(self.machine, of.dtype, tiled.rows)
        if of.chained:
            return chaining(self.machine, multiplied, of.dtype, looped, tiled.groups)
        iterations, special = tiled.iterations[0] * tiled.groups, looped["special"]
        on = partial(at_least, self.machine, 0, multiplied, of.dtype, imbalance=tiled.imbalance)
        return on(iterations=iterations, special=special)

    def _near(self, tiled: Tiled, rank: _Ranking, computed: float) -> Iterator[Unpriced]:
        """A setting of tiles that multiplies, by the seconds that it computes at least and by what
        crosses; nothing where it does not fit."""
        if fit := list(self._fitting(tiled)):
            least = max(computed, self._crossed(tiled))
            yield Unpriced((rank(least),), partial(self._settle, tiled, fit))

    def _crossed(self, tiled: Tiled) -> float:
        """Seconds that no choice at these tiles undercuts, by what passes L1 in no setting."""
        of, asked = self.of, tiled.requests(DEEPEST)
        passing = (n for t, n in asked.crossing if t.direction != "read" or t.tensor in of.in_boxes)
        moved, imbalance = sum(asked.once.values()), tiled.imbalance
        return at_least(self.machine, moved, crossed=sum(passing), imbalance=imbalance)

    def at(self, schedule: Schedule) -> Choice:
        """The price of one setting, whether or not it fits, in the blocks of groups that are best.
        What shared memory warpgroups take is left open."""
        tiled = Tiled(self.of, schedule.tiles)
        # Warpgroups have a multiprocessor to themselves.
        lasting = schedule.persistent > 0
        taken = (
            _Resources(0, 0, 1)
            if schedule.warpgroups
            else self._resources(tiled, schedule.warps, schedule.stages, lasting)
        )
        return self._priced(tiled, schedule, taken)

    def _settle(self, tiled: Tiled, fit: Sequence[_Fit] = ()) -> Iterator[Unpriced]:
        """The parts of a setting of tiles, by warps, of which those that `fit` may be known."""
        for warps, plain in fit or self._fitting(tiled):
            deeper = self._deeper(tiled, warps) if plain else None
            kept = list(self._lasting(tiled, warps))
            asked = [*plain.values(), *kept, *([deeper] if deeper else [])]
            first = min(self._least(tiled, *a).rank for a in asked)
            yield Unpriced(first, partial(self._best, tiled, plain, deeper, kept))

    def _fitting(self, tiled: Tiled) -> Iterator[_Fit]:
        """The warps of groups with a setting of tiles that fit, and how groups then run."""
        for warps in self._warps(tiled):
            plain = self._staged(tiled, warps)
            if plain or any(self._lasting(tiled, warps)):
                yield warps, plain

    def _warps(self, tiled: Tiled) -> Sequence[int]:
        """The warps that a group may have by its registers."""
        live = self.of.live
        # A quarter is left for addresses, masks and what the compiler keeps beside these; boxes
        # have neither addresses nor masks, and a tenth was enough where few chunks are tested.
        most = self.machine.registers_per_thread * 32
        budget = most * 9 // 10 if tiled.bare else most * 3 // 4
        budget = min(budget, most // 2) if self.of.computes else budget
        few = self.of.stepped and not live.products
        last = tiled.finishing_registers * 10 // 9 * budget // most if live.products else 0
        # A number for each of 128 keys of each pair of positions fits in no fewer registers.
        paired = (2 * MOST_WARPS,) if self.of.kernel.stream.twin else ()
        every = WARPS if few else (FEWEST_WARPS, MOST_WARPS, *paired)
        fit = (w for w in every if max(tiled.registers(w), last) <= w * budget)
        if (first := next(fit, None)) is None:
            return ()
        if live.products:
            return (first,)
        stored = [tile_axes(o) for o in self.of.kernel.outputs]  # of positions, say
        values = max([extent(a, tiled.tiles) for a in live.chunk or stored])
        if few:
            return [first, *(w for w in fit if w * LANES <= values)]
        if values < FEWEST and self._may_grow(tiled):
            return ()
        return (4,) if values <= 4096 else (8,)

    def _staged(self, tiled: Tiled, warps: int) -> Mapping[int, _Asked]:
        """How groups of so many warps run in the stages that may serve them, by how many a
        multiprocessor holds at once."""
        most = self.machine.registers_per_thread * 32
        plain: dict[int, _Asked] = {}
        for stages in (3, 2, 1):
            alone, taken = tiled.waits(stages), self._resources(tiled, warps, stages)
            if taken.registers > warps * most:  # what spills is read again in every iteration
                continue
            # Fewer stages only make room for other groups, and loads still run ahead; with one, a
            # group waits for them while others compute, which pays where it would be alone.
            most_yet = max(plain, default=0)
            waits = alone and self.of.chained and most_yet == 1
            worth = taken.resident > most_yet and (stages > 1 or waits)
            if taken.shared <= self.machine.shared_per_block and (worth or not plain):
                plain[taken.resident] = self._schedule(tiled, warps, stages), taken
        return plain

    def _lasting(self, tiled: Tiled, warps: int) -> Iterator[_Asked]:
        """How persistent program instances of so many warps run."""
        every = (self._kept(tiled, warps, stages) for stages in (3, 2))
        return (k for k in every if k is not None)

    def _best(
        self,
        tiled: Tiled,
        plain: Mapping[int, _Asked],
        deeper: _Asked | None,
        kept: Sequence[_Asked],
    ) -> Iterator[Unpriced]:
        """The best choice, and the best one of persistent program instances."""
        found = {resident: self._priced(tiled, *a) for resident, a in plain.items()}
        if deeper is not None:
            last = self._priced(tiled, *deeper)
            if last.time.seconds < min(c.time.seconds for c in found.values()):
                found[last.resident] = last
        if found:
            yield self._formed(min(found.values(), key=lambda c: c.rank))
        if kept:
            every = (self._priced(tiled, *a) for a in kept)
            yield self._formed(min(every, key=lambda c: c.rank))

    def _formed(self, best: Choice) -> Unpriced:
        """A choice, or nothing where the compiler does not take its tensors: what these are takes
        longer to tell than its price, and is asked of what comes next alone."""
        tiles = best.schedule.tiles
        return Unpriced(best.rank, lambda: iter([best] if self.of.formed(tiles) else []))

    def _may_grow(self, tiled: Tiled) -> bool:
        """Whether a group could take more along some axis, without a loop over what it holds."""
        of = self.of
        return not of.kernel.stream.axes and any(
            tiled.tiles[a] < of.sizes[a] for a in of.kernel.group if a not in of.kernel.alone
        )

    def _deeper(self, tiled: Tiled, warps: int) -> _Asked | None:
        """One more stage for products whose every group is alone on its multiprocessor, in one
        wave: nothing but its own chunks hides how late these arrive."""
        live = self.of.live
        alone = live.products and not self.of.chained and live.streamed_operands
        if not alone or tiled.groups > self.machine.sms:
            return None
        taken = self._resources(tiled, warps, DEEPEST)
        fits = taken.shared <= self.machine.shared_per_block
        return (self._schedule(tiled, warps, DEEPEST), taken) if fits else None

    def _kept(self, tiled: Tiled, warps: int, stages: int) -> _Asked | None:
        """A setting of persistent program instances, as many as there is room for; None where they
        do not fit or where each would take one group."""
        if not self.of.lasting:
            return None
        taken = self._resources(tiled, warps, stages, lasting=True)
        programs = taken.resident * self.machine.sms
        fits = taken.shared <= self.machine.shared_per_block and programs < tiled.groups
        if not (fits and tiled.persists):
            return None
        return self._schedule(tiled, warps, stages, programs), taken

    def _schedule(self, tiled: Tiled, warps: int, stages: int, programs: int = 0) -> Schedule:
        """A setting that asks for all that may serve it, of so many persistent instances."""
        return Schedule(
            tiled.tiles,
            warps,
            stages,
            described=described_bytes(self.of.dtype, self.machine),
            per_thread=True,
            persistent=programs,
        )

    def _resources(
        self, tiled: Tiled, warps: int, stages: int, lasting: bool = False
    ) -> _Resources:
        """What a group takes, or one of persistent instances."""
        machine = self.machine
        shared, registers = tiled.taken(warps, stages)
        shared += tiled.leaving if lasting else 0
        # A thread takes some registers whatever it computes: about 32 of 4 bytes.
        most = warps * machine.registers_per_thread * 32
        resident = min(
            machine.shared_per_sm // max(shared, 1),
            machine.registers_per_sm // max(min(registers, most), warps * 32 * 128),
            machine.warps_per_sm // warps,
            machine.blocks_per_sm,
        )
        return _Resources(shared, registers, max(1, resident))

    def _priced(self, tiled: Tiled, schedule: Schedule, taken: _Resources) -> Choice:
        """The price of a setting whose groups take so much, with the swizzle for which least
        comes from memory."""
        plain = self._caches(tiled, schedule, taken)
        traffic = swizzled(tiled, plain, schedule.warpgroups > 0 and not self.of.chained)
        run = self._execution(tiled, schedule, traffic, traffic.caches.from_l1())
        time = predict(self.machine, self.of.dtype, run)
        return self._choice(tiled, taken, traffic, run, time)

    def _least(self, tiled: Tiled, schedule: Schedule, taken: _Resources) -> Choice:
        """A setting with the time that it takes at least, whatever its swizzle: as though every
        array came from memory once."""
        plain = self._caches(tiled, schedule, taken)
        traffic = Traffic(plain, plain.requests.once, 0)
        blocks = self.of.launching.in_blocks(tiled.tiles) is not None  # in which L1 may have less
        run = self._execution(tiled, schedule, traffic, 0.0 if blocks else plain.from_l1())
        time = Time(least(self.machine, self.of.dtype, run), "", {})
        return self._choice(tiled, taken, traffic, run, time)

    def _caches(self, tiled: Tiled, schedule: Schedule, taken: _Resources) -> CacheTraffic:
        """What passes between the levels without a swizzle."""
        requests = tiled.requests(schedule.stages)
        return CacheTraffic(requests, self.machine, tiled.order, taken.resident, taken.shared)

    def _choice(
        self, tiled: Tiled, taken: _Resources, traffic: Traffic, run: Execution, time: Time
    ) -> Choice:
        return Choice(
            self.of.kernel, run.schedule, self.of.sizes, taken.shared, time,
            tiled.requested_bytes, run, traffic.outer, taken.resident,
        )  # fmt: skip

    def _execution(
        self, tiled: Tiled, schedule: Schedule, traffic: Traffic, cached: float
    ) -> Execution:
        """What groups compute, move and wait for; `cached` bytes come from L1."""
        of, operands, caches = self.of, self.of.live.streamed_operands, traffic.caches
        if traffic.swizzle != schedule.swizzle:
            schedule = replace(schedule, swizzle=traffic.swizzle)
        crossing, (chunks, longest) = caches.crossing(), tiled.iterations
        accesses = tiled.accesses
        # Warpgroups of a warp-specialised CTA have rows of their own.
        work, tail = tiled.work(0 if schedule.warpgroups else schedule.warps)
        formed = [n * max(chunks, 1) * tiled.groups for n in tiled.formed]
        joins, crossed = tiled.joins(schedule.warps)
        # A slot that wgmma reads is in use for one iteration more.
        in_use = 2 if of.boxed and of.live.products else 1
        return Execution(
            work, tiled.groups, schedule, tail,
            inner_bytes=sum(crossing.values()),
            cached_bytes=cached,
            outer_bytes=sum(traffic.outer.values()),
            partial_bytes=sum(crossing[t, "read"] * (n - 1) for t, n in tiled.lines.items()),
            singles=accesses.singles,
            accesses=accesses.number,
            lines=accesses.lines,
            moved=accesses.moved,
            scattered=accesses.scattered,
            divisions=of.divisions,
            stored_bytes=tiled.stored_bytes,
            finishing_bytes=tiled.finishing_bytes,
            emitted=tiled.emitted,
            formed=formed[0], wide=formed[1], pieces=formed[2], held=formed[3],
            added_bytes=tiled.added_bytes,
            zeroed_bytes=of.zeroed_bytes,
            resident=caches.running,
            chunks=chunks,
            pipelined=schedule.stages > (1 if operands else ROW_STAGES)
            and (bool(operands) or tiled.ahead(schedule.warps)),
            overlapped=schedule.stages > in_use or not of.kernel.stream.axes,
            chained=of.chained and not (schedule.warpgroups and schedule.persistent),
            rows=tiled.rows, links=of.links, recurrent=of.recurrent,
            exchanged=tiled.exchanged * max(chunks, 1) * tiled.groups,
            serial=0 if schedule.warpgroups else tiled.waited(schedule.stages, schedule.warps),
            longest=longest,
            staggered=of.kernel.visits is not None,
            loads=max(1, len(operands) + len(of.copied_others)),
            per_thread=tiled.per_thread(schedule.warps),
            tested=schedule.warpgroups > 0 and (not tiled.in_boxes or tiled.uneven),
            tests=tiled.tests,
            stepped=of.stepped,
            late=tiled.late(schedule.warps) if of.stepped else 0.0,
            joins=joins, crossed=crossed,
        )  # fmt: skip
