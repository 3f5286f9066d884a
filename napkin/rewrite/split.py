"""Dilated key sets residue by residue: a term with queries and keys split by the set's steps.

Where a query sees only keys that lie a multiple of `step` away, queries and keys of one residue
never meet those of another. With q = step * q' + r and x = step * x' + r the term is weaved over r,
and on (q', x') the key set has no gaps. Strided slices are only another address map.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from napkin.algebra.fold import state_leaf
from napkin.algebra.known import Known, vanishes
from napkin.algebra.relabel import listed
from napkin.algebra.rule import Instance, Rule, between
from napkin.diagram.interface import Output
from napkin.ir.infer import along
from napkin.ir.key_sets import Box, Interval, boxes_of, keys_node, member, spec_of
from napkin.ir.linear import Within, at_places
from napkin.ir.names import underscored
from napkin.ir.node import MOVES, REDUCTIONS, Node, node, ones, over, postorder, union_axes
from napkin.ir.rewrite import rewrite, substitute
from napkin.ir.selecting import position
from napkin.ir.sliding import slides
from napkin.ir.slotted import guard
from napkin.ir.taking import own_axes, taken_of
from napkin.keys.residues import Split


@dataclass(frozen=True, eq=False)
class SplitTerm:
    """A term whose residues are apart.

    Attributes:
        outputs, names: the term.
        pairs: for each key axis that was split, the query axis and the key axis.
        own: axes of tensors that are read on places, as the tensors call them.
    """

    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    pairs: tuple[tuple[Split, Split], ...]
    own: tuple[Split, ...]

    @property
    def splits(self) -> tuple[Split, ...]:
        """Every axis that was split."""
        return tuple(dict.fromkeys((*(s for pair in self.pairs for s in pair), *self.own)))


def split_terms(
    outputs: Sequence[Output], names: Mapping[Node, str], axes: Collection[str] | None = None
) -> Iterator[SplitTerm]:
    """The terms of `outputs` with the axes of each dilated key set split by residue: all that can
    be, or the key axes `axes`."""
    return map(SPLIT.apply, _matches(outputs, names, axes))


def _matches(
    outputs: Sequence[Output], names: Mapping[Node, str], axes: Collection[str] | None = None
) -> Iterator[Instance]:
    roots = [o.node for o in outputs]
    order = list(postorder(roots))
    slid = {a for n in order if n.op == "input" for s in slides(n) for a in (s.out, s.tap)}
    for keys in (n for n in order if n.op == "keys"):
        pairs = _pairs(keys, {a for n in order for a in n.axes})
        # Windows stay sums of two positions.
        pairs = [p for p in pairs if not {s.axis for s in p} & slid]
        pairs = [p for p in pairs if axes is None or p[1].axis in axes]
        pairs = [p for p in pairs if _only_together(keys, outputs, p)]
        splitting = _Splitting(keys, pairs)
        if pairs and splitting.one_view(order):
            made = splitting.of(outputs, names)
            after = [o.node for o in made.outputs]
            where = ", ".join(f"{q.axis} {x.axis}" for q, x in pairs)
            yield Instance(where, made, between(roots, after), splits=made.splits)


SPLIT = Rule(
    "split",
    "t(d q + r) = t'(q, r), over keys d x + r",
    _matches,
    (
        "no query sees a key of another residue",
        "every reduction over keys is over those that are seen",
        "the last residues may have one place fewer",
    ),
    empty=False,
    relabel=listed("split", lambda m: (m.argument, m.value or 1)),
)


def why_not_split(outputs: Sequence[Output], axes: Sequence[str]) -> str:
    """Why axes are not split (all axes, where none is named)."""
    sets = [n for n in postorder(o.node for o in outputs) if n.op == "keys"]
    keys = {x for n in sets for x in spec_of(n).keys}
    for a in axes:
        if a not in keys:
            return f"{a} is no key axis of a key set, whose queries are split beside it"
    boxes = [(spec_of(n).keys, b.intervals) for n in sets for b in boxes_of(n)]
    pairs = [(x, i.step) for keys, box in boxes for x, i in zip(keys, box, strict=True)]
    stepped = {x for x, step in pairs if step > 1}
    for a in axes:
        if a not in stepped:
            return f"no key set is dilated along {a}"
    if not stepped:
        return "no key set is dilated"
    return "queries see keys of other residues, or a sum or an output goes over them"


# --- which axes ---------------------------------------------------------------------------------


def _pairs(keys: Node, taken: set[str]) -> list[tuple[Split, Split]]:
    """The pairs of a query axis and a key axis along which the set's residues never meet."""
    out: list[tuple[Split, Split]] = []
    for i, x in enumerate(spec_of(keys).keys):
        intervals = [b.intervals[i] for b in boxes_of(keys)]
        step = intervals[0].step
        if step == 1 or any(j.step != step for j in intervals):
            continue
        used = {q.axis for q, _ in out}
        for q in union_axes(j.first for j in intervals):
            if q in used:
                continue
            residue = underscored(f"{q}_mod_{step}", taken)
            pair = (
                Split(q, underscored(f"{q}_div_{step}", taken), residue, step),
                Split(x, underscored(f"{x}_div_{step}", taken), residue, step),
            )
            if all(_undilated(j, pair) is not None for j in intervals):
                out.append(pair)
                break
    return out


