"""Settings held to the shared memory that the compiler allocates.

The search bounds shared memory by operands alone. What the compiler allocates beside them, for
changes of register layout and reductions across warps, is asked of its own passes, for the winner:
where that is more than the machine has, fewer stages are taken, or the next setting. Those passes
fail on some matrix products: so they are asked about each kernel that has one, however small.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import TypeVar

from napkin.algebra.terms import is_read
from napkin.algebra.tracer import active
from napkin.derive.kernel import Kernel
from napkin.errors import Refusal
from napkin.ir.node import REDUCTIONS, Node, postorder
from napkin.ir.storage import storage_type
from napkin.ir.types import PACKED, STORAGE, stored_bytes
from napkin.lower.dots import dot_of, multiplies
from napkin.lower.launch import Launch, contiguous, launch, padded, shape_of
from napkin.lower.program import Program
from napkin.machine.machines import Machine
from napkin.plan.file import function_file
from napkin.plan.planned import PlannedKernel
from napkin.run.arrays import Descriptor, empty
from napkin.run.compile import ARCHITECTURES, Job, allocations, available, specialise
from napkin.run.interpret import Argument
from napkin.run.worker import KernelError
from napkin.settings.best import in_order, unpriced
from napkin.settings.choice import Choice
from napkin.target import target_of

T = TypeVar("T")

MOST_COMPILED = 16
"""Settings of a kernel that the compiler is asked about, at most."""

CUT_AGAIN = 24
"""Kernels none of whose settings fit that are left out of a search, one after another, at most."""

LEAST = 1024
"""Bytes that are counted for barriers and for reductions of few values across warps."""


class Unfit(Refusal):
    """No setting of a kernel fits, of those that are predicted to be the fastest.

    Attributes:
        kernel: the labelled kernel.
    """

    def __init__(self, k: PlannedKernel, said: str) -> None:
        self.kernel = k.choice.kernel
        most = f"no better are the {MOST_COMPILED} settings that are predicted to be the fastest"
        nearest = "materialise an array that it computes on the way"
        super().__init__("tile", k.name, f"{said}; {most}", nearest)


def first_that_fits(found: Callable[[], T], leave_out: Callable[[Kernel], object]) -> T:
    """What is `found`, after kernels none of whose settings fit were left out, each in turn.

    Raises:
        Refusal: nothing is found; where something was left out, why that was.
    """
    first: Unfit | None = None
    for _ in range(CUT_AGAIN):
        try:
            return found()
        except Unfit as why:
            first = first or why
            leave_out(why.kernel)
        except Refusal as why:
            raise first or why from None
    assert first is not None
    raise first


def fitting(k: PlannedKernel) -> Choice:
    """The setting of a kernel, or where that is allocated more shared memory than a group can have,
    or does not compile, the first after it that fits.

    Raises:
        Unfit: none of the first `MOST_COMPILED` does.
    """
    small = at_most(k) <= k.machine.shared_per_block and not multiplies(k.program)
    if small or not can_ask(k.machine):
        return k.choice
    limit, said = k.machine.shared_per_block, ""
    for choice in itertools.islice(_settings(k), MOST_COMPILED):
        for stages in range(choice.schedule.stages, 0, -1):
            tried = replace(k, choice=choice.under(stages=stages))
            taken = _taken(tried)
            if not isinstance(taken, KernelError) and taken <= limit:
                return tried.choice
            said = _why_not(taken, limit)
            _tell(tried, said)
            if isinstance(taken, KernelError):
                break  # fewer stages compile no better
    raise Unfit(k, said)


def _tell(k: PlannedKernel, why: str) -> None:
    """Report a setting that the compiler refused to the tracer."""
    if (tracer := active()) is not None:
        tracer.dropped("setting", f"{k.name}: {k.schedule}", why)


def can_ask(machine: Machine) -> bool:
    """Whether there is a compiler for a machine to ask."""
    return machine.arch in ARCHITECTURES and available()


def at_most(k: PlannedKernel) -> int:
    """Bytes of shared memory that the compiler allocates at most: every term of the loop program at
    once, a chunk in one slot more than there are stages, and as much again for changes of layout
    and banks."""
    program, slots = k.program, k.schedule.stages + 1
    found = 0
    for n in (n for n in postorder(program.roots) if not n.constant):
        values = program.span(formed(program, n))
        found += (
            slots * stored_bytes(values, storage_type(n, k.dtype)) if is_read(n) else 4 * values
        )
    return 2 * found + LEAST


def formed(program: Program, n: Node) -> Collection[int]:
    """The dimensions of the largest tensor that computing a term forms."""
    if n.op not in REDUCTIONS or dot_of(program, n) is not None:
        return program.shape(n)
    return {d for a in n.args for d in program.shape(a)}


def _settings(k: PlannedKernel) -> Iterator[Choice]:
    """The setting of a kernel, then the others of the same labels, the best first."""
    own, s = k.choice, k.schedule
    yield own
    others = in_order(unpriced(own.kernel, own.sizes, k.dtype, k.machine))
    yield from (c for c in others if (c.schedule.tiles, c.schedule.warps) != (s.tiles, s.warps))


def _taken(k: PlannedKernel) -> int | KernelError:
    """The bytes of shared memory that the compiler allocates, the more of those for tensors that
    descriptors serve and for others; or why it refuses one."""
    served = [True, False] if k.schedule.described else [False]
    found = allocations([job_of(k, k.choice.sizes, k.machine.arch, s) for s in served])
    most = 0
    for taken in found:
        if isinstance(taken, KernelError):
            return taken
        most = max(most, taken)
    return most


def _why_not(taken: int | KernelError, limit: int) -> str:
    """Why a setting does not do, in words."""
    if isinstance(taken, KernelError):
        return str(taken)
    return f"the compiler allocates {taken:,} bytes of shared memory, of {limit:,}"


def job_of(k: PlannedKernel, sizes: Mapping[str, int], arch: str, served: bool = True) -> Job:
    """The compilation of a kernel for row-major tensors of these sizes; the values of run-time
    constants change nothing about it. Warp-specialised kernels run on tensors that descriptors
    serve, whose rows begin at multiples of 16 bytes.

    Args:
        sizes: of every axis of the kernel; axes that it split follow.
        served: whether tensor descriptors may serve the tensors, on an architecture that has them.
    """
    entry, sizes = k.written.entry, k.choice.kernel.sized(sizes)
    plain = {t: contiguous(_shape(t, k, sizes)) for t in entry.axes_of}
    strides = padded(entry, sizes) if k.schedule.warpgroups else plain
    constants = [a.of for a in entry.arguments if isinstance(a.of, Node)]
    scalars = {str(n.params[0]): 0.5 for n in postorder(constants) if n.op == "scalar"}
    call = launch(entry, sizes, scalars, strides, served and target_of(arch).has_descriptors)
    special = specialise({a: _argument(a, call, k.dtypes) for a in call.order})
    return Job(
        function_file(k),
        k.name,
        special.signature,
        call.constexprs,
        arch,
        num_warps=k.schedule.launched_warps,
        num_stages=k.schedule.stages,
        divisible=special.divisible,
        ones=special.ones,
        options=entry.options,
    )


def _shape(tensor: str, k: PlannedKernel, sizes: Mapping[str, int]) -> list[int]:
    """What a tensor of a kernel has of each of its axes, of those that are packed as stored."""
    shape = shape_of(k.written.entry, tensor, sizes)
    if k.dtypes[tensor] in PACKED:
        shape[-1] //= 2
    return shape


def _argument(name: str, call: Launch, dtypes: Mapping[str, str]) -> Argument:
    """A run-time argument of the kind that a launch passes, on no memory of its own."""
    if name not in call.tensors:
        return call.scalars[name]
    made = empty([1], STORAGE[dtypes[call.tensors[name]]].format)
    return Descriptor(made, call.boxes[name].sizes) if name in call.boxes else made
