"""Whether the groups of a kernel run as warpgroups that share what they stream, and how many do."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace

from napkin.cost.levels import held
from napkin.cost.machines import Machine
from napkin.cost.traffic import ITEM_BYTES
from napkin.derive.kernel import Kernel
from napkin.diagram.storage import own_type
from napkin.errors import Refusal
from napkin.lower.descriptors import described
from napkin.lower.launch import WARPGROUPS
from napkin.lower.program import Program, build
from napkin.lower.warpgroups.band import BITS, ROWS, Band, why_not
from napkin.lower.warpgroups.room import exact_bytes, registers, registers_of, shared_of
from napkin.lower.warpgroups.write import passed, write_band
from napkin.plan.pricing import Choice, Pricing
from napkin.plan.tiles import Tiles

SIDE_BY_SIDE = (2, 3)
"""Warpgroups that compute, of one block."""

STAGES = 2
"""Chunks in shared memory: more of them changed nothing, in 14 problems of attention by at most
1.5 % (H100)."""

CHUNKS = (128, 64)
"""Values of a chunk: the most that fit. Attention over 16,384 keys with 128 values a head took
3,288 us with 128 in two warpgroups, 3,838 with 64; causal 1,683 and 1,967, and 1,931 with 64 in
three (H100)."""


def group_of(choice: Choice) -> dict[str, int]:
    """The tiles of one group of a band."""
    axis, groups = choice.band
    return {**choice.tiles, axis: choice.tiles[axis] // groups}


def band_of(choice: Choice) -> Band:
    """The band of a choice that has one."""
    program = program_of(choice.kernel, group_of(choice), choice.described)
    return Band(program, *choice.band, choice.stages)


def band_bytes(choice: Choice) -> int:
    """Predicted shared memory of one block of a band, in bytes."""
    band, sizes = band_of(choice), choice.kernel.sized(choice.sizes)
    whole, tiles = choice.kernel.whole, choice.tiles
    even = [a for a, n in tiles.items() if sizes[a] % n == 0 and (a not in whole or sizes[a] == n)]
    return exact_bytes(band, passed(band, even))


def program_of(kernel: Kernel, tiles: Mapping[str, int], item: int) -> Program:
    """The loop program of one group, whose boxes are matrices where they lie."""
    return described(build(kernel, tiles), item, reshaped=True)


def best_band(alone: Choice, dtype: str, machine: Machine) -> Choice | None:
    """The band that is predicted to take least; None where groups by themselves are as fast, or
    where the kernel does not run as warpgroups."""
    kernel, item = alone.kernel, ITEM_BYTES[dtype]
    if machine.capability != WARPGROUPS or item * 8 != BITS:
        return None
    levels = held(kernel)
    if not levels.products or not kernel.stream.axes or kernel.part or kernel.merges:
        return None
    if any(own_type(a.leaf) for a in kernel.reads) or not alone.described:
        return None
    pricing = Pricing(kernel, alone.sizes, levels, dtype, machine)
    settings = list(Tiles(kernel, alone.sizes, levels, (ROWS,), CHUNKS).settings())
    for values in CHUNKS:
        found: list[Choice] = []
        for tiles in settings:
            if math.prod(tiles[a] for a in kernel.stream.axes) != values:
                continue
            program = program_of(kernel, tiles, item)
            for axis in kernel.group:
                if tiles[axis] > 1 and not why_not(program, axis):
                    found += _priced(pricing, program, axis, machine)
        if found:
            found.sort(key=lambda c: c.rank)
            most = alone.time.seconds
            return next((c for c in found if c.time.seconds < most and _writes(c)), None)
    return None


def _priced(pricing: Pricing, program: Program, axis: str, machine: Machine) -> Iterator[Choice]:
    """The bands of one group's program that fit."""
    for groups in SIDE_BY_SIDE:
        band = Band(program, axis, groups, STAGES)
        shared = shared_of(band)
        if shared <= machine.shared_per_block and registers_of(band) <= registers(groups):
            made = pricing.banded(program.tiles, axis, groups, STAGES)
            yield replace(made, shared=shared)


def _writes(choice: Choice) -> bool:
    """Whether Gluon has all that the kernel needs."""
    try:
        write_band(band_of(choice))
    except Refusal:
        return False
    return True
