"""Names in a kernel of warpgroups: what the plain kernel calls things, with rings and barriers."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import cached_property

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.program import Program
from napkin.lower.scope import Scope, named
from napkin.lower.spelling import GLUON
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.gluon import predefined

PARTS = "loads", "rows", "adds"
"""What warps of a block do."""


def _fixed(text: str) -> cached_property[str]:
    """The name of something of which a kernel has one."""

    def name(scope: CtaScope) -> str:
        return scope.name(text, text)

    return cached_property(name)


class CtaScope(Scope):
    """Names for a warp-specialised CTA."""

    stages = _fixed("STAGES")
    """How many chunks lie in shared memory at once."""
    warpgroup = _fixed("warpgroup")
    """Which warpgroup this is."""
    iteration = _fixed("iterations")
    """The number of the iteration."""
    each = _fixed("each")
    """Which barrier is begun."""
    ended = _fixed("ended")
    """The barrier that says that no warpgroup reads what another one holds any more."""
    order = _fixed("order")
    """The barriers that say whose turn it is."""
    rounds = _fixed("rounds")
    """How many groups a warpgroup has folded."""
    chunks = _fixed("chunks")
    """How many chunks a group has."""
    ring = named("ring", "{}_ring")
    """The shared memory of a tensor's boxes."""

    def __init__(self, cta: SpecialisedCta) -> None:
        self.alone: Sequence[str] = ()
        super().__init__(cta.program, GLUON)
        self.cta = cta

    @staticmethod
    def taken(program: Program) -> set[str]:
        name = program.kernel.name
        return Scope.taken(program) | predefined() | {f"_{name}_{part}" for part in PARTS} | {name}

    def layout(self, dim: int) -> str:
        """The constexpr with the register layout of rows across a tile dimension."""
        return self.name(("layout", dim), "ACROSS_" + "_".join(self.program.dims[dim]).upper())

    def of(self, dims: tuple[int, ...]) -> Expr:
        """The register layout of a tile with these dimensions."""
        row, columns = self.cta.row, self.cta.columns
        if len(dims) == 2:
            return sx.name(self.layout(dims[1]))
        (dim,) = dims
        across = sx.name(self.layout(columns[0] if dim == row else dim))
        return self.lang("SliceLayout", 1 if dim == row else 0, across)

    def share(self, tensor: str, other: str) -> None:
        """Let a tensor's boxes lie where another's do."""
        self._names["ring", tensor] = self.ring(other)

    def full(self, tensor: str) -> str:
        """The barriers that say that boxes have arrived; of "", those of all tensors."""
        return self.name(("full", tensor), f"{tensor}_full" if tensor else "full")

    def free(self, tensor: str) -> str:
        """The barriers that say that boxes have been read; of "", those of all tensors."""
        return self.name(("free", tensor), f"{tensor}_free" if tensor else "free")

    def rows(self, tensor: str) -> str:
        """What warpgroups leave to each other of a result to which they add."""
        return f"{tensor}_rows"

    def slot(self, before: bool = False) -> tuple[str, str]:
        """Where in a ring the box of this iteration lies, or of the one before, and the parity of
        its barriers."""
        end = "_before" if before else ""
        names = (self.name((what, before), f"{what}{end}") for what in ("slot", "phase"))
        return next(names), next(names)

    def kept(self, state: str) -> str:
        """The operand that is multiplied one iteration later."""
        return self.name(("kept", state), f"{self.state(state)}_rows")

    def shared(self, n: Node) -> str:
        """The shared memory of a term with one value for each column."""
        return self.name(("shared", n), f"{self.value(n)}_shared")

    def apart(self, dim: int) -> CtaScope:
        """The same names, with others for positions along a dimension of tiles of which each thread
        has one."""
        twin = copy.copy(self)
        twin.alone = self.program.dims[dim]
        return twin

    def position(self, axis: str) -> str:
        if axis not in self.alone:
            return super().position(axis)
        return self.name(("position", axis, "alone"), f"{axis}_alone")

    def inside(self, axis: str) -> str:
        if axis not in self.alone:
            return super().inside(axis)
        return self.name(("inside", axis, "alone"), f"{axis}_alone_in")

    def tile(self, leaf: Node) -> str:
        """The box of a reading that is used now."""
        return self.name(("tile", leaf), f"{tensor_of(leaf)}_tile")
