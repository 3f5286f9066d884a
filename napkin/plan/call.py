"""Lines of Python that launch a kernel: what `napkin.lower.launch` works out, for any sizes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from napkin.ir.node import Node
from napkin.lower.launch import SECTION_BYTES, Argument, Entry, in_box
from napkin.lower.printer import WIDTH, words

LINE = WIDTH - 5
"""Columns of a line in the body of a function."""

RESERVED = frozenset(["GRID", "WIDE", "DESCRIPTORS", "SECTION", "SECTIONS", "GROUPS", "STREAMED"])
"""Names that the lines of a launch give to values."""


@dataclass(frozen=True)
class Call:
    """One launch.

    Attributes:
        entry: the kernel.
        tensors: what its tensors are called.
        sizes: the size of each axis, as text.
        constant: an expression of sizes and scalars, as text.
        settings: keywords of the launch beside constexprs.
        fast: whether it is warp-specialised.
    """

    entry: Entry
    tensors: Mapping[str, str]
    sizes: Mapping[str, str]
    constant: Callable[[Node], str]
    settings: Sequence[str]
    fast: bool

    def lines(self) -> Iterator[str]:
        """The lines."""
        entry = self.entry
        for t, name in self.tensors.items():
            if t in self.strides and not self._plain(t):
                yield f"{name}_strides = {tuple_of(list(self.strides[t].values()))}"
        yield from self._wide()
        described = ", ".join(self.tensors[t] for t in entry.boxes)
        if self.fast:
            yield f"if WIDE or not _described({described}):"
            yield '    raise ValueError("descriptors do not serve these tensors; use kernel.py")'
        elif entry.boxes:
            yield f"DESCRIPTORS = not WIDE and _described({described})"
        for a in entry.arguments:
            if a.kind == "section":
                yield from self._section(_names(a))
        yield f"GRID = ({self._grid()},)"
        kinds = itertools.groupby(entry.arguments, lambda a: a.kind)
        groups = [
            self._strides(list(own)) if kind == "stride" else [self._argument(a) for a in own]
            for kind, own in kinds
        ]
        yield from laid(f"{entry.name}[GRID](", [*groups, self.settings], ")")

    # --- strides ----------------------------------------------------------------------------

    @cached_property
    def strides(self) -> dict[str, dict[str, str]]:
        """The strides of each tensor by axis, as `Entry.steps` has them."""
        return {
            t: {a: self._sum(t, terms) for a, terms in self.entry.steps(t).items()}
            for t in self.entry.axes_of
        }

    def _sum(self, t: str, terms: Sequence[tuple[int, int]]) -> str:
        each = [(factor, f"{self.tensors[t]}.stride({place})") for place, factor in terms]
        return " + ".join(one if factor == 1 else f"{factor} * {one}" for factor, one in each)

    def _plain(self, t: str) -> bool:
        """Whether no axis of a tensor is split."""
        return not {s.place for s in self.entry.splits} & self.strides[t].keys()

    def _all(self, t: str) -> str:
        """All strides of a tensor."""
        return self.tensors[t] + (".stride()" if self._plain(t) else "_strides")

    def _strides(self, arguments: Sequence[Argument]) -> list[str]:
        """Strides as they are passed: those of a tensor together where all are."""
        out: list[str] = []
        for t, each in itertools.groupby(map(_names, arguments), lambda of: of[0]):
            axes = [a for _, a in each]
            every = axes == list(self.strides[t])
            out += [f"*{self._all(t)}"] if every else [self.strides[t][a] for a in axes]
        return out

    def _wide(self) -> Iterator[str]:
        """Lines that say whether offsets take 64 bits."""
        reach: list[str] = []
        for t, axes in self.entry.axes_of.items():
            sizes, tiles = [self.sizes[a] for a in axes], [self._tile(a) for a in axes]
            each = tuple_of(sizes), self._all(t), tuple_of(tiles)
            reach += [f"_reach({', '.join(each)})"] if axes else []
        if len(reach) > 1:
            yield from laid("WIDE = max(", [[r] for r in reach], ") >= 2**31")
        else:
            yield f"WIDE = {reach[0]} >= 2**31" if reach else "WIDE = False"

    def _tile(self, axis: str) -> str:
        return str(self.entry.tiles.get(axis, 1))

    # --- arguments --------------------------------------------------------------------------

    def _argument(self, a: Argument) -> str:
        """An argument that is no stride."""
        if isinstance(a.of, Node):
            return self.constant(a.of)
        if a.kind in {"wide", "descriptors", "section"}:
            value = a.kind.upper()
            return value if a.kind == "section" else f"{a.name}={value}"
        axis, *along = a.of
        if a.kind == "tensor":
            return self._tensor(axis)
        if a.kind == "size":
            return self.sizes[axis]
        if a.kind == "block":
            return f"{a.name}={self._tile(axis)}"
        if a.kind == "even":
            return f"{a.name}={self._even(axis)}"
        return f"{a.name}=_step({', '.join([self.sizes[axis], *map(self._all, along)])})"

    def _tensor(self, t: str) -> str:
        """A tensor, or its descriptor."""
        axes, name, tiles = self.entry.boxes.get(t), self.tensors[t], self.entry.tiles
        if axes is None:
            return name
        seen = in_box(axes, tiles)
        order = ", ".join(str(axes.index(a)) for a in seen)
        given = name if seen == tuple(axes) else f"{name}.permute({order})"
        box = f"({given}, {[tiles[a] for a in seen]})"
        if self.fast:
            return f"_box{box}"
        return f"TensorDescriptor.from_tensor{box} if DESCRIPTORS else {name}"

    def _even(self, axis: str) -> str:
        """Whether tiles cover an axis without a rest."""
        if self.sizes[axis].isdigit():
            *_, (_, number, whole) = self.entry.even(axis)
            size = int(self.sizes[axis])
            return str(size == number if whole else size % number == 0)
        return " and ".join(
            f"{self.sizes[a]} == {number}" if whole else f"{self.sizes[a]} % {number} == 0"
            for a, number, whole in self.entry.even(axis)
        )

    # --- the grid ---------------------------------------------------------------------------

    def _groups(self, axis: str, tile: int) -> str:
        return f"triton.cdiv({self.sizes[axis]}, {tile})" if tile > 1 else self.sizes[axis]

    def _grid(self) -> str:
        """How many program instances run."""
        group, schedule = self.entry.group, self.entry.schedule
        groups = " * ".join(self._groups(a, schedule.tiles[a]) for a in group) or "1"
        return f"min({groups}, {schedule.persistent})" if schedule.persistent else groups

    def _section(self, rising: Sequence[str]) -> Iterator[str]:
        """Lines that find how many groups share L2 with what they stream."""
        entry = self.entry
        others = [self._groups(a, entry.tiles[a]) for a in entry.group if a not in rising]
        values = [" * ".join(self.sizes[a] for a in axes) or "1" for axes in entry.streamed]
        yield f"GROUPS = {' * '.join(others)}"
        yield f"STREAMED = {entry.schedule.described or 2} * ({' + '.join(values)})"
        share = f"triton.cdiv(STREAMED, {SECTION_BYTES >> 20} * 2**20)"
        yield f"SECTIONS = max(1, min(GROUPS, {share}))"
        yield "SECTION = max(1, triton.cdiv(GROUPS, SECTIONS))"


def _names(a: Argument) -> tuple[str, ...]:
    assert isinstance(a.of, tuple)
    return a.of


def tuple_of(parts: Sequence[str]) -> str:
    """A tuple."""
    return f"({', '.join(parts)}{',' * (len(parts) == 1)})"


def laid(head: str, groups: Sequence[Sequence[str]], tail: str) -> list[str]:
    """A call on one line, or with the arguments of each group on lines of their own."""
    one = head + ", ".join(a for group in groups for a in group) + tail
    if len(one) <= LINE:
        return [one]
    lines = [head]
    for group in filter(None, groups):
        line = "   "
        for a in group:
            if len(line) + len(a) + 2 > LINE and line.strip():
                lines.append(line)
                line = "   "
            if len(a) + 6 > LINE:
                parts = a.split(" if ", 1)
                parts = [parts[0], f"if {parts[1]}"] if parts[1:] else words(a, LINE - 8)
                a = f"\n{' ' * 8}".join(parts)
            line += f" {a},"
        lines.append(line)
    return [*lines, tail]
