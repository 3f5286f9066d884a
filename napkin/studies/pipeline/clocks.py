"""How long one iteration of the loop takes on each pipe of a multiprocessor (arXiv 2412.03317,
Table 3), and how large a group must be for memory to keep up.

Operations are counted on the stages of the pseudocode, for one row of a team and one iteration,
which takes u_x positions of the stream. Everything is counted that changes from iteration to
iteration; what a product adds to a state where it is computed costs nothing beside the product.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from napkin.algebra.terms import is_read
from napkin.count.matrix_products import product_type
from napkin.count.work import operations
from napkin.errors import InputError
from napkin.ir.node import REDUCTIONS, Node, factors, union_axes
from napkin.ir.operators import POINTWISE
from napkin.machine.machines import Machine
from napkin.studies.pipeline.colours import Coloured, Colouring, Step


@dataclass(frozen=True)
class Work:
    """Operations of one stage on one pipe, for one row and one iteration.

    Attributes:
        what: the stage.
        pipe: a key of the machine's compute table, such as "tensor_fp8".
        ops: operations on values of the chunk.
        once: operations beside those: as many however long the chunk is.
        rate: operations per clock and multiprocessor.
        source: what `ops` and `once` were counted from.
    """

    what: str
    pipe: str
    ops: float
    once: float
    rate: float
    source: str

    @property
    def clocks(self) -> float:
        """Clocks of a multiprocessor for one row and one iteration."""
        return (self.ops + self.once) / self.rate

    @property
    def long(self) -> float:
        """Clocks for as many positions of the stream where chunks are long."""
        return self.ops / self.rate


@dataclass(frozen=True)
class Bandwidth:
    """What a pipe of memory asks of the size of a group.

    Attributes:
        pipe: the pipe, and whether groups share what crosses it.
        block, team: bytes that a thread block loads in an iteration, for itself and for each team.
        least: the least group, along the axis of teams, for which loads keep up; infinite where
            none does.
        compute, transfer: seconds of an iteration of all groups on the chip at once, at the group
            given.
    """

    pipe: str
    block: int
    team: int
    least: float
    compute: float
    transfer: float


@dataclass(frozen=True, eq=False)
class Clocks:
    """The clocks of one body."""

    colouring: Colouring
    machine: Machine
    part: int = 0

    @property
    def body(self) -> Coloured:
        """The loop body that is timed."""
        return self.colouring.bodies[self.part]

    @cached_property
    def rows(self) -> int:
        """Rows of a team: positions of grouped axes along the rows of its products."""
        kernel, tiles = self.colouring.kernel, self.colouring.setting.tiles
        products = [s.product for s in self.body.steps if s.product]
        first = products[0].rows if products else (self.colouring.setting.along,)
        return math.prod(tiles[a] for a in first if a in kernel.group)

    @cached_property
    def work(self) -> tuple[Work, ...]:
        """The work of every stage."""
        moving = self._moving()
        return tuple(w for s in self.body.steps if s.stage.node in moving for w in self._of(s))

    def on(self, pipe: str) -> tuple[Work, ...]:
        """The work on the pipes whose names begin so."""
        return tuple(w for w in self.work if w.pipe.startswith(pipe))

    def clocks(self, pipe: str, long: bool = False) -> float:
        """Clocks on the pipes whose names begin so, for one row and one iteration."""
        return sum(w.long if long else w.clocks for w in self.on(pipe))

    @property
    def pipes(self) -> Mapping[str, float]:
        """Clocks of an iteration on each pipe; all matrix products share the tensor cores."""
        names = dict.fromkeys(
            "tensor" if w.pipe.startswith("tensor") else w.pipe for w in self.work
        )
        return {name: self.clocks(name) for name in names}

    @property
    def product_ops(self) -> float:
        """Operations of matrix products for one row and one iteration."""
        return sum(w.ops + w.once for w in self.on("tensor"))

    @property
    def ideal(self) -> float:
        """FLOP/s of the matrix products where the slowest pipe never waits."""
        lanes = self.machine.sms * self.machine.clock
        return self.product_ops / max(self.pipes.values()) * lanes

    def bandwidth(self, group: int) -> tuple[Bandwidth, ...]:
        """What each pipe between the outermost memory of the chip and shared memory asks for, if
        no group shares with another what it loads."""
        s, machine = self.colouring.setting, self.machine
        loaded = {"block": 0, "team": 0}
        for v in self.body.variables.values():
            if v.role == "chunk":
                iterations = math.prod(
                    s.tiles[a] // s.inner[a] for a in v.node.axes if a in s.inner
                )
                loaded["team" if s.along in v.node.axes else "block"] += v.bytes // iterations
        per_team = self.rows * self.clocks("tensor") / machine.clock
        wide, teams = s.tiles[s.along], group / s.tiles[s.along]
        out: list[Bandwidth] = []
        for p in machine.path("dram", "shared"):
            rate = p.rate.value / machine.sms
            spare = per_team - loaded["team"] / rate
            least = wide * loaded["block"] / rate / spare if spare > 0 else math.inf
            moved = (loaded["block"] + teams * loaded["team"]) / rate
            name = f"{p.source} to {p.target}"
            out.append(
                Bandwidth(name, loaded["block"], loaded["team"], least, teams * per_team, moved)
            )
        return tuple(out)

    # --- counting ---------------------------------------------------------------------------

    def _moving(self) -> set[Node]:
        """The stages that are computed anew in every iteration."""
        carried, out = self.colouring.kernel.stream.carried, set[Node]()
        for stage in self.body.block.stages:
            leaves = (*stage.args, stage.node)
            if any(n in out or n.op == "state" or carried(n.axes) for n in leaves):
                out.add(stage.node)
        return out

    def _size(self, axes: tuple[str, ...]) -> float:
        s = self.colouring.setting
        return math.prod(s.inner.get(a, s.tiles[a]) for a in axes) / self.rows

    def _of(self, step: Step) -> Iterator[Work]:
        n, s = step.stage.node, self.colouring.setting
        what = self.body.block.names[n].removesuffix("'")
        if step.product is not None:
            name = product_type(step.product.parts, s.storage, s.dtype)
            axes = union_axes(step.product.parts)
            yield self._work(what, f"tensor_{name}", {axes: 2.0})
            mixed = [side for side in step.product.sides if len(side) > 1]
            for side in mixed:
                union = union_axes(side)
                yield self._work(f"operand of {what}", self._lanes, {union: len(side) - 1.0})
        elif not step.added:
            counted = self._counted(step)
            for pipe in ("special", self._lanes):
                if counted[pipe]:
                    yield self._work(what, pipe, counted[pipe])

    @property
    def _lanes(self) -> str:
        pipe, known = f"fma_{self.colouring.setting.computed}", self.machine.compute
        if pipe not in known:
            types = ", ".join(p.removeprefix("fma_") for p in known if p.startswith("fma_"))
            raise InputError(
                f"machine {self.machine.name!r} computes nothing in registers in "
                f"{self.colouring.setting.computed}; write one of {types}"
            )
        return pipe

    def _work(self, what: str, pipe: str, counted: Mapping[tuple[str, ...], float]) -> Work:
        """Work from operations for each value of arrays with these axes."""
        carried = self.colouring.kernel.stream.carried
        ops = sum(each * self._size(a) for a, each in counted.items() if carried(a))
        once = sum(each * self._size(a) for a, each in counted.items() if not carried(a))
        source = " + ".join(f"{each:g} {self._written(a)}" for a, each in counted.items())
        return Work(what, pipe, ops, once, self.machine.per_clock(pipe), source)

    def _written(self, axes: tuple[str, ...]) -> str:
        """The values of an array for one row, in symbols."""
        s, kernel = self.colouring.setting, self.colouring.kernel
        rows = {a for st in self.body.steps if st.product for a in st.product.rows}
        rows = {a for a in rows if a in kernel.group}
        rest = " ".join(s.symbol(kernel, a, False) for a in axes if a not in rows) or "a row"
        return rest if rows & set(axes) else f"{rest} / {self.rows} rows"

    def _counted(self, step: Step) -> dict[str, dict[tuple[str, ...], float]]:
        """Operations of a stage of arithmetic for each value, by pipe and the axes of the value."""
        out: dict[str, dict[tuple[str, ...], float]] = {"special": {}, self._lanes: {}}

        def add(pipe: str, axes: tuple[str, ...], each: float) -> None:
            out[pipe][axes] = out[pipe].get(axes, 0.0) + each

        seen = set[Node](step.stage.args)
        stack = [step.stage.node]
        while stack:
            n = stack.pop()
            if n in seen or n.constant or is_read(n) or n.op == "keys":
                continue
            seen.add(n)
            if n.op in REDUCTIONS:
                # Factors that are only summed are multiplied as they are.
                parts = factors(n.args[0], seen) if n.op == "sum" else (n.args[0],)
                parts = tuple(p for p in parts if p.axes)
                axes = union_axes(parts)
                if parts[0].op != "ones":
                    add(self._lanes, axes, float(len(parts)))
                stack.extend(parts)
                continue
            if n.op in POINTWISE and n.axes:
                for pipe, number in operations(n.op).items():
                    add("special" if pipe == "special" else self._lanes, n.axes, number)
            stack.extend(n.args)
        return out
