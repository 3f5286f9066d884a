"""A diagram as a function on torch tensors: its recipes, and what is prepared from them."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import torch

from napkin.diagram.diagram import Diagram
from napkin.diagram.fingerprint import fingerprint
from napkin.diagram.sizes import check_count
from napkin.errors import InputError
from napkin.ir.key_sets import query_axes, spec_of
from napkin.ir.storage import packed_axis
from napkin.machine.machines import Machine
from napkin.run.launching import loading
from napkin.run.prepared import Layout, Prepared, prepare
from napkin.run.recipe import Recipe
from napkin.torch import cache
from napkin.torch.device_machine import machine_of
from napkin.torch.dtypes import logical_shapes, output_type, plan_type

_DERIVING = threading.Lock()

WORTH = 0.5
"""A backward pass takes memory for an array that is larger than all inputs and outputs if it then
takes less than this part of the time."""


class Reads(NamedTuple):
    """What a gradient is given of its function beside cotangents, and gives.

    Attributes:
        inputs: the places of the inputs that come before the cotangents.
        outputs: the places of the outputs that come after them.
        held: the output that holds each gradient that is asked for: equal ones are one.
    """

    inputs: Sequence[int]
    outputs: Sequence[int]
    held: Sequence[int]


class Function:
    """A diagram on torch tensors.

    Attributes:
        diagram: what is computed.
        key: the name by which graphs call it, the same in every process.
        reads: of a gradient, what it is given and gives.
    """

    def __init__(self, diagram: Diagram, key: str = "", reads: Reads | None = None) -> None:
        self.diagram, self.reads = diagram, reads
        self.print = fingerprint(diagram)
        self.key = key or f"{diagram.name}:{cache.digest(self.print)}"
        self._recipes: dict[tuple[object, ...], Recipe] = {}

    def named(self, scalars: Sequence[float]) -> dict[str, float]:
        """Values of the diagram's scalars, by their names."""
        return dict(zip(self.diagram.scalars, scalars, strict=True))

    def prepare(
        self,
        arrays: Sequence[torch.Tensor],
        scalars: Mapping[str, float],
        layouts: Sequence[Layout] | None = None,
    ) -> Prepared:
        """What runs the diagram on tensors like these; see `napkin.run.prepared.prepare`.

        Raises:
            InputError: the tensors or scalars do not fit the diagram.
            Refusal: no kernel fits the machine.
        """
        diagram = self.diagram
        dtype = plan_type(diagram, arrays)
        sizes = diagram.sizes_of(logical_shapes(diagram, arrays))
        values = diagram.check_scalars(scalars)
        if not arrays:
            raise InputError(f"{diagram.name} takes no tensor, so there is no device to run it on")
        if arrays[0].is_meta:
            raise InputError(f"{diagram.name}: {diagram.inputs[0].params[0]} is on meta, which has "
                             "no numbers; kernels run on CUDA devices")  # fmt: skip
        recipe = self.recipe(sizes, dtype, machine_of(arrays[0].device))
        return prepare(diagram, recipe, arrays, sizes, values, dtype, layouts)

    def recipe(self, sizes: Mapping[str, int], dtype: str, machine: Machine) -> Recipe:
        """The recipe for the class of these sizes: from this process, from disk, or derived."""
        known = tuple(size_class(self.diagram, sizes).items())
        key = known, dtype, machine, torch.are_deterministic_algorithms_enabled()
        if key not in self._recipes:
            with _DERIVING:
                self._recipes[key] = self._kept(*key)
        return self._recipes[key]

    def _kept(
        self, known: Sequence[tuple[str, int]], dtype: str, machine: Machine, deterministic: bool
    ) -> Recipe:
        """The recipe from disk, where it is kept once it is derived."""
        how = [*["backward"] * (self.reads is not None), *["deterministic"] * deterministic]
        name = cache.digest(self.print, repr(known), dtype, repr(machine), *how)
        found = cache.load(name)
        if found is None:
            with loading():
                found = self._derived(dict(known), dtype, machine, deterministic)
            cache.save(name, found)
        return found

    def _derived(
        self, sizes: Mapping[str, int], dtype: str, machine: Machine, deterministic: bool
    ) -> Recipe:
        from napkin.plan.derive import derive, frugal, memo_of
        from napkin.plan.fitting import first_that_fits
        from napkin.run.compile import start

        start()  # it loads while the search runs, whose winner it is asked about
        if self.reads is None:
            on = self.diagram, machine, sizes, dtype
            return derive(*on, deterministic=deterministic).recipe
        memo = memo_of(machine, dtype, deterministic=deterministic)
        # A backward shares memory with what others keep.
        return first_that_fits(
            lambda: frugal(self.diagram, sizes, memo.again(), WORTH).fitted().recipe,
            memo.leave_out,
        )

    def results(self, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Empty tensors like the outputs, for a graph that is being captured, or on "meta".

        Raises:
            InputError: the tensors do not fit the diagram; sizes that are symbols are not looked
                at.
        """
        sizes: dict[str, Any] = {}
        check_count(self.diagram, arrays)
        shapes = logical_shapes(self.diagram, arrays)
        if all(type(n) is int for shape in shapes for n in shape):
            sizes |= self.diagram.sizes_of(shapes)
        for shape, n in zip(shapes, self.diagram.inputs, strict=True):
            sizes |= zip(n.axes, shape, strict=True)
        sizes |= {axis: count for axis, (count, _) in self.diagram.counted.items()}
        for s in self.diagram.slides:
            sizes[s.out] = s.count(sizes[s.axis], sizes[s.tap])
        dtype = plan_type(self.diagram, arrays)
        return [
            arrays[0].new_empty([sizes[a] for a in o.axes], dtype=output_type(o, dtype))
            for o in self.diagram.outputs
        ]


ROW, STEP = 512, 8
"""Values of the longest row that keeps its size, and what it is a multiple of."""

BITS = 3
"""Significant bits of a class's size: four sizes from one power of two to the next."""


def _rows(diagram: Diagram) -> list[str]:
    """The axes that are last in every input that carries them."""
    inputs = [n.axes for n in diagram.inputs]
    last = dict.fromkeys(axes[-1] for axes in inputs if axes)
    return [a for a in last if all(axes[-1] == a for axes in inputs if a in axes)]


def _rounded(size: int, bits: int) -> int:
    """The least number of so many significant bits that is at least `size`."""
    step = 1 << max((size - 1).bit_length() - bits, 0)
    return -(-size // step) * step


def size_class(diagram: Diagram, sizes: Mapping[str, int]) -> dict[str, int]:
    """The sizes that a plan is derived for, in place of these; its kernels serve both.

    The next number of few significant bits (4, 5, 6, 7, 8, 10, 12, 14, 16, 20): less than a quarter
    more, so what is fastest there is fast here, and 6 or 12 heads are planned for as they are.
    Tiles are powers of two, so an axis that is held whole has the same tile. A plan takes seconds:
    an axis that grows by one from call to call meets four to each doubling. Packed rows, which need
    whole bytes, take the next power of two.
    The axes of a key set over several keep their sizes, which say what shape of box wastes least,
    and so do those of slots, which the window gives, and those of taps; how many windows there are
    follows, and where packed values lie along them, the axis that they read keeps its size, so that
    the windows stay even. So do short rows: the last axis of every input that has it, in whole
    steps of 16 bytes, as the width of a head, which says how boxes lie in them.
    """
    kept = {a for a in _rows(diagram) if 0 < sizes.get(a, 0) <= ROW and sizes[a] % STEP == 0}
    kept |= {*diagram.counted, *(s.tap for s in diagram.slides)}
    for n in diagram.key_sets:
        keys = spec_of(n).keys
        kept |= {*keys, *query_axes(n)} if len(keys) > 1 else set()
    of, roots = diagram.sized_as, {*map(diagram.sized_as, kept)}
    paired = {of(a) for a in map(packed_axis, diagram.inputs) if a}
    windows = {s.out for s in diagram.slides}
    if paired & {*map(of, windows)}:
        roots |= {of(s.axis) for s in diagram.slides}

    def rounded(axis: str, size: int) -> int:
        if of(axis) in roots:
            return max(size, 1)
        return _rounded(max(size, 2), 1) if of(axis) in paired else _rounded(max(size, 1), BITS)

    found = {a: rounded(a, n) for a, n in sizes.items() if of(a) not in windows}
    return diagram.check_sizes(found)
