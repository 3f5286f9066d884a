"""At which level each array of a pseudocode diagram lies, and what crosses between levels.

Matrix products run on the tensor cores, everything else on registers; what one hands to the other
goes through shared memory, since the fragments of tensor cores are taken as opaque (arXiv
2412.03317, Figure 31). A state that products are only added to stays where they add.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from napkin.algebra.contraction import Contraction, in_axes
from napkin.algebra.fold import State
from napkin.algebra.terms import is_read
from napkin.count.matrix_products import dtype_of, product_type
from napkin.derive.kernel import Kernel
from napkin.diagram.columns import Stage
from napkin.errors import InputError, check_known
from napkin.ir.node import Node, over, union_axes
from napkin.ir.storage import storage_type
from napkin.ir.types import STORAGE, stored_bytes
from napkin.studies.pipeline.looped import Block, looped
from napkin.studies.pipeline.setting import Setting

Level = Literal["shared", "registers", "tensor"]
Owner = Literal["block", "team"]
Crossing = Literal["to registers", "to tensor"]


@dataclass(frozen=True, eq=False)
class Variable:
    """One array of the pseudocode, where it lies and how large it is.

    Attributes:
        name: what it is called.
        node: the term that it is the value of.
        role: "chunk" (read in every iteration), "input" (read once), "state", "computed" or
            "output".
        level: where it lies while it is computed on.
        owner: whether a thread block holds one of it or each team.
        dtype: its type.
        axes: its axes.
        shape: the size of each, in symbols and numbers; of a piece where it is cut.
        crossing: whether the tensor cores hand it to registers, take it from them, or both.
        stored: the type in which it is stored, of an output; else "".
    """

    name: str
    node: Node
    role: Literal["chunk", "input", "state", "computed", "output"]
    level: Level
    owner: Owner
    dtype: str
    axes: tuple[str, ...]
    shape: tuple[tuple[str, int], ...]
    crossing: tuple[Crossing, ...] = ()
    stored: str = ""

    @property
    def values(self) -> int:
        """How many values it has."""
        return math.prod(n for _, n in self.shape)

    @property
    def item_bytes(self) -> float:
        """Bytes of a value: a half where two share one."""
        whole, rest = divmod(STORAGE[self.dtype].bits, 8)
        return whole + rest / 8 if rest else whole

    @property
    def bytes(self) -> int:
        """Bytes of it, or of the piece of it that exists at once."""
        return stored_bytes(self.values, self.dtype)

    @property
    def size(self) -> str:
        """Its size in symbols."""
        return " ".join(symbol for symbol, _ in self.shape) or "1"


@dataclass(frozen=True, eq=False)
class Step:
    """A stage with the pipe that runs it.

    Attributes:
        stage: the operator and its arguments.
        product: the matrix product that it is, if it is one.
        pieces: the axes along which it runs piece by piece, with the size of a piece, in symbols
            and numbers.
        split: the reduced axes that it takes in pieces.
        added: it only adds a product to a state, which the tensor cores do by themselves.
    """

    stage: Stage
    product: Contraction[str] | None
    pieces: Mapping[str, tuple[str, int]]
    split: Mapping[str, tuple[str, int]]
    added: bool = False

    @property
    def level(self) -> Level:
        """Where it runs."""
        return "tensor" if self.product or self.added else "registers"


@dataclass(frozen=True, eq=False)
class Coloured:
    """One block with its levels.

    Attributes:
        block: the pseudocode.
        steps: its stages, in order.
        variables: its arrays, by node.
        operands: what registers make for products beside those: factors multiplied first, under
            the node of the product, and arrays rounded to the type that is multiplied.
    """

    block: Block
    steps: tuple[Step, ...]
    variables: Mapping[Node, Variable]
    operands: tuple[Variable, ...]

    @property
    def every(self) -> tuple[Variable, ...]:
        """Every array."""
        return (*self.variables.values(), *self.operands)


@dataclass(frozen=True, eq=False)
class Colouring:
    """A kernel's pseudocode with a level for each array."""

    kernel: Kernel
    setting: Setting

    @cached_property
    def blocks(self) -> tuple[Coloured, ...]:
        """Every block with its levels.

        Raises:
            InputError: a cut is of no array, does not divide what it cuts, or something needs the
                whole of it.
        """
        found: list[Coloured] = []
        known, cuts = set[str](), self.setting.cuts
        for b in looped(self.kernel):
            # After the loop, O is the result, and a cut of O is one of the state.
            own = {key: n for key, n in cuts.items() if key[0] not in known or b.states}
            found.append(_Painter(self.kernel, replace(self.setting, cuts=own), b).coloured())
            known |= {b.names[s.node].removesuffix("'") for s in b.stages}
        for name, _ in cuts:
            check_known(
                name, known, f"cut {name}: {self.kernel.name} computes no array of that name"
            )
        return tuple(found)

    @property
    def bodies(self) -> tuple[Coloured, ...]:
        """The loop bodies."""
        return self.blocks[:-1]

    @property
    def tail(self) -> Coloured:
        """What follows the loops."""
        return self.blocks[-1]


