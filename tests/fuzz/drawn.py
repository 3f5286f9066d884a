"""What was drawn, and how often: operators, key sets, rules, and branches of the rooms that derive
and write kernels.

Branches are marked by statements that are put into these rooms as they are imported, so `install`
has to come before that. A mark is a byte set to 1: it costs about as much as a line of Python.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import programs
from elsewhere import ELSEWHERE, WHY_RULE
from programs import Program
from written import apart, called

RULE = "algebra/rule.py"
"""Where rules are applied."""

ROOMS = ("lower", "derive", "rewrite", RULE, "cut/pieces.py", "cut/frontier.py", "cut/segments.py")
EMITTERS = "lower/"
ENOUGH, KEPT = 100, 12
"""How often each should be drawn, and how many seeds are kept of those that draw it."""

PAIR = "kernels with "
TAKEN = ("rule ", PAIR)
"""What names begin with of what a program's plans take: rules, and pairs of what kernels have."""

MARKS = bytearray()
"""A byte for each way, 1 where it was taken since they were last cleared."""

RULES: set[str] = set()
"""The rules that were applied since it was last emptied."""

PATTERNS = (
    "causal", "sliding", "dilated", "strided", "fixed", "blocked", "sinks", "global_tokens",
    "neighborhood", "documents", "bigbird", "&", "|", "thinning", "checkered", "mirrored", "halved",
)  # fmt: skip
OTHERS = (
    "where", "cast", "size", "index", "scalar", "rename", "take", "slide", "contract", "softmax",
    "compress", "spread", "scan", "uniform", "dropout", *programs.RANKED,
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


@dataclass(frozen=True)
class Way:
    """One way that a program may go.

    Attributes:
        name: the file, the line, and what happens there.
        refuses: whether it does nothing but raise, or ends what is never to be.
        inside: the function that it lies in.
    """

    name: str
    refuses: bool
    inside: str = ""

    @property
    def why(self) -> str:
        """Why no program draws it here (`elsewhere`); "" where one may."""
        file = self.name.partition(":")[0].removeprefix(EMITTERS)
        return ELSEWHERE.get((file, self.inside), "")


class _Marked(ast.NodeTransformer):
    """Puts a mark at the start of each way that a choice may go, of each loop's body, of each
    handler and of each function."""

    def __init__(self, name: str, first: int) -> None:
        self.name, self.first, self.inside = name, first, ""
        self.ways: list[Way] = []

    def _next(self, n: ast.AST, what: str, refuses: bool = False) -> int:
        self.ways.append(Way(f"{self.name}:{n.lineno} {what}", refuses, self.inside))
        return self.first + len(self.ways) - 1

    def _mark(self, n: ast.AST, what: str, body: list[ast.stmt], at: int = 0) -> None:
        number = self._next(n, what, bool(body[at:]) and isinstance(body[at], ast.Raise))
        body.insert(at, ast.parse(f"__marks__[{number}] = 1").body[0])

    def visit_If(self, n: ast.If) -> ast.AST:
        """Both ways of a choice."""
        typing = isinstance(n.test, ast.Name) and n.test.id == "TYPE_CHECKING"
        self.generic_visit(n)
        if not typing:
            self._mark(n, "holds", n.body)
            self._mark(n, "fails", n.orelse)
        return n

    def visit_IfExp(self, n: ast.IfExp) -> ast.AST:
        """Both ways of a choice between values."""
        self.generic_visit(n)
        for name in ("body", "orelse"):
            number = self._next(n, f"column {n.col_offset} {name}")
            marked = ast.parse(f"__way__({number}, 0)", mode="eval").body
            marked.args[1] = getattr(n, name)
            setattr(n, name, marked)
        return n

    def visit_For(self, n: ast.For) -> ast.AST:
        """A loop that turns at all."""
        self.generic_visit(n)
        self._mark(n, "turns", n.body)
        return n

    def visit_While(self, n: ast.While) -> ast.AST:
        """A loop that turns at all."""
        self.generic_visit(n)
        self._mark(n, "turns", n.body)
        return n

    def visit_ExceptHandler(self, n: ast.ExceptHandler) -> ast.AST:
        """An exception that is caught."""
        self.generic_visit(n)
        self._mark(n, "is caught", n.body)
        return n

    def visit_match_case(self, n: ast.match_case) -> ast.AST:
        """A case that is met."""
        self.generic_visit(n)
        self._mark(n.pattern, "is met", n.body)
        return n

    def visit_FunctionDef(self, n: ast.FunctionDef) -> ast.AST:
        """A function that is called; its docstring stays first."""
        outer, self.inside = self.inside, n.name
        self.generic_visit(n)
        first = int(ast.get_docstring(n, clean=False) is not None)
        if n.body[first:]:
            self._mark(n, f"{n.name} is called", n.body, first)
        if self.name == RULE and n.name == "apply":
            n.body[first:first] = ast.parse("__applied__(self.name, found.made)").body
        self.inside = outer
        return n


@cache
def marked() -> dict[Path, tuple[ast.Module, tuple[Way, ...]]]:
    """Every file of the rooms with marks in it, and the ways that they stand for, all numbered in
    this order."""
    out: dict[Path, tuple[ast.Module, tuple[Way, ...]]] = {}
    first = 0
    for path in _files():
        found = _Marked(str(path.relative_to(root())), first)
        tree = ast.fix_missing_locations(found.visit(ast.parse(path.read_text("utf-8"))))
        out[path] = tree, tuple(found.ways)
        first += len(found.ways)
    return out


def ways() -> list[Way]:
    """Every way, by its number."""
    return [w for _, own in marked().values() for w in own]


def _applied(name: str, made: Any) -> None:
    """A rule was applied; of one for all nodes at once, if it changed some."""
    if not isinstance(made, Mapping) or any(old is not new for old, new in made.items()):
        RULES.add(name)


def _way(number: int, value: Any) -> Any:
    MARKS[number] = 1
    return value


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> Any:
        """The code with marks in it."""
        return compile(marked()[Path(self.path)][0], self.path, "exec", dont_inherit=True)

    def exec_module(self, module: ModuleType) -> None:
        """Run it where it finds what it marks."""
        module.__dict__.update(__marks__=MARKS, __applied__=_applied, __way__=_way)
        super().exec_module(module)


class _Finder(PathFinder):
    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: Any = None
    ) -> ModuleSpec | None:
        """The module with marks in it, if it is of the rooms."""
        if not fullname.startswith("napkin."):
            return None
        found = super().find_spec(fullname, path, target)
        if found is None or found.origin is None or Path(found.origin) not in marked():
            return None
        found.loader = _Loader(fullname, found.origin)
        return found


