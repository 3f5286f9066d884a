"""What a thread block holds at each level, and how many teams of it fit (arXiv 2412.03317,
Tables 1 and 2).

In shared memory lie the operands of products, those that are streamed in as many copies as there
are buffers, and for each direction between tensor cores and registers one place, as large as the
largest array that goes that way. In registers lie the states, and every array that is handed
between tensor cores and registers has a place of its own, since both sides work at the same time,
on different iterations of the loop; all else takes the most that is alive at one moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from napkin.count.matrix_products import team
from napkin.errors import InputError
from napkin.ir.node import Node
from napkin.ir.types import stored_bytes
from napkin.machine.machines import Machine
from napkin.studies.pipeline.colours import Coloured, Colouring, Step, Variable

LONG = 8
"""An axis held whole that has so many chunks is worth streaming."""


@dataclass(frozen=True)
class Part:
    """Some bytes of a level.

    Attributes:
        what: what lies there, in words.
        bytes: how many.
    """

    what: str
    bytes: int


@dataclass(frozen=True)
class Held:
    """What is held at a level during one block of the pseudocode.

    Attributes:
        level: "shared" or "registers".
        when: the block, in words.
        block: what one thread block holds, whatever its teams.
        team: what each team holds.
        capacity: bytes that there are.
    """

    level: str
    when: str
    block: tuple[Part, ...]
    team: tuple[Part, ...]
    capacity: int

    @property
    def block_bytes(self) -> int:
        """Bytes of a thread block beside its teams."""
        return sum(p.bytes for p in self.block)

    @property
    def team_bytes(self) -> int:
        """Bytes of one team."""
        return sum(p.bytes for p in self.team)

    @property
    def most(self) -> float:
        """How many teams fit: (capacity - block) / team."""
        return (self.capacity - self.block_bytes) / max(self.team_bytes, 1)


@dataclass(frozen=True)
class Fit:
    """How many teams a thread block has.

    Attributes:
        held: what each level holds, where it allows the fewest teams.
        threads: threads of a team.
        limit: teams that a thread block may have for its threads.
        rows: positions of the axis along which teams lie, of one of them.
    """

    held: tuple[Held, ...]
    threads: int
    limit: int
    rows: int

    @property
    def teams(self) -> int:
        """N: the teams that fit at every level."""
        return min(self.limit, *(int(h.most) for h in self.held))

    @property
    def group(self) -> int:
        """g = N w: the group of a thread block along its teams' axis."""
        return self.teams * self.rows


def fit(colouring: Colouring, machine: Machine) -> Fit:
    """What a thread block holds on `machine`, and how many teams of it fit.

    Raises:
        InputError: not even one team does.
    """
    name, threads = team(machine)
    levels = _shared(colouring, machine), _registers(colouring, machine)
    held = [min(found, key=lambda h: h.most) for found in levels]  # what allows the fewest teams
    for h in held:
        needed, there, whose = h.block_bytes + h.team_bytes, h.capacity, f"a {name}"
        if h.level == "registers":
            needed, there, whose = h.team_bytes / threads, machine.registers_per_thread, "a thread"
        if h.most < 1 or needed > there:
            raise InputError(
                f"{colouring.kernel.name}: {whose} needs {needed:,.0f} B of {h.level} {h.when}, "
                f"and may have {there:,}: {_largest(h)}; {_instead(colouring, h.level)}"
            )
    s = colouring.setting
    limit = min(machine.threads_per_block, machine.threads_per_sm) // threads
    return Fit(tuple(held), threads, limit, s.tiles[s.along])


def _largest(h: Held) -> str:
    """The two largest of what is held, in words."""
    parts = sorted((*h.block, *h.team), key=lambda p: -p.bytes)[:2]
    return ", ".join(f"{p.what} is {p.bytes:,} B" for p in parts)


def _instead(colouring: Colouring, level: str) -> str:
    """What would need less: in registers a piece of what is handed to them, or a smaller chunk."""
    kernel, s = colouring.kernel, colouring.setting
    smaller = f"take a smaller chunk of {kernel.stream.axis}"
    if level == "shared":
        longest = max(kernel.whole, key=lambda a: s.tiles[a], default="")
        if longest and s.tiles[longest] > LONG * max(s.tiles[a] for a in kernel.stream.axes):
            return f"{smaller}, or stream {longest}, of which {s.tiles[longest]} are held"
        return smaller
    for b in colouring.bodies:
        cuttable = [v for v in b.variables.values() if "to registers" in v.crossing]
        for v in sorted(cuttable, key=lambda v: -v.bytes):
            axes = [a for a in v.axes if a not in (*kernel.group, *kernel.stream.axes)]
            if axes and not any(name == v.name for name, _ in s.cuts):
                return f"compute {v.name} in pieces of {axes[-1]}, or {smaller}"
    return smaller


# --- shared memory ------------------------------------------------------------------------------


def _shared(colouring: Colouring, machine: Machine) -> Iterator[Held]:
    s = colouring.setting
    for i, b in enumerate(colouring.blocks):
        later = {
            v.node: v
            for other in colouring.blocks[i:]
            for v in other.variables.values()
            if v.level == "shared" and v.role == "input"
        }
        chunks = [v for v in b.variables.values() if v.level == "shared" and v.role == "chunk"]
        parts: dict[str, list[Part]] = {"block": [], "team": []}
        for v in later.values():
            parts[v.owner].append(Part(f"{v.name} {v.size}", v.bytes))
        for v in chunks:
            copies = f"{s.buffers} x " if s.buffers > 1 else ""
            parts[v.owner].append(Part(f"{copies}{v.name} {v.size}", s.buffers * v.bytes))
        parts["team"] += _transit(b)
        yield Held(
            "shared", b.block.title, tuple(parts["block"]), tuple(parts["team"]),
            machine.shared_per_block,
        )  # fmt: skip


