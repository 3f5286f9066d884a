"""Ways to run one diagram, beside the least that any could move.

A bound is worth as much as what it is beside: the plan, the same without fusion, and without tiles
that share what they read. All three are costed from labelled kernels, none by a formula of its own.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import sympy

from napkin.bound.least import bytes_of_ones, bytes_once, for_memory, once
from napkin.bound.symbolic_cost import Cost
from napkin.count.residency import live_set
from napkin.derive.kernel import Kernel
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, Refusal, check_known
from napkin.machine.machines import Machine
from napkin.plan.derive import derive
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.progress import Progress, silent
from napkin.settings.labels import labellings

STRATEGIES: Mapping[str, str] = {
    "fused": "the plan: the cut into kernels, the labels and the tiles that are predicted fastest",
    "unfused": "every reduction is a kernel of its own, with its pointwise terms and its own best"
    " tiles; every array between kernels is stored",
    "naive": "as unfused, but without tiles: each group computes one value (g = 1) and reads all of"
    " its operands",
}
"""The strategies, and what each means."""


@dataclass(frozen=True, eq=False)
class Strategy:
    """One way to run a diagram.

    Attributes:
        name: one of `STRATEGIES`.
        kernels: launches.
        moved: bytes that all kernels read and write at their tiles (H).
        least: the least bytes that the same kernels move in the memory of one group, at their best
            tiles; None where that has no such form.
        once: bytes where each kernel's memory has no limit: every tensor once a kernel.
        symbols: the same in values, symbolic.
        workspace: bytes of arrays that pass between kernels, at most at once.
        seconds: predicted time; of naive, the least that it takes.
        limited_by: what limits the kernel that takes longest.
    """

    name: str
    kernels: int
    moved: int
    least: float | None
    once: int
    symbols: Any
    workspace: int
    seconds: float
    limited_by: str


@dataclass(frozen=True, eq=False)
class Comparison:
    """Strategies for one diagram, in the order asked for, beside the least there is.

    Attributes:
        plan: the fused plan.
        memory: bytes of one group.
        optimum: the least bytes that the fused or the unfused kernels, or one for all, move in that
            memory, under any labels; None where none of these has such a form.
        no_optimum: why not.
        compulsory: bytes of every input that is read, and of every output, once.
    """

    plan: Plan
    memory: int
    strategies: tuple[Strategy, ...]
    optimum: float | None
    no_optimum: str
    compulsory: int


def named(text: str) -> tuple[str, ...]:
    """The strategies of ``--compare``, as in "naive,unfused,fused".

    Raises:
        InputError: one is not known, or stands twice.
    """
    names = tuple(n.strip() for n in text.split(","))
    for n in names:
        check_known(n, STRATEGIES, f"--compare: no strategy {n!r}")
        if names.count(n) > 1:
            raise InputError(f"--compare: {n} is given twice; write it once")
    return names


def compare(
    diagram: Diagram,
    on: str | Machine = "h100",
    sizes: Mapping[str, int] | None = None,
    dtype: str = "bf16",
    names: Sequence[str] = tuple(STRATEGIES),
    *,
    parts: Mapping[str, int] | None = None,
    progress: Progress = silent,
) -> Comparison:
    """Cost a diagram under several strategies.

    Args:
        names: of `STRATEGIES`.
        parts: see `napkin.derive`.

    Raises:
        InputError: a strategy, a size, a dtype or a machine is not known.
        Refusal: no kernel fits the machine.
    """
    named(",".join(names))
    progress("fused", 0, 2)
    plan = derive(diagram, on, sizes, dtype, parts=parts)
    progress("unfused", 1, 2)
    unfused_plan = derive(diagram, plan.machine, sizes, dtype, materialise="every", parts=parts)
    found = {"fused": _planned("fused", plan), "unfused": _planned("unfused", unfused_plan)}
    if "naive" in names:
        found["naive"] = _naive(unfused_plan, found["unfused"])
    progress("unfused", 2, 2)
    reached = [n for n in (optimum_of(plan), optimum_of(unfused_plan)) if n is not None]
    reason = "" if reached else _why_no_least(plan)
    return Comparison(
        plan,
        plan.machine.shared_per_block,
        tuple(found[n] for n in names),
        min(reached, default=None),
        reason,
        compulsory(plan),
    )


def compulsory(plan: Plan) -> int:
    """Bytes of every input that a plan reads, and of every output, once."""
    moved: dict[str, int] = {}
    for k in plan.kernels:
        for (tensor, _), n in _once(k).items():
            name = k.binding[tensor]
            if name not in plan.materialised:
                moved[name] = max(moved.get(name, 0), n)
    return sum(moved.values())


def least(k: PlannedKernel) -> float:
    """The least bytes that a kernel moves in the memory of one group, under its labels; infinite
    where no tile of what M counts fits.

    Raises:
        InputError: it has no such form; see `napkin.bound.least.for_memory`.
    """
    return for_memory(k.byte_cost, k.choice.sizes, k.machine.shared_per_block)


def _planned(name: str, plan: Plan) -> Strategy:
    return Strategy(
        name,
        len(plan.kernels),
        plan.moved,
        least_of(plan),
        sum(n for k in plan.kernels for n in _once(k).values()),
        sympy.expand(sympy.Add(*(once(k.cost) for k in plan.kernels))),
        plan.workspace,
        plan.seconds,
        plan.limited_by,
    )


def _naive(unfused_plan: Plan, unfused: Strategy) -> Strategy:
    """The unfused plan's kernels with groups of one value.

    Each takes as long as with tiles that share, or as its traffic takes at the rate into the
    multiprocessors, whatever is longer: a lower bound.
    """
    kernels = unfused_plan.kernels
    moved = [bytes_of_ones(_smallest(k), k.choice.sizes, k.byte_cost.unit) for k in kernels]
    rate = unfused_plan.machine.l2_rate
    times = [
        max((n / rate, "L2 bandwidth"), (k.choice.time.seconds, k.choice.time.limited_by))
        for k, n in zip(kernels, moved, strict=True)
    ]
    seconds = sum(seconds for seconds, _ in times)
    own = {"moved": sum(moved), "least": None, "seconds": seconds, "limited_by": max(times)[1]}
    return replace(unfused, name="naive", **own)


def _smallest(k: PlannedKernel) -> Kernel:
    """The labelling of a kernel's term that holds least: most axes grouped, the rest streamed."""
    own = k.choice.kernel
    if own.part or own.merges or own.added:
        return own
    every = labellings(own.name, own.origin, own.names, k.choice.sizes, k.dtype)
    found = [kernel for kernel in every if not kernel.splits]
    return min(found or [own], key=lambda x: (-len(x.group), len(x.whole), len(x.stream.passes)))


