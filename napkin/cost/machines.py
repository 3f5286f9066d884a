"""Machines: a GPU as a graph of memory levels, each figure with its unit and its source.

A machine file is TOML. Every figure is an inline table ``{ value, unit, source }``; the source says
where the number was printed (or that it is derived, or an estimate), so that a prediction can be
traced to what it rests on. The tables, after arXiv 2412.03317 (levels and pipes, App. A.2):

``[chip]``        counts ("1"), the clock ("Hz") at which the tensor-core peaks are quoted, and
                  ``special``, exponentials and the like per clock and SM ("1/clk/SM").
``[peak]``        by dtype, dense FLOP/s of the whole chip, the faster of CUDA and tensor cores that
                  keeps the dtype's precision: ``fp32`` is the CUDA cores' rate (IEEE fp32).
``[levels.NAME]`` ``per`` ("chip" or "sm") and ``capacity`` of one such memory in bytes;
                  ``per_block`` and ``per_thread`` where one owner may take only a part of it.
``[[pipes]]``     an edge ``from`` level ``to`` level that data can move along, and its ``rate`` in
                  bytes/s, summed over all the memories that it feeds.

Further levels and pipes (clusters, tensor-core fragments, other GPUs) need no change here.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import cast

from napkin.errors import InputError, did_you_mean

# The chip's figures, with the unit of each. All of them are needed.
_CHIP_UNITS = {
    "sms": "1",
    "clock": "Hz",
    "threads_per_block": "1",
    "threads_per_sm": "1",
    "warps_per_sm": "1",
    "blocks_per_sm": "1",
    "special": "1/clk/SM",
}
_LEVELS = ("dram", "l2", "shared", "registers")
_PIPES = (("dram", "l2"), ("l2", "shared"))


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
        name: "dram", "l2", "shared", "registers", ...
        count: how many such memories the chip has (the N_l of arXiv 2412.03317, Theorem 2).
        capacity: bytes of one of them.
        per_block: the most bytes of one that one thread block may take, where that is less.
        per_thread: the most bytes of one that one thread may take, where that is limited.
    """

    name: str
    count: int
    capacity: Figure
    per_block: Figure | None = None
    per_thread: Figure | None = None


@dataclass(frozen=True, slots=True)
class Pipe:
    """Data can move from level `source` to level `target`, at `rate` bytes/s over the chip."""

    source: str
    target: str
    rate: Figure


