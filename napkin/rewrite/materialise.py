"""Arrays that one kernel stores and another reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from napkin.algebra.rule import Instance, Rule, Sides
from napkin.ir.expansion import view
from napkin.ir.infer import rebuilt
from napkin.ir.node import Node, names_of, node
from napkin.ir.rewrite import rewrite, substitute
from napkin.ir.storage import own_type, widens
from napkin.ir.taking import of_stored
from napkin.rewrite.read import read


def _matches(roots: Sequence[Node], stored: Mapping[Node, Node], dtype: str) -> Iterator[Instance]:
    """The map from every node under `roots` to its form where arrays are read that are stored.

    Args:
        stored: the reading of each array that is stored.
        dtype: the type in which arrays without one of their own lie.
    """
    tensors = {str(n.params[0]) for n in stored.values()}
    done = rewrite(roots, partial(_change, _typed(roots), tensors, dtype), stored)
    where = ", ".join(str(n.params[0]) for n in stored.values())
    yield Instance(where, done, partial(_sides, roots, stored, done))


def _sides(roots: Sequence[Node], stored: Mapping[Node, Node], done: Mapping[Node, Node]) -> Sides:
    taken = substitute(roots, stored)
    return [taken[n] for n in roots], [done[n] for n in roots]


def _typed(roots: Sequence[Node]) -> set[Node]:
    """What is stored, which keeps its cast."""
    return {n.args[0] if n.op == "compress" else n for n in roots}


def _change(
    typed: set[Node], tensors: set[str], dtype: str, old: Node, args: tuple[Node, ...]
) -> Node | None:
    if old.op != "compress" or old.args[0] not in typed:
        args = tuple(a.args[0] if widens(a) else a for a in args)
    if widens(old) and old not in typed:
        return args[0]
    if old.op == "rename":
        return view(args[0], names_of(old))
    if old.op == "input" and own_type(old) == dtype:
        return node("input", args, (str(old.params[0]), *old.params[1:]), old.axes, old.kind)
    made = read(old, args)
    if made is not None and old.op == "take" and made.params[0] in tensors:
        return of_stored(made)
    return made or (old if args == old.args else rebuilt(old, args))


STORED = Rule(
    "materialise",
    "rename(T) = T under other axes, take(T, p) = T at p, cast(x, fp32) = x",
    _matches,
    ("T lies in memory", "what is stored keeps its cast, and others read it without"),
    infinite=True,
)
