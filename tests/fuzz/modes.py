"""The modes of the harness: each tries one program and gives what is wrong with it, or None."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from added import in_force
from draw import draw
from drawing import near
from judged import COUNTS, Failure, Found, crash
from programs import Program

LIMITS = {"algebra": 20.0, "interpret": 20.0, "memory": 60.0, "compile": 120.0, "gpu": 60.0,
          "gradient": 20.0}  # fmt: skip
"""Seconds for each program."""

VERIFIED = 3.0
"""How many times as long one may take whose rules are held to their laws: these are most of it."""

AHEAD = {"algebra": 3, "interpret": 2, "memory": 1, "compile": 1, "gpu": 1, "gradient": 3}
"""Programs that a process is handed at once: more of what takes moments."""

AGAIN, APART = 2**40, 10_007
"""A seed from `AGAIN` on is another try of a program: its remainder draws the program, and plans
are drawn from seeds of the same kind that lie `APART`."""

Mode = Callable[[Program, int], None]


def prepared(name: str) -> Mode:
    """A mode; its rooms are imported before processes are forked."""
    rooms = {"compile": "compiling", "memory": "compiling", "gpu": "ongpu"}
    return getattr(import_module(rooms.get(name, name)), name)


def again(seed: int) -> tuple[int, int]:
    """The seeds of which a program and its plans are drawn."""
    many, first = divmod(seed, AGAIN)
    return first, near(first, many * APART)


def times(name: str, seed: int) -> float:
    """How many times the limit of its mode a seed may take."""
    if name != "interpret":
        return 1.0
    from interpret import verified

    return VERIFIED if verified(again(seed)[1]) else 1.0


def tried(mode: Mode, program: Program, seed: int) -> Failure | None:
    """What is wrong with a program in a mode."""
    try:
        with in_force(program.rules):
            mode(program, seed)
    except Found as found:
        return found.failure
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as problem:  # whatever is raised is the finding
        return crash(problem)
    return None


def worker(name: str, coverage: bool = False) -> Callable[[int], tuple[Failure | None, Any]]:
    """What a process does with a seed: gives its failure, if any, and what was counted."""
    mode = prepared(name)

    def work(seed: int) -> tuple[Failure | None, Any]:
        first, seed = again(seed)
        program = draw(first)
        COUNTS.clear()
        if not coverage:
            return tried(mode, program, seed), {"counts": dict(COUNTS)}
        from drawn import watched

        failure, found = watched(lambda: tried(mode, program, seed), program)
        return failure, {"counts": dict(COUNTS), "drawn": found}

    return work
