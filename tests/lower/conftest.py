"""What tests of kernels of warpgroups share: one run of a band on the CPU."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from napkin.check.arrays import Descriptor, DeviceArray, empty, to_device
from napkin.check.warpgroups import run_band
from napkin.diagram.diagram import Diagram
from napkin.lower.launch import launch
from napkin.lower.warpgroups.band import Band
from napkin.lower.warpgroups.gluon import imports
from napkin.lower.warpgroups.write import write_band
from napkin.plan.plan import PlannedKernel

Ran = tuple[list[np.ndarray], list[np.ndarray], dict[tuple[str, str], int]]


@pytest.fixture
def ran() -> Callable[..., Ran]:
    return _ran


def _ran(
    k: PlannedKernel, band: Band, diagram: Diagram, sizes: Mapping[str, int], text: str = ""
) -> Ran:
    """What a band leaves, what it should, and the bytes that it moves."""
    rng = np.random.default_rng(3)
    tensors: dict[str, DeviceArray] = {}
    for n in diagram.inputs:
        values = rng.normal(size=[sizes[a] for a in n.axes])
        tensors[str(n.params[0])] = to_device(values, "bf16")
    wanted = diagram.evaluate(*(a.to_float64() for a in tensors.values()))
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    for o in diagram.outputs:
        form = "fp32" if o.node.op == "cast" else "bf16"
        tensors[o.name] = empty([sizes[a] for a in o.axes], form)
    written = write_band(band)
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
    moved = run_band(source, written.name, call.grid, args, call.constexprs)
    found = [tensors[o.name].to_float64() for o in diagram.outputs]
    names = {(k.binding[call.tensors[a]], way): n for (a, way), n in moved.bytes.items()}
    return found, wanted, names
