"""What napkin says when it will not go on.

Two kinds of trouble reach a user. `InputError`: what was given is wrong (a name, a size, a file).
`Refusal`: a move is not legal on this diagram; it names the rule, the place, the condition that
failed and the nearest legal move. Both print as one clear message, never as a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class NapkinError(Exception):
    """Base of every error that napkin raises on purpose; `str(error)` is the whole message."""


class InputError(NapkinError):
    """The input was wrong; the message names what, where, and what to write instead."""


class Refusal(NapkinError):
    """A derivation move that is not legal here.

    Attributes:
        rule: the rule that was asked for, such as ``"stream x"``.
        place: the part of the diagram where its condition failed.
        reason: the condition that failed.
        nearest: the nearest legal move, in words, or ``""`` where there is none.
    """

    def __init__(self, rule: str, place: str, reason: str, nearest: str = "") -> None:
        self.rule = rule
        self.place = place
        self.reason = reason
        self.nearest = nearest
        message = f"{rule} is refused at {place}: {reason}"
        super().__init__(message + (f"; instead, {nearest}" if nearest else ""))


def did_you_mean(word: str, choices: Iterable[str]) -> str:
    """A closing sentence that lists `choices`, the likeliest first: "did you mean 'x'?"."""
    known = list(choices)
    close = difflib.get_close_matches(word, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(known)}" if known else "there are none"
