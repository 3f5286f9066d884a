"""Machine files: TOML, in which every figure is an inline table ``{ value, unit, source }``.

The source says where the number was printed, or that it is derived, measured or an estimate, so
that a prediction can be traced to what it rests on. The tables, after arXiv 2412.03317 (levels and
pipes, App. A.2):

``price``         optional: "USD/h" of one chip.
``[chip]``        counts ("1"), and the clock ("Hz") at which the tensor-core peaks are quoted.
``[compute]``     operations per clock and SM ("op/clk/SM"; a multiply-add is two):
                  ``tensor_DTYPE`` of the tensor cores, dense; ``fma_DTYPE`` of the multiply-add
                  pipe; ``special``, exponentials and the like.
``[granules]``    ``warp``, its threads; ``mma_rows``, ``mma_columns`` ("1") and ``mma_depth``
                  ("B") of the smallest matrix instruction.
``[levels.NAME]`` ``capacity`` of one such memory in bytes, and how many there are: ``per`` "chip"
                  or "sm", ``count`` on a chip, or ``chips`` that share one. ``per_block`` and
                  ``per_thread`` where one owner may take only a part of it; ``unified`` where a
                  cache (L1) has what it leaves of so many bytes; ``cache = true`` where hardware
                  fills it.
``[[pipes]]``     an edge ``from`` level ``to`` level that data can move along, its ``rate`` in
                  bytes/s, summed over all the memories of a chip that it feeds, and optionally
                  the rate back, ``write``, and its ``granule``, the bytes that move at once. A
                  pipe from a level to itself joins ``siblings``.
``[calibration]`` optional: measured constants of the time model (`napkin.machine.calibration`),
                  by name, in the units of ``h100.toml``, which has all of them.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from napkin.errors import InputError, did_you_mean
from napkin.machine.hardware import Figure, Level, Machine, Pipe

_CHIP_UNITS = {
    "sms": "1",
    "clock": "Hz",
    "threads_per_block": "1",
    "threads_per_sm": "1",
    "warps_per_sm": "1",
    "blocks_per_sm": "1",
}
"""The chip's figures, with the unit of each. All of them are needed."""

_GRANULE_UNITS = {"warp": "1", "mma_rows": "1", "mma_columns": "1", "mma_depth": "B"}
_LEVELS = ("dram", "shared", "registers")
"""Levels that every machine has."""
_MOST = 1_000_000
"""More than any count of a machine: of SMs, threads, chips."""
_COMPUTE = re.compile(r"(tensor|fma)_[a-z][a-z0-9]*|special")
_ARCH = re.compile(r"sm_\d+[af]?|gfx[0-9a-f]+")


def parse(
    content: bytes, *, name: str, file: str, constants: Mapping[str, str] | None = None
) -> Machine:
    """The machine written in `content`, the bytes of `file`.

    Args:
        constants: those that a time model has, with their units; None for any.

    Raises:
        InputError: it is no machine file; the message names the file, the line and the key.
    """
    try:
        text = content.decode()
        root = _Table(file, "", tomllib.loads(text), _lines(text))
    except RecursionError:
        raise InputError(f"{file}: not a machine file: its tables are too deep") from None
    except ValueError as error:  # of TOML, of UTF-8, or of numbers that are too long
        raise InputError(f"{file}: not a TOML file: {error}") from error
    tables = ("chip", "compute", "granules", "levels", "pipes", "calibration")
    root.only("title", "arch", "price", *tables)
    arch = root.text("arch")
    if not _ARCH.fullmatch(arch):
        raise root.wrong("arch", 'an architecture such as "sm_90" or "gfx942"', arch)
    chip, granules = root.table("chip"), root.table("granules")
    chip.only(*_CHIP_UNITS)
    granules.only(*_GRANULE_UNITS)
    figures = {key: chip.in_unit(key, unit) for key, unit in _CHIP_UNITS.items()}
    levels = root.table("levels")
    for required in _LEVELS:
        if required not in levels.values:
            raise InputError(
                f"{levels.place('levels')}: there is no 'levels.{required}'; every machine has the"
                f" levels {', '.join(_LEVELS)}"
            )
    sms = int(figures["sms"].value)
    found = Machine(
        name=name,
        title=root.text("title"),
        arch=arch,
        levels=tuple(_level(levels.table(level), level, sms) for level in levels.values),
        pipes=tuple(_pipe(pipe, levels) for pipe in root.tables("pipes")),
        chip=figures,
        compute=_compute(root.table("compute")),
        granules={key: granules.in_unit(key, unit) for key, unit in _GRANULE_UNITS.items()},
        calibration=_calibration(root, constants),
        price=root.figure("price", "USD/h") if "price" in root.values else None,
    )
    _connected(root, found)
    return found


def _compute(table: _Table) -> dict[str, Figure]:
    for key in table.values:
        if not _COMPUTE.fullmatch(key):
            raise table.unknown(key, "known: tensor_DTYPE, fma_DTYPE, special")
    table.figure("special", "op/clk/SM")
    return {key: table.figure(key, "op/clk/SM") for key in table.values}