def install() -> None:
    """Mark branches from now on."""
    MARKS.extend(bytes(len(ways())))
    sys.meta_path.insert(0, _Finder)


def of_program(program: Program) -> set[str]:
    """The names of what a program has."""
    out: set[str] = set()
    for step in program.steps:
        out.add(f"operator {step.op}")
        out |= {f"scan {step.option['form']}"} if step.op == "scan" else set()
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
    out |= {f"rule {r}" for r in program.rules}
    out |= {"several outputs"} if len(program.outputs) > 1 else set()
    out |= {"composed"} if apart(program) is not None else set()
    out |= {"nested"} if program.nested else set()
    out |= {"stored"} if program.stored else set()
    out |= {"called"} if called(program) is not None else set()
    return out | ({"woven"} if program.weave[0] else set())


def all_names() -> list[str]:
    """What programs should have."""
    operators = sorted(
        programs.UNARY
        | programs.BINARY
        | programs.SCANS
        | {*programs.REDUCE, *OTHERS}
        | programs.OWN - {*PATTERNS}
    )
    found = [*(f"operator {op}" for op in operators), *(f"key set {p}" for p in PATTERNS)]
    return [*found, *(f"scan {form}" for form in programs.FORMS)]


def watched(work: Callable[[], Any], program: Program) -> tuple[Any, tuple[bytes, list[str]]]:
    """What `work` gives, and what was drawn while it ran: a byte for each way, and names."""
    from traits import SEEN  # once its rooms are marked

    MARKS[:] = bytes(len(MARKS))
    RULES.clear()
    SEEN.clear()
    found = work()
    names = of_program(program) | {f"rule {r}" for r in RULES} | SEEN
    return found, (bytes(MARKS), sorted(names))


