"""Labels of one kernel, and the moves that change them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Labels:
    """What relabelling can say about one kernel.

    Attributes:
        expanded: composites opened into reductions.
        group: grouped axes, with their tile size or None while it is open.
        stream: the streamed axis, or several separated by spaces, or "".
        chunk: the chunk sizes that are fixed, by axis.
        passes: loops over what is streamed.
        pair: the streamed axis whose positions are paired in a chunk, and those of a chunk.
        hold: results kept running though they could be deferred.
        split: axes of queries and keys that are split by residue, and the steps.
    """

    expanded: tuple[str, ...] = ()
    group: tuple[tuple[str, int | None], ...] = ()
    stream: str = ""
    chunk: tuple[tuple[str, int], ...] = ()
    passes: int = 1
    pair: tuple[tuple[str, int | None], ...] = ()
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
        rule: the rule's name; or "refactor", where a rule puts another form of a term in its place,
            by the equation in the note; or "bound", which only says how far a search went.
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


@dataclass(frozen=True)
class Relabel:
    """How a move by a rule changes labels, and how it is taken back."""

    apply: Callable[[Labels, Move], Labels]
    invert: Callable[[Labels, Move], Labels]


def listed(field: str, entry: Callable[[Move], Any] = lambda m: m.argument) -> Relabel:
    """A move that adds an entry to the labels of a field, and takes it out again."""

    def changed(labels: Labels, entries: tuple[Any, ...]) -> Labels:
        return replace(labels, **{field: entries})

    def apply(labels: Labels, m: Move) -> Labels:
        return changed(labels, (*getattr(labels, field), entry(m)))

    def invert(labels: Labels, m: Move) -> Labels:
        return changed(labels, tuple(e for e in getattr(labels, field) if e != entry(m)))

    return Relabel(apply, invert)
