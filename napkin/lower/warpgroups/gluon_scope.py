"""Names in a kernel of warpgroups: what the plain kernel calls things, with rings and barriers."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from napkin.derive.kernel import tensor_of
from napkin.ir.node import Node
from napkin.lower import syntax as sx
from napkin.lower.program import Program
from napkin.lower.scope import Scope
from napkin.lower.spelling import GLUON
from napkin.lower.syntax import Expr
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.gluon import predefined

PARTS = "loads", "rows", "adds"
"""What warps of a block do."""


class CtaScope(Scope):
    """Names for a warp-specialised CTA."""

    def __init__(self, cta: SpecialisedCta) -> None:
        self.alone: Sequence[str] = ()
        super().__init__(cta.program, GLUON)
        self.cta = cta
        self.stages = self._name("stages", "STAGES")
        self.warpgroup = self._name("warpgroup", "warpgroup")
        self.iteration = self._name("iterations", "iterations")
        self.each = self._name("each", "each")

    @staticmethod
    def taken(program: Program) -> set[str]:
        name = program.kernel.name
        return Scope.taken(program) | predefined() | {f"_{name}_{part}" for part in PARTS} | {name}

    def layout(self, dim: int) -> str:
        """The constexpr with the register layout of rows across a tile dimension."""
        return self._name(("layout", dim), "ACROSS_" + "_".join(self.program.dims[dim]).upper())

    def of(self, dims: tuple[int, ...]) -> Expr:
        """The register layout of a tile with these dimensions."""
        row, columns = self.cta.row, self.cta.columns
        if len(dims) == 2:
            return sx.name(self.layout(dims[1]))
        (dim,) = dims
        across = sx.name(self.layout(columns[0] if dim == row else dim))
        return self.lang("SliceLayout", 1 if dim == row else 0, across)

    def ring(self, tensor: str) -> str:
        """The shared memory of a tensor's boxes."""
        return self._name(("ring", tensor), f"{tensor}_ring")

    def share(self, tensor: str, other: str) -> None:
        """Let a tensor's boxes lie where another's do."""
        self._names["ring", tensor] = self.ring(other)

    def full(self, tensor: str) -> str:
        """The barriers that say that boxes have arrived; of "", those of all tensors."""
        return self._name(("full", tensor), f"{tensor}_full" if tensor else "full")

    def free(self, tensor: str) -> str:
        """The barriers that say that boxes have been read; of "", those of all tensors."""
        return self._name(("free", tensor), f"{tensor}_free" if tensor else "free")

    def rows(self, tensor: str) -> str:
        """What warpgroups leave to each other of a result to which they add."""
        return f"{tensor}_rows"

    @property
    def ended(self) -> str:
        """The barrier that says that no warpgroup reads what another one holds any more."""
        return self._name("ended", "ended")

    @property
    def order(self) -> str:
        """The barriers that say whose turn it is."""
        return self._name("order", "order")

    @property
    def rounds(self) -> str:
        """How many groups a warpgroup has folded."""
        return self._name("rounds", "rounds")

    @property
    def chunks(self) -> str:
        """How many chunks a group has."""
        return self._name("chunks", "chunks")

    def slot(self, before: bool = False) -> tuple[str, str]:
        """Where in a ring the box of this iteration lies, or of the one before, and the parity of
        its barriers."""
        end = "_before" if before else ""
        names = (self._name((what, before), f"{what}{end}") for what in ("slot", "phase"))
        return next(names), next(names)

    def kept(self, state: str) -> str:
        """The operand that is multiplied one iteration later."""
        return self._name(("kept", state), f"{self.state(state)}_rows")

    def shared(self, n: Node) -> str:
        """The shared memory of a term with one value for each column."""
        return self._name(("shared", n), f"{self.value(n)}_shared")

    def apart(self, dim: int) -> CtaScope:
        """The same names, with others for positions along a dimension of tiles of which each thread
        has one."""
        twin = copy.copy(self)
        twin.alone = self.program.dims[dim]
        return twin

    def position(self, axis: str) -> str:
        if axis not in self.alone:
            return super().position(axis)
        return self._name(("position", axis, "alone"), f"{axis}_alone")

    def inside(self, axis: str) -> str:
        if axis not in self.alone:
            return super().inside(axis)
        return self._name(("inside", axis, "alone"), f"{axis}_alone_in")

    def tile(self, leaf: Node) -> str:
        """The box of a reading that is used now."""
        return self._name(("tile", leaf), f"{tensor_of(leaf)}_tile")
