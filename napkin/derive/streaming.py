"""From a term and an axis to a fold: which pass a reduction is known in, and how it gets there.

Reductions over the axis are taken in order. One whose body uses no earlier result of its pass
folds as it is. One whose body does is separated (`napkin.algebra.separate`): g(x, r) =
sum_k a_k(x) b_k(r) gives fold_x g = sum_k b_k(r) fold_x a_k, and what is folded no longer waits for
r (arXiv 2412.03317, section 2.3; arXiv 2505.09326). Results inside an exponential or a square are
held running, the rest deferred to the tail. What does not separate waits for the next pass, where
the earlier results are final.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from napkin.algebra.fold import Emit, Pass, Stream, Twin
from napkin.algebra.sides import NotSeparable
from napkin.algebra.terms import is_count
from napkin.derive.folding import Folding
from napkin.derive.rules.separation import Separating
from napkin.derive.scans import is_end
from napkin.errors import Refusal
from napkin.ir.listing import text
from napkin.ir.node import REDUCTIONS, SCANS, Node, names_of, over, postorder
from napkin.rewrite.cancel import CANCELLED


def stream(
    outputs: Sequence[tuple[str, Node]],
    axes: Sequence[str],
    names: Mapping[Node, str],
    *,
    passes: int = 1,
    hold: Collection[str] = (),
    twin: Twin | None = None,
) -> Stream:
    """Stream `axes`, jointly, through the terms of `outputs` (without composites).

    Args:
        outputs: name and node of each result.
        names: a distinct name for each reduction.
        passes: how many loops over the axis are allowed.
        hold: names of results to hold running even where deferring them would do.
        twin: other names of the axis, if positions of a chunk are to be paired.

    Raises:
        Refusal: the axes cannot be streamed in that many passes.
    """
    refused: list[Refusal] = []
    for terms, called in _ways(outputs, axes, names):
        try:
            folding = Folding([n for _, n in terms], axes, called, passes, twin)
            return _Streaming(folding, passes, frozenset(hold)).run(terms)
        except Refusal as why:
            refused.append(why)
    raise refused[0]


def _ways(
    outputs: Sequence[tuple[str, Node]], axes: Sequence[str], names: Mapping[Node, str]
) -> Iterator[tuple[Sequence[tuple[str, Node]], Mapping[Node, str]]]:
    """The terms of outputs, with their names: as they are, then without what cancels."""
    yield outputs, names
    for found in CANCELLED.matches([n for _, n in outputs], axes):
        done: Mapping[Node, Node] = CANCELLED.apply(found)
        simpler = [(name, done[n]) for name, n in outputs]
        yield simpler, {done[n]: t for n, t in names.items() if n in done}


class _Streaming:
    def __init__(self, folding: Folding, allowed: int, hold: frozenset[str]) -> None:
        self.folding, self.allowed = folding, allowed
        self.axes, self.carried = folding.axes, folding.streamed
        self.axis = " ".join(folding.axes)
        self.separating = Separating(folding, hold)

    def run(self, outputs: Sequence[tuple[str, Node]]) -> Stream:
        self._refuse_mixing()
        if self.folding.twin and not self.folding.paired:
            raise self._refuse(outputs[0][1], "it has no states that sums of products alone read")
        for f in self.folding.folds:
            self._place(f)
        folded = [(name, n) for name, n in outputs if not self.carried(n.axes)]
        tails = [Emit(name, self.folding.last(n)) for name, n in folded]
        emits = self._emits([(name, n) for name, n in outputs if self.carried(n.axes)])
        stored = [e.node for es in (*emits, tails) for e in es]
        self._refuse_left(stored)
        live = self.folding.live(stored)
        loops = [Pass(tuple(s), tuple(e)) for s, e in zip(live, emits, strict=True)]
        loops = tuple(p for p in loops if p.states or p.emits)
        if not loops:
            raise self._refuse(outputs[0][1], f"no output depends on {self.axis}")
        noted = tuple(self.separating.separations)
        beside = tuple(self.folding.beside(s for states in live for s in states))
        return Stream(self.axes, loops, tuple(tails), noted, self.folding.twin, beside)

    def _emits(self, carried: Sequence[tuple[str, Node]]) -> list[list[Emit]]:
        """What each pass stores chunk by chunk, of the outputs that are so."""
        emits: list[list[Emit]] = [[] for _ in range(self.allowed)]
        for name, n in carried:
            lacks = [a for a in self.axes if a not in n.axes]
            if lacks:  # it would be stored again for each chunk, and never where there is none
                raise self._refuse(n, f"output {name} has no {' '.join(lacks)}")
            p = self._pass_after(name, n)
            scans = n in self.folding.scanning
            stored = self.folding.current(n, p) if scans else self.folding.last(n)
            emits[p].append(Emit(name, stored))
        return emits

    # --- refusals ---------------------------------------------------------------------------

    def _refuse(self, n: Node, reason: str, *others: str) -> Refusal:
        place = self.folding.names.get(n) or text(n, self.folding.names)
        nearest = " or ".join([*others, f"hold {self.axis} whole"])
        return Refusal(f"stream {self.axis}", place, reason, nearest)

    def _refuse_left(self, stored: Sequence[Node]) -> None:
        """Refuse what no pass folds."""
        twin = self.folding.twin
        for n in postorder(stored):
            paired = twin and n.args and twin.name in n.args[0].axes
            if n.op in REDUCTIONS and self.carried(over(n)) and not (is_end(n) or paired):
                raise self._refuse(n, f"no pass over {self.axis} folds it")

    @property
    def _again(self) -> str:
        return f"read {self.axis} once more (passes={self.allowed + 1})"

    def _refuse_mixing(self) -> None:
        """Refuse what mixes positions along the axis and keeps it."""
        for n in self.folding.order:
            here = over(n) if self.carried(over(n)) else ()
            scans = self.folding.scans(n)
            if here and n.op in SCANS and not scans:
                what = f"{n.op} mixes positions along {self.axis}"
                raise self._refuse(n, f"{what} and its output carries the axis")
            if scans and self.folding.paired and self._stepped(n):
                what = f"its state is taken from one position of {self.axis} to the next"
                raise self._refuse(n, f"{what}, and others are read by pairs of positions")
            if scans and not self.folding.scanning.isdisjoint(n.args):
                raise self._refuse(n, f"it scans a scan along {self.axis}: no merge of it is known")
            rest = [a for a in self.axes if a not in here] if here and n.op in REDUCTIONS else []
            if rest:
                what = f"it works along {' '.join(here)} and leaves {' '.join(rest)}"
                raise self._refuse(n, f"{what}, so these axes are not reduced together")
            if n.op == "rename" and any(map(self.carried, names_of(n))):
                raise self._refuse(n, f"{self.axis} is read under two names")

    def _stepped(self, n: Node) -> bool:
        """Whether a scan is taken position by position, though others are read by pairs."""
        return n.op == "steps" and n not in self.folding.paired.values()

    def _pass_after(self, name: str, n: Node) -> int:
        """The first pass in which every reduction that an output uses is final."""
        uses = [f for f in self.folding.uses(n) if not is_count(f)]  # a final count is a size
        p = 1 + max((self.folding.pass_of[f] for f in uses), default=-1)
        if p >= self.allowed:
            raise self._refuse(
                n,
                f"output {name} carries {self.axis} and needs a reduction over it to finish",
                f"follow it by a reduction over {self.axis}",
                self._again,
            )
        return p

    # --- one reduction ----------------------------------------------------------------------

    def _place(self, f: Node) -> None:
        """Find the first pass that can know a reduction, and its states there."""
        if f in self.folding.scanning:
            raise self._refuse(f, f"it reduces a scan along {self.axis}: no merge of it is known")
        names, pass_of = self.folding.names, self.folding.pass_of
        earlier = self.folding.uses(f) - {f}
        for p in range(max((pass_of[g] for g in earlier), default=0), self.allowed):
            same = {g for g in earlier if pass_of[g] == p}
            if not same:
                self.folding.fold(f, p)
                return
            try:
                rule, found = self.separating.form(f, p, same)
                self.folding.define(f, p, rule.apply(found))
                return
            except NotSeparable as why:
                reason = why
            if p + 1 == self.allowed:
                others = ", ".join(sorted(names.get(g, g.op) for g in same))
                raise self._refuse(
                    f,
                    f"its body {text(f.args[0], names)} does not separate from {others} ({reason})",
                    self._again,
                )
        raise self._refuse(f, f"it needs an earlier pass over {self.axis} to finish", self._again)
