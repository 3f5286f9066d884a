"""Records as plain data that JSON can hold, and read back by the types of their fields.

A record that is read back has what its fields say, and nothing else is trusted: data of another
shape raise an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, cast, get_args, get_origin, get_type_hints

from napkin.ir.node import Kind, Node, node, postorder
from napkin.ir.operators import POINTWISE


def plain(value: Any) -> Any:
    """A record, or what one may hold, as plain data."""
    if isinstance(value, Node):
        place = {m: i for i, m in enumerate(postorder([value]))}
        return {"terms": [[m.op, [place[a] for a in m.args], m.params, m.kind] for m in place]}
    if is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {k: plain(v) for k, v in cast("Mapping[str, Any]", value).items()}
    if isinstance(value, tuple):
        return [plain(v) for v in cast("tuple[Any, ...]", value)]
    return value


def made(kind: Any, data: Any) -> Any:
    """The value of a type that `plain` wrote.

    Raises:
        KeyError, TypeError, ValueError, IndexError, RecursionError: the data is no such value.
    """
    of, parts = get_origin(kind), get_args(kind)
    listed = isinstance(data, list | tuple)
    if of is UnionType:  # of a record and None, or of a list and a term
        if data is None and type(None) in parts:
            return None
        return made(next((p for p in parts if (get_origin(p) is tuple) == listed), parts[0]), data)
    if of is Literal:
        return parts[parts.index(data)]
    if of is tuple:
        if not listed:
            raise TypeError(f"{data!r} is no list")
        return tuple(made(parts[0], v) for v in cast("Sequence[Any]", data))
    if of is not None:
        if not isinstance(data, Mapping):
            raise TypeError(f"{data!r} is no table")
        table = cast("Mapping[str, Any]", data)
        return {made(parts[0], k): made(parts[1], v) for k, v in table.items()}
    if kind is Node:
        return _term(data)
    if is_dataclass(kind):
        return cast(Any, kind)(**{k: made(t, data[k]) for k, t in _types(kind).items()})
    if type(data) is not kind or (kind is int and data < 0):
        raise TypeError(f"{data!r} is no {kind.__name__}")
    return data


@lru_cache(maxsize=64)
def _types(record: Any) -> dict[str, Any]:
    """The types of a record's fields."""
    hints = get_type_hints(record)
    return {f.name: hints[f.name] for f in fields(record)}


def _term(data: Any) -> Node:
    """An expression of sizes and scalars, which has no axes, from its terms, arguments first."""
    found: list[Node] = []
    for op, places, params, kind in data["terms"]:
        if not all(made(int, i) < len(found) for i in places):
            raise ValueError(f"arguments {places!r} of {op!r} are no earlier terms")
        found.append(_operator(op, [found[i] for i in places], params, kind))
    return found[-1]


def _operator(op: str, args: Sequence[Node], params: Sequence[Any], kind: Kind) -> Node:
    if op in POINTWISE:
        if len(args) != POINTWISE[op].arity:
            raise ValueError(f"{op} of {len(args)} arguments")
    elif args or op not in {"number", "size", "scalar"}:
        raise ValueError(f"{op!r} is no operator of sizes and scalars")
    return node(op, args, params, (), made(Kind, kind))
