"""What napkin says when it will not go on.

Two kinds of trouble reach a user. `InputError`: what was given is wrong (a name, a size, a file).
`Refusal`: a move is not legal on this diagram; it names the rule, the place, the condition that
failed and the nearest legal move. Both print as one clear message, never as a traceback.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable


class NapkinError(Exception):
    """Base of every error that napkin raises on purpose; `str(error)` is the whole message."""


class InputError(NapkinError, ValueError):
    """The input was wrong; the message names what, where, and what to write instead."""


class NoSuchName(InputError, AttributeError):
    """A name that napkin, or an array in a diagram, does not have."""


class Refusal(NapkinError, RuntimeError):
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


def check_known(word: object, choices: Collection[str], what: str) -> None:
    """Check that a word is one of some choices.

    Args:
        what: the message where it is none, but for the nearest choice.

    Raises:
        InputError: it is none of them.
    """
    if not isinstance(word, str) or word not in choices:
        raise InputError(f"{what}; {did_you_mean(str(word), choices)}")


_REDUCED = ("sum", "mean", "max", "min", "prod", "any", "all", "logsumexp")
_MOVED = ("T", "transpose", "permute", "reshape", "view", "flatten", "squeeze", "unsqueeze")
SPELLED = {
    "relu": "nk.maximum(x, 0.0)",
    "clip": "nk.minimum(nk.maximum(x, low), high)",
    "clamp": "nk.minimum(nk.maximum(x, low), high)",
    "square": "x * x",
    "log_softmax": "x - nk.reduce(x, 'logsumexp', over='...')",
    "argmax": "nk.argmax(x, over='a')",
    "argmin": "nk.argmin(x, over='a')",
    "topk": "nk.topk(x, k, over='a')",
    "var": "nk.reduce((x - mean) ** 2, 'mean', over='...')",
    "std": "nk.sqrt(nk.reduce((x - mean) ** 2, 'mean', over='...'))",
    "norm": "nk.sqrt(nk.reduce(x * x, 'sum', over='...'))",
    "shape": "nk.size('a') for the size of axis a",
    "einsum": "nk.contract(X, Y, over='...')",
    "matmul": "nk.contract(X, Y, over='...')",
    "dot": "nk.contract(X, Y, over='...')",
}
"""What stands for functions of other libraries that have no name of their own here."""

_FUNCTIONS = (
    "exp", "log", "sqrt", "rsqrt", "tanh", "sin", "cos", "erf", "sigmoid", "silu", "gelu", "ndtr",
    "abs", "maximum", "minimum", "where", "cast", "softmax", "cumsum", "sort", "take", "contract",
)  # fmt: skip


def meant(name: str, known: Iterable[str] = _FUNCTIONS) -> str:
    """What to write for a name that other libraries of arrays have, or that is one of `known`."""
    if name in _REDUCED:
        return f"write nk.reduce(x, {name!r}, over='...')"
    if name in _MOVED:
        return "axes have names and no order, so that nothing is transposed or reshaped"
    if name in SPELLED:
        return f"write {SPELLED[name]}"
    return f"write nk.{name}(x, ...)" if name in _FUNCTIONS else did_you_mean(name, known)
