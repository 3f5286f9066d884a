"""The states that an axis is folded into, pass by pass, and what terms stand for beside them.

Within a pass a reduction over the axis has two readings: its value so far, which the next terms of
the pass use, and its final value, which later passes and the tail use (arXiv 2412.03317,
section 2.3). `Folding` keeps both for every reduction that has found its pass.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from napkin.algebra.fold import State, Tag, Twin, needed, state_leaf
from napkin.algebra.terms import (
    Uses,
    carrying,
    combined,
    extent,
    identity,
    is_count,
    value_at,
)
from napkin.derive.scans import CARRIED, on_chunk
from napkin.ir.infer import along, rebuilt
from napkin.ir.names import numbered
from napkin.ir.node import FLOOR, REDUCTIONS, Node, built_on, over, postorder
from napkin.ir.rewrite import substitute
from napkin.rewrite.divide import DIVIDED
from napkin.rewrite.pair import PAIRED, Scanned
from napkin.rewrite.solve import by_pairs


class Folding:
    """The states of each pass over an axis, found one reduction after another.

    Attributes:
        axes: the streamed axes.
        names: a distinct name for each reduction.
        order: every term, arguments first.
        folds: the reductions over the axis, in order.
        states: the states of each pass, in the order of their steps.
        carried: the states that only carry a result from step to step, by result, pass and start.
        scanning: the terms with a scan along the axis in them, or that are one.
        pass_of: the pass in which each reduction is known.
        running: the leaves of sums that are held running, by what they sum.
        stepped: the states after each step of a scan that is not linear, by the scan.
        twin: other names of the axis, where positions of a chunk are paired.
        paired: the sums that read a scan by pairs, with the scan.
        pairs: the linear scans of each pass on a chunk.
    """

    def __init__(
        self,
        roots: Sequence[Node],
        axes: Sequence[str],
        names: Mapping[Node, str],
        passes: int,
        twin: Twin | None = None,
    ) -> None:
        self.axes, self.names, self.twin = tuple(axes), dict(names), twin
        self._own = frozenset(axes)
        self.order = list(postorder(roots))
        asked = (self.order, roots, twin.axis, twin.rounded) if twin else None
        self.paired: Mapping[Node, Node] = by_pairs(*asked) if asked else {}
        self.pairs: dict[tuple[Node, int], Scanned] = {}
        self.folds = [n for n in self.order if n.op in REDUCTIONS and self.streamed(over(n))]
        self.scanning = built_on(self.order, self.scans)
        self.states: list[list[State]] = [[] for _ in range(passes)]
        self.carried: dict[tuple[Node, int, float], State] = {}
        self.pass_of: dict[Node, int] = {}
        self.running: dict[object, Mapping[Tag, Node]] = {}
        self.stepped: dict[object, Sequence[Node]] = {}
        self._defined: dict[Node, Node] = {}
        self._plain: dict[tuple[Node, int], State] = {}
        self._on_chunk: dict[tuple[Node, int], Node] = {}
        self._now: dict[Node, Node] = {}
        self._final: dict[Node, Node] = {}
        self._taken: set[str] = set()
        own = set(self.folds)
        self._uses = Uses(lambda n: n in own or n in self._now)

    def streamed(self, axes: Iterable[str]) -> bool:
        """Whether an array with these axes differs from chunk to chunk."""
        return not self._own.isdisjoint(axes)

    def scans(self, n: Node) -> bool:
        """Whether a term is a scan along the axis that a state carries from chunk to chunk."""
        return n.op in CARRIED and over(n) == self.axes

    # --- what terms stand for ---------------------------------------------------------------

    def uses(self, n: Node) -> frozenset[Node]:
        """The reductions over the axis that `n` is computed from, itself included."""
        return self._uses.of(n)

    def last(self, n: Node) -> Node:
        """`n` with every reduction at its final value."""
        return substitute([n], self._final)[n]

    def current(self, n: Node, p: int) -> Node:
        """`n` inside pass `p`: reductions of the pass so far, those of earlier passes final."""
        return self._at(n, p, {})

    def with_final_counts(self, n: Node, p: int, known: Iterable[Node]) -> Node:
        """`n` inside pass `p`, of which it uses the results `known` alone: counts are final."""
        done = {m: self.current(m, p) for m in known}
        order = postorder([n], set(done))
        done |= {m: self.last(m) for m in order if m not in done and self._counts(m)}
        return self._at(n, p, done)

    def _counts(self, n: Node) -> bool:
        """Whether a term is computed from counts over the axis, and from no other reduction."""
        uses = self.uses(n)
        return bool(uses) and all(is_count(f) for f in uses)

    def _at(self, n: Node, p: int, done: dict[Node, Node]) -> Node:
        if n in self.scanning and n not in done:
            inside = rebuilt(n, tuple(self._at(a, p, done) for a in n.args))
            if n in self.paired:
                inside = PAIRED.tried(inside, self.pairs[self.paired[n], p], self.twin)
            done[n] = self._scanned(n, inside, p) if self.scans(n) else inside
        elif n not in done:
            waits = [f for f in self.uses(n) if not is_count(f)]
            if all(self.pass_of[f] < p for f in waits):
                done[n] = self.last(n)
            elif n in self._now:
                done[n] = self._now[n]
            else:
                done[n] = rebuilt(n, tuple(self._argument(a, p, done) for a in n.args))
        return done[n]

    def _scanned(self, n: Node, alone: Node, p: int) -> Node:
        if (n, p) not in self._on_chunk:
            self._on_chunk[n, p] = on_chunk(n, alone, p, self)
        return self._on_chunk[n, p]

    def _argument(self, n: Node, p: int, done: dict[Node, Node]) -> Node:
        # Each pass counts for itself: a mean so far is over what the pass has seen.
        if n not in done and self._counts(n):
            return substitute([n], {f: self.plain(f, p).leaf("new") for f in self.uses(n)})[n]
        return self._at(n, p, done)

    # --- states -----------------------------------------------------------------------------

    def name(self, n: Node, stem: str = "") -> str:
        """A state's name, after `stem` or the name of `n`; no other state has it."""
        name = numbered(stem or self.names.get(n) or n.op, self._taken)
        self._taken.add(name)
        return name

    def define(self, f: Node, p: int, value: Node) -> None:
        """Say that pass `p` knows the reduction `f` as `value`, a term over known reductions."""
        self.pass_of[f], self._defined[f] = p, value
        self._now[f] = self.current(DIVIDED.tried(value), p)
        self._final[f] = self.last(value)
        late = {s.name for states in self.states[p + 1 :] for s in states}
        read = {str(n.params[0]) for n in postorder([self._final[f]]) if n.op == "state"}
        assert late.isdisjoint(read), f"pass {p} reads {late & read}, which later passes fold"

    def separated(self, p: int) -> dict[Node, Node]:
        """The reductions that pass `p` knows as terms over other reductions, and those terms."""
        return {
            f: value
            for f, value in self._defined.items()
            if self.pass_of[f] == p and not any(n.op == "state" for n in postorder([value]))
        }

    def fold(self, f: Node, p: int) -> None:
        """Fold a reduction as it is: its body is known at each chunk of pass `p`."""
        self.pass_of[f] = p
        self._now[f] = self.plain(f, p).leaf("new")
        self._final[f] = extent(over(f)) if is_count(f) else self._now[f]

    def folded(self, op: str, body: Node, like: Node, p: int) -> Node:
        """The reduction of `body` by `op` over the axes of `like`, folded in pass `p`."""
        axes = over(like)
        start = like.params[1:] if op == like.op else ()
        return self.found_for(along(op, carrying(body, axes), axes, start), like, p)

    def found_for(self, f: Node, like: Node, p: int) -> Node:
        """The reduction `f`, which `like` was separated into, folded in pass `p` or before."""
        if self.pass_of.get(f, p + 1) > p:
            self._uses.known[f] = frozenset({f}).union(*map(self.uses, f.args))
            self.names.setdefault(f, self.names.get(like, like.op))
            self.fold(f, p)
        return f

    def plain(self, f: Node, p: int) -> State:
        """The state of a reduction that pass `p` folds as it is."""
        if (f, p) not in self._plain:
            name = self.name(f)
            now = (g for g in self.uses(f.args[0]) if self.pass_of[g] >= p)
            assert all(map(is_count, now)), f"{name} is folded at results that still move"
            body = self.current(f.args[0], p)
            chunk = along(f.op, body, over(f), f.params[1:])
            old, left, right = (
                state_leaf(name, tag, chunk.axes, chunk.kind) for tag in ("old", "left", "right")
            )
            step = combined(f.op, old, chunk)
            merge = combined(f.op, left, right)
            made = State(name, chunk.axes, chunk.kind, identity(f), step, merge, "fold")
            self.states[p].append(made)
            self._plain[f, p] = made
        return self._plain[f, p]

    def found(self, f: Node, p: int) -> State | None:
        """The state of a reduction that pass `p` folds as it is already."""
        return self._plain.get((f, p))

    def starts(self) -> dict[Node, float]:
        """What the leaf of each state is before the first chunk."""
        return {s.leaf("new"): s.init for states in self.states for s in states}

    def has_value_at_start(self, n: Node, p: int) -> bool:
        """Whether a term of pass `p` has a value near others where no position counts so far, for
        all that it is computed from or for some: a quotient by such a sum has none, the logarithm
        of one is -inf, and an extremum is an infinity or the lowest float. Counts count always."""
        value, starts = self.current(n, p), self.starts()
        counts = {s.leaf("new") for (f, q), s in self._plain.items() if q == p and is_count(f)}
        moving = [m for m in postorder([value]) if m in starts and m not in counts]
        tried = [{m: starts[m]} for m in moving] + [{m: starts[m] for m in moving}]
        return all(abs(value_at(value, start)) < -FLOOR / 2 for start in tried)

    def is_finite_of_none(self, n: Node) -> bool:
        """Whether a term inside a pass, and each term under it, is finite where conditions choose
        no position of the axis. States that fold under a condition are then as they started."""
        starts, states = self.starts(), [s for states in self.states for s in states]
        leaves = (starts.get(m, 0.0) for m in postorder([n]) if m.kind == "real")
        chosen = [s for s in states if any(m.kind == "bool" for m in postorder([s.step]))]
        start = {s.leaf("new"): s.init for s in chosen}
        return all(map(math.isfinite, leaves)) and math.isfinite(value_at(n, start))

    def live(self, roots: Iterable[Node]) -> list[list[State]]:
        """The states of each pass that `roots` are computed from, directly or through others."""
        live = needed([s for states in self.states for s in states], roots)
        return [[s for s in states if s in live] for states in self.states]

    def beside(self, live: Iterable[State]) -> Sequence[State]:
        """The states that merges of these read, and that are none of them."""
        own, every = [*live], [s for states in self.states for s in states]
        merges = [s.merge for s in own if s.merge is not None]
        return [s for s in needed(every, merges) if s not in own]
