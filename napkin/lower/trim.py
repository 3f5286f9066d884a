"""Statements of a kernel without the values that nothing uses."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Collection, Iterator, Sequence


def loaded(tree: ast.AST) -> Iterator[str]:
    """The names that are read in a tree, as often as they are."""
    for n in ast.walk(tree):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load):
            yield n.id


def trimmed(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements without values that nothing uses, but what makes them."""
    tree = ast.Module(list(body), [])
    made: dict[str, list[ast.Assign]] = {}
    for n in ast.walk(tree):
        if isinstance(n, ast.Assign) and isinstance(target := n.targets[0], ast.Name):
            made.setdefault(target.id, []).append(n)
    used = Counter(loaded(tree))
    own = {name: sum(list(loaded(n)).count(name) for n in made[name]) for name in made}
    idle: set[ast.stmt] = set()
    left = [name for name in made if used[name] == own[name]]
    while left:
        for n in made.pop(left.pop(), []):
            idle.add(n)
            read = Counter(loaded(n))
            used.subtract(read)
            left += [name for name in read if name in made and used[name] == own[name]]
    return _Without(idle).visit(tree).body


class _Without(ast.NodeTransformer):
    """Takes statements out. A branch may be left with none; a loop is not, since all that loops
    compute is stored or read after them."""

    def __init__(self, idle: Collection[ast.stmt]) -> None:
        self.idle = idle

    def visit_Assign(self, node: ast.Assign) -> ast.stmt | None:
        return None if node in self.idle else node

    def visit_If(self, node: ast.If) -> ast.stmt:
        self.generic_visit(node)
        node.body = node.body or [ast.Pass()]
        return node
