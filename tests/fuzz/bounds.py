"""Bounds of a search, drawn: what is left out of a large search is left out of a small one, too."""

from __future__ import annotations

import random
from contextlib import AbstractContextManager, ExitStack
from unittest import mock

from napkin.cut import rewritten
from napkin.rewrite import order
from napkin.settings import climb, effort

WORK = ("NARROW", "ADDING", "AS_IT_IS", "SPENT", "AGAIN", "PAIRS", "OTHERS", "QUICK")
"""Bounds in work (`napkin.settings.effort`)."""

LEAST = 12
"""Halvings of one of them, at most."""

OTHERS = (
    (rewritten, "LARGE", (0, 100)),
    (rewritten, "SURELY", (0.0, 1.0)),
    (order, "FAR", (1, 2)),
    (climb, "FEW", (2, 6)),
)
"""What else decides what is looked at, and how it is drawn."""


def drawn(rng: random.Random) -> AbstractContextManager[object]:
    """Plans are searched for under drawn bounds, mostly low ones."""
    stack = ExitStack()
    for name in WORK:
        halved = getattr(effort, name) >> rng.randrange(LEAST)
        stack.enter_context(mock.patch.object(effort, name, halved))
    for module, name, values in OTHERS:
        if rng.random() < 0.5:
            stack.enter_context(mock.patch.object(module, name, rng.choice(values)))
    return stack
