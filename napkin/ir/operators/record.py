"""What an operator is: one frozen record, and the tables of all operators.

A record says all that any room asks of an operator. Rooms look it up by name and know no operator
themselves. The records of napkin's own operators are in the files beside this one, a family each;
`napkin.diagram.extending` adds those of a user.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Kind = Literal["real", "int", "bool"]
Sign = Literal["positive", "nonnegative", ""]


class Term(Protocol):
    """What a rule for signs may look at: a node."""

    @property
    def op(self) -> str: ...
    @property
    def args(self) -> Sequence[Any]: ...
    @property
    def params(self) -> Sequence[object]: ...
    @property
    def kind(self) -> Kind: ...


@dataclass(frozen=True)
class Function:
    """A function that kernels call, with its source.

    Attributes:
        triton: its text; "" where Triton's library has it.
        gluon: its text in kernels of warpgroups; "" where it is that of Triton with `gl` for `tl`.
    """

    triton: str
    gluon: str = ""


@dataclass(frozen=True)
class Operator:
    """One pointwise operator.

    Attributes:
        name: the operator's name in nodes and listings.
        arity: the number of arguments.
        evaluate: the value, on aligned arrays; takes `(xp, *arrays)`, with `xp` numpy or what has
            its functions for torch.
        triton: the kernel expression as Python text with `{0}`, `{1}`, ... for the arguments.
        kind: the item type of the result; None where it is the widest of the arguments.
        operands: the widest item type that its arguments may have; None for any.
        text: how listings print it, with the same placeholders; None prints a call.
        meaning: the value, on sympy expressions; takes `(sympy, *expressions)`. None where the
            operator has no algebra that separation could use.
        back: the class of sympy expressions that this operator computes; "" where none is its own.
        sign: what is known of the sign of a term by it; takes `(term, *signs of the arguments)`.
        steep: whether an error relative to the argument grows without bound in the value.
        increasing: whether max and min pass through it.
        rational: whether it takes rational numbers to rational numbers.
        pole: whether it gives infinities or NaN of small numbers, too.
        absorbing: a first argument that is the result, too, whatever finite number the second is.
        certain: whether a kernel computes what `evaluate` does of single values, infinite ones
            among them; takes `(term, *values)`.
        variants: other expressions, each with the condition under which it is written:
            "approximate", of what is rounded to 16 bits; "nonnegative", of arguments that are;
            "whole power", where the last argument is no real number; "no NaN", where none need be
            kept; "real", of real numbers.
        functions: the sources of functions that its expressions call.
        flops: arithmetic operations per value.
        special: operations per value of the special-function unit.
        python: its text on Python's numbers, for launchers, with the same placeholders; "" where
            that of listings is one, or where there is none.
        derivative: of the value by each argument, on arrays of a diagram; takes `(op, value,
            *arguments)`, where `op` has the operators by name, and gives an array, a number, or
            None where it is 0 wherever there is one. None where it is not known.
        stem: what a value of it is called where nobody named it; "" for the operator's name.
        definition: all that tells the operator of a user from another of its name; "" of napkin's.
    """

    name: str
    arity: int
    evaluate: Callable[..., Any]
    triton: str
    kind: Kind | None = None
    text: str | None = None
    operands: Kind | None = None
    meaning: Callable[..., Any] | None = None
    back: str = ""
    sign: Callable[..., Sign] = lambda n, *signs: ""
    steep: bool = False
    increasing: bool = False
    rational: bool = False
    pole: bool = False
    absorbing: float | None = None
    certain: Callable[..., bool] = lambda n, *values: True
    variants: Mapping[str, str] = field(default_factory=dict[str, str])
    functions: Mapping[str, Function] = field(default_factory=dict[str, Function])
    flops: int = 1
    special: int = 0
    python: str = ""
    derivative: Callable[..., Any] | None = None
    stem: str = ""
    definition: str = ""


@dataclass(frozen=True)
class Reduction:
    """A reduction by a commutative monoid.

    Attributes:
        name: the reduction's name in nodes and listings.
        combine: the pointwise operator that joins two results.
        identity: the value of nothing, which changes no other.
        evaluate: the value of an array along axes; takes `(xp, array, axes, start)`.
        order: of an extremum, the way in which it is the most: "max" or "min". It may start from
            another value than its identity, which its parameters then say.
        pole: whether it gives infinities of small numbers, too.
        over: the operator that distributes over `combine`: sums over products, a maximum over sums.
        sign: what is known of its sign where all values have this one.
        native: the reduction of `tl` that computes it, "" where none does.
        function: the function of two values in the kernel file that computes it, for `tl.reduce`;
            where there is a native one, it stands in where that loses a NaN.
        counts: whether tests are counted as whole numbers.
        derivative: of the result by each value; takes `(op, result, value)`, where `op` has the
            operators by name, and `op.along(name, array)` is a reduction along the same axes. None
            where it is not known.
        stem: as of `Operator`.
        definition: as of `Operator`.
    """

    name: str
    combine: str
    identity: float
    evaluate: Callable[..., Any]
    order: str = ""
    pole: bool = False
    over: str = ""
    sign: Callable[[Sign], Sign] = lambda inner: ""
    native: str = ""
    function: str = ""
    counts: bool = False
    derivative: Callable[..., Any] | None = None
    stem: str = ""
    definition: str = ""


POINTWISE: dict[str, Operator] = {}
"""The pointwise operators, by name."""

REDUCTIONS: dict[str, Reduction] = {}
"""The reductions by a commutative monoid, by name; in nodes `params` is the tuple of reduced axes,
of an extremum followed by the value to start from."""

COMPUTING: dict[str, Operator] = {}
"""The operators that compute a class of sympy expressions each, by its name."""

FUNCTIONS: dict[str, Function] = {}
"""Functions that kernels call, by name; printed before the kernels that use them."""


def define(record: Operator | Reduction) -> None:
    """Add an operator to its table; its name and those of its functions are new."""
    assert record.name not in {*POINTWISE, *REDUCTIONS}, record.name
    if isinstance(record, Reduction):
        assert record.combine in POINTWISE
        REDUCTIONS[record.name] = record
        return
    assert FUNCTIONS.keys().isdisjoint(record.functions), record.name
    FUNCTIONS.update(record.functions)
    POINTWISE[record.name] = record
    if record.back:
        COMPUTING[record.back] = record


def jitted(name: str, says: str, *lines: str, arguments: str = "a, b") -> Function:
    """A function of a kernel file, of these statements."""
    body = "".join(f"    {line}\n" for line in (f'"""{says}."""', *lines))
    return Function(f"@triton.jit\ndef {name}({arguments}):\n{body}")


def every(n: Term, *signs: Sign) -> Sign:
    """The sign that all arguments have, for what keeps it."""
    if not all(signs):
        return ""
    return "positive" if all(s == "positive" for s in signs) else "nonnegative"


def finite(n: Term, *values: float) -> bool:
    """Of an operator whose kernel text may say otherwise of infinities than its evaluation."""
    return not any(map(math.isinf, values))


def never_negative(n: Term, *signs: Sign) -> Sign:
    """What is at least 0 of any argument, and may be 0 where it underflows."""
    return "nonnegative"
