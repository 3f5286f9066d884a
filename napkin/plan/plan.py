"""Plans: what a diagram will run as on a machine, with every prediction, ready to be called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import sympy

from napkin.bound.optimum import Term
from napkin.diagram import moves
from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.ir.names import with_named
from napkin.ir.node import Node
from napkin.ir.whole_numbers import whole
from napkin.keys.residues import Blocks, sized
from napkin.machine.machines import Machine
from napkin.moves.trail import Trail
from napkin.plan.planned import PlannedKernel, distinct
from napkin.run.recipe import Recipe, Step, Stored
from napkin.settings.choice import Choice
from napkin.settings.specialised import best_specialised


@dataclass(frozen=True)
class Asked:
    """What `nk.derive` was asked for beside a diagram, a machine, sizes and a type."""

    materialise: tuple[str, ...] | Literal["every"] | None = None
    parts: tuple[tuple[str, int], ...] = ()
    multiply_out: bool = False
    tuned: bool = False
    deterministic: bool = True

    def at(self, sizes: Mapping[str, int]) -> dict[str, Any]:
        """The same of `nk.derive` at other sizes: an axis has at most as many parts as values."""
        return {**asdict(self), "parts": {a: min(n, sizes[a]) for a, n in self.parts}}


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
        same_size: axes that refactoring named, with the axes whose sizes they have
            (`napkin.ir.names.with_named`).
        parts: axes of parts of a streamed axis, and how many there are.
        blocks: the axes that groups fold block by block.
        asked: what it was derived for beside these.
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
    asked: Asked = Asked()
    specialised: bool = True
    given: Mapping[str, Choice] = field(default_factory=dict[str, Choice])

    @property
    def deterministic(self) -> bool:
        """Whether no kernels may add to one array in memory in any order."""
        return self.asked.deterministic

    def full(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes for the kernels' axes: those of the diagram, of axes that refactoring named, and of
        parts."""
        return sized({**with_named(sizes, self.same_size), **self.parts}, self.blocks)

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

    @property
    def of_warpgroups(self) -> tuple[PlannedKernel, ...]:
        """The kernels of warpgroups that run in place of its own."""
        return tuple(k for k in self.launched.kernels if k.schedule.warpgroups)

    def _specialised(self, k: PlannedKernel) -> Choice | None:
        if k.schedule.warpgroups:
            return None
        if k.name in self.given:
            return self.given[k.name]
        return best_specialised(k.choice, self.dtype, self.machine) if self.specialised else None

    @property
    def accumulates(self) -> tuple[str, ...]:
        """The tensors to which groups add in memory, in any order."""
        return tuple(k.binding[t] for k in self.kernels for t in k.choice.kernel.added)

    @property
    def notes(self) -> tuple[str, ...]:
        """What has to be known to use it."""
        if not self.accumulates:
            return ()
        what = f"accumulated in memory: {', '.join(self.accumulates)}"
        why = "groups add in any order, so two runs may differ in their last bits"
        return (f"{what}; {why} (deterministic=True leaves this out)",)

    @cached_property
    def moved(self) -> int:
        """Bytes that all kernels read and write, as they run on the machine (`launched`)."""
        return sum(n for k in self.launched.kernels for n in k.bytes.values())

    @property
    def limited_by(self) -> str:
        """What limits the kernel that takes longest, as they run on the machine (`launched`)."""
        times = [k.choice.time for k in self.launched.kernels]
        return max(times, key=lambda time: time.seconds).limited_by

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
        self._check_types()
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

    def _check_types(self) -> None:
        """Check that all kernels say of a tensor that it is of one type."""
        types: dict[str, str] = {}
        for k in self.kernels:
            for t, own in k.dtypes.items():
                name = k.binding[t]
                known = types.setdefault(name, own)
                assert known == own, f"{self.name}: {name} is {known}, and {k.name} has it as {own}"

    def to_json(self) -> dict[str, Any]:
        """The plan as plain data; expressions are sympy text."""
        return {
            "name": self.name,
            "machine": self.machine.name,
            "dtype": self.dtype,
            "sizes": dict(self.sizes),
            "trail": [str(m) for m in self.trail],
            "materialised": {t: " ".join(axes) for t, axes in self.materialised.items()},
            "workspace_bytes": self.workspace,
            **({"accumulates": list(self.accumulates)} if self.accumulates else {}),
            "kernels": [k.to_json() for k in self.kernels],
            **({"warpgroups": [k.to_json() for k in fast]} if (fast := self.of_warpgroups) else {}),
        }

    def without_descriptors(self) -> Plan:
        """The plan with every operand read by addresses, as it is where a tensor does not lie in
        memory as descriptors need."""
        made = [replace(k, choice=k.choice.under(described=0)) for k in self.kernels]
        return replace(self, kernels=tuple(made), given={}, specialised=False)

    def ranked(self, most: int = 8) -> dict[str, list[Choice]]:
        """The first `most` settings of each distinct kernel, least predicted time first."""
        most = whole(most, "ranked: most", 1)
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


def holders(outputs: Sequence[Output]) -> dict[str, str]:
    """The tensor that holds each output: its own, or that of an equal output before it."""
    first: dict[tuple[Node, tuple[str, ...]], str] = {}
    return {o.name: first.setdefault((o.node, o.axes), o.name) for o in outputs}