def _undilated(i: Interval, pair: tuple[Split, Split]) -> Interval | None:
    """An interval of positions as one of places, if its first key has the query's residue."""
    steps = {s.axis: s.terms for s in pair}
    done = at_places([i.first, i.end], steps)
    residue = position(pair[0].residue)
    within = Within({residue: i.step})
    first = within.place(done[i.first], residue)
    return None if first is None else Interval(first, within.past(done[i.end], residue))


def _only_together(keys: Node, outputs: Sequence[Output], pair: tuple[Split, Split]) -> bool:
    """Whether the term can be weaved over the residues: each is grouped, and every sum over keys is
    over those of the query's residue."""
    q, x = (s.axis for s in pair)
    if any(q not in o.axes or x in o.axes for o in outputs):
        return False
    order = list(postorder(o.node for o in outputs))
    if not _seen_alone(keys, [n for n in order if n.op in REDUCTIONS and x in over(n)]):
        return False
    for n in order:
        here = {q, x} & {*n.axes, *over(n), *(a for m in n.args for a in m.axes)}
        if not here:
            continue
        if here & set(over(n)) and (q in over(n) or n.op not in REDUCTIONS):
            return False
        if n.op in MOVES or n.op in {"rename", "take", "listed", "scatter", "steps"}:
            return False
        if n.op == "input" and not _reads(n, here):
            return False
    # What is read to find the keys is not read residue by residue.
    return not any(n.op == "input" and {q, x} & set(n.axes) for n in postorder(keys.args))


def _seen_alone(keys: Node, reductions: Sequence[Node]) -> bool:
    """Whether reductions over keys are over those that are seen; the result of one is a value like
    any other to the next."""
    results = {n: state_leaf(str(i), "new", n.axes, n.kind) for i, n in enumerate(reductions)}
    known: Known = {}
    for n in reductions:
        body = substitute(n.args, results)[n.args[0]]
        if not vanishes(along(n.op, body, over(n), n.params[1:]), keys, known):
            return False
    return True


def _reads(leaf: Node, here: set[str]) -> bool:
    """Whether a reading's own axes can be split: at computed positions none of them may be."""
    if guard(leaf) is not None:
        return False
    taken = taken_of(leaf)
    return taken is None or not here & {u for u in taken.under if isinstance(u, str)}


# --- the term -----------------------------------------------------------------------------------


