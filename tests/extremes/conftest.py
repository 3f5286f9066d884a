"""A diagram computed in every way that napkin has, on the same numbers."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.algebra.law import folded, ranges
from napkin.derive.kernel import Kernel
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.evaluate import aligned
from napkin.lower.build import build
from napkin.lower.launch import Launch, launch
from napkin.lower.parameters import Written
from napkin.lower.program import Program
from napkin.lower.write import write
from napkin.plan.plan import Plan
from napkin.run.arrays import DeviceArray, empty, to_device
from napkin.run.interpret import run as interpret
from napkin.run.interpreted import SPELLING
from napkin.schedule import Schedule
from napkin.settings.labelled import storage
from napkin.settings.labels import labellings
from napkin.settings.tiles import power_of_two

Array = np.ndarray[Any, Any]
Sizes = tuple[tuple[str, int], ...]
TOLERANCE = {"fp32": 2e-5, "bf16": 2e-2}
HEADER = "import triton\nimport triton.language as tl\n\n\n"


@lru_cache
def kernels(diagram: Diagram, sizes: Sizes) -> tuple[Kernel, ...]:
    """Every labelling of a diagram as one kernel: each axis streamed, and none."""
    ready = prepare(diagram)
    at = {a: max(n, 1) for a, n in sizes}
    return tuple(labellings(diagram.name, ready.outputs, ready.names, at))


@lru_cache
def plan_of(diagram: Diagram, sizes: Sizes, dtype: str) -> Plan:
    """The plan for these sizes, an empty axis taken for one of size 1."""
    return nk.derive(diagram, sizes={a: max(n, 1) for a, n in sizes}, dtype=dtype)


@lru_cache
def written(kernel: Kernel, sizes: Sizes, chunk: int) -> tuple[Program, Written]:
    """A kernel's source, in groups of 4 and chunks of `chunk`."""
    whole = {a: power_of_two(max(n, 2)) for a, n in sizes if a in kernel.whole}
    streamed = {kernel.stream.axis: chunk} if kernel.stream.axis else {}
    tiles = {**whole, **dict.fromkeys(kernel.group, 4), **streamed}
    program = build(kernel, Schedule(tiles))
    return program, write(program)


def run_kernel(source: str, name: str, call: Launch, tensors: dict[str, DeviceArray]) -> None:
    """One launch in the interpreter."""
    args = [tensors[call.tensors[a]] if a in call.tensors else call.scalars[a] for a in call.order]
    if call.grid:
        interpret(HEADER + source, name, (call.grid,), args, call.constexprs)


class Ways:
    """The outputs of a diagram on some arrays, by how they were computed."""

    def __init__(self, diagram: Diagram, arrays: tuple[Any, ...], dtype: str = "fp32") -> None:
        self.diagram, self.dtype = diagram, dtype
        read = diagram.read(arrays)
        real = [n.kind == "real" for n in diagram.inputs]
        self.arrays = [
            to_device(a, dtype).to_float64() if r else a for a, r in zip(read, real, strict=True)
        ]
        self.sizes = diagram.sizes_of([a.shape for a in self.arrays])
        self.key = tuple(self.sizes.items())
        self.named = {str(n.params[0]): a for n, a in zip(diagram.inputs, self.arrays, strict=True)}
        self.scalars = diagram.check_scalars({})

    def evaluated(self) -> tuple[Array, ...]:
        found = self.diagram.evaluate(*self.arrays)
        return found if isinstance(found, tuple) else (found,)

    def planned(self) -> tuple[Array, ...]:
        found = plan_of(self.diagram, self.key, self.dtype)(*self.arrays)
        return found if isinstance(found, tuple) else (found,)

    def every(self, *, plan: bool = True) -> dict[str, tuple[Array, ...]]:
        """Each fold on ragged chunks, each loop program in numpy, each kernel, and the plan."""
        out = {"plan": self.planned()} if plan else {}
        for k in self.kernels():
            axis = k.stream.axis
            if axis:
                size = self.sizes[axis]
                for lengths in ([1] * size or [0], [0, size // 2, 0, size - size // 2]):
                    out[f"{axis} in folds of {lengths}"] = self.fold(k, lengths)
            out[f"{axis} executed"] = self.executed(k)
            out[f"{axis} in the kernel"] = self.in_kernel(k)
        return out

    def fold(self, kernel: Kernel, lengths: list[int]) -> tuple[Array, ...]:
        bind = {a.leaf: self.named[a.tensor] for a in kernel.reads}
        found = folded(kernel.stream, bind, self.sizes, ranges(lengths), self.scalars)[1]
        nodes = {e.output: e.node for p in kernel.stream.passes for e in p.emits}
        nodes |= {e.output: e.node for e in kernel.stream.tails}
        return tuple(
            np.broadcast_to(
                aligned(found[o.name], nodes[o.name].axes, o.axes), [self.sizes[a] for a in o.axes]
            )
            for o in kernel.outputs
        )

    def executed(self, kernel: Kernel) -> tuple[Array, ...]:
        tiles = {a: max(self.sizes[a], 1) for a in kernel.whole} | dict.fromkeys(kernel.group, 2)
        tiles |= {kernel.stream.axis: 3} if kernel.stream.axis else {}
        found = execute(kernel, self.named, self.sizes, tiles, self.scalars).outputs
        return tuple(found[o.name] for o in kernel.outputs)

    def kernels(self) -> tuple[Kernel, ...]:
        return kernels(self.diagram, self.key)

    def in_kernel(self, kernel: Kernel, chunk: int = 2, *, wide: bool = False) -> tuple[Array, ...]:
        _, text = written(kernel, self.key, chunk)
        types = storage(kernel, self.dtype)
        tensors = {t: to_device(a, SPELLING[types[t]]) for t, a in self.named.items() if t in types}
        for o in kernel.outputs:
            tensors[o.name] = empty([self.sizes[a] for a in o.axes], SPELLING[types[o.name]])
        strides = {t: a.strides for t, a in tensors.items()}
        call = launch(text.entry, self.sizes, self.scalars, strides)
        if wide:
            call = replace(call, constexprs={**call.constexprs, "WIDE": True})
        run_kernel(text.source, text.entry.name, call, tensors)
        return tuple(tensors[o.name].to_float64() for o in kernel.outputs)


class Agreement:
    """All ways agree: NaN and infinities in the same places, the rest to rounding."""

    def __call__(
        self,
        diagram: Diagram,
        *arrays: Any,
        dtype: str = "fp32",
        tolerance: float = 0.0,
        plan: bool = True,
    ) -> Any:
        """What evaluation gives, after it was compared with every other way."""
        ways = Ways(diagram, arrays, dtype)
        wanted = ways.evaluated()
        tolerance = tolerance or TOLERANCE[dtype]
        for way, found in ways.every(plan=plan).items():
            for f, w in zip(found, wanted, strict=True):
                assert f.shape == w.shape, way
                scale = max(1.0, float(np.max(np.abs(w), where=np.isfinite(w), initial=0.0)))
                np.testing.assert_allclose(f, w, tolerance, tolerance * scale, err_msg=way)
        return wanted[0] if len(wanted) == 1 else wanted


@pytest.fixture(scope="session")
def agree() -> Agreement:
    """`agree(diagram, *arrays)`: compare every way, and return the value."""
    return Agreement()


@pytest.fixture(scope="session")
def ways() -> type[Ways]:
    """`ways(diagram, arrays)`: the ways one by one."""
    return Ways


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)
