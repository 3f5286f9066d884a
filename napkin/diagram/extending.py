"""The open door: operators and reductions of a user, which every room treats as napkin's own.

Both end in the records that napkin's own operators have. What they say of themselves is executed
when they are defined (`napkin.diagram.laws`).
"""

from __future__ import annotations

import ast
import keyword
import string
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

from napkin.diagram import composed
from napkin.diagram.definition import definition_of
from napkin.diagram.reductions import reduce
from napkin.errors import InputError, did_you_mean
from napkin.ir.array import Array, Operand, applied
from napkin.ir.node import COMPOSITES, LEAVES, MOVES, SCANS, WRAPPERS
from napkin.ir.operators.record import (
    FUNCTIONS,
    POINTWISE,
    REDUCTIONS,
    Function,
    Kind,
    Operator,
    Reduction,
    Sign,
    define,
    finite,
    jitted,
)
from napkin.ir.whole_numbers import flag
from napkin.keys.keyset import KeySet

_TAKEN = {
    *COMPOSITES, *LEAVES, *MOVES, *SCANS, *WRAPPERS, "rename", "keys", "scatter", "take", "any",
    "all", "tl", "gl", "triton", "gluon",
}  # fmt: skip
"""Names that mean something else in diagrams or kernels."""

SignRule = Sign | Callable[..., Sign]


class Pointwise:
    """A pointwise operator as diagrams call it."""

    def __init__(self, record: Operator) -> None:
        self.name, self.arity, self.__name__ = record.name, record.arity, record.name

    def __repr__(self) -> str:
        return f"nk.operator({self.name!r}, {self.arity})"

    def __call__(self, *arrays: Operand) -> Array:
        """The operator of arrays, aligned by axis name.

        Raises:
            InputError: there are more or fewer than it takes.
        """
        if len(arrays) != self.arity:
            raise InputError(
                f"{self.name} takes {self.arity} array{'s' * (self.arity > 1)}, not {len(arrays)}"
            )
        return applied(self.name, *arrays)


class Reducing:
    """A reduction as diagrams call it."""

    def __init__(self, record: Reduction) -> None:
        self.name, self.__name__ = record.name, record.name

    def __repr__(self) -> str:
        return f"nk.reduction({self.name!r})"

    def __call__(self, x: Operand, over: str | Iterable[str], keys: KeySet | None = None) -> Array:
        """`x` reduced over the axes named in `over`, as `nk.reduce(x, name, over, keys)`."""
        return reduce(x, self.name, over, keys)


