"""Trails: a derivation as a list of named moves that prints, replays and inverts.

A move relabels; it never changes what a diagram computes (arXiv 2412.03317, section 2). Each rule
of `napkin.derive.rules.table` says what a move does to labels and how it is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from napkin.algebra.relabel import Labels, Move, Relabel
from napkin.derive.rules.table import rules
from napkin.errors import InputError


def relabelled(labels: Labels, m: Move) -> Labels:
    """Labels after a move."""
    change = _relabel(m)
    return change.apply(labels, m) if change else labels


def _relabel(m: Move) -> Relabel | None:
    """What a move does to labels; None where it leaves them."""
    rule = rules().get(m.rule)
    return rule.relabel if rule else None


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
            out[m.kernel] = relabelled(out.get(m.kernel, Labels()), m)
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
            if change := _relabel(m):
                out[m.kernel] = change.invert(out[m.kernel], m)
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
