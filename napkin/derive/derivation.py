"""Derivations by hand: `diagram.stream("x").group(q=128)`, one legal move at a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from napkin.derive.kernel import Kernel, label, reduced, weaved
from napkin.derive.prepare import Prepared, prepare
from napkin.derive.trail import RULES, Labels, Move, Trail
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, Refusal, did_you_mean


@dataclass(frozen=True, eq=False, repr=False)
class Derivation:
    """A diagram and the labels that it has so far, as one kernel.

    Attributes:
        diagram: the diagram, which no move changes.
        labels: the labels.
        trail: the moves that led to them.
    """

    diagram: Diagram
    labels: Labels
    trail: Trail

    @staticmethod
    def start(diagram: Diagram) -> Derivation:
        """No label yet; composites are opened when the first move needs it."""
        return Derivation(diagram, Labels(), Trail())

    @cached_property
    def prepared(self) -> Prepared:
        """The diagram's terms without composites, with their names."""
        return prepare(self.diagram)

    @cached_property
    def kernel(self) -> Kernel:
        """The labelled term."""
        return self._kernel(self.labels)

    def _kernel(self, labels: Labels) -> Kernel:
        return label(
            self.diagram.name,
            self.prepared.outputs,
            self.prepared.names,
            streamed=labels.stream,
            passes=labels.passes,
            group=[a for a, _ in labels.group],
        )

    def _known(self, axis: str) -> None:
        if axis not in self.diagram.axes:
            raise InputError(
                f"{self.diagram.name} has no axis {axis!r}; "
                + did_you_mean(axis, self.diagram.axes)
            )

    def _move(self, *moves: Move) -> Derivation:
        labels = self.labels
        for m in moves:
            labels = RULES[m.rule].apply(labels, m)
        made = self._kernel(labels)  # refuses here if a condition fails
        trail = self.trail
        if not self.labels.expanded:
            opened = [Move("expand", made.name, what) for what in self.prepared.expansions]
            trail = trail.then(*opened)
            labels = replace(labels, expanded=self.prepared.expansions)
        trail = trail.then(*moves)
        if moves[0].rule == "stream":
            trail = trail.then(*separations(made))
        return Derivation(self.diagram, labels, trail)

    def stream(self, axis: str, chunk: int | None = None, passes: int = 1) -> Derivation:
        """Cut `axis` into chunks that one group reads in turn (arXiv 2412.03317, section 2.3).

        Args:
            chunk: values per chunk; open if None.
            passes: how often the axis may be read.

        Raises:
            Refusal: some reduction over the axis does not stream, or an output carries the axis
                and waits for one.
        """
        self._known(axis)
        if self.labels.stream:
            raise Refusal(
                f"stream {axis}",
                self.diagram.name,
                f"{self.labels.stream} is streamed already, and a kernel streams one axis",
                "take that back with undo()",
            )
        moves = [Move("stream", self.diagram.name, axis, None if passes == 1 else passes)]
        if chunk is not None:
            moves.append(Move("tile", self.diagram.name, axis, _size(axis, chunk)))
        return self._move(*moves)

    def group(self, *axes: str, **tiles: int | None) -> Derivation:
        """Cut weaved axes into groups: `group("q")` or `group(q=128)`.

        Raises:
            Refusal: the algorithm is not weaved over an axis.
        """
        wanted: dict[str, int | None] = {**dict.fromkeys(axes), **tiles}
        out = self
        for axis, size in wanted.items():
            out._known(axis)
            moves: list[Move] = []
            if axis not in dict(out.labels.group):
                moves.append(Move("group", self.diagram.name, axis))
            if size is not None:
                moves.append(Move("tile", self.diagram.name, axis, _size(axis, size)))
            if moves:
                out = out._move(*moves)
        return out

    def undo(self) -> Derivation:
        """The derivation before its last move."""
        moves = list(self.trail.moves)
        while moves and moves[-1].rule == "separate":
            moves.pop()
        if not moves:
            return self
        last = moves.pop()
        labels = RULES[last.rule].invert(self.labels, last)
        return Derivation(self.diagram, labels, Trail(tuple(moves)))

    def legal(self) -> tuple[Move, ...]:
        """Every group or stream move that is legal now."""
        name, out = self.diagram.name, list[Move]()
        for axis in weaved(self.prepared.outputs):
            if axis not in dict(self.labels.group) and axis != self.labels.stream:
                out.append(Move("group", name, axis))
        if not self.labels.stream:
            for axis in reduced(self.prepared.outputs):
                try:
                    self.stream(axis)
                except Refusal:
                    continue
                out.append(Move("stream", name, axis))
        return tuple(out)

    def evaluate(self, *arrays: Any, **scalars: float) -> Any:
        """The diagram's value; labels do not change it."""
        return self.diagram.evaluate(*arrays, **scalars)

    def __repr__(self) -> str:
        return f"{self.diagram!r}\n{self.trail}"


def _size(axis: str, value: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:  # pyright: ignore
        raise InputError(f"the size of {axis} is {value!r}; write a whole number from 1")
    return value


def separations(kernel: Kernel) -> list[Move]:
    """The uses of the separability theorem behind a streamed kernel, as moves."""
    return [Move("separate", kernel.name, s.place, note=str(s)) for s in kernel.stream.separations]


def replayed(diagram: Diagram, trail: Trail) -> Mapping[str, Labels]:
    """The labels that a trail leads to on `diagram`, each move checked again."""
    out = Derivation.start(diagram)
    for m in trail:
        if m.rule == "stream":
            out = out.stream(m.argument, passes=m.value or 1)
        elif m.rule == "group":
            out = out.group(m.argument)
        elif m.rule == "tile":
            labels = RULES["tile"].apply(out.labels, m)
            out = Derivation(diagram, labels, out.trail.then(m))
    return {diagram.name: out.labels}
