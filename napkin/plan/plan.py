"""Plans: what a diagram will run as on a machine, with every prediction, ready to be called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import sympy

from napkin.bound.optimum import Term
from napkin.bound.symbolic_cost import Cost
from napkin.count.crossing import CacheTraffic
from napkin.count.requested import Requests
from napkin.count.residency import held, register_bytes
from napkin.count.traffic import ITEM_BYTES, Direction, Traffic
from napkin.count.visited import Bind
from napkin.derive.kernel import leaves, tensor_of
from napkin.diagram import moves
from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.ir.node import Node
from napkin.ir.taking import table_of
from napkin.ir.types import stored_bytes
from napkin.keys.residues import Blocks, sized
from napkin.lower.build import build
from napkin.lower.descriptors import served
from napkin.lower.order import Launching
from napkin.lower.program import Program
from napkin.lower.signature import Written
from napkin.lower.warpgroups.resources import box_bytes
from napkin.lower.write import write
from napkin.machine.machines import Machine
from napkin.moves.trail import Trail
from napkin.run.recipe import Recipe, Step, Stored
from napkin.schedule import Schedule
from napkin.settings.labelled import storage
from napkin.settings.pricing import Choice
from napkin.settings.specialised import best_specialised, cta_of, written


@dataclass(frozen=True, eq=False)
class PlannedKernel:
    """One kernel of a plan: labels, tiles, predictions, source.

    Attributes:
        choice: labels, tiles and launch settings.
        binding: the kernel's tensor names to the plan's.
    """

    choice: Choice
    binding: Mapping[str, str]
    dtype: str
    machine: Machine

    @property
    def name(self) -> str:
        """The kernel's name in its source."""
        return self.choice.kernel.name

    @cached_property
    def cost(self) -> Cost:
        """Symbolic H, M, bound and work."""
        return Cost(self.choice.kernel, tap_by_tap=True)

    @cached_property
    def byte_cost(self) -> Cost:
        """H, M and the bound in bytes, each array at what it takes; M then is bytes of memory."""
        return self.cost.in_bytes(self.dtypes, self.dtype)

    @property
    def H(self) -> Traffic:
        """Values transferred, symbolic."""
        return self.cost.H

    @property
    def M(self) -> Any:
        """Values held by one group, symbolic."""
        return self.cost.M

    @property
    def bound(self) -> Any:
        """The least H for M values of memory (s -> 0)."""
        return self.cost.bound

    @property
    def terms(self) -> tuple[Term, ...]:
        """The bound as sum of alpha * M**-beta."""
        return self.cost.terms

    @property
    def flops(self) -> Any:
        """Operations, symbolic."""
        return self.cost.flops

    @property
    def tiles(self) -> Mapping[str, int]:
        """Values of each axis that one tile holds."""
        return self.choice.schedule.tiles

    @property
    def schedule(self) -> Schedule:
        """How it runs."""
        return self.choice.schedule

    @cached_property
    def dtypes(self) -> dict[str, str]:
        """Storage type of each tensor."""
        return storage(self.choice.kernel, self.dtype)

    @cached_property
    def bytes(self) -> dict[tuple[str, Direction], int]:
        """Predicted bytes per tensor and direction at the plan's sizes."""
        return self.bytes_at(self.choice.sizes)

    def bytes_at(
        self,
        sizes: Mapping[str, int],
        arrays: Mapping[str, Any] | None = None,
        boxed: bool | None = None,
    ) -> dict[tuple[str, Direction], int]:
        """Predicted bytes per tensor and direction at other sizes, with the same tiles.

        Args:
            arrays: tensors by name, of which the key set may read some (documents, say).
            boxed: whether chunks are read through tensor descriptors, in whole boxes; by default
                as row-major tensors of these sizes are.
        """
        if boxed is None:
            boxed = served(self.program, sizes)
        boxes = self.program.boxes if boxed else {}
        whole = {tensor_of(leaf) for leaf in boxes}
        return self.H.bytes(sizes, self.schedule, self.dtypes, self._bind(arrays), whole)

    def crossing_at(
        self,
        sizes: Mapping[str, int],
        arrays: Mapping[str, Any] | None = None,
        spilled: int = 0,
    ) -> dict[tuple[str, Direction], int]:
        """Predicted bytes between L2 and the multiprocessors per tensor and direction, at other
        sizes with the same tiles: `bytes_at` is what groups ask for, and this what passes, less
        what L1 has, more where sectors and boxes are used in part.

        Args:
            spilled: bytes that a thread stores of registers that it runs out of, as compiled; they
                are written under no tensor's name.
        """
        kernel, boxes = self.choice.kernel, self.program.boxes
        boxed = frozenset(map(tensor_of, boxes if served(self.program, sizes) else ()))
        bind, sizes = self._bind(arrays), kernel.sized(sizes)
        moved = [(t, t.values(sizes, self.tiles, bind, t.tensor in boxed)) for t in self.H.parts]
        requests = Requests(
            moved, sizes, self.tiles, self.dtypes, kernel.group, boxed, self._ahead, bind
        )
        launching = Launching(kernel, ITEM_BYTES[self.dtype])
        order = launching.order(sizes, self.tiles, self.schedule.swizzle)
        choice = self.choice
        out = CacheTraffic(
            requests, self.machine, order, choice.resident, self.shared_bytes
        ).crossing()
        if spilled:
            threads = (
                int(self.machine.granules["warp"].value) * self.schedule.warps * requests.groups
            )
            out["", "write"] = spilled * threads
        return out

    @cached_property
    def _ahead(self) -> frozenset[str]:
        """The tensors that are copied to shared memory ahead of their use."""
        found = held(self.choice.kernel).streamed_operands
        return frozenset(t for t, _ in found) if self.schedule.stages > 1 else frozenset[str]()

    def _bind(self, arrays: Mapping[str, Any] | None) -> Bind | None:
        """The inputs that the key set reads, from tensors by their names in the plan."""
        if arrays is None:
            return None
        own = {leaf: tensor_of(leaf) for leaf in leaves(self.choice.kernel.terms)}
        known = {n: self.binding[t] for n, t in own.items() if self.binding[t] in arrays}
        return {table_of(n): arrays[t] for n, t in known.items()}

    @cached_property
    def program(self) -> Program:
        """The loop program; of a warp-specialised CTA, that of one group."""
        return build(self.choice.kernel, self.schedule, ITEM_BYTES[self.dtype])

    @cached_property
    def written(self) -> Written:
        """The kernel's function, and its arguments."""
        return written(self.choice) if self.schedule.warpgroups else write(self.program)

    @property
    def shared_bytes(self) -> int:
        """Shared memory of one group, in bytes, as the search estimates it: of operands, in as many
        copies as there are stages. Of a kernel of warpgroups, with barriers and what its warps are
        passed."""
        return self.choice.shared

    @property
    def operand_bytes(self) -> int:
        """Bytes of shared memory that the compiler allocates at least: of the largest box, which
        the hardware copies there and nowhere else. Operands without boxes may stay in registers,
        and one may take the place of another. Of a kernel of warpgroups, of all boxes."""
        if self.schedule.warpgroups:
            return box_bytes(cta_of(self.choice))
        if not served(self.program, self.choice.sizes):
            return 0
        program, dtypes = self.program, self.dtypes
        boxes = ((program.span(program.shape(n)), dtypes[tensor_of(n)]) for n in program.boxes)
        return max((stored_bytes(*box) for box in boxes), default=0)


