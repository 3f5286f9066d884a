"""Whole tiles near an optimum over several levels: multiples of their alignments, nested, that fit.

The optimum in real numbers says where to look. From the innermost level outwards each tile is
tried at the multiples around the optimum of what its alignments and the tile inside it ask for, and
one axis at a time at the largest multiple that fits; the least cost, counted exactly for ragged
sizes, is kept.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from napkin.bound.multilevel import Optimum, Program
from napkin.count.alignment import Alignment, alignments, at_level, combined
from napkin.count.traffic import Transfer, transfers
from napkin.errors import InputError
from napkin.machine.chain import Chain, Stage, chains, default
from napkin.machine.hardware import Machine

KEPT = 24
"""Partial choices that are carried from a level to the next."""

Tiles = dict[str, int]


@dataclass(frozen=True)
class Rounded:
    """Whole tiles on every level of a chain.

    Attributes:
        tiles: for each stage, the tile of each axis that is grouped or streamed.
        values: for each stage, what its pipe moves, in values, counted exactly.
        bytes: for each stage, what its pipe moves into it and out of it, counted exactly.
        seconds: for each stage, what that costs.
        held: for each stage, the bytes that one of its memories holds; of a cache or a cluster,
            those of its children.
        alignments: every alignment that holds somewhere.
    """

    tiles: tuple[Tiles, ...]
    values: tuple[int, ...]
    bytes: tuple[tuple[float, float], ...]
    seconds: tuple[float, ...]
    held: tuple[float, ...]
    alignments: tuple[Alignment, ...]

    @property
    def total(self) -> float:
        """The weighted sum."""
        return sum(self.seconds)


@dataclass(frozen=True)
class Levels:
    """The cost of a kernel over a chain of levels.

    Attributes:
        optimum: the least, in real numbers.
        whole: the best whole tiles that were found, or why there are none.
    """

    chain: Chain
    optimum: Optimum
    whole: Rounded | str


def levels(program: Program, machine: Machine, names: Sequence[str] = ()) -> Levels:
    """The cost over the levels `names` of a machine, by default from DRAM down to registers; of
    several sizes of a cluster, the best.

    Raises:
        InputError: the chain is none of the machine's, or even the smallest tiles do not fit.
    """

    def tried(chain: Chain) -> Levels:
        try:
            return Levels(chain, program.solve(chain), rounded(program, chain))
        except _NoWholeTile as error:
            return Levels(chain, program.solve(chain), str(error))

    return min(
        map(tried, chains(machine, names or default(machine))),
        key=lambda found: found.optimum.total,
    )


class _NoWholeTile(InputError):
    """Alignments leave no tile that fits."""


def rounded(program: Program, chain: Chain) -> Rounded:
    """The best whole tiles that are found for a program on a chain.

    Raises:
        InputError: no tiles that keep the alignments fit.
    """
    return _Rounding(program, chain).run()


class _Rounding:
    def __init__(self, program: Program, chain: Chain) -> None:
        self.program, self.chain = program, chain
        kernel = program.kernel
        self.alignments = alignments(kernel, chain, program.item)
        self.wanted = [
            combined(at_level(self.alignments, chain, s.name)) for s in chain.stages
        ]  # of each stage, by axis
        self.cut = tuple(program.names[v] for v in program.cut)
        streamed = [a for a in kernel.stream.axes if a not in self.cut]
        self.chunks = [{a: w.get(a, 1) for a in streamed} for w in self.wanted]
        self.ones = {a: 1 for a in kernel.alone}
        self.parts: tuple[Transfer, ...] = transfers(kernel)
        self.counted: dict[tuple[tuple[str, int], ...], tuple[float, float]] = {}

    def run(self) -> Rounded:
        guide = self._guide()
        partial: list[tuple[float, tuple[Tiles, ...]]] = [(0.0, ())]
        for i in reversed(range(len(self.chain.stages))):
            partial = self._extended(i, partial, guide.tiles[i])
            if not partial:
                stage = self.chain.stages[i]
                why = "; ".join(f"{m.axis} by {m.multiple}: {m.reason}" for m in self.alignments)
                raise _NoWholeTile(
                    f"no whole tile of {stage.name!r} fits {stage.memory:,.0f} bytes with its"
                    f" alignments ({why})"
                )
        best = min(partial, key=lambda p: p[0])[1]
        moved = [self._moved(t) for t in best]
        seconds = [_cost(s, m) for s, m in zip(self.chain.stages, moved, strict=True)]
        held = [self.program.held(t) for t in best]
        values = (sum(t.values(self.program.sizes, b) for t in self.parts) for b in best)
        return Rounded(
            best, tuple(values), tuple(moved), tuple(seconds), tuple(held), self.alignments
        )

    def _guide(self) -> Optimum:
        """The optimum in real numbers where chunks have their size; if only tiles larger than
        any memory hold such chunks, that for none."""
        try:
            return self.program.solve(self.chain, self.chunks)
        except InputError:
            return self.program.solve(self.chain)

    def _extended(
        self,
        i: int,
        partial: Sequence[tuple[float, tuple[Tiles, ...]]],
        guide: Mapping[str, float],
    ) -> list[tuple[float, tuple[Tiles, ...]]]:
        """Partial choices with a tile of stage `i` around them, the best first."""
        stage = self.chain.stages[i]
        out: dict[tuple[tuple[tuple[str, int], ...], ...], tuple[float, tuple[Tiles, ...]]] = {}
        for cost, inner in partial:
            inside = inner[0] if inner else {}
            for tile in self._around(i, inside, guide):
                if not self._fits(i, tile, inside):
                    continue
                whole = {**tile, **self.chunks[i], **self.ones}
                found = (whole, *inner)
                key = tuple(tuple(sorted(t.items())) for t in found)
                out[key] = (cost + _cost(stage, self._moved(whole)), found)
        return sorted(out.values(), key=lambda p: p[0])[:KEPT]

    def _around(
        self, i: int, inside: Mapping[str, int], guide: Mapping[str, float]
    ) -> Iterator[Tiles]:
        """Tiles near the optimum: multiples of the alignments and of the tile inside."""
        bases = {a: self._bases(i, a, inside.get(a, 1)) for a in self.cut}
        choices: list[list[int]] = []
        for a in self.cut:
            least = bases[a][0]
            some = {least, self._padded(a, least)}
            for base in bases[a]:
                near = int(guide[a] / base + 1e-6) * base
                some |= {near, near + base}
            top = self._padded(a, least)
            choices.append(sorted({min(max(n, least), top) for n in some if n % least == 0}))
        for values in itertools.product(*choices):
            tile = dict(zip(self.cut, values, strict=True))
            yield tile
            for a in self.cut:
                for base in bases[a]:
                    yield {**tile, a: self._largest(i, tile, a, base, inside)}

    def _bases(self, i: int, axis: str, inside: int) -> list[int]:
        """What a tile of stage `i` is a multiple of; then what suits the stages around it, too."""
        own = math.lcm(self.wanted[i].get(axis, 1), inside)
        around = [math.lcm(w.get(axis, 1), own) for w in self.wanted[:i]]
        return sorted({own, *around})

    def _largest(self, i: int, tile: Tiles, axis: str, base: int, inside: Mapping[str, int]) -> int:
        """The largest multiple of `base` along `axis` with which a tile fits, or `base`."""
        low, high = 1, max(self._padded(axis, base) // base, 1)
        while low < high:
            middle = (low + high + 1) // 2
            if self._fits(i, {**tile, axis: middle * base}, inside):
                low = middle
            else:
                high = middle - 1
        return low * base

    def _fits(self, i: int, tile: Tiles, inside: Mapping[str, int]) -> bool:
        """Whether a tile of stage `i` fits it and, as tiles nest, what is around it."""
        stage = self.chain.stages[i]
        for j in range(i + 1):
            least = {a: math.lcm(n, self.wanted[j].get(a, 1)) for a, n in tile.items()}
            held = self.program.held({**least, **self.chunks[j], **self.ones})
            if held > self.chain.stages[j].memory:
                return False
        if stage.chips > 1:
            sizes = self.program.sizes
            tiles = math.prod(-(-sizes[a] // tile[a]) for a in self.cut)
            most = math.prod(-(-sizes[a] // self.wanted[0].get(a, 1)) for a in self.cut)
            if tiles < min(stage.chips, most):
                return False
        if stage.children and inside:
            return math.prod(tile[a] // inside[a] for a in self.cut) <= stage.children
        return True

    def _padded(self, axis: str, base: int) -> int:
        """The axis, up to a multiple of `base`."""
        return -(-self.program.sizes[axis] // base) * base

    def _moved(self, tile: Mapping[str, int]) -> tuple[float, float]:
        """Bytes into a level and out of it, counted exactly."""
        key = tuple(sorted(tile.items()))
        if key not in self.counted:
            out = {"read": 0.0, "write": 0.0}
            for t in self.parts:
                values = t.values(self.program.sizes, tile)
                way = "read" if t.direction == "read" else "write"
                out[way] += values * float(self.program.item[t.tensor])
            self.counted[key] = (out["read"], out["write"])
        return self.counted[key]


def _cost(stage: Stage, moved: tuple[float, float]) -> float:
    return stage.read * moved[0] + stage.write * moved[1]
