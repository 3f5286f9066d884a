"""Tracing: every rewrite of a derivation, and every way to run it that a search weighed.

A tracer is off unless somebody opens one with `tracing`, and then costs its users one look at a
context variable. Rooms report to `active()`, where there is one: rules their applications
(`napkin.algebra.rule.verified`), the planner what it considered and what it dropped.
Terms are kept as they are; `napkin.plan.explained` writes them.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal

from napkin.ir.node import Node

Kind = Literal["term", "points", "order", "cut", "kernel", "setting"]
"""Of what ways are weighed: orders of sums, what may be stored, orders of that, cuts into kernels,
labels of a kernel, settings of one."""


@dataclass(frozen=True, eq=False)
class Step:
    """One application of a rule that changed a term.

    Attributes:
        rule, law: the rule's name and its equation.
        before, after: the terms, in the same order.
        kernel: the labelled kernel whose fold is the other side; None for rewrites of terms.
    """

    rule: str
    law: str
    before: tuple[Node, ...]
    after: tuple[Node, ...]
    kernel: Any = None


@dataclass(frozen=True)
class Considered:
    """A way to run something that was weighed.

    Attributes:
        kind: what it is a way of.
        what: it in words.
        seconds: its predicted time; None where that is not known.
    """

    kind: Kind
    what: str
    seconds: float | None = None


@dataclass(frozen=True)
class Dropped:
    """A way to run something that was not taken.

    Attributes:
        kind: what it is a way of.
        what: it in words.
        why: the reason.
    """

    kind: Kind
    what: str
    why: str


@dataclass(frozen=True, eq=False)
class Labelled:
    """A kernel that was labelled; the steps from event `since` on led to it."""

    kernel: Any
    since: int


@dataclass(frozen=True, eq=False)
class Began:
    """The search for the kernels of a term, by the step before this event where the term came of
    one.

    Attributes:
        what: the term in words.
        term: it, with the names of its arrays.
    """

    what: str
    term: Any


Event = Step | Considered | Dropped | Labelled | Began


class Tracer:
    """What was reported, in order.

    Attributes:
        events: the reports.
    """

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._told = set[Event]()  # of the term whose kernels are searched for

    def stepped(
        self, rule: str, law: str, before: Sequence[Node], after: Sequence[Node], kernel: Any = None
    ) -> None:
        """Report an application of a rule; one that changed nothing is passed over."""
        if kernel is not None or tuple(before) != tuple(after):
            self.events.append(Step(rule, law, tuple(before), tuple(after), kernel))

    def considered(self, kind: Kind, what: str, seconds: float | None = None) -> None:
        """Report a way that is weighed, with its predicted seconds where they are known."""
        self._tell(Considered(kind, what, seconds))

    def dropped(self, kind: Kind, what: str, why: str) -> None:
        """Report a way that is not taken."""
        self._tell(Dropped(kind, what, why))

    def _tell(self, event: Considered | Dropped) -> None:
        """Report a way, once for each term."""
        if event not in self._told:
            self._told.add(event)
            self.events.append(event)

    def labelled(self, kernel: Any, since: int) -> None:
        """Report a labelled kernel, and the number of events before its labelling began."""
        self.events.append(Labelled(kernel, since))

    def began(self, what: str, term: Any) -> None:
        """Report that kernels are searched for a term, which has `outputs` and `names`."""
        self._told.clear()
        self.events.append(Began(what, term))


_ACTIVE: ContextVar[Tracer | None] = ContextVar("napkin_tracer", default=None)

active = _ACTIVE.get
"""The tracer to report to; None where nobody asks."""


@contextmanager
def tracing() -> Generator[Tracer]:
    """A tracer that all reports go to while the context lasts, in place of any other."""
    made = Tracer()
    token = _ACTIVE.set(made)
    try:
        yield made
    finally:
        _ACTIVE.reset(token)


def times(seconds: float) -> str:
    """Seconds as microseconds, in words."""
    return f"{seconds * 1e6:,.1f} us"
