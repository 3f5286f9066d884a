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

Method = Callable[..., Any]

_POINTWISE = ("binary_op", "unary_op", "create_fma", "create_erf", "create_rsqrt")


def teach_formats(interpreter: Any, tl: Any) -> None:
    """Replace the methods of the interpreter that compute on bf16; others never see it."""
    through = _Through(interpreter, tl)
    builder, reduced, scanned = (
        getattr(interpreter, name) for name in ("InterpreterBuilder", "ReduceOps", "ScanOps")
    )
    for name in _POINTWISE:
        setattr(builder, name, through.float32(getattr(builder, name)))
    builder.cast_impl = cast = through.cast(builder.cast_impl)
    builder.create_fp_to_fp = through.rounded(builder.create_fp_to_fp, cast)
    builder.create_dot = through.dot(builder.create_dot)
    builder.ternary_op = through.ternary(builder.ternary_op)
    builder.get_bf16 = lambda self, value: cast(self, self.get_fp32(value), tl.bfloat16)
    for ops, name in ((reduced, "sum"), (reduced, "min_max"), (scanned, "cumsum")):
        setattr(ops, name, through.folded(getattr(ops, name)))
    scanned.cumprod = through.folded(scanned.cumprod)


class _Through:
    """Methods of the interpreter with bf16 taken through float32."""

    def __init__(self, interpreter: Any, tl: Any) -> None:
        self.handle: Any = interpreter.TensorHandle
        self.tl = tl
        self.to_nearest = (None, interpreter._ir.ROUNDING_MODE.RTNE)

    def _is_bf16(self, value: Any) -> bool:
        # The result of a comparison keeps its operands' type in 3.6 and 3.9, on boolean data.
        if not isinstance(value, self.handle) or value.data.dtype != np.uint16:
            return False
        return value.dtype.scalar == self.tl.bfloat16

    def _wide(self, value: Any) -> Any:
        return self._decoded(value) if self._is_bf16(value) else value

    def _decoded(self, value: Any) -> Any:
        return self.handle(decode(value.data, value.dtype.scalar.name), self.tl.float32)

    def _narrow(self, value: Any) -> Any:
        if value.data.dtype != np.float32:  # a comparison
            return self.handle(value.data, self.tl.int1)
        return self.handle(encode(value.data, "bf16"), self.tl.bfloat16)

    def float32(self, method: Method) -> Method:
        """A pointwise operator."""

        def wrapped(own: Any, *args: Any) -> Any:
            if not any(map(self._is_bf16, args)):
                return method(own, *args)
            return self._narrow(method(own, *map(self._wide, args)))

        return wrapped

    def cast(self, method: Method) -> Method:
        """A cast, to nearest even."""

        def wrapped(own: Any, source: Any, target: Any) -> Any:
            start, end = source.dtype.scalar, target.scalar
            if start.name in CODED and source.data.dtype != np.bool_:
                source = self._decoded(source)
            if end.name in CODED:
                return self.handle(encode(source.data, end.name), end)
            return method(own, source, target)

        return wrapped

    def rounded(self, method: Method, cast: Method) -> Method:
        """A cast between floats that says how it rounds."""

        def wrapped(own: Any, source: Any, target: Any, rounding: Any) -> Any:
            if rounding in self.to_nearest:
                return cast(own, source, target)
            return method(own, source, target, rounding)

        return wrapped

    def dot(self, method: Method) -> Method:
        """A matrix product."""

        def wrapped(own: Any, a: Any, b: Any, *rest: Any) -> Any:
            a, b = (self._decoded(x) if x.dtype.scalar.name in CODED else x for x in (a, b))
            return method(own, a, b, *rest)

        return wrapped

    def ternary(self, method: Method) -> Method:
        """An operator of three arguments: a selection moves bits."""

        def wrapped(own: Any, a: Any, b: Any, c: Any, op: Any) -> Any:
            if op is np.where or not self._is_bf16(c):
                return method(own, a, b, c, op)
            return self._narrow(method(own, *map(self._wide, (a, b, c)), op))

        return wrapped

    def folded(self, method: Method) -> Method:
        """A reduction or a scan over one block: `method(self, block, ...)`."""

        def wrapped(own: Any, block: Any, *rest: Any, **more: Any) -> Any:
            only = block[0] if isinstance(block, tuple) else block
            if not self._is_bf16(only.handle):
                return method(own, block, *rest, **more)
            kind = self.tl.block_type(self.tl.float32, only.shape)
            found = method(own, self.tl.tensor(self._wide(only.handle), kind), *rest, **more)
            if isinstance(found, (list, tuple)):
                return type(found)(map(self._back, found))
            return self._back(found)

        return wrapped

    def _back(self, value: Any) -> Any:
        if value.dtype != self.tl.float32:  # the index of an argmax
            return value
        bf16 = self.tl.bfloat16
        kind = self.tl.block_type(bf16, value.shape) if value.shape else bf16
        return self.tl.tensor(self._narrow(value.handle), kind)
