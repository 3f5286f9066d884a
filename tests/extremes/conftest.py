"""One diagram computed in every way that napkin has, on the same numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.check.arrays import to_device
from napkin.check.interpret import run as interpret
from napkin.check.running import SPELLING, launch_of
from napkin.cost.traffic import item_dtype
from napkin.derive.kernel import Kernel
from napkin.derive.law import folded, ranges
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.diagram.evaluate import aligned
from napkin.lower.execute import execute
from napkin.lower.launch import launch
from napkin.lower.program import build
from napkin.lower.write import write
from napkin.plan.choose import labellings, power_of_two, storage

Array = np.ndarray[Any, Any]
HEADER = "import triton\nimport triton.language as tl\n\n\n"


def labelled(diagram: Diagram, sizes: dict[str, int]) -> Iterator[Kernel]:
    """Every labelling of a diagram as one kernel: each axis streamed, and none."""
    ready = prepare(diagram)
    yield from labellings(diagram.name, ready.outputs, ready.names, sizes)


def in_kernel(
    kernel: Kernel, arrays: dict[str, Any], sizes: dict[str, int], scalars: dict[str, float], dtype: str, chunk: int
) -> dict[str, Array]:
    """The kernel's outputs from the interpreter, with chunks of `chunk` and groups of 2."""
    tiles = {a: power_of_two(max(sizes[a], 2)) for a in kernel.whole}
    tiles |= {a: 2 for a in kernel.group} | {kernel.stream.axis: chunk}
    tiles.pop("", None)
    written = write(program := build(kernel, tiles))
    types = storage(kernel, dtype)
    tensors = {
        t: to_device(
            arrays[t] if t in arrays else np.full([sizes[a] for a in outputs[t].axes], np.nan),
            SPELLING[types[t]],
        )
        for outputs in [{o.name: o for o in kernel.outputs}]
        for t in types
    }
    call = launch(program, written, sizes, scalars, {t: a.strides for t, a in tensors.items()})
    args = [tensors[call.tensors[a]] if a in call.tensors else call.scalars[a] for a in call.order]
    if call.grid:
        interpret(HEADER + written.source, written.name, (call.grid,), args, call.constexprs)
    return {o.name: tensors[o.name].to_float64() for o in kernel.outputs}


def in_folds(
    kernel: Kernel, arrays: dict[str, Any], sizes: dict[str, int], scalars: dict[str, float], lengths: list[int]
) -> dict[str, Array]:
    """The kernel's outputs from its fold, the streamed axis cut into chunks of these lengths."""
    bind = {a.leaf: arrays[a.tensor] for a in kernel.reads}
    found = folded(kernel.stream, bind, sizes, ranges(lengths), scalars)[1]
    stored = {e.output: e.node for p in kernel.stream.passes for e in p.emits}
    stored |= {e.output: e.node for e in kernel.stream.tails}
    return {
        o.name: np.broadcast_to(
            aligned(found[o.name], stored[o.name].axes, o.axes), [sizes[a] for a in o.axes]
        )
        for o in kernel.outputs
    }
