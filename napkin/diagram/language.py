"""The user's language: arrays with named axes, and the pointwise operators on them.

Inside a function that `nk.diagram` traces, arrays are `Array` objects: arithmetic and comparison
align by axis name, reductions (`napkin.diagram.reductions`) name the axes that they remove, and
nothing speaks of positions.
"""

from __future__ import annotations

from napkin.errors import InputError, check_known
from napkin.ir import taking
from napkin.ir.array import Array, Operand, applied, lifted, real_beyond_int32, within_int32
from napkin.ir.infer import DTYPES, pointwise
from napkin.ir.names import axis_names, one_axis
from napkin.ir.node import INT32
from napkin.ir.selecting import position
from napkin.ir.whole_numbers import length, plus, times, whole
from napkin.ir.windows import Span, check_window


def size(axis: str) -> Array:
    """The size of an axis, as a scalar known when the kernel is launched."""
    return Array(length(one_axis(axis, f"size({axis!r})")))


def index(axis: str) -> Array:
    """The position along an axis: 0, 1, 2, ..."""
    return Array(position(one_axis(axis, f"index({axis!r})")))


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
        check_known(axis, n.axes, f"take {axis}=...: the array has axes '{' '.join(n.axes)}'")
    return Array(
        taking.take(n, [within_int32(lifted(p)) for p in positions.values()], tuple(positions))
    )


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
    if not isinstance(x, Array):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"slide reads an array of the diagram, not {x!r}")
    axis_names(over, f"slide over={over!r}")
    check_known(over, x.axes, f"slide over={over!r}: the array has axes '{' '.join(x.axes)}'")
    p, w = check_window(axis_names(into, f"slide into={into!r}"), x.axes)
    each = padding if isinstance(padding, tuple) else (padding, padding)
    if len(each) != 2:
        raise InputError(f"slide padding={padding!r}: write one number, or before and after")
    most = INT32[-1]
    before, after = (whole(n, "slide padding", 0, most) for n in each)
    steps = whole(stride, "slide stride", 1, most), whole(dilation, "slide dilation", 1, most)
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
    check_known(dtype, DTYPES, f"cast to {dtype!r}: no such dtype")
    n = lifted(x)
    n = real_beyond_int32(n) if DTYPES[dtype] == "real" else within_int32(n)
    return Array(pointwise("cast", (n,), (dtype,)))
