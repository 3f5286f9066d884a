"""The kernels of a cut, each derived once: the layers of a stack are one kernel that runs often."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from napkin.cost.machines import Machine
from napkin.diagram.diagram import Output
from napkin.diagram.expand import view
from napkin.diagram.keys.slots import read_inputs
from napkin.diagram.node import Node, node, postorder, rewrite
from napkin.diagram.storage import Tensor, own_type, unstored, widens
from napkin.plan.choose import Choice, best
from napkin.plan.frontier import Frontier


@dataclass(frozen=True, eq=False)
class Piece:
    """One kernel of a cut.

    Attributes:
        choice: its labels, tiles and cost, over tensor names of its own.
        binding: those names to the names in the plan.
    """

    choice: Choice
    binding: Mapping[str, str]


class Pieces:
    """Derives the kernels of a term, and names what they pass on through memory.

    Attributes:
        tensors: the name of every array that some kernel was derived to store.
    """

    def __init__(
        self,
        name: str,
        outputs: Sequence[Output],
        names: Mapping[Node, str],
        frontier: Frontier,
        dtype: str,
        machine: Machine,
    ) -> None:
        self.name, self.outputs, self.names = name, outputs, names
        self.frontier, self.dtype, self.machine = frontier, dtype, machine
        self.tensors: dict[Node, str] = {}
        self._named = {o.node: o for o in reversed(outputs)}
        self._derived: dict[object, Choice | None] = {}

    def piece(self, wanted: Sequence[Node], boundary: int) -> Piece | None:
        """The kernel for `wanted`, reading what came with heavy terms up to `boundary`."""
        stored = self.frontier.stored(wanted, boundary)
        if stored is None:
            return None
        typed = {n.args[0] if n.op == "compress" else n for n in wanted}

        def change(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op == "rename":
                return view(args[0], cast("tuple[tuple[str, str], ...]", old.params[0]))
            if widens(old) and old not in typed:
                return args[0]
            return read_inputs(old, args)

        done = rewrite(wanted, change, {n: self._leaf(n) for n in stored if n not in wanted})
        outputs = [Output(self._tensor(n), self._own(done[n]), self._axes_of(n)) for n in wanted]
        key = _key(outputs)
        if key not in self._derived:
            named = [n for n in done if n in self.names and n.op != "input"]
            names = {done[n]: self.names[n] for n in named}
            names |= {o.node: o.name for o in outputs}
            title = self._title(wanted)
            self._derived[key] = best(
                title, outputs, names, self.frontier.sizes, self.dtype, self.machine
            )
        choice = self._derived[key]
        if choice is None:
            return None
        # The cached kernel carries the tensor names of the first kernel like it.
        theirs = [*_inputs(choice.origin), *(o.name for o in choice.origin)]
        ours = [*_inputs(outputs), *(o.name for o in outputs)]
        return Piece(choice, dict(zip(theirs, ours, strict=True)))

    def _own(self, n: Node) -> Node:
        """`n` without a cast to the plan's own type, in which it is stored anyway."""
        return unstored(n) if own_type(n) == self.dtype else n

    def _leaf(self, n: Node) -> Node:
        """The reading of what an earlier kernel stored."""
        name, own = self._tensor(n), own_type(n)
        tensor = Tensor(name, own) if own not in {"", self.dtype} else name
        return node("input", params=(tensor,), axes=n.axes, kind=n.kind)

    def _axes_of(self, n: Node) -> tuple[str, ...]:
        return self._named[n].axes if n in self._named else n.axes

    def _tensor(self, n: Node) -> str:
        if n not in self.tensors:
            result = self._named[n].name if n in self._named else ""
            base = result or self.names.get(n) or "t"
            taken = set(self.tensors.values())
            taken |= {str(m.params[0]) for m in self.frontier.order if m.op == "input"}
            taken |= {o.name for o in self.outputs} - {result}
            name, i = base, 1
            while name in taken:
                i += 1
                name = f"{base}_{i}"
            self.tensors[n] = name
        return self.tensors[n]

    def _title(self, wanted: Sequence[Node]) -> str:
        if set(wanted) == self.frontier.results:
            return self.name
        return f"{self.name}_{'_'.join(self._tensor(n) for n in wanted)}"


def _inputs(outputs: Sequence[Output]) -> list[str]:
    """Input tensors in order of first use."""
    order = postorder(o.node for o in outputs)
    return list(dict.fromkeys(str(n.params[0]) for n in order if n.op == "input"))


def _key(outputs: Sequence[Output]) -> object:
    """Equal for kernels that differ only in the names of their tensors."""
    order = list(postorder(o.node for o in outputs))
    place = {n: i for i, n in enumerate(order)}
    tensors = _inputs(outputs)
    rows = tuple(
        (
            n.op,
            tuple(place[a] for a in n.args),
            (tensors.index(str(n.params[0])), own_type(n), n.params[1:])
            if n.op == "input"
            else tuple(map(repr, n.params)),
            n.axes,
            n.kind,
        )
        for n in order
    )
    return rows, tuple((place[o.node], o.axes) for o in outputs)
