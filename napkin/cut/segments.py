"""Segments that differ only in the names of their tensors: each kind is derived once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property

from napkin.derive.kernel import Kernel
from napkin.derive.rules.part import handed
from napkin.diagram.interface import Output
from napkin.ir.node import Node, Param, postorder, told_apart
from napkin.ir.storage import array_bytes, own_type
from napkin.machine.machines import Machine
from napkin.settings.choice import Choice
from napkin.settings.choose import Search
from napkin.settings.effort import LABELLINGS, NARROW, Effort
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
        reads: what it reads, in order of first use: terms that others store, and names of inputs.
    """

    key: object
    reads: tuple[Node | str, ...]


@dataclass(frozen=True, eq=False)
class Known:
    """How to run the segments of one form.

    Attributes:
        search: for the kernels, over tensor names of the first such segment.
        first: those names: what it reads in order of first use, then its results.
    """

    search: Search
    first: tuple[str, ...]

    @property
    def choices(self) -> tuple[Choice, ...]:
        """The kernels: one, or several that pass states or sums; none where no kernel fits."""
        return self.search.best

    @cached_property
    def launched(self) -> tuple[Choice, ...]:
        """Each as it runs on tensors that descriptors serve."""
        dtype, machine = self.search.dtype, self.search.machine
        return tuple(launched(c, dtype, machine) for c in self.choices)

    @property
    def states(self) -> Sequence[Output]:
        """What kernels store for those after them alone."""
        return [o for c in self.choices[:-1] for o in handed(c.kernel)]

    def binding(self, names: Sequence[str]) -> dict[str, str]:
        """The kernels' tensor names, but of states, to those of another such segment."""
        ours = dict(zip(self.first, names, strict=True))
        outputs = self.search.outputs
        theirs = [*tensors(o.node for o in outputs), *(o.name for o in outputs)]
        return {t: ours[t] for t in theirs}


Shape = tuple[
    tuple[tuple[Node, tuple[str, ...], bool], ...], tuple[tuple[Node, tuple[str, ...]], ...]
]
"""What a segment computes, each result with its axes as they lie in memory and whether it is to be
rounded as it is written, and the terms that it reads from memory, with their axes there."""

Seen = tuple[Known, tuple[Node | str, ...]] | int
"""How to run a segment, with what it reads (`Form.reads`); of one that is left out, the hash of its
form."""