@dataclass(frozen=True)
class Machine:
    """A GPU: what limits a kernel on it. Build one with `machine`."""

    name: str
    title: str
    arch: str
    levels: tuple[Level, ...]
    pipes: tuple[Pipe, ...]
    chip: Mapping[str, Figure] = field(hash=False)
    peaks: Mapping[str, Figure] = field(hash=False)

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
            if (pipe.source, pipe.target) == (source, target):
                return pipe
        known = ", ".join(f"{pipe.source} to {pipe.target}" for pipe in self.pipes)
        raise InputError(
            f"machine {self.name!r} has no pipe from {source!r} to {target!r}; known: {known}"
        )

    def peak(self, dtype: str) -> float:
        """The most dense FLOP/s of the chip in `dtype`, such as "bf16"."""
        if dtype not in self.peaks:
            known = did_you_mean(dtype, self.peaks)
            raise InputError(f"machine {self.name!r} has no peak for dtype {dtype!r}; {known}")
        return self.peaks[dtype].value

    def figures(self) -> Iterator[tuple[str, Figure]]:
        """Every figure under its key in the machine file, such as "levels.l2.capacity"."""
        for key, figure in self.chip.items():
            yield f"chip.{key}", figure
        for key, figure in self.peaks.items():
            yield f"peak.{key}", figure
        for level in self.levels:
            for key in ("capacity", "per_block", "per_thread"):
                figure = cast("Figure | None", getattr(level, key))
                if figure is not None:
                    yield f"levels.{level.name}.{key}", figure
        for pipe in self.pipes:
            yield f"pipes.{pipe.source}-{pipe.target}.rate", pipe.rate

    @property
    def capability(self) -> int:
        """CUDA compute capability as ten times major plus minor: 90 for "sm_90"."""
        return int(self.arch.removeprefix("sm_").rstrip("af"))

    @property
    def sms(self) -> int:
        """Streaming multiprocessors of the chip."""
        return int(self.chip["sms"].value)

    @property
    def clock(self) -> float:
        """Clock in Hz at which the tensor-core peaks are quoted."""
        return self.chip["clock"].value

    @property
    def threads_per_block(self) -> int:
        """The most threads of a thread block."""
        return int(self.chip["threads_per_block"].value)

    @property
    def threads_per_sm(self) -> int:
        """The most threads resident on an SM."""
        return int(self.chip["threads_per_sm"].value)

    @property
    def warps_per_sm(self) -> int:
        """The most warps resident on an SM."""
        return int(self.chip["warps_per_sm"].value)

    @property
    def blocks_per_sm(self) -> int:
        """The most thread blocks resident on an SM."""
        return int(self.chip["blocks_per_sm"].value)

    @property
    def special_rate(self) -> float:
        """Special functions (exp2, log2, rsqrt, ...) per second over the chip."""
        return self.chip["special"].value * self.sms * self.clock

    @property
    def shared_per_sm(self) -> int:
        """Bytes of shared memory of one SM."""
        return int(self.level("shared").capacity.value)

    @property
    def shared_per_block(self) -> int:
        """The most bytes of shared memory that one thread block may take."""
        shared = self.level("shared")
        return int((shared.per_block or shared.capacity).value)

    @property
    def registers_per_sm(self) -> int:
        """Bytes of registers of one SM."""
        return int(self.level("registers").capacity.value)

    @property
    def registers_per_thread(self) -> int:
        """The most bytes of registers that one thread may take."""
        registers = self.level("registers")
        return int((registers.per_thread or registers.capacity).value)

    @property
    def dram_rate(self) -> float:
        """Bytes/s from DRAM into L2."""
        return self.pipe("dram", "l2").rate.value

    @property
    def l2_rate(self) -> float:
        """Bytes/s from L2 into the shared memories of all SMs together."""
        return self.pipe("l2", "shared").rate.value


def machines() -> tuple[str, ...]:
    """The names of the machines that napkin ships."""
    files = resources.files("napkin").joinpath("machines").iterdir()
    return tuple(sorted(f.name.removesuffix(".toml") for f in files if f.name.endswith(".toml")))


def machine(name_or_path: str | Path) -> Machine:
    """The shipped machine of that name ("h100"), or the one in a user's ``.toml`` file."""
    path = Path(name_or_path)
    if path.suffix == ".toml":
        try:
            return _parse(path.read_bytes(), name=path.stem, file=str(path))
        except OSError as error:
            raise InputError(f"{path}: cannot read the machine file: {error.strerror}") from error
    name = str(name_or_path)
    if name not in machines():
        raise InputError(
            f"unknown machine {name!r}; {did_you_mean(name, machines())}"
            " (a machine of your own is a path that ends in .toml)"
        )
    file = resources.files("napkin").joinpath("machines", f"{name}.toml")
    return _parse(file.read_bytes(), name=name, file=str(file))


