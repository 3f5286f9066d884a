"""Kernels whose labels a person gives by hand, one legal move at a time."""

from __future__ import annotations

import random
from contextlib import suppress

from napkin.derive.kernel import Kernel
from napkin.diagram.diagram import Diagram
from napkin.errors import Refusal
from napkin.ir.node import over
from napkin.moves.derivation import Derivation


def by_hand(diagram: Diagram, rng: random.Random) -> Kernel | None:
    """A kernel with drawn labels; None where the diagram is no single kernel."""
    made = Derivation.start(diagram)
    with suppress(Refusal):
        for _ in range(rng.choice((1, 2, 3, 4))):
            made = _moved(made, rng)
        kernel = made.kernel  # whose groups have one residue each
        return made.group(*(a for a in kernel.residues if a not in kernel.group)).kernel
    return None


def _moved(made: Derivation, rng: random.Random) -> Derivation:
    """One more move, if one is legal; or one fewer."""
    with suppress(Refusal):
        way = rng.random()
        if way < 0.1:
            return made.undo()
        if way < 0.25:
            return made.split()
        if way < 0.4:
            return _held(made, rng)
        if moves := made.legal():
            move = rng.choice(moves)
            return getattr(made, move.rule)(move.argument)
    return made


def _held(made: Derivation, rng: random.Random) -> Derivation:
    """An axis streamed in several passes, with a result that is kept running."""
    whole = {*made.kernel.axes}  # others are split
    named = [(n, t) for n, t in made._term.names.items() if whole.intersection(over(n))]
    if not named:
        return made
    n, name = rng.choice(named)
    hold = [name] if rng.random() < 0.7 else []
    axis = rng.choice([a for a in over(n) if a in whole])
    return made.stream(axis, passes=rng.choice((1, 2, 3)), hold=hold)