def operator(
    name: str,
    arity: int,
    *,
    evaluate: Callable[..., Any],
    triton: str,
    gluon: str = "",
    kind: Kind | None = "real",
    operands: Kind | None = None,
    sign: SignRule = "",
    meaning: Callable[..., Any] | None = None,
    text: str | None = None,
    steep: bool = False,
    increasing: bool = False,
    derivative: Callable[..., Any] | None = None,
    flops: int = 1,
    special: int = 0,
) -> Pointwise:
    """A pointwise operator that diagrams may use from now on; what it says is checked on values.

    Args:
        name: what listings and kernels call it.
        arity: how many arrays it takes, one to three.
        evaluate: its value on aligned arrays of one shape; takes `(xp, *arrays)`, where `xp` is
            numpy or has its functions for torch.
        triton: the body of a kernel function of `x`, of `a, b` or of `a, b, c`: one expression, or
            statements that end in a return. It computes in float32.
        gluon: the same for warp-specialised kernels, where it is not the text of Triton.
        kind: the item type of its values; None for the widest of its arguments.
        operands: "int" where it is of whole numbers alone, "bool" where it is of tests; None where
            it takes arrays of any item type.
        sign: "positive", "nonnegative" or "", or a function from these words for the arguments to
            one of them. What may be 0 of a finite value, or underflow to it, is "nonnegative".
        meaning: its value on sympy expressions; takes `(sympy, *expressions)`. Without one, terms
            that mix a streamed axis with a running result under it are refused.
        text: how listings print it, with `{0}`, `{1}`, ... for the arguments; None prints a call.
        steep: whether an error relative to an argument grows without bound in the value; the
            argument is then kept in float32 between kernels.
        increasing: whether it never falls; of one argument. Without a meaning, max and min then
            pass through it.
        derivative: of its value by each argument, of the arrays that it takes, written with
            napkin's operators: an array or a number, and of several arguments a tuple of these.
            None in it stands for 0. Without one, diagrams with it have no gradient.
        flops, special: arithmetic operations, and special functions, for each value.

    Returns:
        A function of arrays.

    Raises:
        InputError: the name is taken, a type is wrong, or a statement about it fails on values.
    """
    _check_name("operator", name)
    said = f"operator {name}"
    if type(arity) is not int or not 1 <= arity <= 3:
        raise InputError(f"{said}: arity is {arity!r}; it is 1, 2 or 3")
    _check_word(f"{said}: kind", kind, "real", "int", "bool", None)
    _check_word(f"{said}: operands", operands, "int", "bool", None)
    steep, increasing = flag(steep, f"{said}: steep"), flag(increasing, f"{said}: increasing")
    _check_callable(name, evaluate=evaluate, meaning=meaning, derivative=derivative)
    _check_numbers(name, flops=flops, special=special)
    if derivative is not None and (kind in {"int", "bool"} or operands is not None):
        why = "derivative is given, and its values are no real numbers of any arguments"
        raise InputError(f"{said}: {why}; leave it out")
    if increasing and arity != 1:
        raise InputError(f"{said}: increasing is said of one argument, not of {arity}")
    _check_text(name, text, arity)
    opaque = increasing and meaning is None
    made = Operator(
        name, arity, evaluate, _call(name, arity), kind, text, operands,
        _opaque(name, evaluate) if opaque else meaning, back=name if opaque else "",
        sign=_sign_rule(name, sign), certain=finite, steep=steep, increasing=increasing,
        functions={name: _function(name, arity, triton, gluon)}, flops=flops, special=special,
        derivative=derivative and (lambda op, y, *given: derivative(*given)),
        definition=definition_of(
            arity, evaluate, triton, gluon, kind, operands, sign, meaning, text, steep, increasing,
            flops, special, *([derivative] if derivative else []),
        ),
    )  # fmt: skip
    if not _known(POINTWISE, "operator", made):
        from napkin.diagram import laws, slopes

        laws.check_operator(made)
        slopes.check_operator(made)
        define(made)
    return Pointwise(made)


def reduction(
    name: str,
    *,
    combine: Callable[..., Any],
    identity: float,
    evaluate: Callable[..., Any] | None = None,
    over: str = "",
    sign: Sign = "",
    derivative: Callable[..., Any] | None = None,
) -> Reducing:
    """A reduction by a commutative monoid, whose laws are checked on values.

    Args:
        name: what listings and kernels call it, and `nk.reduce`.
        combine: two results joined: an operator by `nk.operator`, or a function of two arrays that
            is written with napkin's operators. It is associative and commutative.
        identity: the reduction of no value, which changes no other.
        evaluate: its value on an array; takes `(xp, array, axes, None)`, `axes` a tuple of ints, as
            in `operator`. Without it values are combined in pairs.
        over: "add" or "mul" where that distributes over it, as sums over a maximum; then a factor
            or a term that the axis does not have comes out of it.
        sign: "positive" or "nonnegative" where its values are, if all that it reduces is.
        derivative: of its value by each of those that it reduces, of the result and these, written
            with napkin's operators. Without one, only a sum under another name has a gradient.

    Returns:
        A function of an array, `over=` axes and `keys=` a key set; `nk.reduce` takes its name, too.

    Raises:
        InputError: the name is taken, a type is wrong, or a law fails on values.
    """
    _check_name("reduction", name)
    _check_callable(name, combine=combine, evaluate=evaluate, derivative=derivative)
    if type(identity) not in {int, float} or identity != identity:
        raise InputError(f"reduction {name}: identity is {identity!r}; it is a number")
    _check_word(f"reduction {name}: over", over, "add", "mul", "")
    _check_word(f"reduction {name}: sign", sign, "positive", "nonnegative", "")
    from napkin.diagram import laws, slopes

    joined = _joining(name, combine)
    made = Reduction(
        name, joined.name, float(identity), evaluate or laws.folded(joined, float(identity)),
        over=over, sign=lambda inner: inner and sign, function=_function_of(joined),
        derivative=derivative and (lambda op, y, x: derivative(y, x)),
        definition=definition_of(
            joined.name, joined.definition, float(identity), evaluate, over, sign,
            *([derivative] if derivative else []),
        ),
    )  # fmt: skip
    if not _known(REDUCTIONS, "reduction", made):
        new = joined.name not in POINTWISE
        if new:
            define(joined)
        try:
            laws.check_reduction(made)
            slopes.check_reduction(made)
        except InputError:
            if new:
                del POINTWISE[joined.name]
                for function in joined.functions:
                    del FUNCTIONS[function]
            raise
        define(made)
    return Reducing(made)