@dataclass(frozen=True, eq=False, repr=False)
class Plan:
    """Kernels in the order they run, and what they are predicted to cost.

    Attributes:
        diagram: what is computed.
        machine: where.
        dtype: storage type of real tensors.
        sizes: size of every axis.
        kernels: the kernels.
        materialised: arrays that pass between kernels through memory, with their axes.
        trail: the derivation.
        same_size: axes that refactoring named, with the axes whose sizes they have.
        parts: axes of parts of a streamed axis, and how many there are.
        blocks: the axes that groups fold block by block.
        specialised: whether kernels of warpgroups may take the place of its own (`launched`).
        given: those that do whatever the model says, by the name of the kernel whose place they
            take.
    """

    diagram: Diagram
    machine: Machine
    dtype: str
    sizes: Mapping[str, int]
    kernels: tuple[PlannedKernel, ...]
    materialised: Mapping[str, tuple[str, ...]]
    trail: Trail
    same_size: Mapping[str, str] = field(default_factory=dict[str, str])
    parts: Mapping[str, int] = field(default_factory=dict[str, int])
    blocks: tuple[Blocks, ...] = ()
    specialised: bool = True
    given: Mapping[str, Choice] = field(default_factory=dict[str, Choice])

    def full(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes for the kernels' axes: those of the diagram, of axes that refactoring named, and of
        parts."""
        same = {new: sizes[old] for new, old in self.same_size.items()}
        return sized({**sizes, **same, **self.parts}, self.blocks)

    @cached_property
    def tensor_of(self) -> dict[str, str]:
        """The tensor that holds each output: its own, or that of an equal output before it."""
        return holders(self.diagram.outputs)

    @property
    def name(self) -> str:
        """The diagram's name."""
        return self.diagram.name

    @property
    def H(self) -> Any:
        """Values transferred by all kernels, symbolic."""
        return sympy.expand(sympy.Add(*(k.H.total for k in self.kernels)))

    @property
    def M(self) -> Any:
        """Values that the largest group holds: one expression per kernel."""
        found = [k.M for k in self.kernels]
        return tuple(found) if len(found) > 1 else found[0]

    @property
    def bound(self) -> Any:
        """The least H of these kernels for M values of memory (s -> 0)."""
        return sympy.expand(sympy.Add(*(k.bound for k in self.kernels)))

    @property
    def terms(self) -> tuple[Term, ...]:
        """The bound as sum of alpha * M**-beta, over all kernels."""
        table: dict[Any, Any] = {}
        for k in self.kernels:
            for t in k.terms:
                table[t.beta] = table.get(t.beta, 0) + t.alpha
        return tuple(Term(sympy.expand(table[beta]), beta) for beta in sorted(table))

    @property
    def tiles(self) -> Mapping[str, int] | tuple[Mapping[str, int], ...]:
        """Tile sizes, of each kernel if there are several."""
        found = [k.tiles for k in self.kernels]
        return tuple(found) if len(found) > 1 else found[0]

    @property
    def flops(self) -> Any:
        """Operations of all kernels, symbolic."""
        return sympy.expand(sympy.Add(*(k.flops for k in self.kernels)))

    @property
    def seconds(self) -> float:
        """Predicted time of all kernels, as they run on the machine (`launched`)."""
        return sum(k.choice.time.seconds for k in self.launched.kernels)

    @cached_property
    def launched(self) -> Plan:
        """The plan as it runs on tensors that descriptors serve: with kernels of warpgroups where
        the machine has such, and they are faster; the plan itself where there are none."""
        instead: dict[int, Choice] = {}
        for k in distinct(self.kernels):
            if (found := self._specialised(k)) is not None:
                instead[id(k.choice)] = found
        if not instead:
            return self
        kernels = (replace(k, choice=instead.get(id(k.choice), k.choice)) for k in self.kernels)
        return replace(self, kernels=tuple(kernels))

    def _specialised(self, k: PlannedKernel) -> Choice | None:
        if k.schedule.warpgroups:
            return None
        if k.name in self.given:
            return self.given[k.name]
        return best_specialised(k.choice, self.dtype, self.machine) if self.specialised else None

    @cached_property
    def workspace(self) -> int:
        """The most bytes of materialised arrays that are alive at once."""
        return moves.made("workspace", self)

    @cached_property
    def source(self) -> str:
        """The kernel file: a header with the derivation, then every kernel once."""
        return moves.made("kernel_file", self)

    @cached_property
    def warpgroups(self) -> str:
        """The file of the kernels of warpgroups, in Gluon; "" where there are none."""
        return moves.made("warpgroup_file", self)

    @cached_property
    def recipe(self) -> Recipe:
        """What it takes to run the kernels; its files leave out how they were derived."""
        pairs = zip(self.kernels, self.launched.kernels, strict=True)
        steps = tuple(
            Step(
                k.written.entry,
                k.binding,
                fast.written.entry if fast.schedule.warpgroups else None,
            )
            for k, fast in pairs
        )
        stored = [
            Stored(k.binding[o.name], o.axes, k.dtypes[o.name])
            for k in self.kernels
            for o in k.choice.origin
        ]
        results = tuple(self.tensor_of[o.name] for o in self.diagram.outputs)
        stores = tuple(dict.fromkeys(stored))
        source = moves.made("kernel_file", self, False)
        specialised = moves.made("warpgroup_file", self, False)
        sizes = self.same_size, self.parts
        return Recipe(source, steps, stores, results, *sizes, specialised, self.blocks)

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data; expressions are sympy text."""
        fast = [k for k in self.launched.kernels if k.schedule.warpgroups]
        return {
            "name": self.name,
            "machine": self.machine.name,
            "dtype": self.dtype,
            "sizes": dict(self.sizes),
            "trail": [str(m) for m in self.trail],
            "materialised": {t: " ".join(axes) for t, axes in self.materialised.items()},
            "workspace_bytes": self.workspace,
            "kernels": [_kernel_json(k) for k in self.kernels],
            **({"warpgroups": [_kernel_json(k) for k in fast]} if fast else {}),
        }

    def without_descriptors(self) -> Plan:
        """The plan with every operand read by addresses, as it is where a tensor does not lie in
        memory as descriptors need."""
        made = [replace(k, choice=k.choice.under(described=0)) for k in self.kernels]
        return replace(self, kernels=tuple(made), given={})

    def ranked(self, most: int = 8) -> dict[str, list[Choice]]:
        """The first `most` settings of each distinct kernel, least predicted time first."""
        return {k.name: moves.made("ranked", self, k, most) for k in distinct(self.kernels)}

    def check(self, **settings: Any) -> Any:
        """Check every prediction against the kernels; see `napkin.check.verdict.check`."""
        return moves.made("check", self, **settings)

    def __call__(self, /, *arrays: Any, **scalars: float) -> Any:
        """Run the kernels: torch tensors on a GPU, else through Triton's interpreter.

        numpy arrays give numpy arrays, torch tensors give torch tensors.
        """
        return moves.made("run", self, arrays, scalars)

    def bound_call(self, /, *arrays: Any, **scalars: float) -> Any:
        """A function without arguments that runs the kernels on these CUDA tensors again and
        again into the same outputs: what to time."""
        return moves.made("bound_call", self, arrays, scalars)

    def __repr__(self) -> str:
        return moves.made("plan_text", self)


def _kernel_json(k: PlannedKernel) -> dict[str, Any]:
    by_tensor: dict[str, int] = {}
    for (tensor, _), count in k.bytes.items():
        by_tensor[tensor] = by_tensor.get(tensor, 0) + count
    return {
        "name": k.name,
        "tensors": dict(k.binding),
        "H": {
            "total": str(k.H.total),
            "per_step": str(k.H.per_step),
            "per_tensor": {t: str(e) for t, e in k.H.per_tensor.items()},
        },
        "M": str(k.M),
        "M_levels": {level: str(e) for level, e in k.cost.levels.items()},
        "bound": str(k.bound),
        "terms": [{"alpha": str(t.alpha), "beta": str(t.beta)} for t in k.terms],
        "flops": str(k.flops),
        **k.schedule.to_json(),
        "bytes": by_tensor,
        "shared_bytes": k.shared_bytes,
        "register_bytes": register_bytes(held(k.choice.kernel), k.tiles),
        "time_us": round(k.choice.time.seconds * 1e6, 3),
        "limited_by": k.choice.time.limited_by,
    }


def holders(outputs: Sequence[Output]) -> dict[str, str]:
    """The tensor that holds each output: its own, or that of an equal output before it."""
    first: dict[tuple[Node, tuple[str, ...]], str] = {}
    return {o.name: first.setdefault((o.node, o.axes), o.name) for o in outputs}


def distinct(kernels: Sequence[PlannedKernel]) -> list[PlannedKernel]:
    """Kernels of a plan, each once however often it runs."""
    return list({id(k.choice): k for k in kernels}.values())
