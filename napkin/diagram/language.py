"""The user's language: arrays with named axes, and the pointwise operators on them.

Inside a function that `nk.diagram` traces, arrays are `Array` objects: arithmetic and comparison
align by axis name, reductions (`napkin.diagram.reductions`) name the axes that they remove, and
nothing speaks of positions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from numbers import Integral, Real
from typing import Any, NoReturn, TypeAlias

from napkin.diagram import taking
from napkin.diagram.infer import DTYPES, pointwise, renamed
from napkin.diagram.node import INT32, Node, node, number
from napkin.diagram.operators import POINTWISE
from napkin.diagram.signature import axis_names
from napkin.errors import InputError, NoSuchName, did_you_mean, meant

Operand: TypeAlias = "Array | float | int | bool"


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

    def __add__(self, other: Operand) -> Array:
        return applied("add", self, other)

    def __radd__(self, other: Operand) -> Array:
        return applied("add", other, self)

    def __sub__(self, other: Operand) -> Array:
        return applied("sub", self, other)

    def __rsub__(self, other: Operand) -> Array:
        return applied("sub", other, self)

    def __mul__(self, other: Operand) -> Array:
        return applied("mul", self, other)

    def __rmul__(self, other: Operand) -> Array:
        return applied("mul", other, self)

    def __truediv__(self, other: Operand) -> Array:
        return applied("div", self, other)

    def __rtruediv__(self, other: Operand) -> Array:
        return applied("div", other, self)

    def __floordiv__(self, other: Operand) -> Array:
        return applied("floordiv", self, other)

    def __mod__(self, other: Operand) -> Array:
        return applied("mod", self, other)

    def __pow__(self, other: Operand) -> Array:
        return _power(self, other)

    def __rfloordiv__(self, other: Operand) -> Array:
        return applied("floordiv", other, self)

    def __rmod__(self, other: Operand) -> Array:
        return applied("mod", other, self)

    def __rpow__(self, other: Operand) -> Array:
        return _power(other, self)

    def __neg__(self) -> Array:
        return applied("neg", self)

    def __abs__(self) -> Array:
        return applied("abs", self)

    def __lt__(self, other: Operand) -> Array:
        return applied("less", self, other)

    def __le__(self, other: Operand) -> Array:
        return applied("less_equal", self, other)

    def __gt__(self, other: Operand) -> Array:
        return applied("greater", self, other)

    def __ge__(self, other: Operand) -> Array:
        return applied("greater_equal", self, other)

    def __eq__(self, other: object) -> Array:  # type: ignore[override]
        return applied("equal", self, other)

    def __ne__(self, other: object) -> Array:  # type: ignore[override]
        return applied("not_equal", self, other)

    def __and__(self, other: Operand) -> Array:
        return applied("and", self, other)

    def __or__(self, other: Operand) -> Array:
        return applied("or", self, other)

    def __rand__(self, other: Operand) -> Array:
        return applied("and", other, self)

    def __ror__(self, other: Operand) -> Array:
        return applied("or", other, self)

    def __invert__(self) -> Array:
        return applied("not", self)


_UFUNCS = {"add": "add", "subtract": "sub", "multiply": "mul", "divide": "div", "power": "pow"}
"""numpy's arithmetic on a number of its own, and the operator that it is."""


def lifted(value: object) -> Node:
    """The node of an array or of a Python number.

    Raises:
        InputError: `value` is neither.
    """
    if isinstance(value, Array):
        return value.node
    if isinstance(value, bool):
        return number(value)
    if isinstance(value, Real):  # numpy's, too
        return number(int(value) if isinstance(value, Integral) else float(value))
    raise InputError(
        f"{type(value).__name__} {value!r} is not an array of the diagram or a number; "
        "pass it to the diagram as an input"
    )


def applied(op: str, *args: object) -> Array:
    """A pointwise operator of arrays and numbers.

    Raises:
        InputError: an argument is neither, or no operand of it.
    """
    nodes = [lifted(a) for a in args]
    kinds = {n.kind for n in nodes}
    if op in _WHOLE and "real" in kinds:
        raise InputError(
            f"{_WHOLE[op]} is of whole numbers, and an operand is real; write "
            "nk.cast(X, 'int32'), which rounds towards zero, on what is whole"
        )
    if op in _LOGICAL and kinds != {"bool"}:
        raise InputError(
            f"{_LOGICAL[op]} joins tests, as in (X > 0) & (Y > 0), and has no bits of numbers; "
            "write X != 0 for a test of each number, and // and % for bits"
        )
    if "real" in kinds or POINTWISE[op].kind == "real":
        nodes = [_exact(n) for n in nodes]
    return Array(pointwise(op, [_held(n) for n in nodes]))


