"""Bounds of a search, drawn: what is left out of a large search is left out of a small one, too."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest import mock

from napkin.cut import rewritten
from napkin.rewrite import order
from napkin.settings import climb, effort

WORK = ("NARROW", "ADDING", "AS_IT_IS", "SPENT", "AGAIN", "PAIRS", "OTHERS", "QUICK")
"""Bounds in work (`napkin.settings.effort`)."""

HALVINGS = 12
"""Each of them is halved fewer times than this."""

THRESHOLDS = (
    (rewritten, "LARGE", (0, 100)),
    (rewritten, "SURELY", (0.0, 1.0)),
    (order, "FAR", (1, 2)),
    (climb, "FEW", (2, 6)),
)
"""What else decides what a search looks at: where it stands, and the values that it may get."""


@contextmanager
def drawn(rng: random.Random) -> Iterator[None]:
    """Plans are searched for under drawn bounds, mostly low ones."""
    with ExitStack() as patches:
        for name in WORK:
            halved = getattr(effort, name) >> rng.randrange(HALVINGS)
            patches.enter_context(mock.patch.object(effort, name, halved))
        for module, name, values in THRESHOLDS:
            if rng.random() < 0.5:
                patches.enter_context(mock.patch.object(module, name, rng.choice(values)))
        yield
