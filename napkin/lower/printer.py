"""Source text from syntax trees, laid out as a person would."""

from __future__ import annotations

import ast
import builtins
import keyword
import textwrap
import unicodedata
from collections.abc import Mapping, Sequence

from napkin.ir.operators import FUNCTIONS
from napkin.lower.spelling import GLUON_NAMES, Language

WIDTH = 100


def function_name(name: str) -> str:
    """What the function of a kernel is called: ASCII, as Triton demands, no name of a module or a
    function of its file, nor one that Python gives to a function or to what a module is."""
    name = "".join(_plain(c) for c in unicodedata.normalize("NFKD", name))
    taken = name in {"tl", "triton", *GLUON_NAMES, *FUNCTIONS} or hasattr(builtins, name)
    taken |= keyword.iskeyword(name)
    return f"{name}_kernel" if taken or name.startswith("__") else name


def _plain(letter: str) -> str:
    """A letter in ASCII: nothing of an accent, the number of any other."""
    if letter.isascii():
        return letter
    return "" if unicodedata.combining(letter) else f"u{ord(letter):x}"


def words(text: str, width: int) -> list[str]:
    """Code in lines that break between words alone: a name may be longer than a line."""
    return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False)


def comment(text: str) -> ast.stmt:
    """A statement that prints as a comment with an empty line before it."""
    return ast.Expr(ast.Constant(text))


def function(
    lang: Language, name: str, arguments: Mapping[str, bool], body: Sequence[ast.stmt]
) -> str:
    """The text of a function in a language of kernels; `arguments` says by name whether each is a
    constant."""
    lines, line = [f"@{lang.name}.jit", f"def {name}("], "   "
    for argument, constant in arguments.items():
        piece = f" {argument}: {lang.spelt('constexpr')}," if constant else f" {argument},"
        if len(line) + len(piece) > WIDTH:
            lines.append(line)
            line = "   "
        line += piece
    head = "\n".join([*lines, line, "):\n"])
    text = head + "".join(statement(s, 1) for s in body)
    return "\n".join(text.rstrip().splitlines()) + "\n"


def statement(s: ast.stmt, depth: int) -> str:
    """A statement, indented so often."""
    pad = "    " * depth
    if isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant):
        return f"\n{pad}# {s.value.value}\n"
    if isinstance(s, ast.For):
        target = f"for {ast.unparse(s.target)} in "
        head = f"{pad}{target}{_laid(s.iter, len(pad), len(target) + 1, top=True)}:\n"
        return head + "".join(statement(inner, depth + 1) for inner in s.body)
    if isinstance(s, ast.If):
        test = f"{pad}if {ast.unparse(s.test)}:\n"
        yes, no = ("".join(statement(x, depth + 1) for x in part) for part in (s.body, s.orelse))
        return test + yes + (f"{pad}else:\n{no}" if no else "")
    text = pad + ast.unparse(ast.fix_missing_locations(s))
    if len(text) > WIDTH and isinstance(s, ast.Assign | ast.Expr):
        target = f"{ast.unparse(s.targets[0])} = " if isinstance(s, ast.Assign) else ""
        text = f"{pad}{target}{_laid(s.value, len(pad), len(target), top=True)}"
    return text + "\n"


