"""What tests share: one run of a warp-specialised CTA on the CPU, and plans with labels and tiles
as asked."""

from collections.abc import Callable, Collection, Mapping
from typing import Any, cast

import numpy as np
import pytest

from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.storage import own_type
from napkin.ir.types import STORAGE
from napkin.lower.launch import launch
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.gluon import imports
from napkin.lower.warpgroups.write_gluon import write_cta
from napkin.machine.machines import machine
from napkin.moves.trail import Trail
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.run.arrays import Descriptor, DeviceArray, empty, to_device
from napkin.run.warpgroups import run_cta
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.tiles import power_of_two

Ran = tuple[list[np.ndarray], list[np.ndarray], dict[tuple[str, str], int]]


@pytest.fixture
def forced() -> Callable[..., Plan]:
    return _forced


@pytest.fixture
def ran() -> Callable[..., Ran]:
    return _ran


def _ran(
    k: PlannedKernel,
    cta: SpecialisedCta,
    diagram: Diagram,
    sizes: Mapping[str, int],
    text: str = "",
) -> Ran:
    """What a warp-specialised CTA leaves, what it should, and the bytes that it moves."""
    rng = np.random.default_rng(3)
    tensors: dict[str, DeviceArray] = {}
    for n in diagram.inputs:
        values = rng.normal(size=[sizes[a] for a in n.axes])
        type_ = own_type(n) or "bf16"
        if n.kind == "int":
            values, type_ = np.floor(99 * abs(values)), own_type(n) or "int32"
        tensors[str(n.params[0])] = to_device(values, STORAGE[type_].format)
    wanted = diagram.evaluate(*(a.to_float64() for a in tensors.values()))
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for o in diagram.outputs:
        form = "fp32" if o.node.op == "cast" else "bf16"
        tensors[o.name] = empty([sizes[a] for a in o.axes], form)
    written = write_cta(cta)
    strides = {t: tensors[ours].strides for t, ours in k.binding.items()}
    call = launch(written.entry, sizes, {}, strides)
    assert call.boxes
    args: list[Any] = []
    for a in call.order:
        if a not in call.tensors:
            args.append(call.scalars[a])
            continue
        array = tensors[k.binding[call.tensors[a]]]
        if box := call.boxes.get(a):
            turned = DeviceArray(array.data.transpose(box.order), array.dtype)
            args.append(Descriptor(turned, box.sizes))
        else:
            args.append(array)
    source = text or f"{imports(written.source)}\n\n{written.source}"
    moved = run_cta(source, written.entry.name, call.grid, args, call.constexprs)
    found = [tensors[o.name].to_float64() for o in diagram.outputs]
    names = {(k.binding[call.tensors[a]], way): n for (a, way), n in moved.items()}
    return found, wanted, names


UNPRICED = cast(Any, None)
"""What nobody asks of a setting that no search has found."""


def _forced(
    diagram: Diagram,
    sizes: Mapping[str, int],
    streamed: str = "",
    tiles: Mapping[str, int] | None = None,
    passes: int = 3,
    group: Collection[str] | None = None,
) -> Plan:
    """The plan of one kernel that streams what is asked, in chunks of 4 where `tiles` says nothing
    else, with groups of 2, along every axis or those of `group`."""
    ready, place = prepare(diagram), machine("h100")
    kernel = label(
        diagram.name, ready.outputs, ready.names, streamed=streamed, passes=passes, group=group
    )
    own = {a: max(2, power_of_two(sizes[a])) for a in kernel.axes}
    own |= dict.fromkeys(kernel.stream.axes, 4) | dict.fromkeys(kernel.group, 2)
    own |= tiles or {}
    choice = Choice(kernel, Schedule(own, per_thread=True), dict(sizes), 0, UNPRICED, 0, UNPRICED)
    planned = PlannedKernel(choice, {t: t for t in kernel.tensors}, "fp32", place)
    return Plan(diagram, place, "fp32", sizes, (planned,), {}, Trail(()), specialised=False)