_WHOLE = {"floordiv": "//", "mod": "%"}
_LOGICAL = {"and": "&", "or": "|", "not": "~"}


def _is_wide(n: Node) -> bool:
    return n.op == "number" and n.kind == "int" and n.params[0] not in INT32


def _held(n: Node) -> Node:
    """A term that kernels hold.

    Raises:
        InputError: it is a whole number beyond int32.
    """
    if _is_wide(n):
        value = n.params[0]
        raise InputError(f"{value} is beyond int32, which whole numbers are; write {value}.0")
    return n


def _exact(n: Node) -> Node:
    """A number that int32 does not hold as a real one, beside which it is."""
    return number(float(str(n.params[0]))) if _is_wide(n) else n


def _power(base: object, exponent: object) -> Array:
    # On arrays the common powers become products and roots, which kernels compute exactly.
    if isinstance(exponent, int | float) and isinstance(base, Array) and base.axes:
        if exponent == 2:
            return base * base
        if exponent == 3:
            return base * base * base
        roots: dict[float, Callable[[Array], Array]] = {0.5: sqrt, -0.5: rsqrt, -1: _reciprocal}
        if exponent in roots:
            return roots[exponent](base)
        if exponent == exponent // 1:  # a whole power has a value for negative numbers
            exponent = int(exponent)
    return applied("pow", base, exponent)


def _reciprocal(x: Array) -> Array:
    return 1.0 / x


def size(axis: str) -> Array:
    """The size of an axis, as a scalar known when the kernel is launched."""
    (name,) = axis_names(axis, f"size({axis!r})") or ("",)
    return Array(node("size", params=(name,), kind="int"))


def index(axis: str) -> Array:
    """The position along an axis: 0, 1, 2, ..."""
    (name,) = axis_names(axis, f"index({axis!r})") or ("",)
    return Array(node("index", params=(name,), axes=(name,), kind="int"))


def rename(x: Array, /, **names: str) -> Array:
    """`x` with axes renamed, old name = new name: a second view of the same values.

    Self-attention needs it: keys are the queries' tokens under another name, as in
    `rename(X, t="x")`. The two axes then have one size.
    """
    for old, new in names.items():
        if old not in x.axes:
            raise InputError(
                f"rename {old}={new!r}: the array has axes '{' '.join(x.axes)}'; "
                + did_you_mean(old, x.axes)
            )
        axis_names(new, f"rename {old}={new!r}")
    after = [names.get(a, a) for a in x.axes]
    for axis in after:
        if after.count(axis) > 1:
            raise InputError(f"rename: axis {axis!r} would stand twice in '{' '.join(after)}'")
    return Array(renamed(x.node, tuple(sorted(names.items()))))


def take(table: Array, /, **positions: Operand) -> Array:
    """`table` at computed whole-number positions along some of its axes, axis = position.

    A relative position bias is `take(B, p=nk.index("x") - nk.index("q") + n)`. The result has the
    axes of the table, with those of a position where the axis was that it is along; an axis of both
    is one axis. Positions are clamped into the axis, as numpy's take with mode="clip". A table that
    is computed is stored by one kernel and read by another.

    Raises:
        InputError: the table lacks an axis, or a position is no whole number.
    """
    if not isinstance(table, Array):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"take reads an array of the diagram, not {table!r}")
    n = table.node
    if not positions:
        raise InputError(f"take names no axis; write axis=position for one of: {' '.join(n.axes)}")
    for axis in positions:
        if axis not in n.axes:
            raise InputError(
                f"take {axis}=...: the array has axes '{' '.join(n.axes)}'; "
                + did_you_mean(axis, n.axes)
            )
    return Array(taking.take(n, [_held(lifted(p)) for p in positions.values()], tuple(positions)))


