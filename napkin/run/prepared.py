"""Launches worked out once for tensors of one kind, then made again with nothing left to decide."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from napkin.diagram.diagram import Diagram
from napkin.ir.storage import storage_type
from napkin.ir.types import STORAGE
from napkin.lower.launch import ROW_BYTES, contiguous
from napkin.run.cache_folder import module_of
from napkin.run.launching import Described, Launch, current_stream, described
from napkin.run.recipe import Recipe, Step
from napkin.target import Target

Prepared = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
"""Computes the outputs from tensors of which `facts` are those that it was prepared for."""

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, s.torch) for name, s in STORAGE.items()}
"""Storage types by the names that plans give them."""

Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""The shape and the strides of a tensor."""

LONG = 128
"""Values of a row of which a few more are no matter."""


def facts(t: torch.Tensor) -> tuple[Any, ...]:
    """All of a tensor that its launches depend on."""
    if t.layout is not torch.strided:
        return (t.layout,)
    return t.shape, t.stride(), t.dtype, t.device, t.data_ptr() % ROW_BYTES, t.is_neg()


def prepare(
    diagram: Diagram,
    recipe: Recipe,
    arrays: Sequence[torch.Tensor],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    dtype: str,
    layouts: Sequence[Layout] | None = None,
) -> Prepared:
    """What runs a recipe on tensors like `arrays`: on their GPU, or through the interpreter.

    The tensors that it is called with may be those that `arrays` are views of, as long as the first
    element is the same: shapes and strides are taken from `arrays`.

    Args:
        sizes: of the diagram's axes.
        layouts: those of the outputs, where they are not the diagram's; of the same memory.
    """
    views = [_View(a, t) for a, t in zip(arrays, input_types(diagram, dtype), strict=True)]
    sizes = recipe.full(sizes)
    made = {t.name: tuple(sizes[a] for a in t.axes) for t in recipe.stored}
    lying = {t: (row_major if t in recipe.results else passed)(s) for t, s in made.items()}
    shown = dict(lying)
    if layouts is not None:
        shown |= zip(recipe.results, layouts, strict=True)
    if interpreted(arrays[0].device):
        return _Interpreted(
            diagram, recipe, views, sizes, scalars, [shown[t] for t in recipe.results], dtype
        )
    names = diagram.input_names
    seen = [v.of(a) for v, a in zip(views, arrays, strict=True)]
    own = {t: (list(a.shape), list(a.stride())) for t, a in zip(names, seen, strict=True)}
    own |= {t: (list(shape), list(strides)) for t, (shape, strides) in lying.items()}
    device = arrays[0].device
    aligned = all(a.data_ptr() % ROW_BYTES == 0 for a in seen)
    target = Target(torch.cuda.get_device_capability(device)[0] * 10)
    types = {t: a.dtype for t, a in zip(names, seen, strict=True)}
    types |= {t.name: DTYPES[t.dtype] for t in recipe.stored}
    call = _Call(recipe, own, types, sizes, scalars, target if aligned else Target(0))
    launches = [x for s in recipe.steps if (x := call.launch(s)) is not None]
    place = {t: i for i, t in enumerate(own)}
    return OnCuda(
        device,
        [(i, v) for i, v in enumerate(views) if v.converts],
        {place[t.name]: (*shown[t.name], DTYPES[t.dtype]) for t in recipe.stored},
        launches,
        [place[t] for t in recipe.results],
        any(x.specialised for x in launches),
    )


def input_types(diagram: Diagram, dtype: str) -> list[torch.dtype]:
    """The types in which kernels read the inputs of a plan with the storage type `dtype`."""
    return [DTYPES[storage_type(n, dtype)] for n in diagram.inputs]


def interpreted(device: torch.device) -> bool:
    """Whether a device has no kernels of its own."""
    return device.type == "cpu"


class _View:
    """How a diagram sees a tensor: under which shape and strides, and as which type."""

    def __init__(self, given: torch.Tensor, dtype: torch.dtype) -> None:
        self.shape, self.strides, self.dtype = given.shape, given.stride(), dtype
        self.converts = given.dtype != dtype

    def of(self, t: torch.Tensor) -> torch.Tensor:
        """The view of a tensor with the same first element."""
        return t.detach().as_strided(self.shape, self.strides).to(self.dtype)


@dataclass(frozen=True)
class _Call:
    """A recipe on tensors of one kind.

    Attributes:
        own: the shape and the strides of every tensor, by its name in the plan.
        target: what kernels are offered where the tensors lie as they do.
    """

    recipe: Recipe
    own: Mapping[str, tuple[list[int], list[int]]]
    types: Mapping[str, torch.dtype]
    sizes: Mapping[str, int]
    scalars: Mapping[str, float]
    target: Target

    def launch(self, step: Step) -> Launch | None:
        """One launch; None where it is empty, and leaves no zeros."""
        strides = {t: strides for t, (_, strides) in self.own.items()}
        given, entry, source = (self.sizes, self.scalars, strides), step.entry, self.recipe.source
        call = step.launch_specialised(*given) if self.target.has_warpgroups else None
        specialised = call is not None
        if call is None:
            call = step.launch(*given, self.target.has_descriptors)
        elif step.specialised is not None:
            entry, source = step.specialised, self.recipe.warpgroups
        if not call.grid and not step.added:
            return None
        at = {t: i for i, t in enumerate(self.own)}
        arguments: list[Any] = []
        holes: list[tuple[int, int, Described | None]] = []
        zeros: list[int] = []
        for a in call.order:
            if a in call.tensors:
                t, box = step.tensor(a, call), call.boxes.get(a)
                zeros += [at[t]] if t in step.added else []
                made = box and described(self.own[t], box, specialised, self.types[t])
                holes.append((len(arguments), at[t], made))
            arguments.append(call.scalars.get(a))
        kernel = getattr(module_of(source), entry.name)
        made = Launch(kernel, call.grid, arguments, holes, call.constexprs, entry.settings, zeros)
        made.specialised = specialised
        return made


