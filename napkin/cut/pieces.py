"""The kernels of a cut, each derived once: the layers of a stack are one kernel that runs often."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

from napkin.algebra.rule import verifying
from napkin.algebra.terms import rounded
from napkin.algebra.tracer import active
from napkin.cut.frontier import Frontier
from napkin.cut.segments import IN_FULL, Known, Memo
from napkin.derive.kernel import Kernel, tensor_of
from napkin.diagram.interface import Output
from napkin.ir.infer import pointwise
from napkin.ir.listing import stem_of
from napkin.ir.names import numbered
from napkin.ir.node import Node, factors, node, over, postorder
from napkin.ir.rewrite import rewrite
from napkin.ir.storage import Tensor, own_type, unstored
from napkin.lower.printer import function_name
from napkin.rewrite.alike import ALIKE, called
from napkin.rewrite.materialise import STORED
from napkin.settings.choice import Choice
from napkin.settings.choose import Search

Results = Sequence[tuple[str, Node, tuple[str, ...]]]
"""The name of each result, its term, and its axes as they lie in memory."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One kernel of a cut.

    Attributes:
        choice: its labels, tiles and cost, over tensor names of its own.
        binding: those names to the names in the plan.
        launched: it as it runs on tensors that descriptors serve.
    """

    choice: Choice
    binding: Mapping[str, str]
    launched: Choice

    @property
    def seconds(self) -> float:
        """Its predicted time."""
        return self.launched.time.seconds

    @property
    def specialised(self) -> float:
        """That as a warp-specialised kernel."""
        return self.seconds if self.launched.schedule.warpgroups else 0.0

    @property
    def launches(self) -> int:
        """Its launches: of a kernel whose groups add, one more sets to 0 what they add to."""
        return 1 + bool(self.choice.kernel.added)


def uniquely_named(pieces: Sequence[Piece]) -> list[Piece]:
    """Pieces in which no two kernels have one name, and none that of a function that kernels call.

    A kernel that is known already brings the name that it had in another cut, where its tensors had
    other names.
    """
    made: dict[int, Choice] = {}
    taken = set[str]()
    for choice in (p.choice for p in pieces):
        if id(choice) not in made:
            made[id(choice)] = _renamed(choice, taken)
    return [replace(p, choice=made[id(p.choice)]) for p in pieces]


def _renamed(choice: Choice, taken: set[str]) -> Choice:
    """A choice whose kernel has a name that is not taken; it then is."""
    own = choice.kernel.name
    tries = (own if i == 1 else f"{own}_{i}" for i in itertools.count(1))
    name = next(t for t in map(function_name, tries) if t not in taken)
    taken.add(name)
    return choice if name == own else replace(choice, kernel=replace(choice.kernel, name=name))


def agreeing(pieces: Sequence[Piece], dtype: str) -> list[Piece]:
    """Pieces in which kernels that compute one contraction round its factors in one way.

    One kernel may store the sum of a softmax, and another compute the weights again. The weights
    add up to 1 only if the scores are the same in both. So both round to the plan's type, where one
    of them has a tensor of that type, and with it matrix products.
    """
    computed = [_contractions(p) for p in pieces]
    times = Counter(n for found in computed for n in found)
    narrow = [p for p in pieces if any(_of_plans_type(n) for n in _tensors(p.choice.kernel))]
    rounding = {n for p, found in zip(pieces, computed, strict=True) if p in narrow for n in found}
    made = {id(p.choice): p.choice for p in pieces}
    for p, found in zip(pieces, computed, strict=True):
        if dtype != "fp32" and any(times[n] > 1 for n in found & rounding):
            kernel = replace(p.choice.kernel, rounds=dtype)
            made[id(p.choice)] = replace(p.choice, kernel=kernel)
    return [replace(p, choice=made[id(p.choice)]) for p in pieces]


def _contractions(piece: Piece) -> set[Node]:
    """The contractions of a kernel that have a computed factor, over the plan's tensors."""
    outputs = [o.node for o in piece.choice.kernel.outputs]
    if any(tensor_of(n) not in piece.binding for n in postorder(outputs) if n.op == "input"):
        return set()  # it goes on from what another kernel computes of these
    found = rewrite(outputs, partial(called, piece.binding))
    sums = (n for n in postorder(found[n] for n in outputs) if n.op == "sum" and n.kind == "real")
    return {n for n in sums if rounded(factors(n.args[0]))}


def _tensors(kernel: Kernel) -> list[Node]:
    return [*(o.node for o in kernel.outputs), *(a.leaf for a in kernel.reads)]


def _of_plans_type(n: Node) -> bool:
    return n.kind == "real" and not own_type(n)


