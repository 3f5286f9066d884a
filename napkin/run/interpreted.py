"""A recipe's kernels run one after another: through Triton's interpreter, on numpy's memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from napkin.diagram.diagram import Diagram
from napkin.ir.storage import storage_type
from napkin.ir.types import STORAGE
from napkin.lower.launch import Launch
from napkin.run.arrays import Descriptor, DeviceArray, empty, to_device
from napkin.run.interpret import Argument, Traffic
from napkin.run.interpret import run as interpret
from napkin.run.recipe import Recipe, Step
from napkin.run.warpgroups import run_cta

SPELLING = {name: s.format for name, s in STORAGE.items()}
"""Storage types as number formats (`napkin.run.formats`)."""


@dataclass(frozen=True, eq=False)
class Ran:
    """What a run of a plan left behind.

    Attributes:
        tensors: every tensor, by its name in the plan.
        moved: for each kernel, bytes by (the plan's tensor name, direction), as counted.
        described: for each kernel, whether it read boxes through tensor descriptors.
        specialised: for each kernel, whether its kernel of warpgroups ran in its place.
    """

    tensors: Mapping[str, DeviceArray]
    moved: tuple[Traffic, ...]
    described: tuple[bool, ...]
    specialised: tuple[bool, ...]


def _bound_to(name: str, call: Launch, step: Step, tensors: Mapping[str, DeviceArray]) -> Argument:
    """What one run-time argument of a launch is bound to."""
    if name not in call.tensors:
        return call.scalars[name]
    tensor = tensors[step.tensor(name, call)]
    if name not in call.boxes:
        return tensor
    box = call.boxes[name]
    return Descriptor(DeviceArray(tensor.data.transpose(box.order), tensor.dtype), box.sizes)


def stored(diagram: Diagram, numbers: Sequence[np.ndarray], dtype: str) -> dict[str, DeviceArray]:
    """The inputs of a diagram by name, rounded to the storage types of a plan with `dtype`."""
    return {
        str(n.params[0]): to_device(a, SPELLING[storage_type(n, dtype)])
        for n, a in zip(diagram.inputs, numbers, strict=True)
    }


def run_recipe(
    recipe: Recipe,
    inputs: Mapping[str, DeviceArray],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    warpgroups: bool = False,
) -> Ran:
    """Run every kernel of a recipe in the interpreter; outputs start poisoned.

    Args:
        inputs: the inputs by name, of the storage types of the plan, with any strides.
        sizes: axis sizes; an axis that a kernel holds whole must fit its tile.
        warpgroups: whether kernels of warpgroups run where there are some and descriptors serve
            them.
    """
    tensors = dict(inputs)
    sizes = recipe.full(sizes)
    for t in recipe.stored:
        tensors[t.name] = empty([sizes[a] for a in t.axes], SPELLING[t.dtype])
    moved: list[Traffic] = []
    described: list[bool] = []
    specialised: list[bool] = []
    for step in recipe.steps:
        strides = {t: tensors[t].strides for t in step.binding.values()}
        cta = step.launch_specialised(sizes, scalars, strides) if warpgroups else None
        call = cta or step.launch(sizes, scalars, strides)
        counted = Traffic()
        for name in step.added:
            tensors[name].data[...] = 0
            counted[name, "write"] += tensors[name].data.nbytes
        if call.grid:
            args = [_bound_to(a, call, step, tensors) for a in call.order]
            name = step.entry.name
            if cta is not None:
                traffic = run_cta(recipe.warpgroups, name, call.grid, args, call.constexprs)
            else:
                traffic = interpret(recipe.source, name, (call.grid,), args, call.constexprs)
            for (argument, direction), count in traffic.items():
                counted[step.tensor(argument, call), direction] += count
        moved.append(+counted)
        described.append(bool(call.boxes))
        specialised.append(cta is not None)
    return Ran(tensors, tuple(moved), tuple(described), tuple(specialised))
