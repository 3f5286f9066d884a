"""Launch a plan's kernels on CUDA tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from napkin.check.run_plan import plan_for
from napkin.errors import InputError
from napkin.ir.storage import own_type
from napkin.plan.plan import Plan
from napkin.run.prepared import OnCuda, Prepared, facts, prepare
from napkin.torch.dtypes import logical_shapes, plan_type
from napkin.torch.given import beside_tensors
from napkin.torch.ready_tables import remember

if TYPE_CHECKING:
    import torch

_WARM: WeakKeyDictionary[Plan, dict[Any, Prepared]] = WeakKeyDictionary()


def run(plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Any:
    """`plan(Q, K, V)` on CUDA tensors: outputs in the plan's storage types, on their device.

    Raises:
        InputError: tensors on several devices, or of another storage type than the plan's.
    """
    table = _WARM.setdefault(plan, {})
    key = (
        tuple(scalars),
        beside_tensors(tuple(scalars.values())),
        *(facts(a) if hasattr(a, "data_ptr") else type(a) for a in arrays),
    )
    found = table.get(key)
    if found is None:
        found = remember(table, key, prepared(plan, arrays, scalars))
    out = found(arrays)
    return out[0] if len(out) == 1 else tuple(out)


def bound_call(
    plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]
) -> Callable[[], None]:
    """A function that launches the kernels on these tensors, into the same outputs each time."""
    found = prepared(plan, arrays, scalars)
    if not isinstance(found, OnCuda):
        raise InputError(f"{plan.name}: bound_call times kernels on a GPU; give it CUDA tensors")
    return found.again(arrays)


def opened(
    plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float], as_is: bool = False
) -> tuple[Plan, dict[str, torch.Tensor], list[Callable[[], Any]]]:
    """What a plan does to CUDA tensors, laid open: the plan for these shapes (`plan` itself if
    `as_is`), every tensor by its name in it, and the launches in order, for the device that is
    current."""
    chosen, found = _prepared(plan, arrays, scalars, as_is=as_is)
    if not isinstance(found, OnCuda):
        raise InputError(f"{plan.name}: its kernels are launched on a GPU; give it CUDA tensors")
    tensors = found.tensors(arrays)
    names = [*plan.diagram.input_names, *(t.name for t in chosen.recipe.stored)]
    return chosen, dict(zip(names, tensors, strict=True)), found.on(tensors)


def prepared(plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Prepared:
    """What runs the plan for these shapes."""
    return _prepared(plan, arrays, scalars)[1]


def _prepared(
    plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float], *, as_is: bool = False
) -> tuple[Plan, Prepared]:
    diagram = plan.diagram
    sizes = diagram.sizes_of(logical_shapes(diagram, arrays))
    values = diagram.check_scalars(scalars)
    dtype = plan_type(diagram, arrays)
    if dtype != plan.dtype and any(n.kind == "real" and not own_type(n) for n in diagram.inputs):
        raise InputError(
            f"{plan.name}: the tensors are {dtype}, but the plan stores {plan.dtype}; derive with "
            "the tensors' dtype, or convert them"
        )
    chosen = plan if as_is else plan_for(plan, sizes)
    found = prepare(diagram, chosen.recipe, arrays, sizes, values, plan.dtype)
    specialised = isinstance(found, OnCuda) and found.specialised
    return chosen.launched if specialised else chosen, found