class _Splitting:
    def __init__(self, keys: Node, pairs: Sequence[tuple[Split, Split]]) -> None:
        self.keys, self.pairs = keys, tuple(pairs)
        self.by_axis = {s.axis: s for pair in pairs for s in pair}
        self.steps = {a: s.terms for a, s in self.by_axis.items()}
        self.own: dict[tuple[str, str], Split] = {}

    def of(self, outputs: Sequence[Output], names: Mapping[Node, str]) -> SplitTerm:
        """The term with the axes split."""
        roots = [o.node for o in outputs]
        # Other key sets are tests as any other.
        others = {n: member(n) for n in postorder(roots) if n.op == "keys" and n is not self.keys}
        tests = {n: t for n, t in others.items() if self.by_axis.keys() & {*n.axes}}
        opened = substitute(roots, tests)
        made = rewrite([opened[n] for n in roots], self._change, {self.keys: self._keys()})
        done = {old: made[new] for old, new in opened.items() if new in made}
        split = tuple(replace(o, node=done[o.node], axes=self._axes(o.axes)) for o in outputs)
        kept = {done[n]: text for n, text in names.items() if n in done}
        return SplitTerm(split, kept, self.pairs, tuple(self.own.values()))

    def one_view(self, order: Iterable[Node]) -> bool:
        """Whether all readings of a tensor split the same of its axes."""
        found: dict[str, set[tuple[str, ...]]] = {}
        for n in order:
            if n.op == "input":
                own = own_axes(n) if taken_of(n) else self._own(n)
                found.setdefault(str(n.params[0]), set()).add(own)
        return all(len(ways) == 1 for ways in found.values())

    def _axes(self, axes: Sequence[str]) -> tuple[str, ...]:
        out: list[str] = []
        for a in axes:
            s = self.by_axis.get(a)
            out += [a] if s is None else [s.place, s.residue]
        return tuple(dict.fromkeys(out))

    def _keys(self) -> Node:
        """The key set on places."""
        spec = spec_of(self.keys)
        pair_of = {pair[1].axis: pair for pair in self.pairs}
        boxes: list[Box] = []
        for b in boxes_of(self.keys):
            made: list[Interval] = []
            for i, x in zip(b.intervals, spec.keys, strict=True):
                found = _undilated(i, pair_of[x]) if x in pair_of else None
                at = [i.first, i.end] if found is None else [found.first, found.end]
                done = at_places(at, self.steps)
                step = i.step if found is None else 1
                made.append(Interval(done[at[0]], done[at[1]], step))
            boxes.append(Box(tuple(made)))
        keys = tuple(self.by_axis[x].place if x in pair_of else x for x in spec.keys)
        steps = tuple(tuple(i.step for i in b.intervals) for b in boxes)
        text = f"{spec.text} by residue"
        return keys_node(boxes, replace(spec, keys=keys, steps=steps, tied=(), needs=(), text=text))

    def _change(self, old: Node, args: tuple[Node, ...]) -> Node | None:
        """Positions, readings and reductions along split axes on places."""
        if not self.by_axis.keys() & {*old.axes, *over(old)}:
            return None
        if old.op == "index":
            return at_places([old], self.steps)[old]
        if old.op == "ones":
            return ones(self._axes(old.axes))
        if old.op == "input":
            return self._reading(old, args)
        if old.op in REDUCTIONS:
            axes = tuple(self.by_axis[a].place if a in self.by_axis else a for a in over(old))
            return along(old.op, args[0], axes, old.params[1:])
        return None

    def _reading(self, leaf: Node, args: tuple[Node, ...]) -> Node:
        """A reading on places."""
        taken = taken_of(leaf)
        if taken is not None:
            rest = [u for u in taken.under if isinstance(u, str)]
            axes = tuple(dict.fromkeys((*rest, *union_axes(args))))
            return node("input", args, leaf.params, axes, leaf.kind)
        params = (leaf.params[0], self._own(leaf))
        return node("input", (), params, self._axes(leaf.axes), leaf.kind)

    def _own(self, leaf: Node) -> tuple[str, ...]:
        """The tensor's own names for the axes of a reading on places."""
        out: list[str] = []
        for a, own in zip(leaf.axes, own_axes(leaf), strict=True):
            s = self.by_axis.get(a)
            if s is None:
                out.append(own)
                continue
            found = self._own_split(own, s)
            out += [found.place, found.residue]
        return tuple(dict.fromkeys(out))

    def _own_split(self, own: str, s: Split) -> Split:
        """The split of a tensor's own axis that is read under a split axis."""
        key, itself = (own, s.residue), self.by_axis.get(own)
        if key not in self.own:
            taken = {x.place for x in (*self.by_axis.values(), *self.own.values())}
            place = underscored(f"{own}_div_{s.step}", taken)
            if itself is not None and itself.residue == s.residue:
                place = itself.place
            self.own[key] = replace(s, axis=own, place=place)
        return self.own[key]
