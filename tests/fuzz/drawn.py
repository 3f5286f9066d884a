"""What was drawn, and what never: operators, key sets, and branches of the rooms that derive and
write kernels."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Any

import programs
from programs import Program

import napkin

ROOMS = ("derive", "lower", "plan/exact.py", "plan/pieces.py", "plan/frontier.py", "plan/alike.py")
ROOT = Path(napkin.__file__).parent
ENOUGH = 100
"""How often each should be drawn."""

PATTERNS = (
    "causal", "sliding", "dilated", "strided", "fixed", "blocked", "sinks", "global_tokens",
    "neighborhood", "documents", "bigbird", "&", "|",
)  # fmt: skip
OTHERS = (
    "where", "cast", "size", "index", "scalar", "rename", "take", "slide", "contract", "softmax",
    "compress", "spread",
)  # fmt: skip


@dataclass(frozen=True)
class Branch:
    """A statement that goes one of two ways.

    Attributes:
        first, last: the lines of its test.
        body: the first line of where it goes if that holds.
    """

    file: str
    first: int
    last: int
    body: int

    @property
    def name(self) -> str:
        """Its place."""
        return f"{self.file}:{self.first}"


@cache
def branches() -> dict[str, tuple[Branch, ...]]:
    """The branches of each file of the rooms."""
    out: dict[str, tuple[Branch, ...]] = {}
    for path in _files():
        name = str(path.relative_to(ROOT))
        out[str(path)] = tuple(_branches(name, ast.parse(path.read_text())))
    return out


def _files() -> Iterator[Path]:
    for room in ROOMS:
        path = ROOT / room
        yield from [path] if path.suffix else sorted(path.rglob("*.py"))


def _branches(name: str, tree: ast.AST) -> Iterator[Branch]:
    for n in ast.walk(tree):
        if isinstance(n, ast.If | ast.While):
            last = n.test.end_lineno or n.lineno
            if n.body[0].lineno > last:
                yield Branch(name, n.lineno, last, n.body[0].lineno)
        elif isinstance(n, ast.For):
            last = n.iter.end_lineno or n.lineno
            if n.body[0].lineno > last:
                yield Branch(name, n.lineno, last, n.body[0].lineno)


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
    operators = sorted(programs.UNARY | programs.BINARY | programs.SCANS | {*programs.REDUCE, *OTHERS})
    return [*(f"operator {op}" for op in operators), *(f"key set {p}" for p in PATTERNS)]


def watched(work: Callable[[], Any], program: Program) -> tuple[Any, list[str]]:
    """What `work` gives, and the names of what was drawn while it ran."""
    arcs: dict[str, set[tuple[int, int]]] = {f: set() for f in branches()}

    def local(frame: FrameType, event: str, arg: object):
        own = arcs[frame.f_code.co_filename]
        last = -1

        def line(frame: FrameType, event: str, arg: object):
            nonlocal last
            if event in {"line", "return"}:
                now = frame.f_lineno if event == "line" else 0
                own.add((last, now))
                last = now
            return line

        return line(frame, event, arg) or line

    def begin(frame: FrameType, event: str, arg: object):
        return local(frame, event, arg) if frame.f_code.co_filename in arcs else None

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        found = work()
    finally:
        sys.settrace(before)
    return found, sorted(of_program(program) | set(_taken(arcs)))


def _taken(arcs: dict[str, set[tuple[int, int]]]) -> Iterator[str]:
    for file, own in branches().items():
        seen = arcs[file]
        for b in own:
            ends = {y for x, y in seen if b.first <= x <= b.last and not b.first <= y <= b.last}
            if b.body in ends:
                yield f"{b.name} holds"
            if ends - {b.body}:
                yield f"{b.name} fails"


def report(drawn: Counter[str]) -> str:
    """The table: how often each was drawn, and the names of what never was."""
    lines: list[str] = []
    for name in sorted({*all_names(), *(k for k in drawn if ".py:" not in k)}):
        lines.append(f"{drawn[name]:7} {name}")
    for file, own in branches().items():
        ways = [f"{b.name} {w}" for b in own for w in ("holds", "fails")]
        never = [w for w in ways if not drawn[w]]
        few = sum(0 < drawn[w] < ENOUGH for w in ways)
        place = Path(file).relative_to(ROOT)
        lines.append(f"{place}: {len(ways)} ways, {few} under {ENOUGH} times, {len(never)} never")
        lines += [f"        never: {w}" for w in never]
    lines += [f"never: {name}" for name in all_names() if not drawn[name]]
    return "\n".join(lines)