def _joining(name: str, combine: Callable[..., Any]) -> Operator:
    """The operator that joins two results."""
    if not isinstance(combine, Pointwise):
        return composed.operator_of(f"combine_{name}", combine)
    if combine.arity != 2:
        raise InputError(
            f"reduction {name}: combine is {combine.name}, which takes {combine.arity} arrays; it "
            "takes 2"
        )
    return POINTWISE[combine.name]


def _function_of(joined: Operator) -> str:
    """The function of a kernel file by which `tl.reduce` joins two values."""
    own = [f for f in joined.functions if f == joined.name] or list(joined.functions)
    if not own:
        raise InputError(
            f"a reduction by {joined.name} needs a function of two values; define an operator with "
            f"nk.operator, or write combine=lambda a, b: ... with more than {joined.name}"
        )
    return own[0]


def _known(table: dict[str, Any], what: str, made: Operator | Reduction) -> bool:
    """Whether the same is defined already.

    Raises:
        InputError: another is, under this name.
    """
    found = table.get(made.name)
    if found is None:
        return False
    if found.definition == made.definition:
        return True
    raise InputError(
        f"{what} {made.name} is defined already, and otherwise; choose another name, or start "
        "Python anew"
    )


def _check_name(what: str, name: str) -> None:
    good = isinstance(name, str) and name.isidentifier() and name.isascii()  # pyright: ignore[reportUnnecessaryIsInstance]
    if not good or keyword.iskeyword(name) or name.startswith("_"):
        raise InputError(f"{what} {name!r}: the name is no Python name such as 'softplus'")
    table, other = (POINTWISE, REDUCTIONS) if what == "operator" else (REDUCTIONS, POINTWISE)
    own = name in table and not table[name].definition
    function = name in FUNCTIONS and name not in POINTWISE
    if own or function or name in _TAKEN or name in other:
        raise InputError(f"{what} {name}: napkin has something of that name; choose another")


def _check_word(what: str, value: object, *words: str | None) -> None:
    if value not in words:
        *most, last = map(repr, words)
        raise InputError(f"{what} is {value!r}; it is {', '.join(most)} or {last}")


def _check_callable(name: str, **given: object) -> None:
    for argument, value in given.items():
        if not callable(value) and (value is not None or argument in {"combine"}):
            raise InputError(f"{name}: {argument} is {value!r}, which is no function")
    if given.get("evaluate", True) is None and "combine" not in given:
        raise InputError(f"{name}: evaluate is missing; write evaluate=lambda xp, x: ...")


def _check_numbers(name: str, **given: object) -> None:
    for argument, value in given.items():
        if type(value) is not int or value < 0:
            raise InputError(f"operator {name}: {argument} is {value!r}; it counts operations")


