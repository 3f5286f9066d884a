"""The settings of a plan's kernels in the order of the model: its choice, and those after it.

A setting is labels (what is streamed, in how many passes), tiles, warps and stages. The model ranks
them by predicted time; measuring the first few on a device says how good the ranking is
(`napkin.measure.tune`).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from napkin.derive.trail import Trail
from napkin.errors import InputError
from napkin.plan.choose import ranked as settled
from napkin.plan.derive import kernel_moves
from napkin.plan.labels import labellings
from napkin.plan.plan import Plan, PlannedKernel, distinct
from napkin.plan.pricing import Choice

Setting = tuple[str, int, tuple[tuple[str, int], ...], int, int, int, int]
"""What is streamed, in how many passes, tiles, warps, stages, persistent program instances, rows of
a block of groups: what a launch differs by."""


def setting(choice: Choice) -> Setting:
    """What tells a choice from the others of the same kernel."""
    stream = choice.kernel.stream
    tiles = tuple(sorted(choice.tiles.items()))
    launched = choice.warps, choice.stages, choice.persistent, choice.rows
    return stream.axis, len(stream.passes), tiles, *launched


def ranked(plan: Plan, k: PlannedKernel, most: int | None = None) -> list[Choice]:
    """The first `most` settings for a kernel of a plan, least predicted time first.

    Every one fits shared memory by the full model. The first is what the planner takes; after
    `with_choices` that need not be the plan's own.
    """
    out: dict[Setting, Choice] = {}
    for choice in _merged(plan, k):
        out.setdefault(setting(choice), choice)
        if len(out) == most:
            break
    return list(out.values())


def _merged(plan: Plan, k: PlannedKernel) -> Iterator[Choice]:
    """Settings of every labelling, in order."""
    kernel, sizes = k.choice.kernel, plan.full(plan.sizes)
    fixed = bool(kernel.part or kernel.merges)  # the two go together
    terms = kernel.name, kernel.origin, kernel.names, sizes
    found = [kernel] if fixed else labellings(*terms)
    rows = [settled(labelled, sizes, plan.dtype, plan.machine) for labelled in found]
    return heapq.merge(*rows, key=lambda c: c.rank)


def with_choices(plan: Plan, choices: Sequence[Choice]) -> Plan:
    """The plan with other settings, one for each of its distinct kernels, in order; these run as
    they are.

    Raises:
        InputError: there are more or fewer, or one computes something else.
    """
    kinds = distinct(plan.kernels)
    if len(choices) != len(kinds):
        raise InputError(
            f"{plan.name} has {len(kinds)} distinct kernels, but {len(choices)} settings are given"
        )
    instead: dict[int, Choice] = {}
    for k, choice in zip(kinds, choices, strict=True):
        if [o.node for o in choice.origin] != [o.node for o in k.choice.origin]:
            raise InputError(f"{plan.name}: the setting for {k.name} is of another kernel")
        instead[id(k.choice)] = choice
    kernels = tuple(replace(k, choice=instead[id(k.choice)]) for k in plan.kernels)
    own = {k.name for k in plan.kernels}
    head = [m for m in plan.trail if m.kernel not in own or m.rule in _OF_THE_WHOLE]
    tail = [m for k in distinct(kernels) for m in kernel_moves(k.choice)]
    return replace(plan, kernels=kernels, trail=Trail((*head, *tail)), bands=False)


_OF_THE_WHOLE = frozenset({"expand", "refactor", "materialise"})
"""Moves on the diagram: a kernel that is the whole diagram has its name."""


def setting_json(choice: Choice) -> dict[str, Any]:
    """A setting as plain data, with its prediction."""
    stream = choice.kernel.stream
    return {
        "stream": stream.axis,
        "passes": len(stream.passes) if stream.axis else 0,
        "tiles": dict(choice.tiles),
        "warps": choice.warps,
        "stages": choice.stages,
        "persistent": choice.persistent,
        "rows": choice.rows,
        "band": list(choice.band),
        "shared_bytes": choice.shared,
        "predicted_us": round(choice.time.seconds * 1e6, 3),
        "limited_by": choice.time.limited_by,
    }


def same_setting(choice: Choice, data: Mapping[str, Any]) -> bool:
    """Whether plain data (of `setting_json`) describe this setting."""
    own = setting_json(choice)
    keys = ("stream", "passes", "tiles", "warps", "stages", "persistent", "rows")
    return all(own[key] == data.get(key) for key in keys)
