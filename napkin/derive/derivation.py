"""Derivations by hand: `diagram.stream("x").group(q=128)`, one legal move at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from napkin.derive.kernel import Kernel, label, reduced, weaved
from napkin.derive.prepare import Prepared, prepare
from napkin.derive.trail import RULES, Labels, Move, Trail
from napkin.diagram import moves as doors
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
            hold=labels.hold,
        )

    # --- what it costs ----------------------------------------------------------------------

    @cached_property
    def cost(self) -> Any:
        """Symbolic costs; see `napkin.cost.model.Cost`."""
        return doors.cost(self.kernel)

    @property
    def H(self) -> Any:
        """Values transferred in total, over axis and group sizes."""
        return self.cost.H.total

    @property
    def M(self) -> Any:
        """Values that one group holds, over group, chunk and whole sizes."""
        return self.cost.M

    @property
    def bound(self) -> Any:
        """The least H for M values of memory (s -> 0)."""
        return self.cost.bound

    @property
    def terms(self) -> Any:
        """The bound as sum of alpha * M**-beta."""
        return self.cost.terms

    # --- moves ------------------------------------------------------------------------------

    def _known(self, axis: str) -> None:
        if axis not in self.diagram.axes:
            raise InputError(
                f"{self.diagram.name} has no axis {axis!r}; "
                + did_you_mean(axis, self.diagram.axes)
            )

    def _move(self, *moves: Move) -> Derivation:
        known = [Move("expand", self.diagram.name, what) for what in self.prepared.expansions]
        moves = (*(m for m in known if m.argument not in self.labels.expanded), *moves)
        labels = self.labels
        for m in moves:
            labels = RULES[m.rule].apply(labels, m)
        made = self._kernel(labels)  # refuses here if a condition fails
        trail = self.trail
        for m in moves:
            trail = trail.then(m)
            if m.rule == "stream":
                trail = trail.then(*separations(made))
        return Derivation(self.diagram, labels, trail)

    def stream(
        self, axis: str, chunk: int | None = None, passes: int = 1, hold: Iterable[str] = ()
    ) -> Derivation:
        """Cut `axis` into chunks that one group reads in turn (arXiv 2412.03317, section 2.3).

        Args:
            chunk: values per chunk; open if None.
            passes: how often the axis may be read.
            hold: names of results to keep running where applying them in the tail would do; for
                a softmax this is the normalised accumulator of FlashAttention-1.

        Raises:
            InputError: there is no such axis or result.
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
        moves: list[Move] = []
        names = [t for n, t in self.prepared.names.items() if axis in over(n)]
        for held in (hold,) if isinstance(hold, str) else hold:
            if held not in names:
                raise InputError(
                    f"hold {held!r}: no reduction over {axis} has that name; "
                    + did_you_mean(held, names)
                )
            moves.append(Move("hold", self.diagram.name, held))
        moves.append(Move("stream", self.diagram.name, axis, None if passes == 1 else passes))
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
        """The derivation before its last move.

        An expansion stays: it is no choice of the reader's, and every later move needs it.
        """
        moves = list(self.trail.moves)
        while moves and moves[-1].rule == "separate":
            moves.pop()
        if not moves or moves[-1].rule == "expand":
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
