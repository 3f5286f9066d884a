"""Trails: a derivation as a list of named moves that prints, replays and inverts.

A move relabels; it never changes what a diagram computes (arXiv 2412.03317, section 2). Each rule
says how to apply a move to labels and how to take it back, so the same table serves replaying,
inverting, searching and documentation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from napkin.errors import InputError


@dataclass(frozen=True)
class Labels:
    """What relabelling can say about one kernel.

    Attributes:
        expanded: composites opened into reductions.
        group: grouped axes, with their tile size or None while it is open.
        stream: the streamed axis, or several separated by spaces, or "".
        chunk: the chunk sizes that are fixed, by axis.
        passes: loops over what is streamed.
        hold: results kept running though they could be deferred.
        split: axes of queries and keys that are split by residue, and the steps.
    """

    expanded: tuple[str, ...] = ()
    group: tuple[tuple[str, int | None], ...] = ()
    stream: str = ""
    chunk: tuple[tuple[str, int], ...] = ()
    passes: int = 1
    hold: tuple[str, ...] = ()
    split: tuple[tuple[str, int], ...] = ()

    @property
    def tiles(self) -> dict[str, int]:
        """The sizes that have been fixed."""
        out = {a: n for a, n in self.group if n is not None}
        return out | dict(self.chunk)


@dataclass(frozen=True)
class Move:
    """One step of a derivation.

    Attributes:
        rule: the rule's name, a key of `RULES` or "separate" (a consequence that is shown).
        kernel: the kernel it is about.
        argument: the axis or the operator.
        value: a size or a count, if the rule takes one.
        note: why it is legal, or what it gave.
    """

    rule: str
    kernel: str
    argument: str
    value: int | None = None
    note: str = ""

    def __str__(self) -> str:
        value = "" if self.value is None else f" = {self.value}"
        return f"{self.rule} {self.argument}{value}" + (f": {self.note}" if self.note else "")


def _expand(labels: Labels, m: Move) -> Labels:
    return replace(labels, expanded=(*labels.expanded, m.argument))


def _unexpand(labels: Labels, m: Move) -> Labels:
    return replace(labels, expanded=tuple(e for e in labels.expanded if e != m.argument))


def _group(labels: Labels, m: Move) -> Labels:
    return replace(labels, group=(*labels.group, (m.argument, None)))


def _ungroup(labels: Labels, m: Move) -> Labels:
    return replace(labels, group=tuple(g for g in labels.group if g[0] != m.argument))


def _stream(labels: Labels, m: Move) -> Labels:
    return replace(labels, stream=m.argument, passes=m.value or 1)


def _unstream(labels: Labels, m: Move) -> Labels:
    return replace(labels, stream="", passes=1)


def _tile(labels: Labels, m: Move) -> Labels:
    if m.argument in labels.stream.split():
        chunk = {**dict(labels.chunk), m.argument: m.value}
        return replace(labels, chunk=tuple((a, n) for a, n in chunk.items() if n is not None))
    group = tuple((a, m.value if a == m.argument else n) for a, n in labels.group)
    return replace(labels, group=group)


def _untile(labels: Labels, m: Move) -> Labels:
    return _tile(labels, replace(m, value=None))


def _hold(labels: Labels, m: Move) -> Labels:
    return replace(labels, hold=(*labels.hold, m.argument))


def _unhold(labels: Labels, m: Move) -> Labels:
    return replace(labels, hold=tuple(n for n in labels.hold if n != m.argument))


def _split(labels: Labels, m: Move) -> Labels:
    return replace(labels, split=(*labels.split, (m.argument, m.value or 1)))


def _unsplit(labels: Labels, m: Move) -> Labels:
    return replace(labels, split=tuple(s for s in labels.split if s[0] != m.argument))


def _same(labels: Labels, m: Move) -> Labels:
    return labels


@dataclass(frozen=True)
class Rule:
    """How a rule changes labels, how it is taken back, and what it means."""

    apply: Callable[[Labels, Move], Labels]
    invert: Callable[[Labels, Move], Labels]
    meaning: str


RULES: dict[str, Rule] = {
    "expand": Rule(_expand, _unexpand, "open a composite operator into reductions by a monoid"),
    "refactor": Rule(_same, _same, "sum_x (sum_d A B) C = sum_d A (sum_x B C)"),
    "bound": Rule(_same, _same, "leave kernels of many reductions out of a search that is long"),
    "materialise": Rule(_same, _same, "store an array in the outer level between two kernels"),
    "split": Rule(_split, _unsplit, "an axis as places within residues, each a problem of its own"),
    "hold": Rule(_hold, _unhold, "keep a result running instead of applying it in the tail"),
    "stream": Rule(_stream, _unstream, "cut an axis into chunks that one group reads in turn"),
    "separate": Rule(_same, _same, "g(x, r) = sum a_k(x) b_k(r): fold in the pass of r"),
    "part": Rule(_same, _same, "cut a streamed axis into parts, whose states groups store"),
    "merge": Rule(_same, _same, "join the states of parts by the fold's merge, then its tail"),
    "group": Rule(_group, _ungroup, "cut a weaved axis into groups that run side by side"),
    "tile": Rule(_tile, _untile, "fix the size of a group or of a chunk"),
}


@dataclass(frozen=True)
class Trail:
    """The moves of a derivation, in order."""

    moves: tuple[Move, ...] = field(default=())

    def __iter__(self) -> Iterator[Move]:
        return iter(self.moves)

    def __len__(self) -> int:
        return len(self.moves)

    def then(self, *moves: Move) -> Trail:
        """The trail with more moves."""
        return Trail((*self.moves, *moves))

    def replay(self) -> dict[str, Labels]:
        """The labels of each kernel, from nothing."""
        out: dict[str, Labels] = {}
        for m in self.moves:
            out[m.kernel] = RULES[m.rule].apply(out.get(m.kernel, Labels()), m)
        return out

    def invert(self, labels: Mapping[str, Labels]) -> dict[str, Labels]:
        """Take every move back from `labels`, last first.

        Raises:
            InputError: a kernel's labels are not those that the trail leads to.
        """
        if dict(labels) != self.replay():
            raise InputError("these labels are not where the trail leads; invert what it replays")
        out = dict(labels)
        for m in reversed(self.moves):
            out[m.kernel] = RULES[m.rule].invert(out[m.kernel], m)
        return out

    def __str__(self) -> str:
        lines: list[str] = []
        kernel = None
        for m in self.moves:
            if m.kernel != kernel:
                kernel = m.kernel
                lines.append(f"{kernel}:")
            lines.append(f"  {m}")
        return "\n".join(lines)
