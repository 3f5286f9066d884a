"""Arrays as users hold them in a diagram: terms with arithmetic and comparison."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from numbers import Integral, Real
from typing import Any, NoReturn, TypeAlias

from napkin.errors import InputError, NoSuchName, check_known, meant
from napkin.ir.infer import pointwise, renamed
from napkin.ir.names import axis_names
from napkin.ir.node import INT32, Kind, Node, number
from napkin.ir.operators import POINTWISE
from napkin.ir.operators.record import Operator

Operand: TypeAlias = "Array | float | int | bool"


_Method: TypeAlias = "Callable[[Array, Operand], Array]"


def _methods(op: str) -> tuple[_Method, _Method]:
    """An operator of an array and another operand, and of these in the other order."""

    def method(self: Array, other: Operand) -> Array:
        return applied(op, self, other)

    def reflected(self: Array, other: Operand) -> Array:
        return applied(op, other, self)

    return method, reflected


class Array:
    """A named-axis array in a diagram; `axes` are its axis names in order."""

    __slots__ = ("node",)
    __hash__ = object.__hash__

    def __init__(self, n: Node) -> None:
        self.node = n

    @property
    def axes(self) -> tuple[str, ...]:
        """The axis names, in order."""
        return self.node.axes

    def __repr__(self) -> str:
        return f"Array('{' '.join(self.axes)}')"

    def __bool__(self) -> bool:
        raise InputError(
            "an array in a diagram has no truth value; choose between values with nk.where(...)"
        )

    def __iter__(self) -> Iterable[Array]:
        raise InputError("an array in a diagram cannot be iterated; name its axes instead")

    def __getattr__(self, name: str) -> NoReturn:
        if name == "node" or name.startswith("__"):  # asked for by copy and the like
            raise AttributeError(name)
        raise NoSuchName(
            f"an array in a diagram has axis names ({' '.join(self.axes)}) and no {name!r}; "
            + meant(name)
        )

    def __getitem__(self, place: object) -> NoReturn:
        raise InputError(
            "an array in a diagram is not indexed by place; write nk.take(X, axis=position) to "
            "read it at positions along an axis, or nk.slide for windows"
        )

    def __matmul__(self, other: object) -> NoReturn:
        raise InputError("@ does not say which axis is summed; write nk.contract(X, Y, over='...')")

    __rmatmul__ = __matmul__

    def __float__(self) -> NoReturn:
        raise InputError(
            "an array in a diagram, a size among them, is no number yet; write nk.sqrt, nk.exp and "
            "the like for functions of math, and ** 0.5 for roots"
        )

    __int__ = __index__ = __len__ = __round__ = __float__

    def __array_ufunc__(self, function: Any, method: str, *args: object, **_: object) -> Array:
        """What numpy does with a number of its own beside an array; its functions have none."""
        name = str(function.__name__)
        if name not in _UFUNCS or method != "__call__":
            raise InputError(f"np.{name} is a function of numpy's arrays; {meant(name)}")
        return applied(_UFUNCS[name], *args)

    def rename(self, /, **names: str) -> Array:
        """See `rename`."""
        return rename(self, **names)

    __add__, __radd__ = _methods("add")
    __sub__, __rsub__ = _methods("sub")
    __mul__, __rmul__ = _methods("mul")
    __truediv__, __rtruediv__ = _methods("div")
    __floordiv__, __rfloordiv__ = _methods("floordiv")
    __mod__, __rmod__ = _methods("mod")
    __and__, __rand__ = _methods("and")
    __or__, __ror__ = _methods("or")
    __lt__, __gt__ = _methods("less")[0], _methods("greater")[0]
    __le__, __ge__ = _methods("less_equal")[0], _methods("greater_equal")[0]

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        return applied("equal", self, other)

    def __ne__(self, other: object) -> Array:  # type: ignore[override]
        return applied("not_equal", self, other)

    def __pow__(self, other: Operand) -> Array:
        return _power(self, other)

    def __rpow__(self, other: Operand) -> Array:
        return _power(other, self)

    def __neg__(self) -> Array:
        return applied("neg", self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return applied("abs", self)

    def __invert__(self) -> Array:
        return applied("not", self)


_UFUNCS = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow"}
"""numpy's arithmetic on a number of its own, and the operator that it is."""


