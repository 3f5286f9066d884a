"""Hardware as a graph of memory levels, each figure with its unit and its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from napkin.errors import InputError, did_you_mean
from napkin.target import Target, target_of


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of a machine: its value, the unit of the value, and where it comes from."""

    value: float
    unit: str
    source: str


@dataclass(frozen=True, slots=True)
class Level:
    """One kind of memory.

    Attributes:
        name: "host", "dram", "l2", "shared", "registers", ...
        count: how many such memories one chip has (the N_l of arXiv 2412.03317, Theorem 2).
        capacity: bytes of one of them.
        per_block: the most bytes of one that one thread block may take, where that is less.
        per_thread: the most bytes of one that one thread may take, where that is limited.
        unified: bytes of one together with the cache (L1) that has what it leaves of them.
        chips: how many chips share one of them, where it is above the chip.
        cache: whether hardware fills it: it holds what its children read together, and no tile.
        per: what it is one of, "chip" or "sm"; "" where `counted` or `chips` says how many.
        counted: the figure behind `count`, where the file has one.
    """

    name: str
    count: int
    capacity: Figure
    per_block: Figure | None = None
    per_thread: Figure | None = None
    chips: Figure | None = None
    cache: bool = False
    per: str = ""
    counted: Figure | None = None
    unified: Figure | None = None

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure under its key."""
        if self.counted is not None:
            yield "count", self.counted
        yield from _figures(self, "chips", "capacity", "per_block", "per_thread", "unified")

    @property
    def sharing(self) -> int:
        """The chips that share one."""
        return int(self.chips.value) if self.chips else 1

    @property
    def tile_capacity(self) -> float:
        """Bytes of one that the tile of one group may take."""
        return (self.per_block or self.capacity).value


@dataclass(frozen=True, slots=True)
class Pipe:
    """Data can move from level `source` to level `target`; rates are totals over the chip.

    Attributes:
        rate: bytes/s from `source` to `target`.
        write: bytes/s back, where that is another rate.
        granule: bytes that move at once.
        siblings: for a pipe between memories of one level (`source` is `target`), how many of them
            it joins: what one has read crosses to the others (arXiv 2412.03317, Theorem 3).
    """

    source: str
    target: str
    rate: Figure
    write: Figure | None = None
    granule: Figure | None = None
    siblings: Figure | None = None

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure under its key."""
        return _figures(self, "siblings", "rate", "write", "granule")

    @property
    def name(self) -> str:
        """The pipe as figures are listed under it."""
        joined = f"x{int(self.siblings.value)}" if self.siblings else ""
        return f"{self.source}-{self.target}{joined}"


def _figures(record: Level | Pipe, *keys: str) -> Iterator[tuple[str, Figure]]:
    """Those figures of a record that it has."""
    found = ((key, getattr(record, key)) for key in keys)
    return ((key, figure) for key, figure in found if figure is not None)


def _count(key: str) -> cached_property[int]:
    """A count of the chip."""

    def count(machine: Machine) -> int:
        return int(machine.chip[key].value)

    return cached_property(count)