@dataclass(frozen=True, eq=False)
class Segment:
    """Kernels of a cut that are derived when they are asked for.

    Attributes:
        runs: what they run, as it is known, each with the names of its own tensors.
    """

    runs: tuple[tuple[Known, tuple[str, ...]], ...]
    of: Pieces

    @cached_property
    def moving(self) -> float:
        """Seconds that they take at least, known before they are labelled."""
        return sum(known.search.moving for known, _ in self.runs)

    @cached_property
    def least(self) -> float:
        """Seconds that they take at least."""
        return sum(known.search.least for known, _ in self.runs)

    @property
    def fits(self) -> bool:
        """Whether there are kernels that fit."""
        return all(known.search.fits for known, _ in self.runs)

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """The kernels; none where one does not fit."""
        if not all(known.choices for known, _ in self.runs):
            return ()
        return tuple(p for run in self.runs for p in self.of.bound(*run))


class Pieces:
    """Derives the kernels of a term, and names what they pass on through memory.

    Args:
        memo: the kernels that are derived already; those of this term are added.

    Attributes:
        tensors: the name of every array that some kernel was derived to store.
    """

    def __init__(
        self,
        name: str,
        outputs: Sequence[Output],
        names: Mapping[Node, str],
        frontier: Frontier,
        memo: Memo,
    ) -> None:
        self.name, self.outputs, self.names = name, outputs, names
        self.frontier, self.memo = frontier, memo
        self.tensors: dict[Node, str] = {}
        self._states: dict[tuple[str, str], str] = {}
        self._seen = memo.seen_at(frontier.sizes)
        self._named = {o.node: o for o in reversed(outputs)}
        self._again: dict[Node, list[Output]] = {}
        for o in outputs:
            if self._named.get(o.node) is not o:
                self._again.setdefault(o.node, []).append(o)
        self._taken = {str(m.params[0]) for m in frontier.order if m.op == "input"}
        self._results = {o.name for o in outputs}

    def segment(self, wanted: Sequence[Node], boundary: int, short: bool = True) -> Segment | None:
        """The kernel for `wanted`, reading what came with heavy terms up to `boundary`, or the two
        that fold parts and merge them; None where it reads what one kernel cannot, or is left out
        as it is not `short`."""
        found = self.frontier.stored(wanted, boundary)
        if found is None:
            self._tell(wanted, "it reads what no kernel before it stores")
            return None
        passed = [n for n in wanted if n not in self.frontier.results]
        if not all(self.memo.has_room(n, self.frontier.sizes) for n in passed):
            self._tell(wanted, f"it stores more than {self.memo.room:,} bytes for another kernel")
            return None
        lying = {n: self.axes_of(n) for n in found if n not in wanted}
        names = {n: self._tensor(n) for n in (*found, *wanted)}
        results = [(names[n], n, self.axes_of(n)) for n in wanted]
        results += [(o.name, n, o.axes) for n in wanted for o in self._again.get(n, ())]
        written = self.frontier.written
        shape = tuple((n, axes, n in written) for _, n, axes in results), tuple(lying.items())
        seen = self._seen.get(shape)
        if not isinstance(seen, tuple):
            if self.memo.left_out(shape if seen is None else seen, short):
                self._tell_left(wanted)
                return None
            form = self.memo.form(shape, self.frontier.sizes)
            if self.memo.left_out(form, short):
                self._seen[shape] = hash(form.key)
                self._tell_left(wanted)
                return None
            tensors = self._names(form.reads, results)
            stored = {n: self._leaf(n, axes) for n, axes in lying.items()}
            if form.key not in self.memo.known:
                self.memo.add(shape, form, Known(self._search(results, stored), tensors))
            elif verifying():
                self._hold(results, stored, self.memo.known[form.key], tensors)
            self._seen[shape] = seen = self.memo.known[form.key], form.reads
        known, reads = seen
        return Segment(((known, self._names(reads, results)),), self)

    def _names(self, reads: Iterable[Node | str], results: Results) -> tuple[str, ...]:
        """The names of what a segment reads and of its results."""
        read = (r if isinstance(r, str) else self.tensors[r] for r in reads)
        return (*read, *(name for name, _, _ in results))

    def _hold(
        self, results: Results, stored: Mapping[Node, Node], known: Known, tensors: Sequence[str]
    ) -> None:
        """Hold the first segment of a form, under the names of another, to what that computes."""
        ours = dict(zip(known.first, tensors, strict=True))
        theirs = [o.node for o in known.search.outputs]
        before = [o.node for o in self._outputs(results, stored)[0]]
        for found in ALIKE.matches(before, theirs, ours):
            ALIKE.apply(found)

    def _tell(self, wanted: Sequence[Node], why: str) -> None:
        """Report a kernel that is not derived to the tracer."""
        if (tracer := active()) is not None:
            stored = ", ".join(self.names.get(n, n.op) for n in wanted)
            tracer.dropped("kernel", f"{self.name}: one kernel that stores {stored}", why)

    def _tell_left(self, wanted: Sequence[Node]) -> None:
        self._tell(wanted, f"the search is bounded: {IN_FULL} kernels are known by now")

    def bound(self, known: Known, names: Sequence[str]) -> list[Piece]:
        """The kernels of a segment, with states between them named after its first result."""
        binding = known.binding(names)
        if not known.states:
            return [Piece(known.choices[0], binding, known.launched[0])]
        result = binding[known.choices[-1].origin[0].name]
        binding |= {o.name: self._state(result, o.name) for o in known.states}
        own = zip(known.choices, known.launched, strict=True)
        return [Piece(c, {t: binding[t] for t in c.kernel.tensors}, took) for c, took in own]

    def _state(self, result: str, name: str) -> str:
        """The name of the tensor that holds a state of every part."""
        key = (result, name)
        if key not in self._states:
            self._states[key] = self._fresh(f"{result}_{name}")
        return self._states[key]

    def _search(self, results: Results, stored: Mapping[Node, Node]) -> Search:
        """The search for the kernels for `results`, in which what is stored is an input."""
        outputs, done = self._outputs(results, stored)
        names = {done[n]: self.names[n] for n in done if n in self.names and n.op != "input"}
        names |= {o.node: o.name for o in outputs}
        names |= {unstored(n): text for n, text in names.items() if over(unstored(n))}
        title = self._title([n for _, n, _ in results])
        memo = self.memo
        sizes = self.frontier.sizes
        return Search(
            title, outputs, names, sizes, memo.dtype, memo.machine, memo.parts, memo.effort,
            memo.deterministic,
        )  # fmt: skip

    def _outputs(
        self, results: Results, stored: Mapping[Node, Node]
    ) -> tuple[list[Output], Mapping[Node, Node]]:
        """What a kernel for `results` computes, and each term as it has it."""
        (found,) = STORED.matches([n for _, n, _ in results], stored, self.memo.dtype)
        done: Mapping[Node, Node] = STORED.apply(found)
        written = self.frontier.written
        made = {n: self._own(self._as_read(n, done[n])) for _, n, _ in results}
        return [Output(t, made[n], axes, n in written) for t, n, axes in results], done

    def _as_read(self, n: Node, made: Node) -> Node:
        """What a kernel makes of `n`, in the type in which other kernels read it: a kernel that
        takes of an array in a type of its own, and no more, would store that type."""
        own = own_type(n) or self.memo.dtype
        between = n.kind == "real" and n not in self.frontier.results
        as_it_is = not between or own == (own_type(made) or self.memo.dtype)
        return made if as_it_is else pointwise("cast", (made,), (own,))

    def _own(self, n: Node) -> Node:
        """`n` without a cast to the plan's own type, if it is stored in that anyway."""
        plain, dtype = unstored(n), self.memo.dtype
        return plain if own_type(n) == dtype and own_type(plain) in {"", dtype} else n

    def _leaf(self, n: Node, axes: tuple[str, ...]) -> Node:
        """The reading of what an earlier kernel stored, its axes as they lie in memory."""
        own, name = own_type(n), self.tensors[n]
        tensor = Tensor(name, own) if own not in {"", self.memo.dtype} else name
        return node("input", params=(tensor,), axes=axes, kind=n.kind)

    def axes_of(self, n: Node) -> tuple[str, ...]:
        """The axes of an array as they lie in memory, where a kernel stores it."""
        return self._named[n].axes if n in self._named else self.frontier.layouts.get(n, n.axes)

    def _tensor(self, n: Node) -> str:
        if n not in self.tensors:
            result = self._named[n].name if n in self._named else ""
            self.tensors[n] = self._fresh(
                result or self.names.get(n) or stem_of(unstored(n)), result
            )
        return self.tensors[n]

    def _fresh(self, base: str, result: str = "") -> str:
        """A name that no other tensor has; results keep theirs for themselves."""
        name = numbered(base, self._taken | (self._results - {result}), "_")
        self._taken.add(name)
        return name

    def _title(self, wanted: Sequence[Node]) -> str:
        if set(wanted) == self.frontier.results:
            return function_name(self.name)
        return f"{self.name}_{'_'.join(self._tensor(n) for n in wanted)}"