def _laid(e: ast.expr, indent: int, taken: int, *, top: bool = False) -> str:
    """An expression in lines of at most `WIDTH` characters, as far as names allow: arguments,
    elements and operands on lines of their own.

    Args:
        indent: spaces before the line on which it begins.
        taken: characters beside it on that line.
        top: whether only the brackets that it brings let it go on in the next line.
    """
    text = ast.unparse(e)
    if indent + taken + len(text) <= WIDTH:
        return text
    inside, end = f"\n{' ' * (indent + 4)}", f"\n{' ' * indent}"
    if isinstance(e, ast.Call) and isinstance(e.func, ast.Attribute):
        before = ast.unparse(e.func.value)
        after = text.removeprefix(f"({before})").removeprefix(before)
        if indent + taken + len(ast.unparse(e.func)) >= WIDTH:
            if isinstance(e.func.value, ast.Call):
                return _laid(e.func.value, indent, taken + len(after)) + after
            return f"({inside}{_laid(e.func.value, indent + 4, 0)}{end}){after}"
    if isinstance(e, ast.Subscript):
        before = ast.unparse(e.value)
        after = text.removeprefix(f"({before})").removeprefix(before)
        if isinstance(e.value, ast.Call):
            return _laid(e.value, indent, taken + len(after)) + after
        return f"({inside}{_laid(e.value, indent + 4, 0)}{end}){after}"
    if isinstance(e, ast.Call) and (e.args or e.keywords):
        parts = [("", a) for a in e.args] + [(f"{k.arg}=", k.value) for k in e.keywords]
        lines = (f"{inside}{k}{_laid(v, indent + 4, len(k) + 1)}," for k, v in parts)
        return f"{ast.unparse(e.func)}({''.join(lines)}{end})"
    if isinstance(e, ast.List) and e.elts:
        lines = (f"{inside}{_laid(v, indent + 4, 1)}," for v in e.elts)
        return f"[{''.join(lines)}{end}]"
    if isinstance(e, ast.Tuple) and len(e.elts) > 1:
        flat = ", ".join(map(ast.unparse, e.elts)) + ","
        return f"({inside}{inside.join(words(flat, WIDTH - indent - 4))}{end})"
    if isinstance(e, ast.IfExp) and top:
        test, other = ast.unparse(e.test), _operand(e.orelse, ast.Pow(), indent + 4, 5)
        yes = _operand(e.body, ast.Pow(), indent + 4, 0)
        return f"({inside}{yes}{inside}if {test}{inside}else {other}{end})"
    if isinstance(e, ast.BinOp | ast.Compare) and not isinstance(getattr(e, "op", None), ast.Pow):
        deep = 4 if top else 0
        compared = isinstance(e, ast.Compare)
        lines = _compared(e, indent + deep) if compared else _operands(e, indent + deep)
        return f"({inside}{inside.join(lines)}{end})" if top else f"\n{' ' * indent}".join(lines)
    return text


def _compared(e: ast.Compare, indent: int) -> list[str]:
    """The sides of a comparison, the right one after its operator."""
    sides = ast.unparse(ast.Compare(ast.Name("a"), e.ops, e.comparators))[2:]
    return [_operand(e.left, ast.BitOr(), indent, 0), sides]


def _operands(e: ast.BinOp, indent: int) -> list[str]:
    """The operands of operators of one rank, each but the first after its operator."""
    first, rest = e.left, [(e.op, e.right)]
    while isinstance(first, ast.BinOp) and _rank(first.op) == _rank(e.op):
        rest.insert(0, (first.op, first.right))
        first = first.left
    lines = [_operand(first, e.op, indent, 0)]
    for op, right in rest:
        sign = ast.unparse(ast.BinOp(ast.Name("a"), op, ast.Name("b")))[2:-1]
        lines.append(sign + _operand(right, e.op, indent, len(sign), right=True))
    return lines


def _operand(e: ast.expr, op: ast.operator, indent: int, taken: int, *, right: bool = False) -> str:
    """One of them, in parentheses where it binds less."""
    loose = isinstance(e, ast.Compare | ast.BoolOp | ast.IfExp | ast.Lambda)
    if isinstance(e, ast.BinOp):
        loose = _rank(e.op) < _rank(op) + right
    if isinstance(e, ast.UnaryOp):
        loose = isinstance(e.op, ast.Not)
    if not loose:
        return _laid(e, indent, taken)
    inner = _laid(e, indent + 4, 0)
    if "\n" not in inner and indent + taken + len(inner) + 2 <= WIDTH:
        return f"({inner})"
    return f"(\n{' ' * (indent + 4)}{inner}\n{' ' * indent})"


_RANKS: list[tuple[type[ast.operator], ...]] = [
    (ast.BitOr,), (ast.BitXor,), (ast.BitAnd,), (ast.LShift, ast.RShift), (ast.Add, ast.Sub),
    (ast.Mult, ast.Div, ast.Mod, ast.FloorDiv), (ast.Pow,),
]  # fmt: skip


def _rank(op: ast.operator) -> int:
    """How strongly an operator binds."""
    return next(i for i, ops in enumerate(_RANKS) if isinstance(op, ops))
