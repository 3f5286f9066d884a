"""Terms rebuilt from the leaves up, with axes and kinds inferred again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from napkin.ir.infer import rebuilt
from napkin.ir.node import Node, postorder


def rewrite(
    roots: Iterable[Node],
    change: Callable[[Node, tuple[Node, ...]], Node | None],
    given: Mapping[Node, Node] | None = None,
) -> dict[Node, Node]:
    """Rebuild the terms under `roots` from the leaves up.

    `change(old, new_args)` gives the new node, or None to keep the operator on the new arguments.
    Nodes of `given` become what it says, and what lies below them is left alone. Returns the map
    from every old node to its new one. Axes and kinds are inferred again.
    """
    done: dict[Node, Node] = dict(given or {})
    for old in postorder(roots, done):
        if old in done:
            continue
        args = tuple([done[a] for a in old.args])
        new = change(old, args)
        if new is None:
            new = old if args == old.args else rebuilt(old, args)
        done[old] = new
    return done


def substitute(roots: Iterable[Node], by: Mapping[Node, Node]) -> dict[Node, Node]:
    """`rewrite` that replaces the nodes named in `by` and keeps the rest."""
    roots = tuple(roots)
    if by.keys().isdisjoint(postorder(roots)):
        return {**by, **{n: n for n in postorder(roots)}}
    return rewrite(roots, lambda old, args: None, by)
