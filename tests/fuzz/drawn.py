"""What was drawn, and what never: operators, key sets, and branches of the rooms that derive and
write kernels.

Branches are counted by statements that are put into these rooms as they are imported, so `install`
has to come before that.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import programs
from programs import Program

ROOMS = ("derive", "lower", "plan/exact.py", "plan/pieces.py", "plan/frontier.py", "plan/alike.py")
ENOUGH = 100
"""How often each should be drawn."""

HITS: set[str] = set()
"""The branches that were taken since it was last emptied."""

PATTERNS = (
    "causal", "sliding", "dilated", "strided", "fixed", "blocked", "sinks", "global_tokens",
    "neighborhood", "documents", "bigbird", "&", "|",
)  # fmt: skip
OTHERS = (
    "where", "cast", "size", "index", "scalar", "rename", "take", "slide", "contract", "softmax",
    "compress", "spread",
)  # fmt: skip


@cache
def root() -> Path:
    """Where napkin lies."""
    found = find_spec("napkin")
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent


def _files() -> Iterator[Path]:
    for room in ROOMS:
        path = root() / room
        yield from [path] if path.suffix else sorted(path.rglob("*.py"))


class _Counted(ast.NodeTransformer):
    """Puts a note at the start of each way that an `if` may go, and of each loop's body."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.ways: list[str] = []

    def _note(self, way: str) -> ast.stmt:
        self.ways.append(way)
        return ast.parse(f"__drawn__.add({way!r})").body[0]

    def visit_If(self, n: ast.If) -> ast.AST:
        """Both ways of a choice."""
        self.generic_visit(n)
        n.body.insert(0, self._note(f"{self.name}:{n.lineno} holds"))
        n.orelse.insert(0, self._note(f"{self.name}:{n.lineno} fails"))
        return n

    def visit_For(self, n: ast.For) -> ast.AST:
        """A loop that turns at all."""
        self.generic_visit(n)
        n.body.insert(0, self._note(f"{self.name}:{n.lineno} turns"))
        return n

    def visit_FunctionDef(self, n: ast.FunctionDef) -> ast.AST:
        """A function that is called; its docstring stays first."""
        self.generic_visit(n)
        first = int(ast.get_docstring(n, clean=False) is not None)
        n.body.insert(first, self._note(f"{self.name}:{n.lineno} {n.name} is called"))
        return n


def counted(path: Path) -> tuple[ast.Module, list[str]]:
    """A file with notes in it, and the ways that they note."""
    found = _Counted(str(path.relative_to(root())))
    tree = found.visit(ast.parse(path.read_text()))
    return ast.fix_missing_locations(tree), found.ways


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        """The code with notes in it."""
        return compile(counted(Path(self.path))[0], self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Run it where it finds what it adds to."""
        module.__dict__["__drawn__"] = HITS
        super().exec_module(module)


class _Finder(PathFinder):
    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        """The module with notes in it, if it is of the rooms."""
        if not fullname.startswith("napkin."):
            return None
        found = super().find_spec(fullname, path, target)
        if found is None or found.origin is None or Path(found.origin) not in set(_files()):
            return None
        found.loader = _Loader(fullname, found.origin)
        return found


def install() -> None:
    """Count branches from now on."""
    sys.meta_path.insert(0, _Finder)


def of_program(program: Program) -> set[str]:
    """The names of what a program has."""
    out: set[str] = set()
    for step in program.steps:
        out.add(f"operator {step.op}")
        if len(step.args) > 1 and step.op in {"softmax", "logsumexp"}:
            out.add(f"operator {step.op} of several")
        refs = [a for a in step.args if isinstance(a, programs.Ref)]
        if len(refs) > len(set(refs)):
            out.add("a repeated argument")
        for keys in step.keys:
            out |= {f"key set {k.pattern}" for k in keys.each()} if keys is not None else set()
        if step.op == "contract" and step.over and len(step.over[0]) > 1:
            out.add(f"a contraction over {len(step.over[0])} axes")
    out |= {f"input of {i.storage or i.kind}" for i in program.inputs}
    out |= {f"numbers {i.fill.split(':')[0]}" for i in program.inputs}
    out |= {f"size {n}" for n in program.sizes.values()}
    out |= {"several outputs"} if len(program.outputs) > 1 else set()
    return out | ({"woven"} if program.weave[0] else set())


def all_names() -> list[str]:
    """What programs should have."""
    operators = sorted(
        programs.UNARY | programs.BINARY | programs.SCANS | {*programs.REDUCE, *OTHERS}
    )
    return [*(f"operator {op}" for op in operators), *(f"key set {p}" for p in PATTERNS)]


def watched(work: Callable[[], Any], program: Program) -> tuple[Any, list[str]]:
    """What `work` gives, and the names of what was drawn while it ran."""
    HITS.clear()
    found = work()
    return found, sorted(of_program(program) | HITS)


def report(drawn: Counter[str]) -> str:
    """The table: how often each was drawn, and the names of what never was."""
    lines: list[str] = []
    for name in sorted({*all_names(), *(k for k in drawn if ".py:" not in k)}):
        lines.append(f"{drawn[name]:7} {name}")
    every = never = 0
    for path in _files():
        ways = counted(path)[1]
        missed = [w for w in ways if not drawn[w]]
        few = sum(0 < drawn[w] < ENOUGH for w in ways)
        every, never = every + len(ways), never + len(missed)
        place = path.relative_to(root())
        lines.append(f"{place}: {len(ways)} ways, {few} under {ENOUGH} times, {len(missed)} never")
        lines += [f"        never: {w}" for w in missed]
    lines.append(f"{every} ways in all, {never} never")
    lines += [f"never: {name}" for name in all_names() if not drawn[name]]
    return "\n".join(lines)
