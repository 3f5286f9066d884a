"""A diagram as a pipelined algorithm on a machine, every step from the same objects."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from napkin.count.alignment import Alignment
from napkin.count.matrix_products import team
from napkin.derive.kernel import Kernel
from napkin.derive.label import label, reduced
from napkin.derive.prepare import Prepared, prepare
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, Refusal, check_known
from napkin.ir.key_sets import spec_of
from napkin.ir.names import axis_names
from napkin.ir.node import postorder
from napkin.machine.machines import Machine
from napkin.studies.pipeline.clocks import Clocks
from napkin.studies.pipeline.colours import Colouring
from napkin.studies.pipeline.fit import Fit, fit
from napkin.studies.pipeline.overlap import Overlap, overlap
from napkin.studies.pipeline.setting import Setting, all_alignments, setting


@dataclass(frozen=True, eq=False)
class Pipeline:
    """A kernel in a setting on a machine.

    Attributes:
        kernel: the streamed kernel.
        machine: the machine.
        sizes: of every axis.
        setting: sizes and types of arrays.
    """

    kernel: Kernel
    machine: Machine
    sizes: Mapping[str, int]
    setting: Setting

    @cached_property
    def colouring(self) -> Colouring:
        """The pseudocode with a level for each array."""
        return Colouring(self.kernel, self.setting)

    @cached_property
    def alignments(self) -> tuple[Alignment, ...]:
        """What sizes must be multiples of, and why."""
        return all_alignments(self.kernel, self.machine, self.setting)

    @cached_property
    def fit(self) -> Fit:
        """What is held at each level, and how many teams fit."""
        return fit(self.colouring, self.machine)

    @cached_property
    def clocks(self) -> tuple[Clocks, ...]:
        """The clocks of each loop body that has matrix products."""
        parts = range(len(self.colouring.bodies))
        every = (Clocks(self.colouring, self.machine, i) for i in parts)
        return tuple(c for c in every if any(s.product for s in c.body.steps))

    @property
    def team(self) -> str:
        """What the threads are called that issue a product together."""
        return team(self.machine)[0]

    def overlaps(self, long: bool = False) -> tuple[Overlap, ...]:
        """The iteration of each of those bodies; `long` as for `overlap`."""
        return tuple(overlap(c, long) for c in self.clocks)

    def stored(self, dtype: str) -> Pipeline:
        """The same with every tensor stored as `dtype`."""
        made = replace(self.setting, storage={}, dtype=dtype)
        return Pipeline(self.kernel, self.machine, self.sizes, made)


def pipeline(
    diagram: Diagram,
    machine: Machine,
    sizes: Mapping[str, int] | None = None,
    *,
    stream: str = "",
    **given: Any,
) -> Pipeline:
    """A diagram as one streamed kernel in a setting.

    Args:
        sizes: axis sizes; those not given come from the diagram's defaults.
        stream: the axis to stream; by default the one that leaves least to be held whole.
        given: tiles, inner, cuts, storage, dtype, computed and buffers, as for `setting`.

    Raises:
        InputError: a size, a tensor or a type is wrong.
        Refusal: no axis streams, or nothing is a matrix product.
    """
    known, ready = diagram.check_sizes(sizes or {}), prepare(diagram)
    for axis in axis_names(stream, "stream"):
        check_known(axis, diagram.axes, f"stream: {diagram.name} has no axis {axis!r}")
    if stream:
        kernel = label(diagram.name, ready.outputs, ready.names, streamed=stream)
    else:
        kernel = _least(diagram.name, ready, known)
    out = _fitting(kernel, machine, known, given)
    if not out.clocks:
        raise Refusal(
            "a pipeline", diagram.name, f"the loop over {kernel.stream.axis} has no matrix product",
            f"stream another of {', '.join(reduced(ready.outputs))}",
        )  # fmt: skip
    return out


def _fitting(
    kernel: Kernel, machine: Machine, sizes: Mapping[str, int], given: Mapping[str, Any]
) -> Pipeline:
    """The setting that is given, with the most rows for a team that fit where it leaves them open:
    from one for each thread down to those of one matrix instruction."""
    rows, least = team(machine)[1], int(machine.granules["mma_rows"].value)
    while True:
        out = Pipeline(kernel, machine, sizes, setting(kernel, machine, sizes, wide=rows, **given))
        if set(given.get("tiles") or {}) & set(kernel.group) or rows // 2 < least:
            return out
        try:
            out.fit  # noqa: B018
        except InputError:
            rows //= 2
            continue
        return out


def _least(name: str, ready: Prepared, sizes: Mapping[str, int]) -> Kernel:
    """The streamed kernel that reads its stream least often and holds least of the others whole."""
    found, refused = list[Kernel](), list[Refusal]()
    for axes in _candidates(ready):
        for passes in (1, 2, 3):
            try:
                found.append(label(name, ready.outputs, ready.names, streamed=axes, passes=passes))
                break
            except Refusal as error:
                refused.append(error)
    if not found:
        reason = str(refused[-1]) if refused else "nothing is reduced along any axis"
        raise Refusal("a pipeline", name, f"no axis of it streams in one kernel ({reason})")
    return min(
        found,
        key=lambda k: (len(k.stream.passes), math.prod(sizes[a] for a in k.whole)),
    )


def _candidates(ready: Prepared) -> Iterator[str]:
    """Axes to stream: those of a key set together, and each that something works along."""
    keys: Sequence[tuple[str, ...]] = [
        spec_of(n).keys for n in postorder(o.node for o in ready.outputs) if n.op == "keys"
    ]
    yield from dict.fromkeys(" ".join(k) for k in keys if len(k) > 1)
    yield from reduced(ready.outputs)
