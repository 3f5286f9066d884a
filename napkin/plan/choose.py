"""Labels and tiles for one kernel on one machine: which axis to stream, and the integer optimum.

Every legal labelling is tried (`plan/labels.py`); for each, tiles that are powers of two
(`plan/tiles.py`) and that fit shared memory and registers. The least predicted time
(`plan/pricing.py`) wins, then the least traffic.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from napkin.cost.levels import held
from napkin.cost.machines import Machine
from napkin.derive.kernel import Kernel
from napkin.diagram.diagram import Output
from napkin.diagram.node import Node, postorder
from napkin.lower.descriptors import described
from napkin.lower.program import Program, build
from napkin.lower.resources import shared_bytes
from napkin.lower.resources_dot import dot_of
from napkin.plan.labels import labellings
from napkin.plan.pricing import Choice, Pricing, described_bytes, storage
from napkin.plan.tiles import Tiles

TRIED = 40
"""Settings in turn that the full model of shared memory refuses before no more are tried."""


def best(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    dtype: str,
    machine: Machine,
) -> Choice | None:
    """The best way to run a term as one kernel, or None if there is none that fits; one whose
    products take tiles as they are, if there is one (see `ranked`)."""
    found = [
        choice
        for kernel in labellings(name, outputs, names, sizes)
        if (choice := best_tiles(kernel, sizes, dtype, machine)) is not None
    ]
    flat = [c for c in found if _flat(build(c.kernel, c.tiles))] if len(found) > 1 else found
    return min(flat or found, key=lambda c: c.rank, default=None)


def best_tiles(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
) -> Choice | None:
    """The best tiles for a labelled kernel, or None if none fits."""
    return next(ranked(kernel, sizes, dtype, machine), None)


def ranked(
    kernel: Kernel, sizes: Mapping[str, int], dtype: str, machine: Machine
) -> Iterator[Choice]:
    """The settings of a labelled kernel that fit, in the order of their rank, the best first.

    The search estimates shared memory from operands alone; a choice is held to the full model
    when its turn comes. Tiles that must be flattened between loads and products come last, whatever
    their rank: Triton 3.6 fails to compile some, and computes some wrongly where it stores them in
    boxes.
    """
    known, levels = kernel.sized(sizes), held(kernel)
    settings = Tiles(kernel, known, levels).settings()
    refused = 0
    folded: list[Choice] = []
    for choice in sorted(
        Pricing(kernel, known, levels, dtype, machine).choices(settings), key=lambda c: c.rank
    ):
        settled = _settled(choice, dtype, machine)
        if settled is not None and _flat(build(kernel, choice.tiles)):
            refused = 0
            yield settled
            continue
        folded += [settled] if settled else []
        if (refused := refused + 1) == TRIED:
            break
    yield from folded


def _flat(program: Program) -> bool:
    """Whether every product takes tiles of two dimensions as they are."""
    dots = (dot_of(program, n) for n in postorder(program.roots))
    return all(dot.flat for dot in dots if dot)


def _settled(choice: Choice, dtype: str, machine: Machine) -> Choice | None:
    """A choice held to the full model of shared memory, with operands as they lie and, where
    descriptors serve them, by addresses too; in fewer stages where that makes it fit."""
    kernel, item = choice.kernel, described_bytes(dtype, machine)
    dtypes = storage(kernel, dtype)
    plain = build(kernel, choice.tiles)
    boxed = described(plain, item) if item else plain
    programs = [boxed, plain] if boxed.boxes else [plain]
    for stages in range(choice.stages, 0, -1):
        shared, *other = (
            shared_bytes(p, dtypes, machine.arch, choice.warps, stages, choice.sizes)
            for p in programs
        )
        if max(shared, *other, 0) <= machine.shared_per_block:
            return replace(choice, stages=stages, shared=shared, described=boxed.described)
    return None