class Memo:
    """The segments that are known on one machine, among all cuts of a diagram.

    Args:
        parts: the number of parts of an axis wherever it is streamed, where that is given.
        deterministic: whether no groups may add in memory.

    Attributes:
        room: the most bytes that an array between two kernels may have.
        known: by the key of its form, how to run a segment.
        short_only: whether some segment was left out, as `IN_FULL` were known.
        effort: what the search has done.
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
        self._seen: dict[object, dict[Shape, Seen]] = {}
        self._hashes = set[int]()  # of the keys of `known`, and of the results of these

    def again(self, room: float = math.inf, effort: Effort | None = None) -> Memo:
        """The same knowledge for another search, with `room` for an array between its kernels; one
        that goes on with the `effort` of a search is bounded with it."""
        made = copy(self)
        made.room, made._before = room, len(self.known)
        made.short_only, made.effort = False, effort or Effort()
        return made

    def leave_out(self, kernel: Kernel) -> None:
        """Search no more for kernels with the labels of one that no compiler takes, which may have
        got another name since it was found."""
        for known in (k for k in self.known.values() if k.search.priced):
            found = (c.kernel for c in known.choices)
            if any(k.outputs is kernel.outputs and k.stream is kernel.stream for k in found):
                known.search.leave_out(kernel)
                known.__dict__.pop("launched", None)

    @property
    def bounds(self) -> list[str]:
        """What the search left out because there was too much of it."""
        out: list[str] = []
        if self.short_only:
            only = f"only those of {SHORT} reductions or fewer were tried"
            out.append(f"after {IN_FULL} kernels, {only}")
        if self.effort.thinned:
            work = f"after the work of {NARROW:,} settings"
            few = f"{LABELLINGS} labellings and in the most parts"
            out.append(f"{work}, further kernels were tried in {few}")
        for work, what in sorted(self.effort.stopped):
            out.append(f"after the work of {work:,} settings, {what}")
        return out

    def has_room(self, n: Node, sizes: Mapping[str, int]) -> bool:
        """Whether an array may lie in memory between two kernels."""
        return self.room == math.inf or self.bytes(n, sizes) <= self.room

    def bytes(self, n: Node, sizes: Mapping[str, int]) -> int:
        """Bytes of an array in memory."""
        return array_bytes(n, n.axes, sizes, self.dtype)

    def left_out(self, form: Form | Shape | int, short: bool) -> bool:
        """Whether a segment is not searched for: an unknown one that is not short, once `IN_FULL`
        are known. By its shape, or the hash of its form, this may be told of one that is not; it
        then is told of its form."""
        if short or len(self.known) - self._before < IN_FULL:
            return False
        if isinstance(form, Form):
            known = form.key in self.known
        else:
            known = (form if isinstance(form, int) else hash(self._ends(form))) in self._hashes
        self.short_only = self.short_only or not known
        return not known

    def _ends(self, shape: Shape) -> tuple[tuple[int, bool], ...]:
        """What the results of a segment are beside their arguments: equal for equal forms."""
        return tuple((self._operators.get(n) or self._operator(n), w) for n, _, w in shape[0])

    def seen_at(self, sizes: Mapping[str, int]) -> dict[Shape, Seen]:
        """What is known, at some sizes, of segments with the same terms."""
        return self._seen.setdefault(frozenset(sizes.items()), {})

    def add(self, shape: Shape, form: Form, known: Known) -> None:
        """Keep how to run the segments of a form."""
        self.known[form.key] = known
        self._hashes |= {hash(form.key), hash(self._ends(shape))}

    def form(self, shape: Shape, sizes: Mapping[str, int]) -> Form:
        """The form of a segment."""
        results, stored = shape[0], dict(shape[1])
        place: dict[Node, int] = {}
        read: dict[Node | str, int] = {}
        axes = set[str]()
        rows: list[object] = []
        for n in postorder((n for n, *_ in results), stored):
            place[n] = len(place)
            axes.update(n.axes)
            if n in stored:  # no other than an input of the segment
                leaf = self._number("input", (own_type(n),), n, stored[n])
                rows.append((leaf, read.setdefault(n, len(read))))
                continue
            operator = self._operators.get(n) or self._operator(n)
            args = [place[a] for a in n.args]
            if n.op == "input":
                args.insert(0, read.setdefault(str(n.params[0]), len(read)))
            rows.append((operator, *args))
        known = tuple((a, sizes[a]) for a in sorted(axes))
        stores = tuple((place[n], axes, written) for n, axes, written in results)
        return Form((tuple(rows), stores, known), tuple(read))

    def _operator(self, n: Node) -> int:
        """A number for what a term is beside its arguments and the name of its tensor."""
        params = (own_type(n), *n.params[1:]) if n.op == "input" else n.params
        found = self._number(n.op, tuple(map(told_apart, params)), n)
        self._operators[n] = found
        return found

    def _number(
        self, op: str, params: tuple[Param, ...], n: Node, axes: tuple[str, ...] | None = None
    ) -> int:
        # From 1: 0 is no number yet.
        key = op, params, n.axes if axes is None else axes, n.kind
        return self._interned.setdefault(key, len(self._interned) + 1)


def tensors(roots: Iterable[Node]) -> list[str]:
    """Tensors that are read under `roots`, in order of first use."""
    return list(dict.fromkeys(str(n.params[0]) for n in postorder(roots) if n.op == "input"))
