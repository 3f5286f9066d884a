"""The short number formats in Triton's interpreter, which computes on their bits.

As shipped (3.6 and 3.9), a product of bf16 blocks multiplies the bit patterns as integers, sums
and pointwise operators do the same, a cast from float32 truncates, and a cast to an 8-bit float
loses the carry of its rounding (1.97 becomes 1). Here every operation on bf16 goes through
float32 and rounds back to nearest even, and every cast is exact, as on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from napkin.run.formats import CODED, decode, encode

_POINTWISE = ("binary_op", "unary_op", "create_fma", "create_erf", "create_rsqrt")


def teach_formats(interpreter: Any, tl: Any) -> None:
    """Replace the methods of the interpreter that compute on bf16; others never see it."""
    handle_type: Any = interpreter.TensorHandle
    builder: Any = interpreter.InterpreterBuilder

    def is_bf16(value: Any) -> bool:
        # The result of a comparison keeps its operands' type in 3.6 and 3.9, on boolean data.
        if not isinstance(value, handle_type) or value.data.dtype != np.uint16:
            return False
        return value.dtype.scalar == tl.bfloat16

    def widen(value: Any) -> Any:
        return handle_type(decode(value.data, "bf16"), tl.float32) if is_bf16(value) else value

    def narrow(value: Any) -> Any:
        if value.data.dtype != np.float32:  # a comparison
            return handle_type(value.data, tl.int1)
        return handle_type(encode(value.data, "bf16"), tl.bfloat16)

    def through_float32(method: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(self: Any, *args: Any) -> Any:
            if not any(map(is_bf16, args)):
                return method(self, *args)
            return narrow(method(self, *map(widen, args)))

        return wrapped

    for name in _POINTWISE:
        setattr(builder, name, through_float32(getattr(builder, name)))

    cast, cast_float = builder.cast_impl, builder.create_fp_to_fp
    dot, ternary = builder.create_dot, builder.ternary_op
    to_nearest = (None, interpreter._ir.ROUNDING_MODE.RTNE)

    def cast_impl(self: Any, source: Any, target: Any) -> Any:
        start, end = source.dtype.scalar, target.scalar
        if start.name in CODED and source.data.dtype != np.bool_:
            source = handle_type(decode(source.data, start.name), tl.float32)
        if end.name in CODED:
            return handle_type(encode(source.data, end.name), end)
        return cast(self, source, target)

    def create_fp_to_fp(self: Any, source: Any, target: Any, rounding: Any) -> Any:
        if rounding in to_nearest:
            return cast_impl(self, source, target)
        return cast_float(self, source, target, rounding)

    def create_dot(self: Any, a: Any, b: Any, *rest: Any) -> Any:
        def wide(value: Any) -> Any:
            name = value.dtype.scalar.name
            return handle_type(decode(value.data, name), tl.float32) if name in CODED else value

        return dot(self, wide(a), wide(b), *rest)

    def ternary_op(self: Any, a: Any, b: Any, c: Any, op: Any) -> Any:
        if op is np.where or not is_bf16(c):  # a selection moves bits
            return ternary(self, a, b, c, op)
        return narrow(ternary(self, widen(a), widen(b), widen(c), op))

    builder.cast_impl, builder.create_fp_to_fp = cast_impl, create_fp_to_fp
    builder.create_dot, builder.ternary_op = create_dot, ternary_op
    builder.get_bf16 = lambda self, value: cast_impl(self, self.get_fp32(value), tl.bfloat16)

    def fold_in_float32(method: Callable[..., Any]) -> Callable[..., Any]:
        """For reductions and scans over one block: `method(self, block, ...)`."""

        def wrapped(self: Any, block: Any, *rest: Any, **more: Any) -> Any:
            only = block[0] if isinstance(block, tuple) else block
            if not is_bf16(only.handle):
                return method(self, block, *rest, **more)
            wide = tl.tensor(widen(only.handle), tl.block_type(tl.float32, only.shape))
            found = method(self, wide, *rest, **more)
            if isinstance(found, (list, tuple)):
                return type(found)(map(back, found))
            return back(found)

        return wrapped

    def back(value: Any) -> Any:
        if value.dtype != tl.float32:  # the index of an argmax
            return value
        kind = tl.block_type(tl.bfloat16, value.shape) if value.shape else tl.bfloat16
        return tl.tensor(narrow(value.handle), kind)

    reduce_ops, scan_ops = interpreter.ReduceOps, interpreter.ScanOps
    reduce_ops.sum = fold_in_float32(reduce_ops.sum)
    reduce_ops.min_max = fold_in_float32(reduce_ops.min_max)
    scan_ops.cumsum = fold_in_float32(scan_ops.cumsum)
    scan_ops.cumprod = fold_in_float32(scan_ops.cumprod)