def _parse(content: bytes, *, name: str, file: str) -> Machine:
    """The machine written in `content`, the bytes of `file`."""
    try:
        root = _Table(file, "", tomllib.loads(content.decode()))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{file}: not a TOML file: {error}") from error
    root.only("title", "arch", "chip", "peak", "levels", "pipes")
    arch = root.text("arch")
    if not re.fullmatch(r"sm_\d+[af]?", arch):
        raise root.wrong("arch", 'a CUDA architecture such as "sm_90"', arch)
    chip = root.table("chip")
    chip.only(*_CHIP_UNITS)
    chip_figures = {key: chip.figure(key, unit) for key, unit in _CHIP_UNITS.items()}
    peak = root.table("peak")
    sms = int(chip_figures["sms"].value)
    levels = root.table("levels")
    for required in _LEVELS:
        levels.table(required)
    parsed = tuple(_level(levels.table(level), level, sms) for level in levels.values)
    pipes = tuple(_pipe(pipe, levels) for pipe in root.tables("pipes"))
    for source, target in _PIPES:
        if not any((pipe.source, pipe.target) == (source, target) for pipe in pipes):
            raise InputError(f"{file}: 'pipes' needs one from {source!r} to {target!r}")
    return Machine(
        name=name,
        title=root.text("title"),
        arch=arch,
        levels=parsed,
        pipes=pipes,
        chip=chip_figures,
        peaks={dtype: peak.figure(dtype, "FLOP/s") for dtype in peak.values},
    )


def _level(table: _Table, name: str, sms: int) -> Level:
    table.only("per", "capacity", "per_block", "per_thread")
    counts = {"chip": 1, "sm": sms}
    per = table.text("per")
    if per not in counts:
        raise table.wrong("per", '"chip" or "sm"', per)
    return Level(
        name=name,
        count=counts[per],
        capacity=table.figure("capacity", "B"),
        per_block=table.figure("per_block", "B") if "per_block" in table.values else None,
        per_thread=table.figure("per_thread", "B") if "per_thread" in table.values else None,
    )


def _pipe(table: _Table, levels: _Table) -> Pipe:
    table.only("from", "to", "rate")
    for end in ("from", "to"):
        if table.text(end) not in levels.values:
            known = did_you_mean(table.text(end), levels.values)
            raise table.wrong(end, f"the name of a level ({known})", table.text(end))
    return Pipe(table.text("from"), table.text("to"), table.figure("rate", "B/s"))


@dataclass(frozen=True, slots=True)
class _Table:
    """A TOML table of `file` under the dotted key `path`, read key by key with its expectation."""

    file: str
    path: str
    values: Mapping[str, object]

    def wrong(self, key: str, expected: str, found: object) -> InputError:
        """What to raise where `key` holds `found` in place of what was expected."""
        shown = "nothing" if found is None else repr(found)
        return InputError(f"{self.file}: {self._key(key)!r} must be {expected}, not {shown}")

    def only(self, *keys: str) -> None:
        """Refuse a key that means nothing here: a misspelt one would else be passed over."""
        for key in self.values:
            if key not in keys:
                known = did_you_mean(key, keys)
                raise InputError(f"{self.file}: unknown key {self._key(key)!r}; {known}")

    def text(self, key: str) -> str:
        """The nonempty text at `key`."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, "a text", value)
        return value

    def table(self, key: str) -> _Table:
        """The nonempty table at `key`."""
        value = self.values.get(key)
        if not isinstance(value, dict) or not value:
            raise self.wrong(key, "a table with entries", value)
        return _Table(self.file, self._key(key), cast("dict[str, object]", value))

    def tables(self, key: str) -> list[_Table]:
        """The tables of the array of tables at `key`."""
        value = self.values.get(key)
        items = cast("list[object]", value) if isinstance(value, list) else []
        if not items or not all(isinstance(item, dict) for item in items):
            raise self.wrong(key, f"an array of tables, each headed [[{key}]]", value)
        return [
            _Table(self.file, f"{self._key(key)}[{index}]", cast("dict[str, object]", item))
            for index, item in enumerate(items)
        ]

    def figure(self, key: str, unit: str) -> Figure:
        """The figure at `key`: a positive value in `unit`, with its source."""
        table = self.table(key)
        table.only("value", "unit", "source")
        value = table.values.get("value")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise table.wrong("value", "a positive number", value)
        if not math.isfinite(value) or value <= 0:
            raise table.wrong("value", "a positive number", value)
        if table.text("unit") != unit:
            raise table.wrong("unit", f'"{unit}"', table.text("unit"))
        return Figure(float(value), unit, table.text("source"))

    def _key(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
