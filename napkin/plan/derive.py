"""`nk.derive`: from a diagram and a machine to a plan."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from napkin.algebra.relabel import Move
from napkin.algebra.tracer import active
from napkin.cut.cut import cut
from napkin.cut.pieces import agreeing
from napkin.cut.rewritten import UNCHANGED, fastest, same_size
from napkin.cut.segments import Memo
from napkin.cut.storing import check_materialised, check_stored, materialised
from napkin.cut.ways import Cut
from napkin.derive.prepare import Prepared, exact, multiplied_out, prepare, split_windows
from napkin.derive.rules.part import part_axis
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, Refusal, check_known
from napkin.ir.node import Node, postorder
from napkin.ir.storage import array_bytes, own_type
from napkin.ir.types import STORAGE, STORED
from napkin.ir.whole_numbers import flag, whole
from napkin.machine.machines import Machine, machine
from napkin.moves.refactor import Refactored
from napkin.moves.trail import Trail
from napkin.plan.explained import told
from napkin.plan.fitting import first_that_fits, fitting
from napkin.plan.plan import Asked, Plan, holders
from napkin.plan.planned import PlannedKernel, distinct
from napkin.plan.steps import kernel_moves
from napkin.plan.tuned import remembered
from napkin.settings.climb import best_tiles
from napkin.settings.series import why_not_in_parts
from napkin.timing.least_time import at_least


def derive(
    diagram: Diagram,
    on: str | Machine = "h100",
    sizes: Mapping[str, int] | None = None,
    dtype: str = "bf16",
    *,
    materialise: Sequence[str] | Literal["every"] | None = None,
    parts: Mapping[str, int] | None = None,
    multiply_out: bool = False,
    tuned: bool = False,
    deterministic: bool = True,
) -> Plan:
    """Derive how to run a diagram on a machine.

    With `NAPKIN_TRACE=1` in the environment every step is printed to stderr, as by `napkin
    explain`.

    Args:
        on: a machine, its name, or a machine file.
        sizes: axis sizes; those not given come from the diagram's defaults.
        dtype: storage type of real tensors, but of those that a cast stores in another: bf16,
            fp16 or fp32.
        materialise: names of arrays to store between kernels, and no others but what is computed
            of the same; by default those that make the whole fastest. "every": what each reduction
            hands on, so that it is a kernel of its own with the pointwise terms that come with it,
            stored in the plan's type, scores included, as an eager framework stores them.
        parts: the number of parts of an axis wherever a kernel streams it, each folded by groups
            of its own and then merged (1: none); by default what is fastest. Refused where no
            kernel can be cut so, unless `materialise` says what the kernels are.
        multiply_out: compute sums of (x - y) ** 2 as |x| ** 2 + |y| ** 2 - 2 x y, of which the last
            is a matrix product. A sum then has the rounding of the squares (about 2^-24 of
            |x| ** 2 + |y| ** 2 for each addition), not of the difference: points that lie much
            closer to each other than to 0 lose their distance. The same goes for sums of
            w * (x - y), which their gradients are.
        tuned: take the settings that were the fastest of those measured on this machine's device,
            where `napkin derive --tune` remembered some (see `napkin.plan.tuned`).
        deterministic: two runs give the same bits. Where False, groups may add to one array in
            memory, in any order, if that is faster: runs then may differ in the last bits.
            `Plan.accumulates` says what is added up so.

    Raises:
        InputError: a size, a dtype, a machine or an array is not known, or an output is cast to a
            type that kernels do not store.
        Refusal: no kernel fits the machine, none can be cut into `parts`, or there is no square to
            multiply out.
    """

    if not isinstance(diagram, Diagram):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"derive of {diagram!r}, which is no diagram; put @nk.diagram above it")

    tuned, deterministic = flag(tuned, "tuned"), flag(deterministic, "deterministic")
    multiply_out = flag(multiply_out, "multiply_out")

    def found() -> Plan:
        known = diagram.check_sizes({} if sizes is None else sizes)
        given = None if parts is None else _check_parts(diagram, parts, known)
        memo = memo_of(on, dtype, given, deterministic)
        terms = diagram, known, memo, materialise, multiply_out
        plan = first_that_fits(lambda: searched(*terms).fitted(), memo.leave_out)
        if materialise is None:
            _check_parted(plan, given or {})
        stored = materialise if materialise in (None, "every") else tuple(materialise)
        asked = Asked(stored, tuple((given or {}).items()), multiply_out, tuned, deterministic)
        plan = replace(plan, asked=asked)
        return remembered(plan) if tuned else plan

    return told(diagram, found)


def memo_of(
    on: str | Machine,
    dtype: str,
    parts: Mapping[str, int] | None = None,
    deterministic: bool = True,
) -> Memo:
    """What is known, nothing yet, of kernels on a machine; see `derive`."""
    on = on if isinstance(on, Machine) else machine(on)
    if dtype not in STORED:
        own = f"; for inputs alone, --storage NAME={dtype}" if dtype in list(STORAGE) else ""
        raise InputError(f"dtype {dtype!r}: kernels store {', '.join(STORED)}{own}")
    return Memo(dtype, on, parts, deterministic)


@dataclass(frozen=True, eq=False)
class Searched:
    """The fastest cut of a diagram by the time model, before the compiler is asked about it.

    Attributes:
        ready: the terms that are cut, but for the contractions that are `rewritten` in them.
        sizes: of all axes of the diagram.
    """

    diagram: Diagram
    ready: Prepared
    cut: Cut
    rewritten: Sequence[Refactored]
    memo: Memo
    sizes: Mapping[str, int]

    @cached_property
    def kernels(self) -> tuple[PlannedKernel, ...]:
        """The kernels, in the order they run."""
        dtype, machine = self.memo.dtype, self.memo.machine
        pieces = agreeing(self.cut.pieces, dtype)
        return tuple(PlannedKernel(p.choice, p.binding, dtype, machine) for p in pieces)

    def plan(self, kernels: tuple[PlannedKernel, ...]) -> Plan:
        """The plan with these kernels: its own, or with settings that fit."""
        memo, rewritten = self.memo, self.rewritten
        trail = _trail(self.diagram, self.ready, self.cut, kernels, rewritten, memo.bounds)
        number = {k.choice.kernel.part: k.choice.sizes for k in kernels if k.choice.kernel.part}
        return Plan(
            self.diagram,
            memo.machine,
            memo.dtype,
            self.sizes,
            kernels,
            {name: o.axes for name, o in self.cut.materialised.items()},
            trail,
            same_size(rewritten),
            {axis: own[axis] for axis, own in number.items()},
            tuple(dict.fromkeys(b for k in kernels for b in k.choice.kernel.blocks)),
            asked=Asked(deterministic=memo.deterministic),
        )

    @cached_property
    def predicted(self) -> Plan:
        """The plan with its own settings, whether they fit or not."""
        return self.plan(self.kernels)

    def fitted(self) -> Plan:
        """The plan with the best of all settings of its kernels that the compiler finds room for.

        Raises:
            Unfit: a kernel has none.
        """
        found = {id(k.choice): fitting(_best_of_all(k)) for k in distinct(self.kernels)}
        return self.plan(tuple(replace(k, choice=found[id(k.choice)]) for k in self.kernels))


def _best_of_all(k: PlannedKernel) -> PlannedKernel:
    """A kernel with the best of all its settings; a search prices few of them."""
    best = best_tiles(k.choice.kernel, k.choice.sizes, k.dtype, k.machine)
    return replace(k, choice=best or k.choice)


def searched(
    diagram: Diagram,
    known: Mapping[str, int],
    memo: Memo,
    materialise: Sequence[str] | Literal["every"] | None = None,
    multiply_out: bool = False,
) -> Searched:
    """Search for the fastest cut; see `derive`.

    Raises:
        Refusal: no kernel fits the machine.
    """
    found = _searched(diagram, known, memo, materialise, multiply_out)
    assert found is not None
    return found


def _searched(
    diagram: Diagram,
    known: Mapping[str, int],
    memo: Memo,
    materialise: Sequence[str] | Literal["every"] | None = None,
    multiply_out: bool = False,
    under: float = math.inf,
) -> Searched | None:
    """As `searched`; None where no cut takes less than `under` seconds."""
    ready = multiplied_out(prepare(diagram)) if multiply_out else prepare(diagram)
    held = holders(diagram.outputs)
    ready = replace(ready, outputs=tuple(o for o in ready.outputs if held[o.name] == o.name))
    ready = split_windows(exact(ready, memo.dtype, known), known)
    check_stored(ready, memo.machine)
    unfused = materialise == "every"
    own = diagram.names.values()
    at = None if materialise is None or unfused else materialised(ready, materialise, own)
    if (tracer := active()) is not None:
        tracer.began(UNCHANGED, ready)
    rewritten: list[Refactored] = []
    if materialise is None:
        found = fastest(diagram.name, ready, known, memo, rewritten, under)
    else:
        found = cut(diagram.name, ready.outputs, ready.names, known, memo, at=at, unfused=unfused)
        assert found is not None
        check_materialised(ready, found, at or (), known)
    return Searched(diagram, ready, found, rewritten, memo, known) if found else None


def frugal(diagram: Diagram, known: Mapping[str, int], memo: Memo, worth: float = 0.0) -> Searched:
    """Search for the fastest cut that stores no array between kernels that is larger than the
    largest input or output; for the fastest of all where there is none, or where that one takes
    less than `worth` of the time."""
    ends = [(n, n.axes) for n in diagram.inputs] + [(o.node, o.axes) for o in diagram.outputs]
    room = max(array_bytes(n, axes, known, memo.dtype) for n, axes in ends)
    narrow = memo.again(room, memo.effort)
    try:
        small = searched(diagram, known, narrow)
    except Refusal:
        return searched(diagram, known, memo.again(effort=narrow.effort))
    terms = postorder(o.node for o in small.ready.outputs)
    large = [narrow.bytes(n, known) for n in terms if not narrow.has_room(n, known)]
    under = worth * small.cut.seconds
    if not large or at_least(memo.machine, 2 * min(large)) >= under:  # it is stored, and read
        return small
    large = _searched(diagram, known, memo.again(effort=narrow.effort), under=under)
    return large if large is not None and large.cut.seconds < under else small


def _check_parts(
    diagram: Diagram, parts: Mapping[str, int], sizes: Mapping[str, int]
) -> dict[str, int]:
    found = dict[str, int]()
    if not isinstance(parts, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"parts={parts!r} is no dictionary; write parts={{'x': 4}}")
    for axis, number in parts.items():
        check_known(axis, diagram.axes, f"parts: no axis {axis!r}")
        found[axis] = number = whole(number, f"parts: {axis}", 1)
        if number > sizes[axis]:
            raise InputError(
                f"parts: {axis}={number}, but {axis} has {sizes[axis]} values, and at most as many"
                " parts"
            )
    return found


def _check_parted(plan: Plan, parts: Mapping[str, int]) -> None:
    """Refuse parts that no kernel has: they would else be passed over without a word."""
    for axis, number in parts.items():
        if number == 1 or part_axis(axis, number) in plan.parts:
            continue
        streaming = [k.choice.kernel for k in plan.kernels if axis in k.choice.kernel.stream.axes]
        streamed = {a: None for k in plan.kernels for a in k.choice.kernel.stream.axes}
        own = [a for a in streamed if a in plan.diagram.axes and a != axis]
        raise Refusal(
            f"{number} parts of {axis}",
            plan.name,
            next(filter(None, map(why_not_in_parts, streaming)), f"no kernel streams {axis}"),
            f"split a streamed axis ({', '.join(own)})" if own else "leave the parts out",
        )


def _in_type(n: Node) -> str:
    return f" in {own_type(n)}" if own_type(n) else ""


def _trail(
    diagram: Diagram,
    ready: Prepared,
    found: Cut,
    kernels: Sequence[PlannedKernel],
    rewritten: Sequence[Refactored],
    bounds: Sequence[str],
) -> Trail:
    moves = [Move("expand", diagram.name, what) for what in ready.expansions]
    moves += [Move("bound", diagram.name, "the search", note=what) for what in bounds]
    moves += [Move("refactor", diagram.name, r.place, note=r.law) for r in rewritten]
    moves += [
        Move("materialise", diagram.name, f"{name} [{' '.join(o.axes)}]{_in_type(o.node)}")
        for name, o in found.materialised.items()
    ]
    for k in distinct(kernels):
        moves += kernel_moves(k.choice)
    return Trail(tuple(moves))