class _Painter:
    def __init__(self, kernel: Kernel, s: Setting, block: Block) -> None:
        self.kernel, self.s, self.block = kernel, s, block
        order = kernel.memory_order(kernel.axes)
        sums = [x.node for x in block.stages if x.node.op == "sum"]
        found = [in_axes(n, order, held=block.names) for n in sums]
        self.products = {c.node: c for c in found if c.is_product}
        self.pieces, self.splits = self._cuts()
        self.added = {n for n, state in block.states.items() if self._only_adds(n, state)}
        self.inside = {a for n in self.added for a in n.args if a in self.products}

    def coloured(self) -> Coloured:
        steps = tuple(
            Step(
                stage,
                self.products.get(stage.node),
                self._written(self.pieces.get(stage.node, {})),
                self._written(self.splits.get(stage.node, {})),
                stage.node in self.added,
            )
            for stage in self.block.stages
        )
        arrays = dict.fromkeys(e.node for c in self.block.columns for e in c)
        # What is added where it is computed is no array beside the state that it is added to.
        variables = {n: self._variable(n) for n in arrays if n not in self.inside}
        made = (self._operand(p, side) for p in self.products.values() for side in p.sides)
        operands = tuple({(v.node, v.name): v for v in made if v is not None}.values())
        return Coloured(self.block, steps, variables, operands)

    # --- arrays -----------------------------------------------------------------------------

    def _variable(self, n: Node) -> Variable:
        shape = self._shape(n)
        name = self.block.names[n]
        if is_read(n):
            chunk = self.kernel.stream.carried(n.axes)
            shared = any(side == (n,) for p in self.products.values() for side in p.sides)
            owner: Owner = "team" if self.s.along in n.axes or not shared else "block"
            dtype = dtype_of(n, self.s.storage, self.s.dtype)
            role = "chunk" if chunk else "input"
            level = "shared" if shared else "registers"
            return Variable(name, n, role, level, owner, dtype, n.axes, shape)
        crossing, dtype = self._crossing(n), self._computed(n)
        result = n in self.block.diagram.roots and n not in self.block.states
        state = n.op == "state" or n in self.block.states
        role = "output" if result else "state" if state else "computed"
        level = "tensor" if self._accumulates(n) else "registers"
        stored = self._stored(n) if result else ""
        return Variable(name, n, role, level, "team", dtype, n.axes, shape, crossing, stored)

    def _stored(self, n: Node) -> str:
        """The type in which memory holds an output."""
        made = next(o for o in self.block.diagram.outputs if o.node is n)
        own = next(o for o in self.kernel.outputs if o.name == made.name)
        return self.s.storage.get(own.name, storage_type(own.node, self.s.dtype))

    def _operand(self, p: Contraction[str], side: tuple[Node, ...]) -> Variable | None:
        """What registers make of a side: its factors multiplied, or one rounded."""
        dtype = self._type(p)
        if len(side) == 1 and (is_read(side[0]) or self._computed(side[0]) == dtype):
            return None
        name = "*".join(self.block.names.get(n, n.op) for n in side)
        name, of = (f"{name} as {dtype}", side[0]) if len(side) == 1 else (name, p.node)
        axes = union_axes(side)
        shape = tuple((self.s.symbol(self.kernel, a, False), self._size(a, False)) for a in axes)
        crossing: tuple[Crossing, ...] = ("to tensor",)
        return Variable(name, of, "computed", "registers", "team", dtype, axes, shape, crossing)

    def _type(self, p: Contraction[str]) -> str:
        return product_type(p.parts, self.s.storage, self.s.dtype)

    def _computed(self, n: Node) -> str:
        return {"real": self.s.computed, "int": "int32", "bool": "bool"}[n.kind]

    def _crossing(self, n: Node) -> tuple[Crossing, ...]:
        """The ways that an array goes; in a product's own type, it is handed over as it is."""
        out: list[Crossing] = ["to registers"] if n in self.products else []
        takers = [p for p in self.products.values() if (n,) in p.sides]
        same = any(self._type(p) == self._computed(n) for p in takers)
        return (*out, "to tensor") if same else tuple(out)

    def _only_adds(self, n: Node, state: State) -> bool:
        """Whether a step is the old state plus products that nothing else reads."""
        old = state.leaf("old")
        rest = [a for a in n.args if a is not old]
        own = (a in self.products and len(self.block.readers(a)) == 1 for a in rest)
        return n.op == "add" and old in n.args and all(own)

    def _accumulates(self, n: Node) -> bool:
        """Whether a state lies where tensor cores add to it."""
        leaves = {self.block.states[a].leaf("old") for a in self.added}
        return n in self.added or n in leaves

    def _size(self, axis: str, read: bool) -> int:
        return self.s.tiles[axis] if read else self.s.inner.get(axis, self.s.tiles[axis])

    def _shape(self, n: Node) -> tuple[tuple[str, int], ...]:
        read, pieces = is_read(n), self._written(self.pieces.get(n, {}))
        if n in self.block.states:
            pieces = {}  # the pieces of a new state are put in place one by one
        return tuple(
            pieces.get(a, (self.s.symbol(self.kernel, a, read), self._size(a, read)))
            for a in n.axes
        )

    def _written(self, pieces: Mapping[str, int]) -> dict[str, tuple[str, int]]:
        return {a: (self.s.piece_symbol(a, n), n) for a, n in pieces.items()}

    # --- pieces -----------------------------------------------------------------------------

    def _cuts(self) -> tuple[dict[Node, dict[str, int]], dict[Node, dict[str, int]]]:
        """The axes in which stages run piece by piece, and those that products reduce in pieces: as
        asked for, and as what they read is cut."""
        pieces, splits = dict[Node, dict[str, int]](), dict[Node, dict[str, int]]()
        for stage in self.block.stages:
            n, name = stage.node, self.block.names[stage.node]
            mine: dict[str, int] = {}
            for arg in stage.args:
                for a, size in pieces.get(arg, {}).items() if arg not in self.block.states else ():
                    if a not in n.axes:
                        raise InputError(
                            f"cut {self.block.names[arg]}.{a}={size}: {name} needs the whole of "
                            f"{a}; cut what is streamed with an inner chunk"
                        )
                    mine[a] = min(size, mine.get(a, size))
            for (asked, a), size in self.s.cuts.items():
                if asked != name.removesuffix("'"):
                    continue
                check_known(a, (*n.axes, *over(n)), f"cut {asked}.{a}: {asked} has no axis {a!r}")
                of = mine.get(a, self._size(a, False))
                if size < 1 or of % size:
                    raise InputError(f"cut {asked}.{a}={size} does not divide {a}={of}")
                if a in n.axes:
                    mine[a] = size
                else:
                    splits.setdefault(n, {})[a] = size
            if mine:
                pieces[n] = mine
        return pieces, splits
