"""A chain of memory levels, from the outermost to the innermost, with what each may hold.

Any path of a machine's level graph is one: host, dram, l2, shared streams from host memory; peers,
dram, l2, shared is one product over several GPUs. Two theorems of arXiv 2412.03317 (App. A.2) turn
hardware into levels of the plain sum of costs: a cache holds what its children hold together
(Theorem 2), and children that are joined pass on what one of them has read (Theorem 3).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from napkin.errors import InputError
from napkin.machine.hardware import Level, Machine

_CLUSTER = re.compile(r"cluster(?::(\d+))?")


@dataclass(frozen=True)
class Stage:
    """A level below the top of a chain, with the pipe that feeds it.

    Attributes:
        name: the level's.
        count: memories of it under the top.
        capacity: bytes of one.
        memory: bytes that the tile of one may take: of a cache or a cluster, what its children
            hold together.
        children: memories of the next stage that share one, where `memory` is theirs; else 0.
        read: seconds for each byte that enters it (Hdot^-1, all memories fed together).
        write: seconds for each byte that leaves it.
        granule: bytes that enter at once, at least.
        via: the pipes on the way.
        chips: chips under a top that they share: each takes a tile of this stage. Else 1.
    """

    name: str
    count: int
    capacity: float
    memory: float
    children: int
    read: float
    write: float
    granule: int
    via: tuple[str, ...]
    chips: int = 1


@dataclass(frozen=True)
class Chain:
    """The levels that data moves through: `top`, which holds everything, and the stages below."""

    machine: Machine
    top: Level
    stages: tuple[Stage, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The levels' names, the top's first."""
        return (self.top.name, *(s.name for s in self.stages))

    @property
    def chips(self) -> int:
        """The chips that share the top."""
        return self.top.sharing


def default(machine: Machine) -> tuple[str, ...]:
    """The levels of a machine from DRAM down to registers."""
    return ("dram", *(pipe.target for pipe in machine.path("dram", "registers")))


def chains(machine: Machine, names: Sequence[str]) -> Iterator[Chain]:
    """The chains that `names` may mean: one, or one for each size of a cluster.

    Levels that are left out are passed through: the slowest pipe on the way counts. "cluster"
    before a level joins its memories, "cluster:2" just two of them.

    Raises:
        InputError: a level or a pipe is missing, or levels do not go inwards.
    """
    at = [i for i, n in enumerate(names) if _CLUSTER.fullmatch(n)]
    if not at:
        yield _chain(machine, names)
        return
    if len(at) > 1 or at[0] + 1 == len(names) or at[0] == 0:
        raise InputError(
            f"{','.join(names)}: 'cluster' stands once, between two levels, as in"
            " dram,cluster,shared"
        )
    target = names[at[0] + 1]
    plain = _chain(machine, [n for i, n in enumerate(names) if i != at[0]])
    links = machine.links(target)
    asked = (_CLUSTER.fullmatch(names[at[0]]) or [None, None])[1]
    found = [n for n in links if asked is None or n == int(asked)]
    if not found:
        known = ", ".join(f"cluster:{n}" for n in links) or "none"
        raise InputError(
            f"machine {machine.name!r} joins no memories of {target!r} by"
            f" {names[at[0]]!r}; known: {known}"
        )
    useless: list[InputError] = []
    for siblings in found:
        try:
            rate = links[siblings].rate.value * plain.chips
            yield joined(plain, target, siblings, 1 / rate)
        except InputError as error:
            useless.append(error)
    if len(useless) == len(found):
        raise useless[0]


def _chain(machine: Machine, names: Sequence[str]) -> Chain:
    if len(names) < 2:
        raise InputError("a chain of levels has two or more, as in dram,l2,shared")
    levels = [machine.level(n) for n in names]
    top, chips = levels[0], levels[0].sharing
    for level in levels[1:]:
        if level.chips is not None:
            raise InputError(f"level {level.name!r} joins chips: it can only begin a chain")
    stages: list[Stage] = []
    for above, level in pairwise(levels):
        way = machine.path(above.name, level.name)
        if not way:
            raise InputError(f"level {level.name!r} stands twice in {','.join(names)}")
        stages.append(
            Stage(
                name=level.name,
                count=level.count * chips,
                capacity=level.tile_capacity,
                memory=level.tile_capacity,
                children=0,
                read=max(1 / p.rate.value for p in way) / chips,
                write=max(1 / (p.write or p.rate).value for p in way) / chips,
                granule=max((int(p.granule.value) for p in way if p.granule), default=1),
                via=tuple(p.name for p in way),
                chips=1 if stages else chips,
            )
        )
    for i in reversed(range(len(stages) - 1)):
        here, below = stages[i], stages[i + 1]
        if machine.level(here.name).cache:
            children = max(below.count // here.count, 1)
            stages[i] = replace(here, memory=below.memory * children, children=children)
    return Chain(machine, top, tuple(stages))


def joined(chain: Chain, target: str, siblings: int, link: float) -> Chain:
    """`chain` with the memories of stage `target` joined, `siblings` at a time, by pipes that take
    `link` seconds for each byte over the chip (Theorem 3).

    The level that is inserted has the memory of the siblings and what the pipe from above costs
    more than the link.

    Raises:
        InputError: the link is no faster than the pipe from above, so that it saves nothing.
    """
    i = next(i for i, s in enumerate(chain.stages) if s.name == target)
    own = chain.stages[i]
    if link >= own.read:
        raise InputError(
            f"machine {chain.machine.name!r}: joining {siblings} memories of {target!r} saves"
            f" nothing, as their link moves {1 / link / 1e12:.3g} TB/s and the pipe into them"
            f" {1 / own.read / 1e12:.3g} TB/s"
        )
    family = Stage(
        name=f"cluster:{siblings}",
        count=max(own.count // siblings, 1),
        capacity=siblings * own.capacity,
        memory=siblings * own.memory,
        children=siblings,
        read=own.read - link,
        write=0.0,
        granule=own.granule,
        via=own.via,
    )
    inner = replace(own, read=link, via=(f"{target}-{target}x{siblings}",))
    above = list(chain.stages[:i])
    if above and above[-1].children:
        above[-1] = replace(above[-1], children=max(family.count // above[-1].count, 1))
    return replace(chain, stages=(*above, family, inner, *chain.stages[i + 1 :]))
