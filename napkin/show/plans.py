"""A plan as it is read: the derivation as a tree, then what each kernel costs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

from napkin.algebra.relabel import Move
from napkin.bound.optimum import Term
from napkin.moves.trail import Trail
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.show.console import RenderableType, pairs
from napkin.show.words import sizes_text

if TYPE_CHECKING:
    from rich.tree import Tree


def heading(plan: Plan) -> str:
    """What is planned, where, in which type and at which sizes."""
    said = [f"{plan.name} on {plan.machine.name}", plan.dtype, sizes_text(plan.sizes)]
    return ", ".join(filter(None, said))


def plan_view(plan: Plan) -> list[RenderableType]:
    """The derivation and the costs of a plan."""
    tables = [pairs(kernel_title(k), _rows(k)) for k in plan.kernels]
    tables += [pairs(kernel_title(k), _specialised_rows(k)) for k in distinct(plan.of_warpgroups)]
    return [trail_tree(plan.trail, heading(plan)), "", *tables, total_time(plan), *plan.notes]


def kernel_title(k: PlannedKernel) -> str:
    """A kernel by its name, and by its warpgroups where it has such."""
    return f"kernel {k.name}, {k.schedule.side}" if k.schedule.warpgroups else f"kernel {k.name}"


def total_time(plan: Plan) -> str:
    """The predicted time of a plan in a line."""
    total = f"predicted time {plan.seconds * 1e6:,.1f} us"
    return f"{total}, of {len(plan.kernels)} kernels" if len(plan.kernels) > 1 else total


def trail_tree(trail: Trail, title: str) -> Tree:
    """Kernels, their moves, and under each stream the separations that make it legal."""
    from rich.tree import Tree

    root = Tree(title)
    for kernel, moves in groupby(trail, key=lambda move: move.kernel):
        branch = stem = root.add(kernel)
        for move in moves:
            if move.rule == "separate":
                stem.add(str(move))
                continue
            leaf = branch.add(_words(move))
            if move.rule == "stream":
                stem = leaf
    return root


def _words(move: Move) -> str:
    if move.rule == "stream" and move.value:
        return f"stream {move.argument} in {move.value} passes"
    return str(move)


def _specialised_rows(k: PlannedKernel) -> Iterable[tuple[str, str]]:
    yield "H", f"{sum(k.bytes.values()):,} bytes"
    yield from _settings(k)


def _rows(k: PlannedKernel) -> Iterable[tuple[str, str]]:
    moved: dict[str, int] = {}
    for (tensor, _), count in k.bytes.items():
        moved[tensor] = moved.get(tensor, 0) + count
    yield "H", f"{k.H.total} values = {sum(moved.values()):,} bytes"
    for tensor, count in moved.items():
        yield f"  {_called(k, tensor)}", f"{k.H.per_tensor[tensor]} values = {count:,} bytes"
    yield "M", f"{k.M} values"
    yield "bound", str(k.bound)
    yield "terms", "; ".join(term_text(t) for t in k.terms)
    yield "operations", str(k.flops)
    yield from _settings(k)


def _settings(k: PlannedKernel) -> Iterable[tuple[str, str]]:
    yield "tiles", sizes_text(k.tiles)
    yield "launch", k.schedule.words
    limit = k.machine.shared_per_block
    yield "shared memory", f"about {k.shared_bytes:,} of {limit:,} bytes"
    yield "time", f"{k.choice.time.seconds * 1e6:,.1f} us"
    yield "limited by", k.choice.time.limited_by


def term_text(t: Term) -> str:
    """`alpha * M**-beta`, its parts kept apart."""
    return f"{t.alpha}, times M**(-{t.beta})" if t.beta else str(t.alpha)


def _called(k: PlannedKernel, tensor: str) -> str:
    """The kernel's name of a tensor, with the plan's where that is another."""
    ours = k.binding.get(tensor, tensor)
    return tensor if ours == tensor else f"{tensor} ({ours})"