def lifted(value: object) -> Node:
    """The node of an array or of a Python number.

    Raises:
        InputError: `value` is neither, or beyond every float.
    """
    if isinstance(value, Array):
        return value.node
    if isinstance(value, bool):
        return number(value)
    if isinstance(value, Real):  # numpy's, too
        real = as_float(value)
        return number(int(value) if isinstance(value, Integral) else real)
    raise InputError(
        f"{type(value).__name__} {value!r} is not an array of the diagram or a number; "
        "pass it to the diagram as an input"
    )


def as_float(value: Any) -> float:
    """A number of Python as a float.

    Raises:
        InputError: it is beyond every float.
    """
    try:
        return float(value)
    except OverflowError:
        raise InputError(
            f"a number of {int(value).bit_length()} bits is beyond float64, which ends below "
            "2**1024; write float('inf') for infinity"
        ) from None


def applied(op: str, *args: object) -> Array:
    """A pointwise operator of arrays and numbers.

    Raises:
        InputError: an argument is neither, or no operand of it.
    """
    nodes, record = [lifted(a) for a in args], POINTWISE[op]
    check_operands(record, kinds := {n.kind for n in nodes})
    if "real" in kinds or record.kind == "real":
        nodes = [real_beyond_int32(n) for n in nodes]
    return Array(pointwise(op, [within_int32(n) for n in nodes]))


def check_operands(record: Operator, kinds: Set[Kind]) -> None:
    """Refuse item types of which an operator is not.

    Raises:
        InputError: it is of whole numbers or of tests, and there are others.
    """
    sign = (record.text or record.name).format(*[""] * record.arity).strip()
    if record.operands == "int" and "real" in kinds:
        raise InputError(
            f"{sign} is of whole numbers, and an operand is real; write "
            "nk.cast(X, 'int32'), which rounds towards zero, on what is whole"
        )
    if record.operands == "bool" and kinds != {"bool"}:
        raise InputError(
            f"{sign} joins tests, as in (X > 0) & (Y > 0), and has no bits of numbers; "
            "write X != 0 for a test of each number, and // and % for bits"
        )


def _is_wide(n: Node) -> bool:
    return n.op == "number" and n.kind == "int" and n.params[0] not in INT32


def within_int32(n: Node) -> Node:
    """A term that kernels hold.

    Raises:
        InputError: it is a whole number beyond int32.
    """
    if _is_wide(n):
        value = n.params[0]
        raise InputError(f"{value} is beyond int32, which whole numbers are; write {value}.0")
    return n


def real_beyond_int32(n: Node) -> Node:
    """A number that int32 does not hold as a real one, beside which it is."""
    return number(float(str(n.params[0]))) if _is_wide(n) else n


_ROOTS = {0.5: "sqrt", -0.5: "rsqrt"}


def _power(base: object, exponent: object) -> Array:
    # On arrays the common powers become products and roots, which kernels compute exactly.
    lifted(exponent)  # says what is no number
    if isinstance(exponent, int | float) and isinstance(base, Array) and base.axes:
        if exponent == 1:
            return base
        if exponent == 2:
            return base * base
        if exponent == 3:
            return base * base * base
        if exponent in _ROOTS:
            return applied(_ROOTS[exponent], base)
        if exponent == -1:
            return 1.0 / base
        if exponent == exponent // 1:  # a whole power has a value for negative numbers
            exponent = int(exponent)
            if exponent > 3 and base.node.kind != "real":  # whole numbers stay exact, and wrap
                even = (base * base) ** (exponent // 2)
                return even * base if exponent % 2 else even
    return applied("pow", base, exponent)


def rename(x: Array, /, **names: str) -> Array:
    """`x` with axes renamed, old name = new name: a second view of the same values.

    Self-attention needs it: keys are the queries' tokens under another name, as in
    `rename(X, t="x")`. The two axes then have one size.
    """
    if not isinstance(x, Array):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"rename takes an array of the diagram, not {x!r}")
    for old, new in names.items():
        check_known(old, x.axes, f"rename {old}={new!r}: the array has axes '{' '.join(x.axes)}'")
        if len(axis_names(new, f"rename {old}={new!r}")) != 1:
            raise InputError(f"rename {old}={new!r}: write one name, such as {old}={old + '2'!r}")
    after = [names.get(a, a) for a in x.axes]
    for axis in after:
        if after.count(axis) > 1:
            raise InputError(f"rename: axis {axis!r} would stand twice in '{' '.join(after)}'")
    return Array(renamed(x.node, tuple(sorted(names.items()))))