def _calibration(root: _Table, constants: Mapping[str, str] | None) -> dict[str, Figure]:
    if "calibration" not in root.values:
        return {}
    table = root.table("calibration")
    if constants is None:
        return {key: table.figure(key) for key in table.values}
    table.only(*constants)
    return {key: table.figure(key, constants[key]) for key in table.values}


def _level(table: _Table, name: str, sms: int) -> Level:
    optional = ("per_block", "per_thread", "unified")
    table.only("per", "count", "chips", "capacity", "cache", *optional)
    ways = [key for key in ("per", "count", "chips") if key in table.values]
    if len(ways) > 1:
        where = f"{table.place(f'{table.path}.{ways[1]}')}: {table.path!r}"
        raise InputError(
            f"{where} has both {ways[0]!r} and {ways[1]!r}; one says how many there are"
        )
    counted, chips = (table.optional(key, "1", least=1) for key in ("count", "chips"))
    counts = {"": int(counted.value) if counted else 1, "chip": 1, "sm": sms}
    per = "" if counted or chips else table.text("per")
    if per not in counts:
        raise table.wrong("per", '"chip" or "sm"', per)
    _within_capacity(table)
    return Level(
        name=name,
        count=counts[per],
        capacity=table.figure("capacity", "B"),
        per_block=table.optional("per_block", "B"),
        per_thread=table.optional("per_thread", "B"),
        chips=chips,
        cache=table.flag("cache"),
        per=per,
        counted=counted,
        unified=table.optional("unified", "B"),
    )


def _within_capacity(table: _Table) -> None:
    """Refuse a part of a memory that is larger than the memory, or the other way round."""
    whole = table.figure("capacity", "B").value
    for key in ("per_block", "per_thread"):
        part = table.optional(key, "B")
        if part is not None and part.value > whole:
            raise table.table(key).wrong("value", f"at most the capacity, {whole:,.0f}", part.value)
    unified = table.optional("unified", "B")
    if unified is not None and unified.value < whole:
        expected = f"at least the capacity, {whole:,.0f}"
        raise table.table("unified").wrong("value", expected, unified.value)


def _pipe(table: _Table, levels: _Table) -> Pipe:
    table.only("from", "to", "rate", "write", "granule", "siblings")
    for end in ("from", "to"):
        if table.text(end) not in levels.values:
            known = did_you_mean(table.text(end), levels.values)
            raise table.wrong(end, f"the name of a level ({known})", table.text(end))
    source, target = table.text("from"), table.text("to")
    siblings = table.figure("siblings", "1", least=2) if source == target else None
    if source != target and "siblings" in table.values:
        raise table.wrong("to", f"{source!r}, as a pipe between siblings", target)
    return Pipe(
        source,
        target,
        table.figure("rate", "B/s"),
        table.optional("write", "B/s"),
        table.in_unit("granule", "B") if "granule" in table.values else None,
        siblings,
    )


def _connected(root: _Table, found: Machine) -> None:
    """Refuse a file in which data cannot get to where it is computed on."""
    for source, target in (("dram", "shared"), ("shared", "registers")):
        try:
            found.path(source, target)
        except InputError:
            raise InputError(
                f"{root.place('pipes')}: 'pipes' must lead from {source!r} to {target!r}"
            ) from None
    seen: dict[str, int] = {}
    for i, pipe in enumerate(found.pipes):
        if pipe.name in seen:
            where = root.place(f"pipes[{i}]")
            raise InputError(f"{where}: 'pipes[{i}]' is 'pipes[{seen[pipe.name]}]' again")
        seen[pipe.name] = i


def written(machine: Machine) -> str:
    """A machine as the text of its file; `parse` gives the same machine back."""
    lines = [
        "# Read by napkin/machine/machine_file.py, which says what each key means."
        " Rates are totals over the chip.",
        "",
        f"title = {json.dumps(machine.title)}",
        f"arch = {json.dumps(machine.arch)}",
    ]
    if machine.price is not None:
        lines.append(_line("price", machine.price))
    tables = {"chip": machine.chip, "compute": machine.compute, "granules": machine.granules}
    for name, entries in tables.items():
        lines += ["", f"[{name}]", *(_line(key, f) for key, f in entries.items())]
    for level in machine.levels:
        lines += ["", f"[levels.{level.name}]"]
        lines += [f'per = "{level.per}"'] if level.per else []
        lines += ["cache = true"] if level.cache else []
        lines += [_line(key, f) for key, f in level.figures()]
    for pipe in machine.pipes:
        lines += ["", "[[pipes]]", f'from = "{pipe.source}"', f'to = "{pipe.target}"']
        lines += [_line(key, f) for key, f in pipe.figures()]
    if machine.calibration:
        lines += ["", "[calibration]", *(_line(k, f) for k, f in machine.calibration.items())]
    return "\n".join(lines) + "\n"