def _check_text(name: str, text: str | None, arity: int) -> None:
    """Check that a text has the arguments as its holes, and no others."""
    if text is None:
        return
    try:
        parts = [part for _, *part in string.Formatter().parse(text) if part[0] is not None]
        holes = {"".join(word or "" for word in part) for part in parts}  # a format is none
    except (ValueError, TypeError):
        holes = set[str]()
    if holes != set(map(str, range(arity))):
        wanted = " and ".join(f"{{{i}}}" for i in range(arity))
        raise InputError(
            f"operator {name}: text is {text!r}; it names each argument once, {wanted}"
        )


def _sign_rule(name: str, sign: SignRule) -> Callable[..., Sign]:
    if callable(sign):
        return lambda n, *signs: sign(*signs)
    if sign not in ("", "nonnegative", "positive"):
        raise InputError(
            f"operator {name}: sign is {sign!r}; it is 'positive', 'nonnegative', '' or a function"
        )
    return lambda n, *signs: sign


def _opaque(name: str, evaluate: Callable[..., Any]) -> Callable[..., Any]:
    """The meaning of an operator of which no more is known than that it increases."""

    @lru_cache(maxsize=1)
    def function() -> Any:
        import numpy as np
        import sympy
        from sympy.utilities.lambdify import implemented_function

        def value(x: Any) -> Any:
            return sympy.Float(float(evaluate(np, np.asarray(float(x)))))

        return implemented_function(sympy.Function(name, real=True), value)

    return lambda sp, x: function()(x)


def _call(name: str, arity: int) -> str:
    return f"{name}({', '.join(f'{{{i}}}' for i in range(arity))})"


def _arguments(arity: int) -> list[str]:
    return ["x"] if arity == 1 else list("abc"[:arity])


def _function(name: str, arity: int, triton: str, gluon: str) -> Function:
    """The function of a kernel file that computes an operator."""
    arguments = _arguments(arity)
    made = [
        jitted(name, f"The operator {name}", *_lines(name, which, text, arguments),
               arguments=", ".join(arguments)).triton
        if text else ""
        for which, text in (("triton", triton), ("gluon", gluon))
    ]  # fmt: skip
    if not made[0]:
        raise InputError(f"operator {name}: triton is empty; write an expression of "
                         f"{' and '.join(arguments)}")  # fmt: skip
    return Function(made[0], made[1])


def _lines(name: str, which: str, text: str, arguments: list[str]) -> list[str]:
    """The statements of a function's body, checked to use its arguments and `tl` alone."""
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"operator {name}: {which} is {text!r}, which is no text")
    try:
        tree = ast.parse(text.strip())
    except SyntaxError as error:
        raise InputError(f"operator {name}: {which} is no Python ({error.msg}): {text}") from None
    *before, last = tree.body or [ast.Pass()]
    if isinstance(last, ast.Expr):
        last = ast.Return(last.value)
    if not isinstance(last, ast.Return) or not all(isinstance(s, ast.Assign) for s in before):
        raise InputError(
            f"operator {name}: {which} is one expression, or assignments and a return: {text}"
        )
    own = {"tl", "float", *arguments, *FUNCTIONS}
    for n in ast.walk(ast.Module([*before, last], [])):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store):
            own.add(n.id)
    for n in ast.walk(ast.Module([*before, last], [])):
        if isinstance(n, ast.Set | ast.Dict):
            raise InputError(f"operator {name}: {which} has braces; write {arguments[0]}: {text}")
        if isinstance(n, ast.Name) and n.id not in own:
            raise InputError(
                f"operator {name}: {which} names {n.id!r}; a kernel function has its arguments "
                f"({', '.join(arguments)}) and tl; {did_you_mean(n.id, [*arguments, 'tl'])}"
            )
    return [ast.unparse(ast.fix_missing_locations(s)) for s in (*before, last)]
