"""Names of axes, and names that are not taken yet."""

from __future__ import annotations

import itertools
import keyword
import math
import re
from collections.abc import Container, Mapping, Sequence

from napkin.errors import InputError

_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")


_RESERVED = re.compile(r"[gs]_")


_CUT = re.compile(r"(.+)_(?:part|block)[0-9]+\Z")
"""What the parts and the blocks of an axis are called."""


_KERNELS = frozenset(["tl", "triton", "range"])
"""Names that every kernel uses."""


def axis_names(text: str, where: str) -> tuple[str, ...]:
    """The axis names in `text`, separated by spaces.

    Raises:
        InputError: a name is not an axis name, or stands twice.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"{where}: axes are named; write a name, such as 'q' or 'x0'")
    names = tuple(text.split())
    for name in names:
        if not _NAME.match(name):
            raise InputError(
                f"{where}: {name!r} is not an axis name; "
                "write lower-case letters and digits, a letter first, such as 'q' or 'x0'"
            )
        if keyword.iskeyword(name) or name in _KERNELS:
            whose = "a name of kernels" if name in _KERNELS else "a reserved word of Python"
            raise InputError(f"{where}: {name!r} is {whose}; choose another name, such as {name}_")
        if _RESERVED.match(name):
            raise InputError(
                f"{where}: {name!r} is reserved, since g_a and s_a are the group and stream sizes "
                "of axis a; choose another name"
            )
        if names.count(name) > 1:
            raise InputError(f"{where}: axis {name!r} stands twice in '{text.strip()}'")
    return names


def one_axis(text: str, where: str) -> str:
    """The one axis that a text names.

    Raises:
        InputError: it names none, or several.
    """
    names = axis_names(text, where)
    if len(names) != 1:
        raise InputError(f"{where}: write one axis, such as {names[0] if names else 'q'!r}")
    return names[0]


def check_uncut(axes: Sequence[str], where: str) -> None:
    """Refuse axes that are called as the parts or the blocks of another one are.

    Raises:
        InputError: one is.
    """
    for name in axes:
        found = _CUT.match(name)
        if found and found[1] in axes:
            raise InputError(
                f"{where}: {name!r} is reserved, since parts and blocks of axis {found[1]} are "
                "called so; choose another name"
            )


def numbered(name: str, taken: Container[str], join: str = "") -> str:
    """A name that is not taken: this one, or it with the first number from 2 after it."""
    others = (f"{name}{join}{i}" for i in itertools.count(2))
    return next(t for t in itertools.chain([name], others) if t not in taken)


def with_named(sizes: Mapping[str, int], same_size: Mapping[str, str]) -> dict[str, int]:
    """Sizes, and those of axes that rewrites named: each has as many positions as the axis whose
    size it has, or as several together, which have spaces between them."""
    out = dict(sizes)
    for new, old in same_size.items():
        out[new] = math.prod([out[a] for a in old.split()])
    return out


def underscored(name: str, taken: Container[str]) -> str:
    """A name that is not taken: this one, or it with underscores after it."""
    while name in taken:
        name += "_"
    return name
