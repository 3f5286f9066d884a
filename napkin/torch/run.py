"""Launch a plan's kernels on CUDA tensors."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from napkin.check.running import TORCH_NAMES, launch_of, outputs_of, plan_for
from napkin.diagram.node import Node
from napkin.diagram.storage import storage_type
from napkin.errors import InputError
from napkin.lower.descriptors import MIN_CAPABILITY
from napkin.lower.launch import Launch
from napkin.plan.plan import Plan, PlannedKernel

DTYPES = {ours: getattr(torch, theirs) for ours, theirs in TORCH_NAMES.items()}


@lru_cache(maxsize=256)
def module_of(source: str) -> ModuleType:
    """The kernel file imported as a module; Triton reads a kernel's text from its file."""
    digest = hashlib.sha256(source.encode()).hexdigest()[:16]
    root = Path(tempfile.gettempdir()) / f"napkin-{os.getuid()}"
    root.mkdir(mode=0o700, exist_ok=True)
    path = root / f"kernel_{digest}.py"
    if not path.exists() or path.read_text() != source:
        with tempfile.NamedTemporaryFile("w", dir=root, delete=False) as part:
            part.write(source)
        os.replace(part.name, path)
    name = f"napkin_kernel_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def run(plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Any:
    """`plan(Q, K, V)` on CUDA tensors: outputs in their storage types, on their device.

    Raises:
        InputError: tensors on several devices, or of another storage type than the plan's.
    """
    chosen, tensors, calls = prepared(plan, arrays, scalars)
    for call in calls:
        call()
    found = tuple(tensors[chosen.tensor_of[o.name]] for o in plan.diagram.outputs)
    return found[0] if len(found) == 1 else found


def bound_call(
    plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]
) -> Callable[[], None]:
    """A function that launches the kernels on these tensors, with nothing left to work out."""
    _, _, calls = prepared(plan, arrays, scalars)

    def again() -> None:
        for call in calls:
            call()

    return again


def prepared(
    plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float], as_is: bool = False
) -> tuple[Plan, dict[str, torch.Tensor], list[Callable[[], Any]]]:
    """The plan for these shapes (`plan` itself if `as_is`), all tensors, the launches in order."""
    diagram = plan.diagram
    sizes = diagram.sizes_of([tuple(a.shape) for a in arrays])
    values = diagram.check_scalars(scalars)
    chosen = plan if as_is else plan_for(plan, sizes)
    devices = {a.device for a in arrays}
    if len(devices) > 1:
        raise InputError(f"{plan.name}: tensors are on {', '.join(map(str, devices))}; use one")
    tensors = {
        str(n.params[0]): _stored(a, n, plan) for a, n in zip(arrays, diagram.inputs, strict=True)
    }
    device = devices.pop()
    sizes = chosen.full(sizes)
    for name, axes, dtype in outputs_of(chosen):
        shape = [sizes[a] for a in axes]
        tensors[name] = torch.empty(shape, dtype=DTYPES[dtype], device=device)
    return chosen, tensors, list(_launches(chosen, tensors, sizes, values, device))


def _stored(a: Any, n: Node, plan: Plan) -> torch.Tensor:
    wanted = DTYPES[storage_type(n, plan.dtype)]
    if n.kind == "int" and (a.is_floating_point() or a.is_complex()):
        raise InputError(f"{plan.name}: {n.params[0]} holds whole numbers, but is {a.dtype}")
    if a.dtype != wanted and n.kind == "real":
        raise InputError(
            f"{plan.name}: {n.params[0]} is {a.dtype}, but the plan stores {plan.dtype}; "
            "derive with the tensors' dtype, or convert them"
        )
    return a.to(wanted)


def _launches(
    plan: Plan,
    tensors: Mapping[str, torch.Tensor],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    device: torch.device,
) -> Iterator[Callable[[], Any]]:
    module = module_of(plan.source)
    for k in plan.kernels:
        strides = {t: tensors[t].stride() for t in k.binding.values()}
        call = launch_of(k, sizes, scalars, strides, _describable(tensors, device))
        if not call.grid:
            continue
        args = [_argument(a, call, k, tensors) for a in call.order]
        kernel = getattr(module, k.name)[(call.grid,)]
        settings = {"num_warps": k.choice.warps, "num_stages": k.choice.stages}
        yield partial(_launch, device, kernel, args, {**call.constexprs, **settings})


def _describable(tensors: Mapping[str, torch.Tensor], device: torch.device) -> bool:
    """Whether the device reads boxes through tensor descriptors, and these tensors begin where
    one may."""
    capability = 10 * torch.cuda.get_device_capability(device)[0]
    return capability >= MIN_CAPABILITY and all(t.data_ptr() % 16 == 0 for t in tensors.values())


def _argument(
    name: str, call: Launch, k: PlannedKernel, tensors: Mapping[str, torch.Tensor]
) -> Any:
    if name not in call.tensors:
        return call.scalars[name]
    tensor = tensors[k.binding[call.tensors[name]]]
    if name not in call.boxes:
        return tensor
    shape, strides = list(tensor.shape), list(tensor.stride())
    return TensorDescriptor(tensor, shape, strides, list(call.boxes[name]))


def _launch(
    device: torch.device, kernel: Any, args: Sequence[Any], named: Mapping[str, Any]
) -> None:
    with torch.cuda.device(device):
        kernel(*args, **named)