@dataclass(frozen=True)
class OnCuda:
    """Launches on the current stream of a device.

    Attributes:
        converted: the inputs that are first brought to a storage type, by their place.
        stored: shapes, strides and types of the tensors that kernels write, by their places.
        results: the places of the outputs among the inputs and what is written.
        specialised: whether kernels of warpgroups are among the launches.
    """

    device: torch.device
    converted: Sequence[tuple[int, _View]]
    stored: Mapping[int, tuple[tuple[int, ...], tuple[int, ...], torch.dtype]]
    launches: Sequence[Launch]
    results: Sequence[int]
    specialised: bool = False

    def __call__(self, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if torch.cuda.current_device() == self.device.index:
            return self._run(arrays)
        with torch.cuda.device(self.device):
            return self._run(arrays)

    def _run(self, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        tensors: list[Any] = [*self._given(arrays), *[None] * len(self.stored)]
        stream = current_stream(self.device.index)
        for first, launch in self._order:
            for i in first:
                tensors[i] = self._room(i)
            if launch is not None:
                launch(tensors, stream)
        found = [tensors[i] for i in self.results]
        for i in self._equal:
            found[i] = found[i].clone()
        return found

    def again(self, arrays: Sequence[torch.Tensor]) -> Callable[[], None]:
        """A function that launches on these tensors, into the same outputs each time."""
        calls = self.on(self.tensors(arrays))

        def launch() -> None:
            with torch.cuda.device(self.device):
                for call in calls:
                    call()

        return launch

    def on(self, tensors: Sequence[torch.Tensor]) -> list[Callable[[], Any]]:
        """The launches on all of their tensors, as `tensors` makes them, for the device that is
        current, on its stream then."""

        def launch(one: Launch) -> None:
            one(tensors, current_stream(self.device.index))

        return [partial(launch, one) for one in self.launches]

    def tensors(self, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """The inputs, and room for all that kernels write."""
        return [*self._given(arrays), *map(self._room, self.stored)]

    def _given(self, arrays: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
        """The inputs in the types that kernels read."""
        if not self.converted:
            return arrays
        out = list(arrays)
        for i, view in self.converted:
            out[i] = view.of(out[i])
        return out

    def _room(self, place: int) -> torch.Tensor:
        """Room for a tensor that kernels write."""
        shape, strides, dtype = self.stored[place]  # `empty` works strides out, which takes longer
        return torch.empty_strided(shape, strides, dtype=dtype, device=self.device)

    @cached_property
    def _equal(self) -> list[int]:
        """The outputs that are equal to earlier ones: kernels write one tensor for both, and who
        changes one in place does not mean the other."""
        return [i for i, place in enumerate(self.results) if place in self.results[:i]]

    @cached_property
    def _order(self) -> list[tuple[list[int], Launch | None]]:
        """The launches, each after the places of the tensors that it is the first to be given: the
        GPU waits for the first one. At the end, those that no launch is given."""
        left, found = dict.fromkeys(self.stored), list[tuple[list[int], Launch | None]]()
        for launch in self.launches:
            first = [i for i in dict.fromkeys(i for _, i, _ in launch.holes) if i in left]
            found.append((first, launch))
            for i in first:
                del left[i]
        return [*found, ([*left], None)]


@dataclass(frozen=True)
class _Interpreted:
    """Runs the kernels in Triton's interpreter, on copies of the tensors."""

    diagram: Diagram
    recipe: Recipe
    views: Sequence[_View]
    sizes: Mapping[str, int]
    scalars: Mapping[str, float]
    layouts: Sequence[Layout]
    dtype: str

    def __call__(self, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        from napkin.run.interpreted import run_recipe, stored

        _warn_once()
        given = [
            t.detach().as_strided(v.shape, v.strides)
            for v, t in zip(self.views, arrays, strict=True)
        ]
        inputs = stored(self.diagram, self.diagram.read(given), self.dtype)
        ran = run_recipe(self.recipe, inputs, self.sizes, self.scalars)
        dtype = {t.name: DTYPES[t.dtype] for t in self.recipe.stored}
        return [
            _laid(ran.tensors[t].to_float64(), dtype[t], layout)
            for t, layout in zip(self.recipe.results, self.layouts, strict=True)
        ]


def _laid(values: np.ndarray[Any, Any], dtype: torch.dtype, layout: Layout) -> torch.Tensor:
    """A tensor of its own, and no view, with these numbers one after another in memory: autograd
    lets its caller change it in place."""
    out = torch.empty_strided(*layout, dtype=dtype, device="cpu")
    out.as_strided((out.numel(),), (1,)).copy_(torch.from_numpy(values.reshape(-1)))
    return out


_warned = False


def _warn_once() -> None:
    global _warned
    if not _warned:
        _warned = True
        warnings.warn(
            "napkin runs tensors on the CPU through Triton's interpreter, which is slow: it is for "
            "trying things out. Move them to a CUDA device to run kernels",
            RuntimeWarning,
            stacklevel=2,
        )


def row_major(shape: Sequence[int]) -> Layout:
    """The layout of a tensor whose last axis is contiguous, and so on."""
    return tuple(shape), contiguous(shape)


def passed(shape: Sequence[int]) -> Layout:
    """The layout of what passes between kernels: row-major, and long rows begin at multiples of 16
    bytes, so that descriptors serve it at any size."""
    *outer, last = shape or (1,)
    if last < LONG:
        return row_major(shape)
    return tuple(shape), contiguous([*outer, -(-last // ROW_BYTES) * ROW_BYTES])
