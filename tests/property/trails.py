"""Trails of derivations by hand, made again."""

from __future__ import annotations

from napkin.diagram.diagram import Diagram
from napkin.moves.derivation import Derivation
from napkin.moves.trail import Trail


def replayed(diagram: Diagram, trail: Trail) -> Derivation:
    """The derivation that a trail of one kernel leads to on `diagram`, each move checked again.

    Raises:
        Refusal: a move is not legal on this diagram.
    """
    out = Derivation.start(diagram)
    held: list[str] = []
    for m in trail:
        if m.rule == "hold":
            held.append(m.argument)
        elif m.rule == "stream":
            out, held = out.stream(m.argument, passes=m.value or 1, hold=held), []
        elif m.rule == "split":
            out = out.split(m.argument.split()[1])
        elif m.rule == "group":
            out = out.group(m.argument)
        elif m.rule == "tile" and m.value is not None:
            out = out.tile(**{m.argument: m.value})
    return out