def slide(
    x: Array,
    *,
    over: str,
    into: str,
    stride: int = 1,
    dilation: int = 1,
    padding: int | tuple[int, int] = 0,
    window: int | None = None,
) -> Array:
    """`x` with axis `over` read in windows: a convolution is a contraction of such a reading.

    `into="p w"` names the axis of the windows and that of the taps in each, and the result at p and
    w is `x` at stride * p + dilation * w - padding. The size of p is the number of windows that
    fit: (i + padding on both sides - dilation * (w - 1) - 1) // stride + 1. In the padding lie
    zeros. An array slides along several axes by one call for each. One that is computed is stored
    by one kernel and read by another.

    Args:
        padding: zeros on both sides, or before and after.
        window: the taps of a window, where no input has that axis.

    Raises:
        InputError: `x` lacks the axis or has one of the new ones; or a number is not whole, or out
            of range.
    """
    from napkin.diagram.keys.arithmetic import plus, times, whole
    from napkin.diagram.windows import Span, check_window

    if not isinstance(x, Array):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"slide reads an array of the diagram, not {x!r}")
    axis_names(over, f"slide over={over!r}")
    if over not in x.axes:
        raise InputError(
            f"slide over={over!r}: the array has axes '{' '.join(x.axes)}'; "
            + did_you_mean(over, x.axes)
        )
    p, w = check_window(axis_names(into, f"slide into={into!r}"), x.axes)
    each = padding if isinstance(padding, tuple) else (padding, padding)
    if len(each) != 2:
        raise InputError(f"slide padding={padding!r}: write one number, or before and after")
    before, after = (whole(n, "slide padding") for n in each)
    steps = whole(stride, "slide stride", 1), whole(dilation, "slide dilation", 1)
    taps = 0 if window is None else whole(window, "slide window", 1)
    first, tap = (times(index(a).node, n) for a, n in zip((p, w), steps, strict=True))
    at = plus(pointwise("add", (first, tap)), -before)
    return Array(taking.slid(x.node, over, at, Span(after, taps)))


def exp(x: Operand) -> Array:
    """e to the power x."""
    return applied("exp", x)


def log(x: Operand) -> Array:
    """Natural logarithm."""
    return applied("log", x)


def sqrt(x: Operand) -> Array:
    """Square root."""
    return applied("sqrt", x)


def rsqrt(x: Operand) -> Array:
    """1 / square root."""
    return applied("rsqrt", x)


def tanh(x: Operand) -> Array:
    """Hyperbolic tangent."""
    return applied("tanh", x)


def sin(x: Operand) -> Array:
    """Sine, of an angle in radians."""
    return applied("sin", x)


def cos(x: Operand) -> Array:
    """Cosine, of an angle in radians."""
    return applied("cos", x)


def erf(x: Operand) -> Array:
    """The error function."""
    return applied("erf", x)


def ndtr(x: Operand) -> Array:
    """The normal distribution function, (1 + erf(x / sqrt 2)) / 2."""
    return applied("ndtr", x)


def sigmoid(x: Operand) -> Array:
    """1 / (1 + exp(-x))."""
    return applied("sigmoid", x)


def silu(x: Operand) -> Array:
    """x * sigmoid(x)."""
    return applied("mul", x, sigmoid(x))


def gelu(x: Operand) -> Array:
    """x * Phi(x), with the exact normal distribution function Phi (arXiv 1606.08415)."""
    return applied("mul", x, ndtr(x))


def abs(x: Operand) -> Array:
    """Absolute value."""
    return applied("abs", x)


def maximum(x: Operand, y: Operand) -> Array:
    """The larger of two, value by value."""
    return applied("maximum", x, y)


def minimum(x: Operand, y: Operand) -> Array:
    """The smaller of two, value by value."""
    return applied("minimum", x, y)


def where(condition: Operand, x: Operand, y: Operand) -> Array:
    """`x` where `condition` holds, else `y`."""
    return applied("where", condition, x, y)


def cast(x: Operand, dtype: str) -> Array:
    """`x` as `dtype` (fp32, fp16, bf16, fp8, int32, ...); evaluation in float64 does not round.

    An output of a plan, or an array between two of its kernels, is stored in the type that it is
    cast to (fp32, fp16, bf16, fp8), and in the plan's where it is not.
    """
    if dtype not in DTYPES:
        raise InputError(f"cast to {dtype!r}: no such dtype; {did_you_mean(str(dtype), DTYPES)}")
    n = lifted(x)
    n = _exact(n) if DTYPES[dtype] == "real" else _held(n)
    return Array(pointwise("cast", (n,), (dtype,)))
