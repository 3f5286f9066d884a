"""Source text from syntax trees, laid out as a person would."""

from __future__ import annotations

import ast
import builtins
import textwrap
from collections.abc import Sequence

WIDTH = 100
_MARK = "#: "

_NAN = "propagate_nan=tl.PropagateNan.ALL"


def _helper(name: str, says: str, *lines: str, arguments: str = "a, b") -> str:
    body = "".join(f"    {line}\n" for line in (f'"""{says}."""', *lines))
    return f"@triton.jit\ndef {name}({arguments}):\n{body}"


def _horner(name: str, of: str, *coefficients: float) -> list[str]:
    """Statements for a polynomial, one multiply-add each; its coefficients, the constant first."""
    *rest, first, top = coefficients
    out = [f"{name} = {top!r} * {of} + {first!r}"]
    return out + [f"{name} = {name} * {of} + {c!r}" for c in reversed(rest)]


# Of both, the coefficients are the least largest error (linear programs over some 3,000 points),
# rounded to float32; errors are against float64 at 2,600,000 values of float32, with 2**p rounded
# once. libdevice's erf is 30 instructions of sm_90 a value, 13 of them moves of coefficients.
_ERF = _helper(
    "erf",
    "The error function, within 1.2e-7, and 1.7e-7 of itself near 0",
    "y = tl.abs(x)",
    "z = x * x",
    *_horner("p", "z", 1.1283791, -0.37612525, 0.11282141, -0.026778908, 0.0050119627,
             -0.000609036),
    *_horner("q", "y", -0.0027088881, -1.6160936, -0.9388416, -0.13144265, 0.022475779,
             -0.0018056176),
    "away = 1.0 - tl.exp2(q)",
    "return tl.where(y < 0.9, x * p, tl.where(x < 0, -away, away))",
    arguments="x",
)  # fmt: skip
_NDTR = _helper(
    "ndtr",
    "The normal distribution function, within 8e-8, and 7e-7 of itself down to -2, 3e-4 to -8",
    "y = tl.abs(x)",
    *_horner("p", "y", -1.0, -1.151105, -0.45921147, -0.052476574, 0.007011125, -6.465392e-05,
             -0.00024152013, 6.3113686e-05, -8.279047e-06, 5.7351485e-07, -1.6548785e-08),
    "return tl.abs(tl.where(x > 0, 1.0, 0.0) - tl.exp2(p))",
    arguments="x",
)  # fmt: skip
_NDTR_16 = _helper(
    "ndtr_16",
    "The normal distribution function, within 1e-4 of itself down to -7, 4e-4 to -8",
    "y = tl.abs(x)",
    *_horner("p", "y", -1.0, -1.1508163, -0.45967603, -0.0527967, 0.0079888003, -0.0008129594,
             4.8483553e-05, -1.2627827e-06),
    "return tl.abs(tl.where(x > 0, 1.0, 0.0) - tl.exp2(p))",
    arguments="x",
)  # fmt: skip


GLUON = {
    "gl", "gluon", "tma", "mbarrier", "async_load", "async_store", "fence_async_shared",
    "warpgroup_mma", "warpgroup_mma_wait",
}  # fmt: skip
"""Names in a file of kernels of warpgroups (`napkin.lower.warpgroups.gluon`)."""

HELPERS = {
    "multiply": _helper("multiply", "The product, for `tl.reduce`", "return a * b"),
    "largest": _helper(
        "largest",
        "The larger, or NaN if one is NaN, for `tl.reduce`",
        f"return tl.maximum(a, b, {_NAN})",
    ),
    "smallest": _helper(
        "smallest",
        "The smaller, or NaN if one is NaN, for `tl.reduce`",
        f"return tl.minimum(a, b, {_NAN})",
    ),
    "floor_divide": _helper(
        "floor_divide",
        "The whole quotient rounded down; Triton rounds to zero",
        "down = (a % b != 0) & ((a < 0) != (b < 0))",
        "return a // b - down.to(tl.int32)",
    ),
    "remainder": _helper(
        "remainder",
        "The remainder with the sign of b; Triton gives it the sign of a",
        "r = a % b",
        "return tl.where((r != 0) & ((a < 0) != (b < 0)), r + b, r)",
    ),
    "power": _helper(
        "power",
        "a to a whole power b, where exp2(b * log2(a)) is NaN for a < 0",
        "size = tl.where(b == 0, 1.0, tl.exp2(tl.log2(tl.abs(a)) * b))",
        "return tl.where(b % 2 != 0, tl.where(a < 0, -size, size), size)",
    ),
    "signed_halves": _helper(
        "signed_halves",
        "The two numbers from -8 to 7 in each byte, the low half first, along a new last axis",
        "a = a.to(tl.int8, bitcast=True)",
        "return tl.join((a << 4) >> 4, a >> 4)",
        arguments="a",
    ),
    "halves": _helper(
        "halves",
        "The two numbers from 0 to 15 in each byte, the low half first, along a new last axis",
        "a = tl.join(a & 15, a >> 4)",
        "return a.to(tl.int8, bitcast=True)",
        arguments="a",
    ),
    "left_out": _helper(
        "left_out",
        "The positions of a chunk that lie outside first..end - 1, a bit for each",
        "low = tl.minimum(tl.maximum(first - start, 0), BLOCK).to(tl.int32)",
        "high = tl.minimum(tl.maximum(end - start, 0), BLOCK).to(tl.int32)",
        "return (1 << low) - 1 | (1 << BLOCK) - (1 << high)",
        arguments="first, end, start, BLOCK: tl.constexpr",
    ),
    "erf": _ERF,
    "ndtr": _NDTR,
    "ndtr_16": _NDTR_16,
}
"""Functions that kernels call; printed before the kernels that use them."""

LENT = {
    "sigmoid": _helper(
        "sigmoid", "The logistic function", "return 1 / (1 + tl.exp(-x))", arguments="x"
    )
}
"""Functions of Triton's library that kernels of warpgroups have to bring."""


def function_name(name: str) -> str:
    """What the function of a kernel is called: no name of a module or a function of its file, nor
    one that Python gives to a function or to what a module is."""
    taken = name in {"tl", "triton", *GLUON, *HELPERS, *LENT} or hasattr(builtins, name)
    return f"{name}_kernel" if taken or name.startswith("__") else name


def comment(text: str) -> ast.stmt:
    """A statement that prints as a comment with an empty line before it."""
    return ast.Expr(ast.Constant(_MARK + text))


def source(
    name: str,
    arguments: Sequence[tuple[str, str]],
    body: Sequence[ast.stmt],
    helpers: Sequence[str],
) -> str:
    """The decorated function, after the helpers that it calls."""
    out = [HELPERS[h] + "\n" for h in helpers]
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
