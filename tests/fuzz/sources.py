"""Kernels compiled in this very process, each distinct one once for each target among all
processes: what differs only in names counts as one."""

from __future__ import annotations

import ast
import hashlib
import pickle
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from judged import COUNTS

import napkin.run.compile as compiling
from napkin.run._wire import Job, Resources
from napkin.run.worker import CompileError


class Here:
    """The compiler in this process, in the place of a child.

    Args:
        known: where results are kept; processes that are forked share it.
    """

    def __init__(self, known: Path) -> None:
        self.known = known
        self.alone = threading.Lock()  # the compiler's messages are read from the process's own

    def call(self, job: Job, timeout: float | None = None) -> Resources | int:
        """Compile one kernel, or remember it.

        Raises:
            CompileError: the compiler refuses it.
        """
        path = self.known / digest(job)
        with self.alone:
            if path.exists():
                COUNTS["kernels known"] += 1
                found = pickle.loads(path.read_bytes())
            else:
                COUNTS["kernels compiled"] += 1
                found = self._compiled(job)
                part = Path(tempfile.mktemp(dir=self.known, suffix=".part"))
                part.write_bytes(pickle.dumps(found))
                part.replace(path)
        if isinstance(found, str):
            raise CompileError(found)
        return found

    def _compiled(self, job: Job) -> Resources | int | str:
        from napkin.run import _compiler

        try:
            return _compiler.handle(job)
        except CompileError as refused:
            return str(refused)


def here() -> Path:
    """Compile in this process from now on; gives the folder of what is known, to be removed."""
    folder = Path(tempfile.mkdtemp(prefix="drawn-"))
    own = Here(folder)
    compiling.start = lambda slot=0: own
    return folder


def forget(folder: Path) -> None:
    """Remove what is known."""
    shutil.rmtree(folder, ignore_errors=True)


def digest(job: Job) -> str:
    """Equal for compilations that differ only in names."""
    tree, new = renamed(str(job.source), job.kernel)
    parts = (
        ast.dump(tree),
        _named(job.signature, new),
        _named(job.constexprs, new),
        sorted(new.get(n, n) for n in job.divisible),
        sorted(new.get(n, n) for n in job.ones),
        (job.num_warps, job.num_stages, sorted(job.options.items())),
        job.arch,
        job.wanted,
    )
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _named(given: Mapping[str, Any], new: Mapping[str, str]) -> list[tuple[str, str]]:
    return sorted((new.get(n, n), repr(v)) for n, v in given.items())


def renamed(text: str, kernel: str) -> tuple[ast.Module, dict[str, str]]:
    """A kernel and the functions that it calls with names by order of appearance, and these."""
    every = {f.name: f for f in ast.parse(text).body if isinstance(f, ast.FunctionDef)}
    used = list(_reached(every, kernel))
    own = {*used}
    for f in (every[name] for name in used):
        own |= {a.arg for a in ast.walk(f) if isinstance(a, ast.arg)}
        own |= {n.id for n in ast.walk(f) if isinstance(n, ast.Name) and _stored(n)}
    change = _Renaming(own)
    functions = [change.visit(every[name]) for name in used]
    return ast.Module(functions, []), change.new


def _stored(n: ast.Name) -> bool:
    return isinstance(n.ctx, ast.Store)


def _reached(every: Mapping[str, ast.FunctionDef], first: str) -> Iterator[str]:
    seen, todo = {first}, [first]
    while todo:
        name = todo.pop()
        yield name
        called = (n.id for n in ast.walk(every[name]) if isinstance(n, ast.Name))
        for other in called:
            if other in every and other not in seen:
                seen.add(other)
                todo.append(other)


class _Renaming(ast.NodeTransformer):
    def __init__(self, own: set[str]) -> None:
        self.own = own
        self.new: dict[str, str] = {}

    def _of(self, name: str) -> str:
        return self.new.setdefault(name, f"n{len(self.new)}") if name in self.own else name

    def visit_FunctionDef(self, n: ast.FunctionDef) -> ast.AST:
        """A function under its new name, without its docstring."""
        n.name = self._of(n.name)
        if ast.get_docstring(n) is not None:
            del n.body[0]
        return self.generic_visit(n)

    def visit_arg(self, n: ast.arg) -> ast.AST:
        """A parameter under its new name."""
        n.arg = self._of(n.arg)
        return self.generic_visit(n)

    def visit_Name(self, n: ast.Name) -> ast.AST:
        """A name of the kernel's own under its new one."""
        n.id = self._of(n.id)
        return n
