"""A text that two definitions share exactly if they say the same, in every process."""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import Any


def definition_of(*parts: object) -> str:
    """The parts, functions by what they compute."""
    return "\n".join(map(_text, parts))


def _text(part: object) -> str:
    code = getattr(part, "__code__", None)
    if code is None:
        if callable(part):
            return f"{getattr(part, '__module__', '')}.{getattr(part, '__qualname__', part)}"
        return repr(part)
    function: Any = part
    beyond = [getattr(c, "cell_contents", None) for c in function.__closure__ or ()]
    used = {n: function.__globals__[n] for n in code.co_names if n in function.__globals__}
    held = [*beyond, *(function.__defaults__ or ()), *used.values()]
    return f"{_code(code)} with {[_value(v) for v in held]}"


def _code(code: CodeType) -> str:
    """A function's instructions, and the constants and names that they use."""
    return f"{code.co_code.hex()} {_constants(code.co_consts)} {code.co_names}"


def _constants(values: Iterable[object]) -> list[str]:
    # A function's text is no part of what it computes, but its line numbers are in no constant.
    return [_code(v) if isinstance(v, CodeType) else repr(v) for v in values]


def _value(value: object) -> str:
    """What a function reads from outside of it: numbers and text as they are, the rest by name."""
    if isinstance(value, int | float | str | bool | tuple | frozenset | type(None)):
        return repr(value)
    code = getattr(value, "__code__", None)
    if code is not None:
        return _code(code)
    return f"{getattr(value, '__module__', '')}.{getattr(value, '__name__', type(value).__name__)}"
