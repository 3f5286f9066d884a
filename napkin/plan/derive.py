"""`nk.derive`: from a diagram and a machine to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Literal

from napkin.cost.machines import Machine, machine
from napkin.derive.derivation import divisions, separations
from napkin.derive.prepare import Prepared, prepare
from napkin.derive.refactor import Refactored, refactorings
from napkin.derive.trail import Move, Trail
from napkin.diagram.diagram import Diagram
from napkin.diagram.node import Node, postorder
from napkin.diagram.storage import STORED, own_type, unstorable
from napkin.errors import InputError, Refusal, did_you_mean
from napkin.plan.alike import Alike
from napkin.plan.cut import Cut, cut
from napkin.plan.plan import Plan, PlannedKernel
from napkin.plan.pricing import Choice


def derive(
    diagram: Diagram,
    on: str | Machine = "h100",
    sizes: Mapping[str, int] | None = None,
    dtype: str = "bf16",
    *,
    materialise: Sequence[str] | Literal["every"] | None = None,
    parts: Mapping[str, int] | None = None,
    tuned: bool = False,
) -> Plan:
    """Derive how to run a diagram on a machine.

    Args:
        on: a machine, its name, or a machine file.
        sizes: axis sizes; those not given come from the diagram's defaults.
        dtype: storage type of real tensors, but of those that a cast stores in another: bf16,
            fp16 or fp32.
        materialise: names of arrays to store between kernels, and no others; by default those
            that make the whole fastest. "every": what each reduction hands on, so that it is a
            kernel of its own with the pointwise terms that come with it.
        parts: the number of parts of an axis wherever a kernel streams it, each folded by groups
            of its own and then merged (1: none); by default what is fastest.
        tuned: take the settings that were the fastest of those measured on this machine's device,
            where `napkin derive --tune` remembered some (see `napkin.plan.tuned`).

    Raises:
        InputError: a size, a dtype, a machine or an array is not known, or an output is cast to a
            type that kernels do not store.
        Refusal: no kernel fits the machine.
    """
    place = on if isinstance(on, Machine) else machine(on)
    if dtype not in STORED:
        raise InputError(f"dtype {dtype!r}: kernels store {', '.join(STORED)}")
    known = diagram.check_sizes(sizes or {})
    ready, alike = prepare(diagram), Alike(dtype, place, parts)
    _check_parts(diagram, parts or {})
    _check_stored(ready)
    apart = materialise == "every"
    at = None if materialise is None or apart else [_named(ready, name) for name in materialise]
    found = cut(diagram.name, ready.outputs, ready.names, known, alike, at=at, apart=apart)
    turned: Refactored | None = None
    for other in refactorings(ready.outputs, ready.names) if materialise is None else ():
        sized = {**known, **{new: known[old] for new, old in other.same_size.items()}}
        try:
            instead = cut(diagram.name, other.outputs, other.names, sized, alike)
        except Refusal:
            continue
        if instead.seconds < found.seconds:
            found, turned = instead, other
    kernels = tuple(PlannedKernel(p.choice, p.binding, dtype, place) for p in found.pieces)
    stored = {name: n.axes for name, n in found.materialised.items()}
    trail = _trail(diagram, ready, found, turned)
    same_size = turned.same_size if turned else {}
    number = {k.choice.kernel.part: k.choice.sizes for k in kernels if k.choice.kernel.part}
    cut_in = {axis: sizes[axis] for axis, sizes in number.items()}
    plan = Plan(diagram, place, dtype, known, kernels, stored, trail, same_size, cut_in)
    return import_module("napkin.plan.tuned").remembered(plan) if tuned else plan


def _check_parts(diagram: Diagram, parts: Mapping[str, int]) -> None:
    for axis, number in parts.items():
        if axis not in diagram.axes:
            raise InputError(f"parts: no axis {axis!r}; {did_you_mean(axis, diagram.axes)}")
        if number < 1:
            raise InputError(f"parts: {axis}={number}, but an axis has at least 1 part")


def _check_stored(ready: Prepared) -> None:
    for o in ready.outputs:
        asked = unstorable(o.node)
        if asked:
            store, instead = (STORED, "fp32") if o.node.kind == "real" else (("int32",), "int32")
            raise InputError(
                f"output {o.name} is cast to {asked}: kernels store {', '.join(store)}; "
                f"write nk.cast(..., {instead!r})"
            )


def _named(ready: Prepared, name: str) -> Node:
    order = postorder(o.node for o in ready.outputs)
    arrays = {ready.names[n]: n for n in order if n in ready.names}
    if name not in arrays:
        raise InputError(f"materialise {name!r}: no such array; {did_you_mean(name, arrays)}")
    return arrays[name]


def _in_type(n: Node) -> str:
    return f" in {own_type(n)}" if own_type(n) else ""


def _trail(diagram: Diagram, ready: Prepared, found: Cut, turned: Refactored | None) -> Trail:
    moves = [Move("expand", diagram.name, what) for what in ready.expansions]
    if turned is not None:
        moves.append(Move("refactor", diagram.name, turned.place, note=turned.law))
    moves += [
        Move("materialise", diagram.name, f"{name} [{' '.join(n.axes)}]{_in_type(n)}")
        for name, n in found.materialised.items()
    ]
    seen: set[int] = set()
    for piece in found.pieces:
        choice = piece.choice
        if id(choice) in seen:
            continue
        seen.add(id(choice))
        moves += kernel_moves(choice)
    return Trail(tuple(moves))


def kernel_moves(choice: Choice) -> list[Move]:
    """The moves that label a kernel and tile it."""
    kernel = choice.kernel
    moves = list(divisions(kernel))
    axis = kernel.stream.axis
    if axis and not kernel.merges:
        passes = len(kernel.stream.passes)
        moves.append(Move("stream", kernel.name, axis, None if passes == 1 else passes))
        moves += separations(kernel)
    if kernel.part:
        moves.append(Move("part", kernel.name, axis, choice.sizes[kernel.part]))
    if kernel.merges:
        moves.append(Move("merge", kernel.name, axis))
    groups = [a for a in kernel.group if a != kernel.part]
    moves += [Move("group", kernel.name, a) for a in groups]
    tiled = (*groups, *(kernel.stream.axes if not kernel.merges else ()))
    moves += [Move("tile", kernel.name, a, choice.tiles[a]) for a in tiled]
    return moves
