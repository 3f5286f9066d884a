"""The settings of a plan's kernels in the order of the model: its choice, and those after it.

A setting is labels (what is streamed, in how many passes), tiles, warps and stages, and whether
groups are blocks by themselves or warpgroups of one (`napkin.settings.specialised`). The model
ranks them by predicted time; measuring the first few on a device says how good the ranking is
(`napkin.measure.tune`).
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from napkin.errors import InputError
from napkin.moves.trail import Trail
from napkin.plan.fitting import fitting
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.plan.steps import OF_THE_WHOLE, kernel_moves
from napkin.run.plain import made
from napkin.schedule import Schedule
from napkin.settings.best import in_order, unpriced
from napkin.settings.choice import Choice
from napkin.settings.labels import labellings
from napkin.settings.specialised import best_specialised, every_specialised

Setting = tuple[str, int, Schedule]
"""What is streamed, in how many passes, and the schedule: what a launch differs by."""


def setting(choice: Choice) -> Setting:
    """What tells a choice from the others of the same kernel."""
    stream = choice.kernel.stream
    return stream.axis, len(stream.passes) if stream.axis else 0, choice.schedule


def ranked(plan: Plan, k: PlannedKernel, most: int | None = None) -> list[Choice]:
    """The first `most` settings for a kernel of a plan, least predicted time first; kernels of
    warpgroups among them where the plan may have such.

    Every one fits by its operands, and the first is held to what the compiler allocates: it is what
    the planner takes; after `with_choices` that need not be the plan's own.
    """
    alone = _merged(plan, k)
    if not plan.specialised:
        return _first(alone, most)
    own = best_specialised(k.choice, plan.dtype, plan.machine)
    others = every_specialised(k.choice, plan.dtype, plan.machine)
    first = itertools.islice(alone, 1) if own is None else [own]
    rest = heapq.merge(alone, others, key=lambda c: c.rank)
    return _first(itertools.chain(first, rest), most)


def _first(found: Iterable[Choice], most: int | None) -> list[Choice]:
    """The first `most` that differ."""
    out: dict[Setting, Choice] = {}
    for choice in found:
        out.setdefault(setting(choice), choice)
        if len(out) == most:
            break
    return list(out.values())


def _merged(plan: Plan, k: PlannedKernel) -> Iterator[Choice]:
    """Settings of every labelling, in order."""
    kernel, sizes = k.choice.kernel, plan.full(plan.sizes)
    terms = kernel.name, kernel.origin, kernel.names, sizes
    found = [kernel] if kernel.paired else labellings(*terms, plan.dtype)
    found = [replace(labelled, rounds=kernel.rounds) for labelled in found]
    rows = [in_order(unpriced(labelled, sizes, plan.dtype, plan.machine)) for labelled in found]
    merged = heapq.merge(*rows, key=lambda c: c.rank)
    for first in itertools.islice(merged, 1):
        yield fitting(replace(k, choice=first))
    yield from merged


def with_choices(plan: Plan, choices: Sequence[Choice]) -> Plan:
    """The plan with other settings, one for each of its distinct kernels, in order; these run as
    they are. One of warpgroups runs beside the kernel that the plan has, which stays for tensors
    that descriptors do not serve.

    Raises:
        InputError: there are more or fewer, or one computes something else.
    """
    kinds = distinct(plan.kernels)
    if len(choices) != len(kinds):
        raise InputError(
            f"{plan.name} has {len(kinds)} distinct kernels, but {len(choices)} settings are given"
        )
    instead: dict[int, Choice] = {}
    given: dict[str, Choice] = {}
    for k, choice in zip(kinds, choices, strict=True):
        if [o.node for o in choice.origin] != [o.node for o in k.choice.origin]:
            raise InputError(f"{plan.name}: the setting for {k.name} is of another kernel")
        if choice.schedule.warpgroups:
            given[k.name] = choice
        instead[id(k.choice)] = k.choice if choice.schedule.warpgroups else choice
    kernels = tuple(replace(k, choice=instead[id(k.choice)]) for k in plan.kernels)
    own = {k.name for k in plan.kernels}
    head = [m for m in plan.trail if m.kernel not in own or m.rule in OF_THE_WHOLE]
    tail = [m for k in distinct(kernels) for m in kernel_moves(k.choice)]
    trail = Trail((*head, *tail))
    return replace(plan, kernels=kernels, trail=trail, specialised=False, given=given)


def setting_json(choice: Choice) -> dict[str, Any]:
    """A setting as plain data, with its prediction."""
    axis, passes, schedule = setting(choice)
    return {
        "stream": axis,
        "passes": passes,
        **schedule.to_json(),
        "shared_bytes": choice.shared,
        "predicted_us": round(choice.time.seconds * 1e6, 3),
        "limited_by": choice.time.limited_by,
    }


def same_setting(choice: Choice, data: Mapping[str, Any]) -> bool:
    """Whether plain data (of `setting_json`) describe this setting."""
    try:
        return setting(choice) == (data["stream"], data["passes"], made(Schedule, data))
    except (KeyError, TypeError, ValueError):
        return False
