"""A plan's kernels run one after another: through Triton's interpreter, on numpy's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.ir.node import Node
from napkin.ir.storage import own_type, storage_type
from napkin.ir.types import STORAGE
from napkin.lower.launch import Launch
from napkin.plan.recipe import Recipe, Step
from napkin.run.arrays import Descriptor, DeviceArray, empty, to_device
from napkin.run.interpret import Argument
from napkin.run.interpret import run as interpret
from napkin.run.warpgroups import run_band

if TYPE_CHECKING:
    from napkin.count.traffic import Direction
    from napkin.plan.plan import Plan

SPELLING = {name: s.format for name, s in STORAGE.items()}
"""Storage types as number formats (`napkin.run.formats`)."""


@dataclass(frozen=True, eq=False)
class Ran:
    """What a run of a plan left behind.

    Attributes:
        tensors: every tensor, by its name in the plan.
        moved: for each kernel, bytes by (the plan's tensor name, direction), as counted.
        described: for each kernel, whether it read boxes through tensor descriptors.
        banded: for each kernel, whether its kernel of warpgroups ran in its place.
    """

    tensors: Mapping[str, DeviceArray]
    moved: tuple[Mapping[tuple[str, Direction], int], ...]
    described: tuple[bool, ...]
    banded: tuple[bool, ...]


def bound_to(name: str, call: Launch, step: Step, tensors: Mapping[str, DeviceArray]) -> Argument:
    """What one run-time argument of a launch is bound to."""
    if name not in call.tensors:
        return call.scalars[name]
    tensor = tensors[step.tensor(name, call)]
    if name not in call.boxes:
        return tensor
    box = call.boxes[name]
    return Descriptor(DeviceArray(tensor.data.transpose(box.order), tensor.dtype), box.sizes)


def run_kernels(
    plan: Plan,
    inputs: Mapping[str, DeviceArray],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    bands: bool = False,
) -> Ran:
    """`run_recipe` of a plan."""
    return run_recipe(plan.recipe, inputs, sizes, scalars, bands)


def run_recipe(
    recipe: Recipe,
    inputs: Mapping[str, DeviceArray],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    bands: bool = False,
) -> Ran:
    """Run every kernel of a plan's recipe in the interpreter; outputs start poisoned.

    Args:
        inputs: the inputs by name, of the storage types of the plan, with any strides.
        sizes: axis sizes; an axis that a kernel holds whole must fit its tile.
        bands: whether kernels of warpgroups run where there are some and descriptors serve them.
    """
    tensors = dict(inputs)
    sizes = recipe.full(sizes)
    for t in recipe.stored:
        tensors[t.name] = empty([sizes[a] for a in t.axes], SPELLING[t.dtype])
    moved: list[Mapping[tuple[str, Direction], int]] = []
    described: list[bool] = []
    banded: list[bool] = []
    for step in recipe.steps:
        strides = {t: tensors[t].strides for t in step.binding.values()}
        band = step.in_band(sizes, scalars, strides) if bands else None
        call = band or step.launch(sizes, scalars, strides)
        counted: dict[tuple[str, Direction], int] = {}
        if call.grid:
            args = [bound_to(a, call, step, tensors) for a in call.order]
            name, grid = step.entry.name, (call.grid,)
            if band is not None:
                traffic = run_band(recipe.warpgroups, name, call.grid, args, call.constexprs)
            else:
                traffic = interpret(recipe.source, name, grid, args, call.constexprs)
            for argument in call.tensors:
                key = step.tensor(argument, call)
                both: dict[Direction, int] = {
                    "read": traffic.read(argument),
                    "write": traffic.written(argument),
                }
                for direction, count in both.items():
                    if count:
                        counted[key, direction] = counted.get((key, direction), 0) + count
        moved.append(counted)
        described.append(bool(call.boxes))
        banded.append(band is not None)
    return Ran(tensors, tuple(moved), tuple(described), tuple(banded))


@lru_cache(maxsize=64)
def _plan_at(
    diagram: Diagram, machine: Any, sizes: tuple[tuple[str, int], ...], dtype: str
) -> Plan:
    from napkin.plan.derive import derive

    return derive(diagram, machine, dict(sizes), dtype)


def plan_for(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """The plan for other sizes (itself, for its own); derived once per sizes."""
    if all(plan.sizes[a] == n for a, n in sizes.items()):
        return plan
    at_least_one = tuple((a, max(1, n)) for a, n in sizes.items())
    return _plan_at(plan.diagram, plan.machine, at_least_one, plan.dtype)


def run(plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Any:
    """The results of a plan on numpy arrays or CPU tensors, through the interpreter."""
    diagram = plan.diagram
    for a, n in zip(arrays, diagram.inputs, strict=False):
        if hasattr(a, "detach") and a.device.type not in {"cpu", "meta"}:
            raise InputError(f"{n.params[0]} is on {a.device}; this call runs on the CPU")
    numbers = diagram.read(arrays)
    sizes = diagram.sizes_of([a.shape for a in numbers])
    values = diagram.check_scalars(scalars)
    chosen = plan_for(plan, sizes)
    inputs = {
        str(n.params[0]): to_device(a, SPELLING[storage_type(n, plan.dtype)])
        for a, n in zip(numbers, diagram.inputs, strict=True)
    }
    ran = run_kernels(chosen, inputs, sizes, values)
    out = tuple(
        _given_back(ran.tensors[chosen.tensor_of[o.name]], o.node, plan, arrays)
        for o in diagram.outputs
    )
    return out[0] if len(out) == 1 else out


def _given_back(stored: DeviceArray, n: Node, plan: Plan, arrays: Sequence[Any]) -> Any:
    """The output `n` as an array of the kind that came in: numpy, or torch with the dtype of the
    inputs that have the plan's type, or the one that it is cast to."""
    value = stored.to_float64()
    if n.kind != "real":
        value = value.astype(np.int64 if n.kind == "int" else np.bool_)
    tensors = [a for a in arrays if hasattr(a, "detach")]
    if not tensors:
        return value
    torch = import_module("torch")
    dtype = getattr(torch, STORAGE[storage_type(n, plan.dtype)].torch)
    if n.kind == "real" and not own_type(n):
        plain = [a for a, i in zip(arrays, plan.diagram.inputs, strict=True) if not own_type(i)]
        known = (a.dtype for a in plain if hasattr(a, "detach") and a.is_floating_point())
        dtype = next(known, dtype)
    return torch.from_numpy(value).to(dtype)
