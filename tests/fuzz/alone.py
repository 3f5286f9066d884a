"""A kernel file that runs alone, in Triton's interpreter: its function `run`, on torch's memory."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from napkin.ir.types import STORAGE
from napkin.plan.plan import Plan
from napkin.plan.standalone import standalone
from napkin.run._source import load
from napkin.run.arrays import Descriptor, DeviceArray
from napkin.run.formats import STORAGE as HELD
from napkin.run.interpret import run

FORMATS = {getattr(torch, s.torch): s.format for s in STORAGE.values() if s.bits >= 8}
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32}


class Kernel:
    """Stands in for a kernel: the interpreter runs it.

    Args:
        text: the file.
        settings: the names of the launch's keywords that the kernel itself is not given.
    """

    def __init__(self, text: str, name: str, settings: Sequence[str]) -> None:
        self.text, self.name, self.settings = text, name, settings

    def __getitem__(self, grid: tuple[int, ...]):
        def launch(*args: object, **keywords: object) -> None:
            given = {k: v for k, v in keywords.items() if k not in self.settings}
            if all(grid):
                run(self.text, self.name, grid, [_argument(a) for a in args], given)

        return launch


def _argument(value: object):
    if isinstance(value, torch.Tensor):
        return DeviceArray(_bits(value), FORMATS[value.dtype])
    if hasattr(value, "block_shape"):
        t = value.base.as_strided(value.shape, value.strides)
        return Descriptor(_argument(t), tuple(value.block_shape))
    return value


def _bits(t: torch.Tensor) -> np.ndarray:
    """A tensor's memory as napkin holds numbers of its type."""
    return t.view(BITS[t.element_size()]).numpy().view(HELD[FORMATS[t.dtype]])


def _tensor(x: DeviceArray) -> torch.Tensor:
    table = {f: t for t, f in FORMATS.items()} | {"i4": torch.uint8, "u4": torch.uint8}
    return torch.from_numpy(x.data.view(f"i{x.itemsize}")).view(table[x.dtype])


def results(plan: Plan, inputs: Mapping[str, DeviceArray]) -> list[np.ndarray] | None:
    """What `run` of a plan's own file gives, as napkin holds it; None where it asks for more than
    tensors."""
    text = standalone(plan)["kernel.py"]
    module = load(text, "alone.py")  # not the module whose kernels run
    function = next(f for n, f in vars(module).items() if n.startswith("run") and callable(f))
    said = inspect.getfullargspec(function)
    if set(said.kwonlyargs) - {*(said.kwonlydefaults or {})}:
        return None
    own = {s.entry.name: Kernel(text, s.entry.name, [*s.entry.settings]) for s in plan.recipe.steps}
    vars(module).update(own)
    found = function(*(_tensor(inputs[str(n.params[0])]) for n in plan.diagram.inputs))
    return [_bits(t) for t in (found if isinstance(found, tuple) else (found,))]