def _line(key: str, figure: Figure) -> str:
    value = int(figure.value) if figure.value == int(figure.value) < 1e7 else figure.value
    source = json.dumps(figure.source, ensure_ascii=False)
    return f"{key} = {{ value = {value}, unit = {json.dumps(figure.unit)}, source = {source} }}"


_HEADER = re.compile(r"\s*(\[\[?)\s*([^\]]+?)\s*\]")
_KEY = re.compile(r"""\s*("[^"]*"|'[^']*'|[A-Za-z0-9_-]+(?:\s*\.\s*[A-Za-z0-9_-]+)*)\s*=""")


def _lines(text: str) -> dict[str, int]:
    """The line of every table and key, by its dotted path; tomllib keeps none."""
    out: dict[str, int] = {}
    counts: dict[str, int] = {}
    table = ""
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = header[2]
            if header[1] == "[[":
                out.setdefault(table, number)
                counts[table] = counts.get(table, -1) + 1
                table = f"{table}[{counts[table]}]"
            out.setdefault(table, number)
        elif key := _KEY.match(line):
            own = key[1].strip("\"'").replace(" ", "")
            out.setdefault(f"{table}.{own}" if table else own, number)
    return out


@dataclass(frozen=True, slots=True)
class _Table:
    """A TOML table of `file` under the dotted key `path`, read key by key with its expectation."""

    file: str
    path: str
    values: Mapping[str, object]
    lines: Mapping[str, int] = field(default_factory=dict[str, int])

    def place(self, path: str) -> str:
        """The file and the line of a dotted path, or of the nearest table around it."""
        while path:
            if path in self.lines:
                return f"{self.file}:{self.lines[path]}"
            path = (
                path.rpartition(".")[0] if "." in path else path.partition("[")[0] * ("[" in path)
            )
        return self.file

    def wrong(self, key: str, expected: str, found: object) -> InputError:
        """What to raise where `key` holds `found` in place of what was expected."""
        shown = "nothing" if found is None else repr(found)
        own = self._key(key)
        return InputError(f"{self.place(own)}: {own!r} must be {expected}, not {shown}")

    def unknown(self, key: str, known: str) -> InputError:
        """What to raise for a key that means nothing here."""
        own = self._key(key)
        return InputError(f"{self.place(own)}: unknown key {own!r}; {known}")

    def only(self, *keys: str) -> None:
        """Refuse a key that means nothing here: a misspelt one would else be passed over."""
        for key in self.values:
            if key not in keys:
                raise self.unknown(key, did_you_mean(key, keys))

    def text(self, key: str) -> str:
        """The nonempty text at `key`."""
        value = self.values.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.wrong(key, "a text", value)
        return value

    def flag(self, key: str) -> bool:
        """Whether `key` is true; false where it is absent."""
        value = self.values.get(key, False)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false", value)
        return value

    def table(self, key: str) -> _Table:
        """The nonempty table at `key`."""
        value = self.values.get(key)
        if not isinstance(value, dict) or not value:
            raise self.wrong(key, "a table with entries", value)
        return _Table(self.file, self._key(key), cast("dict[str, object]", value), self.lines)

    def tables(self, key: str) -> list[_Table]:
        """The tables of the array of tables at `key`."""
        value = self.values.get(key)
        items = cast("list[object]", value) if isinstance(value, list) else []
        if not items or not all(isinstance(item, dict) for item in items):
            raise self.wrong(key, f"an array of tables, each headed [[{key}]]", value)
        return [
            _Table(self.file, f"{self._key(key)}[{i}]", cast("dict[str, object]", item), self.lines)
            for i, item in enumerate(items)
        ]

    def figure(self, key: str, unit: str = "", least: int = 0) -> Figure:
        """The figure at `key`: a positive value in `unit`, or in any, with its source; with
        `least`, a whole number from that on."""
        if not isinstance(self.values.get(key), dict):
            written = f'{{ value = ..., unit = "{unit or "..."}", source = "..." }}'
            raise self.wrong(key, f"a figure, {written}", self.values.get(key))
        table = self.table(key)
        table.only("value", "unit", "source")
        value = table.values.get("value")
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise table.wrong("value", "a positive number", value)
        if not 0 < value <= sys.float_info.max:
            raise table.wrong("value", "a positive number", value)
        if unit and table.text("unit") != unit:
            raise table.wrong("unit", f'"{unit}"', table.text("unit"))
        found = Figure(float(value), table.text("unit"), table.text("source"))
        if least and (value != int(value) or not least <= value <= _MOST):
            expected = f"a whole number from {least} to {_MOST:,}"
            raise table.wrong("value", expected, found.value)
        return found

    def in_unit(self, key: str, unit: str) -> Figure:
        """The figure at `key` in `unit`; of counts and of bytes a whole number."""
        return self.figure(key, unit, least=int(unit in {"1", "B"}))

    def optional(self, key: str, unit: str, least: int = 0) -> Figure | None:
        """The figure at `key`, if it is there."""
        return self.figure(key, unit, least) if key in self.values else None

    def _key(self, key: str) -> str:
        return f"{self.path}.{key}" if self.path else key