def _transit(b: Coloured) -> Iterator[Part]:
    """One place for each direction, and one through which results are stored."""
    ways = {
        "from tensor cores to registers": [v for v in b.every if "to registers" in v.crossing],
        "from registers to tensor cores": [v for v in b.every if "to tensor" in v.crossing],
        "results on their way out": [v for v in b.every if v.role == "output"],
    }
    for way, crossing in ways.items():
        # Products take an operand in the pieces in which they are reduced.
        split = way == "from registers to tensor cores"
        sizes = {v: _passing(v) // (_pieces(b, v) if split else 1) for v in crossing}
        if sizes:
            largest = max(sizes, key=lambda v: sizes[v])
            names = ", ".join(v.name for v in crossing)
            yield Part(f"{way}: {names}, the largest {largest.size}", sizes[largest])


def _passing(v: Variable) -> int:
    """Bytes of an array on its way: of a result, in the type in which it is stored."""
    return stored_bytes(v.values, v.stored) if v.stored else v.bytes


def _pieces(b: Coloured, v: Variable) -> int:
    """In how many pieces the products that take an array do so."""
    sizes = dict(zip(v.axes, (n for _, n in v.shape), strict=True))
    own = v in b.operands  # then its node is the product's
    takers = [
        s for s in b.steps
        if s.product and ((v.node,) in s.product.sides or (own and v.node is s.stage.node))
    ]  # fmt: skip
    counts = [
        math.prod(sizes.get(a, piece) // piece for a, (_, piece) in s.split.items()) for s in takers
    ]
    return min(counts, default=1)


# --- registers ----------------------------------------------------------------------------------


def _registers(colouring: Colouring, machine: Machine) -> Iterator[Held]:
    for i, b in enumerate(colouring.blocks):
        waiting = _waiting(colouring, i)
        lasting = [] if b is colouring.tail else list(_lasting(b))
        parts = [Part(f"{v.name} {v.size}", v.bytes) for v in (*waiting, *lasting)]
        moment = _moment(b, {v.node for v in lasting})
        parts += [Part(f"{v.name} {v.size}", n) for v, n in moment]
        when = b.block.title
        yield Held("registers", when, (), tuple(parts), machine.registers_per_sm)


def _waiting(colouring: Colouring, i: int) -> list[Variable]:
    """States of earlier loops that only later blocks read."""
    here = set(colouring.blocks[i].variables)
    before = {s.leaf("new") for b in colouring.blocks[:i] for s in b.block.states.values()}
    return list({
        v.node: v
        for b in colouring.blocks[i + 1 :]
        for v in b.variables.values()
        if v.node in before and v.node not in here
    }.values())  # fmt: skip


def _lasting(b: Coloured) -> Iterator[Variable]:
    """Arrays with a place for the whole loop: states, what is read once, what is handed over."""
    for v in b.every:
        old = v.role == "state" and v.node.op == "state"
        if v.level != "shared" and (old or v.role == "input" or v.crossing):
            yield v


def _moment(b: Coloured, lasting: set[Node]) -> list[tuple[Variable, int]]:
    """Of the other arrays, those of the moment when they take most, with their bytes."""
    homes = _homes(b, lasting)
    best: list[tuple[Variable, int]] = []
    for i, column in enumerate(b.block.columns):
        nodes = [e.node for e in column if e.node in b.variables]
        moments = [_temporaries(b, nodes, lasting, homes)]
        if i < len(b.steps):
            moments.append([*moments[0], *_piece(b, b.steps[i])])
        best = max(best, *moments, key=lambda found: sum(n for _, n in found))
    return best


def _homes(b: Coloured, lasting: set[Node]) -> dict[Node, Node]:
    """The arrays that are computed in the place of one that ends with them and is handed over."""
    homes: dict[Node, Node] = {}
    for i, step in enumerate(b.steps):
        n, after = step.stage.node, {e.node for e in b.block.columns[i + 1]}
        if n in lasting or n not in b.variables or b.variables[n].role == "state":
            continue
        for a in step.stage.args:
            home = homes.get(a, a)
            same = a in b.variables and b.variables[a].bytes == b.variables[n].bytes
            if a not in after and same and home in lasting and b.variables[home].crossing:
                homes[n] = home
    return homes


def _temporaries(
    b: Coloured, nodes: list[Node], lasting: set[Node], homes: dict[Node, Node]
) -> list[tuple[Variable, int]]:
    """The arrays of a column that have no lasting place; a new state takes that of the old one."""
    out: list[tuple[Variable, int]] = []
    for n in nodes:
        v, state = b.variables[n], b.block.states.get(n)
        replaces = state is not None and state.leaf("old") not in nodes
        replaces = replaces and state is not None and state.leaf("old") in b.variables
        if v.level != "shared" and n not in lasting and n not in homes and not replaces:
            out.append((v, v.bytes))
    return out


def _piece(b: Coloured, step: Step) -> list[tuple[Variable, int]]:
    """The piece of a new state that is computed before it is put in place."""
    n = step.stage.node
    if n not in b.block.states or not step.pieces or n not in b.variables:
        return []
    v, pieces = b.variables[n], step.pieces
    shape = tuple(pieces.get(a, whole) for a, whole in zip(n.axes, v.shape, strict=True))
    made = replace(v, shape=shape)
    return [(made, made.bytes)]
