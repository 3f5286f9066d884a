"""The signature of a kernel, and how it is called."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from napkin.algebra.terms import rounded_alike
from napkin.ir.node import postorder
from napkin.ir.taking import own_axes, taken_of
from napkin.lower.box_loops import rising
from napkin.lower.descriptors import items_of, served_tensors
from napkin.lower.divisibility import rows, tensor_axes
from napkin.lower.launch import Argument, Entry
from napkin.lower.program import Program
from napkin.lower.scope import DESCRIPTORS, SECTION, Scope


@dataclass(frozen=True, eq=False)
class Written:
    """A kernel's source and how to call it.

    Attributes:
        source: the text of the function (and of helpers it needs), without imports.
        entry: what a launch needs to know.
        passed: bytes in which a block's first warps pass what they know to its others.
    """

    source: str
    entry: Entry
    passed: int = 0


def passed(read: Collection[str], scope: Scope) -> tuple[Argument, ...]:
    """The arguments of a kernel that reads these names."""
    return tuple(a for a in arguments_of(scope) if a.name in read)


def arguments_of(scope: Scope) -> list[Argument]:
    """Everything that a kernel may be given, in order."""
    program, kernel = scope.program, scope.program.kernel
    axes, rises = kernel.axes, rising(kernel)
    tiled = [a for a in axes if program.tiles[a] > 1]
    out = [Argument(scope.tensor(t), "tensor", (t,)) for t in scope.tensors]
    out += [Argument(scope.constant(n), "constant", n) for n in program.constants]
    out += [Argument(scope.size(a), "size", (a,)) for a in (*axes, *_other_sizes(program))]
    for t, own in tensor_axes(kernel).items():
        out += [Argument(scope.stride(t, a), "stride", (t, a)) for a in own]
    if rises and len(rises) < len(kernel.group):
        out.append(Argument(SECTION, "section", rises))
    out += [Argument(scope.block(a), "block", (a,)) for a in tiled]
    # Chunks that a key set asks for end where its keys do.
    ending = [a for a in tiled if kernel.visits is None or a not in kernel.stream.axes]
    out += [Argument(scope.even(a), "even", (a,)) for a in ending]
    out += [Argument(scope.step(a), "step", (a, *along)) for a, along in rows(program).items()]
    if program.boxes:
        out.append(Argument(DESCRIPTORS, "descriptors", ()))
    return [*out, Argument("WIDE", "wide", ())]


def _other_sizes(program: Program) -> list[str]:
    """Axes that the kernel does not go over, but whose sizes say where it reads."""
    kernel = program.kernel
    found = [s.axis for s in kernel.ragged.values()]
    found += [str(n.params[0]) for n in postorder(program.roots) if n.op == "size"]
    for access in kernel.reads:
        taken, own = taken_of(access.leaf), own_axes(access.leaf)
        for u, a in zip(taken.under, own, strict=True) if taken else ():
            found += [a] if isinstance(u, int) else []
    return [a for a in dict.fromkeys(found) if a not in kernel.axes]


def _rounds_alike(program: Program) -> bool:
    """Whether some term is to be rounded as other kernels round it."""
    outputs = program.kernel.outputs
    written = any(o.as_written for o in outputs)
    return written or bool(rounded_alike((*program.roots, *(o.node for o in outputs))))


def entry_of(arguments: tuple[Argument, ...], program: Program) -> Entry:
    """How a kernel of a program with these arguments is called."""
    kernel = program.kernel
    return Entry(
        kernel.name,
        arguments,
        {t: tuple(axes) for t, axes in tensor_axes(kernel).items()},
        program.schedule,
        kernel.group,
        kernel.whole,
        kernel.splits,
        kernel.ragged,
        served_tensors(program),
        items_of(program),
        kernel.streamed,
        contracts=not _rounds_alike(program),
        added=kernel.added,
    )
