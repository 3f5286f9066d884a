"""Calls that do not fit a function of napkin, in words: Python's own name no argument to write."""

from __future__ import annotations

import inspect
import re
import sys
import traceback
from types import FunctionType

from napkin.errors import did_you_mean

_CALL = re.compile(
    r"(\w+)\(\) (?:got an unexpected keyword argument '(\w+)'"
    r"|missing [^:]*: (.*)|(takes .*|got .*))"
)
_SIGN = re.compile(r"unsupported operand type\(s\) for (\S+?)(?:\(\))?: (.*)")
_INSTEAD = {
    "divmod": "X // n and X % n", "<<": "X * 2**n", ">>": "X // 2**n",
    "^": "X != Y for tests of which one holds",
}  # fmt: skip
"""What to write for operators that arrays do not have."""

_AXES = {"axis", "axes", "dim", "dims"}
"""What other libraries of arrays call the argument that says which axes."""


def miscalled(error: BaseException) -> str:
    """What is wrong with a call of a function of napkin, and what to write instead; "" where
    `error` is about something else."""
    sign = _SIGN.match(str(error)) if isinstance(error, TypeError) else None
    if sign is not None and "'Array'" in sign[2]:
        instead = _INSTEAD.get(sign[1].strip("="), "the functions and operators of napkin")
        return f"arrays of a diagram have no {sign[1]}; write {instead}"
    found = _CALL.match(str(error)) if isinstance(error, TypeError) else None
    if found is None:
        return ""
    name, unknown, missing, other = found.groups()
    function = getattr(sys.modules["napkin"], name, None)
    if not isinstance(function, FunctionType) or not _called(function, error):
        return ""
    known = list(inspect.signature(function).parameters)
    axes = next((a for a in ("over", "along") if a in known), "")
    by_name = f"axes are named, so write {axes}='d'"
    if unknown:
        instead = by_name if axes and unknown in _AXES else did_you_mean(unknown, known)
        return f"nk.{name} has no argument {unknown!r}; {instead}"
    if missing and axes and missing == repr(axes):
        return f"nk.{name} needs {missing}; {by_name}"
    what = f"needs {missing}" if missing else other
    return f"nk.{name} {what}; its arguments are {', '.join(known)}"


def _called(function: FunctionType, error: BaseException) -> bool:
    """Whether a user's line called `function`, and no other of its name."""
    frame, _ = list(traceback.walk_tb(error.__traceback__))[-1]
    own = {**frame.f_globals, **frame.f_locals}
    inside = str(own.get("__name__")).startswith("napkin.")
    return not inside and own.get(function.__name__, function) is function
