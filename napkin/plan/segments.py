"""Segments that differ only in the names of their tensors: each kind is derived once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from napkin.derive.rules.part import handed
from napkin.diagram.interface import Output
from napkin.ir.node import Node, postorder
from napkin.ir.storage import array_bytes, own_type
from napkin.machine.machines import Machine
from napkin.settings.best import FEW, PRICED, Effort
from napkin.settings.choice import Choice
from napkin.settings.choose import Search
from napkin.settings.specialised import launched

IN_FULL = 160
"""Segments of one diagram that are searched for whatever they fuse; then only short ones are."""

SHORT = 3
"""Points of a segment that is searched for however many were."""


@dataclass(frozen=True, eq=False)
class Form:
    """A segment apart from the names of its tensors.

    Attributes:
        key: equal for segments that are equal but for these names.
        tensors: the names: what it reads in order of first use, then its results.
    """

    key: object
    tensors: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Known:
    """How to run the segments of one form.

    Attributes:
        search: for the kernels, over tensor names of the first such segment.
        first: the form of that segment.
    """

    search: Search
    first: Form

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The kernels: one, or two that pass states or sums; none where no kernel fits."""
        return self.search.best

    @cached_property
    def launched(self) -> tuple[Choice, ...]:
        """Each as it runs on tensors that descriptors serve."""
        dtype, machine = self.search.dtype, self.search.machine
        return tuple(launched(c, dtype, machine) for c in self.choices)

    @property
    def states(self) -> Sequence[Output]:
        """What the first kernel stores for the second."""
        return handed(self.choices[0].kernel) if self.choices else ()

    def binding(self, form: Form) -> dict[str, str]:
        """The kernels' tensor names, but of states, to those of another such segment."""
        ours = dict(zip(self.first.tensors, form.tensors, strict=True))
        outputs = self.search.outputs
        theirs = [*tensors(o.node for o in outputs), *(o.name for o in outputs)]
        return {t: ours[t] for t in theirs}


class Memo:
    """The segments that are known on one machine, among all cuts of a diagram.

    Args:
        parts: the number of parts of an axis wherever it is streamed, where that is given.
        deterministic: whether no groups may add in memory.

    Attributes:
        room: the most bytes that an array between two kernels may have.
        known: by the key of its form, how to run a segment.
        short_only: whether some segment was left out, as `IN_FULL` were known.
        effort: how many settings of kernels are priced.
    """

    def __init__(
        self,
        dtype: str,
        machine: Machine,
        parts: Mapping[str, int] | None = None,
        deterministic: bool = True,
    ) -> None:
        self.dtype, self.machine, self.parts = dtype, machine, parts
        self.deterministic = deterministic
        self.room = math.inf
        self.known: dict[object, Known] = {}
        self.short_only, self.effort = False, Effort()
        self._before = 0
        self._operators: dict[Node, int] = {}
        self._interned: dict[object, int] = {}

    def again(self, room: float = math.inf) -> Memo:
        """The same knowledge for another search, with `room` for an array between its kernels."""
        made = copy(self)
        made.room, made._before = room, len(self.known)
        made.short_only, made.effort = False, Effort()
        return made

    @property
    def bounds(self) -> list[str]:
        """What the search left out because there was too much of it."""
        out: list[str] = []
        if self.short_only:
            only = f"only those of {SHORT} reductions or fewer were tried"
            out.append(f"after {IN_FULL} kernels, {only}")
        if self.effort.bounded:
            out.append(f"after {PRICED:,} settings, about {FEW} of each further kernel were priced")
        return out

    def has_room(self, n: Node, sizes: Mapping[str, int]) -> bool:
        """Whether an array may lie in memory between two kernels."""
        return self.room == math.inf or self.bytes(n, sizes) <= self.room

    def bytes(self, n: Node, sizes: Mapping[str, int]) -> int:
        """Bytes of an array in memory."""
        return array_bytes(n, n.axes, sizes, self.dtype)

    def left_out(self, form: Form, short: bool) -> bool:
        """Whether a segment is not searched for: an unknown one that is not short, once `IN_FULL`
        are known."""
        searched = len(self.known) - self._before
        out = not short and searched >= IN_FULL and form.key not in self.known
        self.short_only = self.short_only or out
        return out

    def form(
        self,
        results: Sequence[tuple[str, Node, tuple[str, ...]]],
        stored: Mapping[Node, Node],
        sizes: Mapping[str, int],
        written: Set[Node],
    ) -> Form:
        """The form of a segment.

        Args:
            results: the name of each result, its term, and its axes as they lie in memory.
            stored: the terms that it reads from memory, each with its reading.
            written: the terms that are to be rounded as they are written.
        """
        place: dict[Node, int] = {}
        read: dict[str, int] = {}
        axes = set[str]()
        rows: list[object] = []
        for n in postorder((n for _, n, _ in results), stored):
            place[n] = len(place)
            axes.update(n.axes)
            if n in stored:  # no other than an input of the segment
                leaf = self._number("input", (own_type(n),), stored[n])
                rows.append((leaf, read.setdefault(str(stored[n].params[0]), len(read))))
                continue
            operator = self._operators.get(n) or self._operator(n)
            args = [place[a] for a in n.args]
            if n.op == "input":
                args.insert(0, read.setdefault(str(n.params[0]), len(read)))
            rows.append((operator, *args))
        known = tuple((a, sizes[a]) for a in sorted(axes))
        stores = tuple((place[n], axes, n in written) for _, n, axes in results)
        key = (tuple(rows), stores, known)
        return Form(key, (*read, *(name for name, _, _ in results)))

    def _operator(self, n: Node) -> int:
        """A number for what a term is beside its arguments and the name of its tensor."""
        params = (own_type(n), *n.params[1:]) if n.op == "input" else n.params
        # 1, 1.0 and True are equal, but not the same constant: they are told apart as text.
        found = self._number(n.op, tuple(map(repr, params)), n)
        self._operators[n] = found
        return found

    def _number(self, op: str, params: tuple[str, ...], n: Node) -> int:
        # From 1: 0 is no number yet.
        return self._interned.setdefault((op, params, n.axes, n.kind), len(self._interned) + 1)


def tensors(roots: Iterable[Node]) -> list[str]:
    """Tensors that are read under `roots`, in order of first use."""
    return list(dict.fromkeys(str(n.params[0]) for n in postorder(roots) if n.op == "input"))
