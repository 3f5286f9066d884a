"""Derivations by hand: `diagram.stream("x").group(q=128)`, one legal move at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

from napkin.algebra.relabel import Labels, Move
from napkin.derive.kernel import Kernel
from napkin.derive.label import label, reduced
from napkin.derive.prepare import Prepared, prepare
from napkin.derive.rules.group import GROUP
from napkin.derive.rules.stream import streamed
from napkin.diagram import moves as doors
from napkin.diagram.diagram import Diagram
from napkin.diagram.reductions import each_of
from napkin.errors import InputError, Refusal, check_known
from napkin.ir.names import axis_names
from napkin.ir.node import over
from napkin.ir.whole_numbers import whole
from napkin.keys.residues import Split
from napkin.moves.trail import Trail, relabelled
from napkin.rewrite.split import SplitTerm, split_terms, why_not_split

MOST_PASSES = 64
"""Passes over one axis, at most."""


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
    def split_term(self) -> SplitTerm | None:
        """The term with the axes that have been split, if any have."""
        return self._split(self.labels)

    def _split(self, labels: Labels) -> SplitTerm | None:
        axes = [pair.split()[1] for pair, _ in labels.split]
        found = split_terms(self.prepared.outputs, self.prepared.names, axes)
        return next((a for a in found if len(a.pairs) == len(axes)), None) if axes else None

    @property
    def _term(self) -> Prepared | SplitTerm:
        return self.split_term or self.prepared

    @cached_property
    def kernel(self) -> Kernel:
        """The labelled term."""
        return self._kernel(self.labels)

    def _kernel(self, labels: Labels) -> Kernel:
        kernel = label(
            self.diagram.name,
            self.prepared.outputs,
            self.prepared.names,
            streamed=labels.stream,
            passes=labels.passes,
            group=[a for a, _ in labels.group],
            hold=labels.hold,
            split=self._split(labels),
            pair=dict(labels.pair).get(labels.stream) or 0,
        )
        return streamed(kernel)

    # --- what it costs ----------------------------------------------------------------------

    @cached_property
    def cost(self) -> Any:
        """Symbolic costs; see `napkin.bound.symbolic_cost.Cost`."""
        return doors.made("cost", self.kernel)

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
        known = list(self.diagram.axes)
        for s in self.split_term.splits if self.split_term else ():
            known = [a for a in known if a != s.axis] + [s.place, s.residue]
        check_known(axis, known, f"{self.diagram.name} has no axis {axis!r}")

    def _refuse_twice(self, move: str, axis: str, how: str) -> NoReturn:
        raise Refusal(
            move,
            self.diagram.name,
            f"{axis} is {how} already, and an axis is cut once",
            "take that back with undo()",
        )

    def _move(self, *moves: Move) -> Derivation:
        known = [Move("expand", self.diagram.name, what) for what in self.prepared.expansions]
        moves = (*(m for m in known if m.argument not in self.labels.expanded), *moves)
        labels = self.labels
        for m in moves:
            labels = relabelled(labels, m)
        made = self._kernel(labels)  # refuses here if a condition fails
        trail = self.trail
        for m in moves:
            trail = trail.then(m)
            if m.rule == "stream":
                trail = trail.then(*separations(made))
        return self._at(labels, trail, made)

    def _at(self, labels: Labels, trail: Trail, kernel: Kernel) -> Derivation:
        out = Derivation(self.diagram, labels, trail)
        # What is known already need not be derived again.
        vars(out).update(prepared=self.prepared, kernel=kernel)
        return out

    def stream(
        self,
        axis: str,
        chunk: int | None = None,
        passes: int = 1,
        hold: Iterable[str] = (),
        pair: int = 0,
    ) -> Derivation:
        """Cut `axis` into chunks that one group reads in turn (arXiv 2412.03317, section 2.3).

        Several axes, separated by spaces, are cut jointly: a chunk is a box of them.

        Args:
            chunk: values per chunk along each axis; open if None.
            passes: how often the axis may be read.
            hold: names of results to keep running where applying them in the tail would do; for
                a softmax this is the normalised accumulator of FlashAttention-1. A result that may
                have no value for a while, as the maximum of what is masked so far, is not kept.
            pair: positions of a chunk, if a linear recurrence that only products read is to be
                computed by pairs of them.

        Raises:
            InputError: there is no such axis or result, or a number is none.
            Refusal: the axis is grouped, some reduction over it does not stream, or an output
                carries it and waits for one.
        """
        axes = axis_names(axis, f"stream({axis!r})")
        if not axes:
            raise InputError(f"stream({axis!r}) cuts no axis; name one, as in stream('x')")
        for a in axes:
            self._known(a)
        axis = " ".join(axes)
        passes = whole(passes, "stream: passes", 1)
        if passes > MOST_PASSES:
            raise InputError(
                f"stream: passes={passes}, but no term reads {axis} so often; write {MOST_PASSES} "
                "at most"
            )
        pair = whole(pair, "stream: pair")
        if self.labels.stream:
            raise Refusal(
                f"stream {axis}",
                self.diagram.name,
                f"{self.labels.stream} is streamed already, and a kernel streams once",
                "take that back with undo()",
            )
        for a in axes:
            if a in dict(self.labels.group):
                self._refuse_twice(f"stream {axis}", a, "grouped")
        moves: list[Move] = []
        names = [t for n, t in self._term.names.items() if set(axes) & set(over(n))]
        for held in each_of(hold):
            check_known(held, names, f"hold {held!r}: no reduction over {axis} has that name")
            moves.append(Move("hold", self.diagram.name, held))
        moves.append(Move("stream", self.diagram.name, axis, None if passes == 1 else passes))
        if pair:
            moves.append(Move("pair", self.diagram.name, axis, pair))
        out = self._move(*moves)
        return out if chunk is None else out.tile(**dict.fromkeys(axes, chunk))

    def split(self, *axes: str) -> Derivation:
        """Split key axes, and the axes of their queries, by residue: where a key set is dilated,
        queries and keys of one residue are a problem of its own, without gaps.

        Axis x becomes `x_div_d`, its places, beside `q_mod_d`, the residues that queries share with
        their keys: x = d * x_div_d + q_mod_d. By default every key axis that can be split is.

        Raises:
            InputError: there is no such axis.
            Refusal: no key set is dilated along an axis, the term needs keys of other residues, or
                the axis is cut already.
        """
        for a in axes:
            self._known(a)
        what, cut = f"split {' '.join(axes)}".strip(), {a for a, _ in self.labels.group}
        cut |= set(self.labels.stream.split())
        outputs, names = self.prepared.outputs, self.prepared.names
        already = [pair.split()[1] for pair, _ in self.labels.split]
        wanted = {*already, *axes} if axes else None
        found = next(split_terms(outputs, names, wanted), None)
        new = [p for p in found.pairs if p[1].axis not in already] if found else []
        if found is None or not new or len(found.pairs) < len(wanted or ()):
            reason = why_not_split(outputs, axes)
            instead = "stream it as it is: the loops visit its keys from the first to the last"
            raise Refusal(what, self.diagram.name, reason, instead)
        for q, x in new:
            held = [a for a in (q.axis, x.axis) if a in cut]
            if held:
                raise Refusal(
                    what, self.diagram.name, f"{held[0]} is cut already", "split it first"
                )
        return self._move(*(division(self.diagram.name, pair) for pair in new))

    def group(self, *axes: str, **tiles: int | None) -> Derivation:
        """Cut weaved axes into groups: `group("q")` or `group(q=128)`.

        Raises:
            Refusal: the algorithm is not weaved over an axis, or it is streamed.
        """
        out = self
        for axis, size in (*((a, None) for a in axes), *tiles.items()):
            out._known(axis)
            if axis in out.labels.stream.split():
                out._refuse_twice(f"group {axis}", axis, "streamed")
            if axis not in dict(out.labels.group):
                out = out._move(Move(GROUP.name, self.diagram.name, axis))
                for found in GROUP.matches(out._term.outputs, [axis]):
                    GROUP.apply(found)
            if size is not None:
                out = out.tile(**{axis: size})
        return out

    def tile(self, **sizes: int) -> Derivation:
        """Fix the size of groups and of the chunk: `tile(q=128, x=64)`.

        Raises:
            Refusal: an axis is not cut, or a chunk of several is asked of a scan by single steps.
        """
        out = self
        for axis, size in sizes.items():
            out._known(axis)
            if axis not in out.labels.stream.split() and axis not in dict(out.labels.group):
                raise Refusal(
                    f"tile {axis}",
                    self.diagram.name,
                    f"{axis} is neither grouped nor streamed",
                    f"cut {axis} first with group or stream",
                )
            m = Move("tile", self.diagram.name, axis, whole(size, f"tile: {axis}", 1))
            stepped = any(p.stepped for p in out.kernel.stream.passes)
            if stepped and axis in out.labels.stream.split() and size > 1:
                raise Refusal(
                    f"tile {axis}={size}",
                    self.diagram.name,
                    f"a scan takes one position of {axis} after another",
                    f"leave the chunk open, or write {axis}=1",
                )
            labels = relabelled(out.labels, m)
            # A size is no condition: the kernel stays as it is.
            out = self._at(labels, out.trail.then(m), out.kernel)
        return out

    def undo(self) -> Derivation:
        """The derivation before its last move, and before what came with that move."""
        kept = list(self.trail.moves)
        while kept and kept[-1].rule in {"separate", "pair"}:
            kept.pop()
        kept = kept[:-1]
        while kept and kept[-1].rule in {"hold", "expand"}:
            kept.pop()
        trail = Trail(tuple(kept))
        return Derivation(self.diagram, trail.replay().get(self.diagram.name, Labels()), trail)

    def legal(self) -> tuple[Move, ...]:
        """Every group or stream move that is legal now."""
        name, out = self.diagram.name, list[Move]()
        cut = {*dict(self.labels.group), *self.labels.stream.split()}
        for found in GROUP.matches(self._term.outputs):
            if found.where not in cut:
                out.append(Move(GROUP.name, name, found.where))
        if not self.labels.stream:
            for axis in reduced(self._term.outputs):
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


def separations(kernel: Kernel) -> list[Move]:
    """The uses of the separability theorem behind a streamed kernel, as moves."""
    return [Move("separate", kernel.name, s.place, note=str(s)) for s in kernel.stream.separations]


def division(name: str, pair: Sequence[Split]) -> Move:
    """The split of a query axis and a key axis, as a move."""
    note = " and ".join(f"{s.axis} = {s.step} {s.place} + {s.residue}" for s in pair)
    axes = " ".join(s.axis for s in pair)
    return Move("split", name, axes, pair[0].step, f"{note}; no query sees another residue's keys")


def divisions(kernel: Kernel) -> list[Move]:
    """The splits of a kernel's axes, as moves."""
    of: dict[str, list[Split]] = {}
    for s in kernel.ragged.values():
        of.setdefault(s.residue, []).append(s)
    return [division(kernel.name, pair) for pair in of.values()]
