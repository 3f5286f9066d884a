"""The language of kernels of warpgroups: Gluon, what it shares with Triton, and which values the
warps of a block are passed."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Collection, Sequence

from napkin.errors import Refusal
from napkin.ir.operators import FUNCTIONS
from napkin.lower import syntax as sx
from napkin.lower.printer import GLUON, signature, statement
from napkin.lower.trim import trimmed

HEAD = """\
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Triton 3.6 calls them async_copy_global_to_shared and async_copy_shared_to_global
_renamed = hasattr(tma, "async_load")
async_load = tma.async_load if _renamed else tma.async_copy_global_to_shared
async_store = tma.async_store if _renamed else tma.async_copy_shared_to_global
"""
"""The imports of a file of such kernels."""

WHOLE = "tl.PropagateNan.ALL"
"""How Triton and Gluon are told to keep a NaN; Gluon has no name of its own for it."""


def imports(functions: str) -> str:
    """The head of a file with these functions."""
    if WHOLE in functions:
        return HEAD.replace(
            "import triton\n", "import triton\nfrom triton import language as tl\n", 1
        )
    return HEAD


def beside() -> set[str]:
    """Names that a function of such a file has without being passed them."""
    return {*GLUON, "range", "float", "tl", *FUNCTIONS}


KNOWN = {
    "abs", "arange", "cast", "cdiv", "ceil", "constexpr", "convert_layout", "cos", "exp", "exp2",
    "floor", "fma", "full", "load", "log", "log2", "max", "maximum", "min", "minimum",
    "multiple_of", "num_programs", "program_id", "reduce", "rsqrt", "sin", "sqrt", "sqrt_rn",
    "store", "sum", "where", "zeros", "static_range", "bfloat16", "float16", "float32", "float64",
    "int1", "int8", "int32", "int64", "BlockedLayout", "DotOperandLayout", "NVMMADistributedLayout",
    "SliceLayout", "allocate_shared_memory", "warp_specialize",
}  # fmt: skip
"""What Gluon has of the language, under the same names, and what is its own."""


class _Gluon(ast.NodeTransformer):
    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        if ast.unparse(node) == WHOLE:
            return node
        if isinstance(node.value, ast.Name) and node.value.id in {"tl", "gl"}:
            if node.attr in FUNCTIONS and not FUNCTIONS[node.attr].triton:
                return sx.name(node.attr)
            if node.attr not in KNOWN:
                raise _lacking(node.attr)
            return sx.name(f"gl.{node.attr}")
        self.generic_visit(node)
        return node


def _lacking(word: str) -> Refusal:
    reason, nearest = f"Gluon has no {word}", "leave the groups by themselves"
    return Refusal("lower to warpgroups", "write", reason, nearest)


def helper(name: str) -> str:
    """A function that kernels call."""
    found = FUNCTIONS[name]
    for word in re.findall(r"\btl\.(\w+)", "" if found.gluon else found.triton):
        if word not in KNOWN and word != "PropagateNan":
            raise _lacking(word)
    text = (found.gluon or found.triton).replace(WHOLE, "WHOLE")
    return text.replace("tl.", "gl.").replace("WHOLE", WHOLE).replace("@triton", "@gluon")


def lent(bodies: Sequence[Sequence[ast.stmt]]) -> set[str]:
    """The functions that Gluon lacks and these bodies call."""
    calls = (n for body in bodies for s in body for n in ast.walk(s) if isinstance(n, ast.Call))
    names = {n.func.id for n in calls if isinstance(n.func, ast.Name)}
    return {name for name in names & FUNCTIONS.keys() if not FUNCTIONS[name].triton}


def in_gluon(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Statements of Triton in Gluon."""
    return [_Gluon().visit(s) for s in body]


def free(body: Sequence[ast.stmt]) -> set[str]:
    """The names that statements use and do not make."""
    used: set[str] = set()
    made: set[str] = set()
    for s in body:
        for n in ast.walk(s):
            if isinstance(n, ast.Name):
                (used if isinstance(n.ctx, ast.Load) else made).add(n.id)
    return used - made - beside()


class _Untyped(ast.NodeTransformer):
    """Takes the tensors out of which only a type is asked, which passes nothing."""

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        self.generic_visit(node)
        asked = isinstance(node.value, ast.Name) and node.attr == "dtype"
        return ast.Constant(None) if asked else node


def captured(bodies: Sequence[Sequence[ast.stmt]], known: Collection[str]) -> set[str]:
    """The values that warps are passed for these bodies: what is used for something, where the
    compile-time constants in `known` hold."""
    used: set[str] = set()
    for body in bodies:
        here = [_Untyped().visit(_Known(known).visit(copy.deepcopy(s))) for s in body]
        used |= free(trimmed(here))
    return used


class _Known(ast.NodeTransformer):
    """Takes the side that is chosen of every choice by a constant that holds."""

    def __init__(self, known: Collection[str]) -> None:
        self.known = known

    def visit_IfExp(self, node: ast.IfExp) -> ast.expr:
        self.generic_visit(node)
        test = node.test
        return node.body if isinstance(test, ast.Name) and test.id in self.known else node


def function(name: str, arguments: Sequence[tuple[str, str]], body: Sequence[ast.stmt]) -> str:
    """The text of a function."""
    head = f"@gluon.jit\ndef {name}(\n{signature(arguments)}):\n"
    text = head + "".join(statement(s, 1) for s in body)
    return "\n".join(text.rstrip().splitlines()) + "\n"
