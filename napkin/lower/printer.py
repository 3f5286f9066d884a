"""Source text from syntax trees, laid out as a person would."""

from __future__ import annotations

import ast
import builtins
import re
import textwrap
from collections.abc import Iterable, Sequence

from napkin.diagram.operators.record import FUNCTIONS, jitted

WIDTH = 100
_MARK = "#: "


GLUON = {
    "gl", "gluon", "tma", "mbarrier", "async_load", "async_store", "fence_async_shared",
    "warpgroup_mma", "warpgroup_mma_wait",
}  # fmt: skip
"""Names in a file of kernels of warpgroups (`napkin.lower.warpgroups.gluon`)."""

FUNCTIONS.update({
    "signed_halves": jitted(
        "signed_halves",
        "The two numbers from -8 to 7 in each byte, the low half first, along a new last axis",
        "a = a.to(tl.int8, bitcast=True)",
        "return tl.join((a << 4) >> 4, a >> 4)",
        arguments="a",
    ),
    "halves": jitted(
        "halves",
        "The two numbers from 0 to 15 in each byte, the low half first, along a new last axis",
        "a = tl.join(a & 15, a >> 4)",
        "return a.to(tl.int8, bitcast=True)",
        arguments="a",
    ),
    "left_out": jitted(
        "left_out",
        "The positions of a chunk that lie outside first..end - 1, a bit for each",
        "low = tl.minimum(tl.maximum(first - start, 0), BLOCK).to(tl.int32)",
        "high = tl.minimum(tl.maximum(end - start, 0), BLOCK).to(tl.int32)",
        "return (1 << low) - 1 | (1 << BLOCK) - (1 << high)",
        arguments="first, end, start, BLOCK: tl.constexpr",
    ),
})  # fmt: skip
"""What lowering calls by itself, beside what operators call."""


def function_name(name: str) -> str:
    """What the function of a kernel is called: no name of a module or a function of its file, nor
    one that Python gives to a function or to what a module is."""
    taken = name in {"tl", "triton", *GLUON, *FUNCTIONS} or hasattr(builtins, name)
    return f"{name}_kernel" if taken or name.startswith("__") else name


def called(names: Iterable[str]) -> list[str]:
    """Functions of a kernel file, and those that they call, in alphabetical order."""
    found, waiting = set[str](), list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            text = FUNCTIONS[name].triton + FUNCTIONS[name].gluon
            words = set(re.findall(r"(?<![\w.])\w+(?=\()", text))
            waiting += [w for w in words & FUNCTIONS.keys() if FUNCTIONS[w].triton]
    return sorted(found)


def comment(text: str) -> ast.stmt:
    """A statement that prints as a comment with an empty line before it."""
    return ast.Expr(ast.Constant(_MARK + text))


def source(
    name: str,
    arguments: Sequence[tuple[str, str]],
    body: Sequence[ast.stmt],
    helpers: Iterable[str],
) -> str:
    """The decorated function, after the helpers that it calls."""
    out = [FUNCTIONS[h].triton + "\n" for h in called(helpers)]
    out.append(f"@triton.jit\ndef {name}(\n{signature(arguments)}):\n")
    out += [statement(s, 1) for s in body]
    return "\n".join("".join(out).rstrip().splitlines()) + "\n"


def signature(arguments: Sequence[tuple[str, str]]) -> str:
    """Arguments with their annotations, some to a line."""
    lines, line = list[str](), "   "
    for name, annotation in arguments:
        piece = f" {name}: {annotation}," if annotation else f" {name},"
        if len(line) + len(piece) > WIDTH:
            lines.append(line)
            line = "   "
        line += piece
    return "\n".join([*lines, line, ""])


def statement(s: ast.stmt, depth: int) -> str:
    """A statement, indented so often."""
    pad = "    " * depth
    if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant):
        text = str(s.value.value)
        if text.startswith(_MARK):
            return f"\n{pad}# {text[len(_MARK) :]}\n"
    if isinstance(s, ast.For):
        head = f"{pad}for {ast.unparse(s.target)} in {ast.unparse(s.iter)}:\n"
        return head + "".join(statement(inner, depth + 1) for inner in s.body)
    if isinstance(s, ast.If):
        test = f"{pad}if {ast.unparse(s.test)}:\n"
        yes, no = ("".join(statement(x, depth + 1) for x in part) for part in (s.body, s.orelse))
        return test + yes + (f"{pad}else:\n{no}" if no else "")
    text = pad + ast.unparse(ast.fix_missing_locations(s))
    if len(text) <= WIDTH:
        return text + "\n"
    return _wrapped(s, pad) + "\n"


def _wrapped(s: ast.stmt, pad: str) -> str:
    """A long call with each argument on a line of its own."""
    value = s.value if isinstance(s, ast.Assign | ast.Expr) else None
    if not isinstance(value, ast.Call):
        return pad + ast.unparse(s)
    target = f"{ast.unparse(s.targets[0])} = " if isinstance(s, ast.Assign) else ""
    parts = [ast.unparse(a) for a in value.args]
    parts += [f"{k.arg}={ast.unparse(k.value)}" for k in value.keywords]
    values = [*value.args, *(k.value for k in value.keywords)]
    inner = "".join(_part(p, v, f"{pad}    ") for p, v in zip(parts, values, strict=True))
    return f"{pad}{target}{ast.unparse(value.func)}(\n{inner}{pad})"


def _part(text: str, value: ast.expr, pad: str) -> str:
    """One argument on a line of its own; a list of tuples that is too long, over several."""
    if len(pad) + len(text) < WIDTH or not isinstance(value, ast.List):
        return f"{pad}{text},\n"
    inside = f"{pad}    "
    each = (textwrap.fill(
        f"{ast.unparse(v)},", WIDTH, initial_indent=inside, subsequent_indent=f"{inside}    ",
        break_long_words=False,
    ) for v in value.elts)  # fmt: skip
    return f"{pad}[\n" + "".join(f"{e}\n" for e in each) + f"{pad}],\n"
