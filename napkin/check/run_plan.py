"""A plan called with numpy arrays or CPU tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, Refusal
from napkin.ir.node import Node
from napkin.ir.storage import own_type, storage_type
from napkin.ir.types import STORAGE
from napkin.run.arrays import DeviceArray
from napkin.run.interpreted import run_recipe, stored

if TYPE_CHECKING:
    from napkin.plan.plan import Asked, Plan


@lru_cache(maxsize=64)
def _plan_at(
    diagram: Diagram, machine: Any, sizes: tuple[tuple[str, int], ...], dtype: str, asked: Asked
) -> Plan:
    from napkin.plan.derive import derive

    return derive(diagram, machine, dict(sizes), dtype, **asked.at(dict(sizes)))


def plan_for(plan: Plan, sizes: Mapping[str, int]) -> Plan:
    """The plan for other sizes (itself, for its own); derived once per sizes. Where no kernels at
    these sizes store the arrays or have the parts that were asked for, it is the plan itself."""
    if all(plan.sizes[a] == n for a, n in sizes.items()):
        return plan
    from napkin.plan.samples import even_pairs

    at_least_one = even_pairs(plan.diagram, {a: max(1, n) for a, n in sizes.items()})
    known = tuple(at_least_one.items())
    try:
        return _plan_at(plan.diagram, plan.machine, known, plan.dtype, plan.asked)
    except Refusal:
        if plan.asked.materialise is None and not plan.asked.parts:
            raise
        return plan


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
    ran = run_recipe(chosen.recipe, stored(diagram, numbers, plan.dtype), sizes, values)
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
