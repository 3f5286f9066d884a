"""The program of a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import along
import attended
import backwards
import compounds
import far
import moves
import own
import placed
import rare
import rarer
import rarer_keys
import readings
import scans
import scarce
import selected
import stepped
import windowed
from drawing import (
    AFTERWARDS,
    ALONG,
    CHOSEN,
    ENDS,
    FAR,
    FOUND,
    KINDS,
    NEWEST,
    PLACED,
    RARE,
    RESUMED,
    SCARCE,
    SEVERAL,
    SHARED,
    SLID,
    SOLVED,
    WINDOWED,
    Drawing,
    Rejected,
)
from programs import Program

WEIGHTS = {
    moves.unary: 15, moves.power: 5, moves.arithmetic: 12, moves.chain: 1, moves.contraction: 14,
    moves.multilinear: 4, moves.reduction: 9, moves.softmax: 5, moves.about: 7, moves.factored: 5,
    moves.compared: 8, moves.signed_zero: 1, moves.whole: 7, moves.truths: 4, moves.cast: 3,
    moves.scan: 6, moves.scalar: 2,
    compounds.attention: 15, compounds.by_hand: 3, compounds.beside: 3, compounds.normalised: 6,
    compounds.variance: 6, compounds.joined: 4, compounds.quantised: 8, compounds.slots: 3,
    compounds.turned: 6, compounds.layouts: 1, compounds.wide: 5,
    readings.take: 5, readings.slide: 5, readings.rename: 6, readings.lookup_mask: 2,
}  # fmt: skip
LATER = {
    own.operator: 10, own.reduction: 8, own.weights: 6, own.streamed: 8, own.ruled: 6, own.vast: 5,
    compounds.wide: 20, compounds.quantised: 14, compounds.slots: 6, compounds.attention: 22,
    compounds.fields: 5,
}  # fmt: skip
"""Of seeds from `MORE` on, instead."""

NEW = {
    scans.scan: 45, scans.uniform: 12, scans.dropout: 30, scans.ranked: 30, scans.distances: 14,
    compounds.layers: 8, own.kinds: 8,
}  # fmt: skip
"""Of seeds from `NEWEST` on, beside."""

SELDOM = {
    rare.big: 3, rare.counted: 3, rare.tied: 3, rare.routed: 4, rare.rows: 8, rare.scaled: 6,
    rare.fields: 10, rare.unions: 10, rare.halves: 8, rare.roles: 16,
    rare.lone: 6, rare.kept: 5,
}  # fmt: skip
"""Of seeds from `RARE` on, every other one of which begins with one of these."""

LAST = {rare.looked_up: 8, rare.blocks: 6}
"""Of seeds from `RESUMED` on, beside."""

RARER = {
    rarer_keys.sides: 220, rarer_keys.boxes: 30, rarer_keys.rising: 40, rarer_keys.residues: 16,
    rarer_keys.placed: 12, rarer_keys.side_by_side: 9, rarer_keys.keyed: 10, rarer_keys.slots: 14,
    rarer.pointwise: 24, rarer.lanes: 18, rarer.long_held: 14, rarer.bytes_: 30,
    rarer.scaled_by: 34, rarer.long_lines: 14, rarer.patches: 20, rarer.casts: 18,
    rarer.sorted_rows: 18, rarer.recurrent: 4, rarer.exponents: 20, rarer.renamed: 9,
    rarer.nowhere: 18, rarer.alike: 3, rarer.deep: 5, rarer.scanned: 10, rarer.numbers: 14,
    scans.distances: 20,
}  # fmt: skip
"""Of seeds from `KINDS` on, most of which begin with one of these."""

RAREST = RARER | {
    stepped.states: 120, backwards.backward: 60,
    rarer_keys.sides: 160, rarer_keys.residues: 40, rarer_keys.slots: 30, rarer_keys.boxes: 45,
    rarer.lanes: 45, rarer.long_lines: 35, rarer.scaled_by: 70, rarer.bytes_: 50, rarer.casts: 35,
    rarer.exponents: 40, rarer.numbers: 30, rarer.nowhere: 30, rarer.scanned: 20,
    rarer.pointwise: 40,
}  # fmt: skip
"""Of seeds from `SEVERAL` on instead, of which some begin with two of these."""

FARTHEST = RAREST | {
    far.exponents: 110, far.logarithms: 60, far.past_half: 50, far.paired: 160,
    rarer.deep: 40, rarer.patches: 50, rarer.scanned: 40, rarer.renamed: 30,
    rarer_keys.side_by_side: 40, rarer_keys.placed: 30,
}  # fmt: skip
"""Of seeds from `FAR` on instead."""

BESIDE = FARTHEST | {windowed.windows: 3_000}
"""Of seeds from `WINDOWED` up to `ENDS` instead."""

FEWEST = {
    scarce.scaled: 40, scarce.zero_points: 9, scarce.attended: 26, scarce.typed: 16,
    scarce.long_lines: 5, rarer_keys.slots: 8, rarer_keys.boxes: 6, rarer_keys.sides: 8,
    rarer_keys.residues: 5, rarer.lanes: 6, rarer.renamed: 3, rarer.sorted_rows: 4,
    rarer.bytes_: 3, rarer.nowhere: 4,
}  # fmt: skip
"""Of seeds from `SCARCE` on instead."""

PAIRED = FEWEST | {far.paired: 60}
"""Of seeds from `SOLVED` on instead."""

LOCATED = PAIRED | {readings.found: 60, compounds.slots: 40, moves.cast: 20}
"""Of seeds from `FOUND` on instead."""

FOLLOWED = LOCATED | {readings.found: 300}
"""Of seeds from `AFTERWARDS` on instead."""

SELECTED = FOLLOWED | {selected.selected: 1_200}
"""Of seeds from `CHOSEN` on instead."""

KEYED = SELECTED | {along.along: 4_000}
"""Of seeds from `ALONG` on instead."""

AT_PLACES = KEYED | {placed.placed: 8_000}
"""Of seeds from `PLACED` on instead."""

UNDER_KEYS = AT_PLACES | {windowed.keyed: 16_000}
"""Of seeds from `SLID` on instead."""

ELSE = ("größe", "café", "μέσος", "сумма", "_ß1")
"""Names in other letters, which a kernel has in its own."""

CALLED = ("sum", "max", "float", "gl", "tl", "triton", "range", "linear_scan")
"""Names of diagrams that mean something else in a kernel file."""


def _named(made: Program, d: Drawing) -> Program:
    seldom = d.seed >= RARE and d.chance(0.08)
    made = replace(made, name=d.rng.choice(CALLED)) if seldom else made
    return replace(made, name=d.rng.choice(ELSE)) if d.seed >= SCARCE and d.chance(0.1) else made


def _first(seed: int) -> Mapping[Callable[[Drawing], object], int]:
    if seed >= PLACED:
        return UNDER_KEYS if seed >= SLID else AT_PLACES
    if seed >= AFTERWARDS:
        return KEYED if seed >= ALONG else SELECTED if seed >= CHOSEN else FOLLOWED
    if seed >= SCARCE:
        return LOCATED if seed >= FOUND else PAIRED if seed >= SOLVED else FEWEST
    if seed >= FAR:
        return BESIDE if WINDOWED <= seed < ENDS else FARTHEST
    return RAREST if seed >= SEVERAL else RARER


def draw(seed: int) -> Program:
    """The program of a seed."""
    for attempt in range(100):
        d = Drawing(seed if not attempt else seed + attempt * 1_000_003)
        if SHARED <= seed < ENDS:
            d.moving(attended.attended)
            try:
                return attended.in_order(d.program())
            except Rejected:
                continue
        table = WEIGHTS | (LATER if d.more else {}) | (NEW if seed >= NEWEST else {})
        ways, weights = list(table), list(table.values())
        if seed >= KINDS and d.chance(0.85):
            first = _first(seed)
            twice = seed >= SEVERAL and d.chance(0.35)
            for move in d.rng.choices(list(first), list(first.values()), k=1 + twice):
                d.moving(move)
        if seed >= RARE and d.chance(0.3 if seed >= KINDS else 0.5):
            first = SELDOM | (LAST if seed >= RESUMED else {})
            d.moving(d.rng.choices(list(first), list(first.values()))[0])
        more = (0, 0, 1, 2, 3, 4, 5) if seed >= KINDS else (1, 2, 2, 3, 4, 5, 6)
        for _ in range(d.rng.choice(more)):
            d.moving(d.rng.choices(ways, weights)[0])
        try:
            return _named(d.program(), d)
        except Rejected:
            continue
    raise AssertionError(f"seed {seed} draws no program")