def rules() -> list[str]:
    """The names of the rules that derivation has."""
    from napkin.derive.rules.table import TABLE  # once its rooms are marked

    return sorted(TABLE)


class Tally:
    """How many programs drew what."""

    def __init__(self) -> None:
        self.ways = ways()
        self.taken = np.zeros(len(self.ways), dtype=np.int64)
        self.names: Counter[str] = Counter()
        self.seeds: dict[int | str, list[int]] = {}

    def add(self, marks: bytes, names: Iterable[str], seed: int) -> None:
        """One more program."""
        taken = np.frombuffer(marks, dtype=np.uint8)
        applied = [n for n in names if n.startswith(TAKEN) and self.names[n] < KEPT]
        for i in (*map(int, np.flatnonzero(taken & (self.taken < KEPT))), *applied):
            self.seeds.setdefault(i, []).append(seed)
        self.taken += taken
        self.names.update(names)

    def merge(self, table: Mapping[str, int]) -> None:
        """Adds what another run drew."""
        place = {w.name: i for i, w in enumerate(self.ways)}
        for name, n in table.items():
            if name in place:
                self.taken[place[name]] += n
            else:
                self.names[name] += n

    def rare(self) -> dict[str, list[int]]:
        """Seeds that draw each rule, pair and way of the emitters that is drawn less than `ENOUGH`
        times."""
        drawn = dict(self.names) | {i: self.taken[i] for i in range(len(self.ways))}
        few = ((i, seeds) for i, seeds in self.seeds.items() if drawn[i] < ENOUGH)
        found = {i if isinstance(i, str) else self.ways[i].name: seeds for i, seeds in few}
        return {n: seeds for n, seeds in found.items() if n.startswith((EMITTERS, *TAKEN))}

    def table(self) -> dict[str, int]:
        """The number of programs that drew each name, rule and way."""
        from traits import all_pairs

        wanted = [*all_names(), *(f"rule {r}" for r in rules()), *all_pairs()]
        found = dict.fromkeys(wanted, 0) | dict(self.names)
        return found | {w.name: int(k) for w, k in zip(self.ways, self.taken, strict=True)}

    def report(self) -> str:
        """Each rule and each way of the emitters with its draws, the rarest first; what only
        refuses, what is reached elsewhere and why, and the other rooms, below."""
        table = self.table()
        refuses = {w.name for w in self.ways if w.refuses}
        why = {w.name: w.why for w in self.ways if w.why} | WHY_RULE
        emits = [w.name for w in self.ways if w.name.startswith(EMITTERS)]
        others = [w.name for w in self.ways if not w.name.startswith(EMITTERS)]
        pairs = [k for k in table if k.startswith(PAIR)]
        parts = {
            "operators, key sets, inputs": [k for k in table if ".py:" not in k and k not in pairs],
            "pairs of what kernels that ran have": pairs,
            "rules": [k for k in table if k.startswith("rule ") and k not in why],
            "branches of the emitters": [k for k in emits if k not in refuses and k not in why],
            "branches and rules that are reached elsewhere": list(why),
            "branches of the emitters that refuse": [k for k in emits if k in refuses],
            "other rooms, below enough": [
                k for k in others if k not in refuses and table[k] < ENOUGH
            ],
        }
        lines: list[str] = []
        for title, names in parts.items():
            few = sum(0 < table[k] < ENOUGH for k in names)
            never = sum(not table[k] for k in names)
            lines.append(f"\n{title}: {len(names)}, {few} below {ENOUGH} draws, {never} never")
            said = {k: f" ({why[k]})" if k in why else "" for k in names}
            lines += [f"{table[k]:7} {k}{said[k]}" for k in sorted(names, key=lambda k: table[k])]
        return "\n".join(lines)