@dataclass(frozen=True)
class Machine:
    """A GPU, what is around it and what limits a kernel on it. Build one with `machine`."""

    name: str
    title: str
    arch: str
    levels: tuple[Level, ...]
    pipes: tuple[Pipe, ...]
    chip: Mapping[str, Figure] = field(hash=False)
    compute: Mapping[str, Figure] = field(hash=False)
    granules: Mapping[str, Figure] = field(hash=False)
    calibration: Mapping[str, Figure] = field(hash=False)
    price: Figure | None = None

    def __hash__(self) -> int:
        return self._hashed

    @cached_property
    def _hashed(self) -> int:
        return hash((self.name, self.title, self.arch, self.levels, self.pipes))

    # --- the graph ------------------------------------------------------------------------------

    def level(self, name: str) -> Level:
        """The level called `name`."""
        for level in self.levels:
            if level.name == name:
                return level
        known = did_you_mean(name, [level.name for level in self.levels])
        raise InputError(f"machine {self.name!r} has no level {name!r}; {known}")

    def pipe(self, source: str, target: str) -> Pipe:
        """The pipe from level `source` to level `target`."""
        for pipe in self.pipes:
            if (pipe.source, pipe.target) == (source, target) and pipe.siblings is None:
                return pipe
        known = ", ".join(f"{p.source} to {p.target}" for p in self.pipes if not p.siblings)
        raise InputError(
            f"machine {self.name!r} has no pipe from {source!r} to {target!r}; known: {known}"
        )

    def path(self, source: str, target: str) -> tuple[Pipe, ...]:
        """The pipes from level `source` down to level `target`, the fewest there are."""
        ways: list[tuple[Pipe, ...]] = [()]
        source, target = self.level(source).name, self.level(target).name
        for way in ways:
            at = way[-1].target if way else source
            if at == target:
                return way
            seen = {source, *(p.target for p in way)}
            ways += [(*way, p) for p in self.pipes if p.source == at and p.target not in seen]
        raise InputError(
            f"machine {self.name!r}: no pipes lead from {source!r} to {target!r}"
            + ("; levels go from the outermost inwards" if self._leads(target, source) else "")
        )

    def _leads(self, source: str, target: str) -> bool:
        """Whether pipes lead from `source` to `target`."""
        reached = [source]
        for at in reached:
            reached += [p.target for p in self.pipes if p.source == at and p.target not in reached]
        return target in reached

    def links(self, level: str) -> dict[int, Pipe]:
        """The pipes that join memories of `level`, by how many each joins, the fewest first."""
        own = [p for p in self.pipes if p.source == level]
        return dict(sorted((int(p.siblings.value), p) for p in own if p.siblings))

    # --- computing ------------------------------------------------------------------------------

    def per_clock(self, name: str) -> float:
        """Operations per clock and SM of a pipe such as "tensor_fp16", "fma_fp32", "special"."""
        if name not in self.compute:
            known = did_you_mean(name, self.compute)
            raise InputError(f"machine {self.name!r} has no compute pipe {name!r}; {known}")
        return self.compute[name].value

    @cached_property
    def dtypes(self) -> tuple[str, ...]:
        """The types that some pipe computes in."""
        names = (key.partition("_")[2] for key in self.compute)
        return tuple(dict.fromkeys(name for name in names if name))

    def peak(self, dtype: str) -> float:
        """The most dense FLOP/s of the chip in `dtype`, such as "bf16": the faster of the tensor
        cores and the multiply-add pipe that compute in it."""
        if dtype not in self.dtypes:
            known = did_you_mean(dtype, self.dtypes)
            raise InputError(f"machine {self.name!r} has no peak for dtype {dtype!r}; {known}")
        pipes = [key for key in (f"tensor_{dtype}", f"fma_{dtype}") if key in self.compute]
        return max(map(self.per_clock, pipes)) * self.sms * self.clock

    @cached_property
    def special_rate(self) -> float:
        """Special functions (exp2, log2, rsqrt, ...) per second over the chip."""
        return self.per_clock("special") * self.sms * self.clock

    # --- every figure ---------------------------------------------------------------------------

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure under its key in the machine file, such as "levels.l2.capacity"."""
        if self.price is not None:
            yield "price", self.price
        tables = {"chip": self.chip, "compute": self.compute, "granules": self.granules}
        for table, entries in tables.items():
            for key, figure in entries.items():
                yield f"{table}.{key}", figure
        for level in self.levels:
            for key, figure in level.figures():
                yield f"levels.{level.name}.{key}", figure
        for pipe in self.pipes:
            for key, figure in pipe.figures():
                yield f"pipes.{pipe.name}.{key}", figure
        for key, figure in self.calibration.items():
            yield f"calibration.{key}", figure

    # --- limits ---------------------------------------------------------------------------------

    @cached_property
    def cuda(self) -> bool:
        """Whether it runs CUDA."""
        return self.arch.startswith("sm_")

    @cached_property
    def capability(self) -> int:
        """CUDA compute capability as ten times major plus minor, 90 for "sm_90"; 0 without CUDA."""
        return self.target.capability

    @cached_property
    def target(self) -> Target:
        """What it offers kernels."""
        return target_of(self.arch)

    @cached_property
    def clock(self) -> float:
        """Clock in Hz at which the tensor-core peaks are quoted."""
        return self.chip["clock"].value

    sms = _count("sms")
    """Streaming multiprocessors of the chip; on AMD, compute units."""
    threads_per_block = _count("threads_per_block")
    """The most threads of a thread block."""
    threads_per_sm = _count("threads_per_sm")
    """The most threads resident on an SM."""
    warps_per_sm = _count("warps_per_sm")
    """The most warps resident on an SM."""
    blocks_per_sm = _count("blocks_per_sm")
    """The most thread blocks resident on an SM."""

    @cached_property
    def shared_per_sm(self) -> int:
        """Bytes of shared memory of one SM."""
        return int(self.level("shared").capacity.value)

    @cached_property
    def shared_per_block(self) -> int:
        """The most bytes of shared memory that one thread block may take."""
        return int(self.level("shared").tile_capacity)

    @cached_property
    def registers_per_sm(self) -> int:
        """Bytes of registers of one SM."""
        return int(self.level("registers").capacity.value)

    @cached_property
    def registers_per_thread(self) -> int:
        """The most bytes of registers that one thread may take."""
        registers = self.level("registers")
        return int((registers.per_thread or registers.capacity).value)

    @cached_property
    def dram_rate(self) -> float:
        """Bytes/s out of DRAM."""
        return self.path("dram", "shared")[0].rate.value

    @cached_property
    def l2_rate(self) -> float:
        """Bytes/s into the shared memories of all SMs together."""
        return self.path("dram", "shared")[-1].rate.value

    @cached_property
    def l2_line(self) -> int:
        """Bytes of a line of L2, of which a request is for one; 1 where the file gives none."""
        granule = self.path("dram", "shared")[-1].granule
        return int(granule.value) if granule else 1

    @cached_property
    def register_rate(self) -> float:
        """Bytes/s from the shared memories and L1 of all SMs together into registers."""
        return self.path("shared", "registers")[0].rate.value