def _once(k: PlannedKernel) -> dict[tuple[str, Any], int]:
    return bytes_once(k.byte_cost, k.choice.sizes, k.tiles)


def least_of(plan: Plan) -> float | None:
    """The least bytes that a plan's kernels move, each in the memory of one group; None where one
    of them has no such form, or holds more in its loop than M counts."""
    if not all(_counted(k.choice.kernel) for k in plan.kernels):
        return None
    try:
        found = sum(least(k) for k in plan.kernels)
    except InputError:
        return None
    return found if math.isfinite(found) else None


def optimum_of(plan: Plan) -> float | None:
    """The least bytes of a plan's cut into kernels, or of one kernel for all where that fits, over
    every labelling of each; None where one of these has no such form.

    A plan is cut, streams or holds whole, and merges parts of a streamed axis, for time and not for
    traffic: so these are no part of what is least.
    """
    found = [_total([_least_labelled(k) for k in p.kernels]) for p in _cuts(plan)]
    return None if found[0] is None else min(n for n in found if n is not None)


def _cuts(plan: Plan) -> Iterator[Plan]:
    """The plan's cut without parts of streamed axes, and one kernel for all where that fits."""
    if len(plan.kernels) == 1:
        yield plan
        return
    never = dict.fromkeys(plan.diagram.axes, 1)

    def cut_at(names: Sequence[str] | None) -> Plan:
        how = (plan.diagram, plan.machine, plan.sizes, plan.dtype)
        return derive(*how, materialise=names, parts=never)

    yield cut_at(None) if plan.parts else plan
    with contextlib.suppress(Refusal):
        yield cut_at(())


def _total(parts: Sequence[float | None]) -> float | None:
    found = [n for n in parts if n is not None]
    return sum(found) if len(found) == len(parts) else None


def _least_labelled(k: PlannedKernel) -> float | None:
    own, budget = k.choice.kernel, k.machine.shared_per_block
    if own.paired:
        return None  # its term is that of both kernels, of which each reads other tensors
    found = math.inf
    for kernel in (own, *labellings(own.name, own.origin, own.names, k.choice.sizes, k.dtype)):
        if _counted(kernel):
            try:
                cost = Cost(kernel, unit=k.byte_cost.unit)
                moved = for_memory(cost, kernel.sized(k.choice.sizes), budget)
            except InputError:
                return None  # it may be the one that moves least
            found = min(found, moved)
    return found if math.isfinite(found) else None


def _counted(kernel: Kernel) -> bool:
    """Whether M has all that a group holds: of a loop it counts chunks and results, so states that
    no result is as large as are not in it."""
    results = [set(o.axes) for o in kernel.outputs]
    return all(any(set(axes) <= r for r in results) for axes in live_set(kernel).states)


def _why_no_least(plan: Plan) -> str:
    for k in plan.kernels:
        try:
            least(k)
        except InputError as error:
            return f"kernel {k.name}: {error}"
    return "of some kernel, H or M is no sum of powers of its tiles, or nothing fits"
