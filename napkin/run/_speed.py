"""Shortcuts through Triton's interpreter; each gives what the long way gives.

Without them more than half of a launch goes into the types of intermediate results.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable
from typing import Any

import numpy as np

Method = Callable[..., Any]

_EXACT: dict[str, Method] = {"add": np.add, "sub": np.subtract, "mul": np.multiply}


def _branches(function: Method) -> bool:
    """Whether a function chooses by its arguments, and so has to see values one by one."""
    return any("JUMP" in step.opname for step in dis.get_instructions(function))


def shorten(interpreter: Any) -> None:
    """Replace seven slow steps of the interpreter, in this process only."""
    semantic, reduced, scanned = (
        getattr(interpreter, name) for name in ("TritonSemantic", "ReduceOps", "ScanOps")
    )
    core = interpreter.tl.core
    core.tensor.__init__ = _tensor(core.tensor.__init__)
    core.block_type.__init__ = _block(core.block_type.__init__)
    interpreter._get_np_dtype = _remembered(interpreter._get_np_dtype)
    semantic.broadcast_impl_value = _broadcast(semantic.broadcast_impl_value)
    sanitize = semantic.binary_op_sanitize_overflow_impl
    semantic.binary_op_sanitize_overflow_impl = _sanitized(sanitize)
    for name in _EXACT:
        setattr(semantic, name, _watched(getattr(semantic, name)))
    reduced.generic_reduce = _reduced(reduced.generic_reduce)
    scanned.generic_scan = _scanned(scanned.generic_scan)


def _remembered(find: Method) -> Method:
    storage: dict[str, Any] = {}

    def np_dtype(kind: Any) -> Any:
        if kind.name not in storage:
            storage[kind.name] = find(kind)
        return storage[kind.name]

    return np_dtype


def _tensor(method: Method) -> Method:
    known: dict[Any, dict[str, Any]] = {}

    def made(self: Any, handle: Any, type: Any) -> None:
        """What a tensor knows of its shape is worked out once for each. Triton's own tuples, in
        which a shape comes, take long to be compared."""
        shape = tuple(type.shape) if type.is_block() else ()
        if (own := known.get(shape)) is None:
            method(self, None, type)
            own = known[shape] = {**vars(self)}
        self.__dict__ = own | {"handle": handle, "type": type, "dtype": type.scalar}

    return made


def _block(method: Method) -> Method:
    known: dict[Any, dict[str, Any]] = {}

    def made(self: Any, element_ty: Any, shape: Any) -> None:
        """What a type of tensors knows of its elements and its shape likewise."""
        key = type(element_ty), element_ty.name, *(getattr(n, "value", n) for n in shape)
        if key not in known:
            method(self, element_ty, shape)
            known[key] = {**vars(self)}
        self.__dict__ = known[key] | {"element_ty": element_ty}

    return made


def _broadcast(method: Method) -> Method:
    def broadcast_impl_value(self: Any, lhs: Any, rhs: Any) -> Any:
        """Two blocks of one shape, and two scalars, stay as they are."""
        alike = lhs.type.is_block() == rhs.type.is_block()
        if alike and lhs.handle.data.shape == rhs.handle.data.shape:
            return lhs, rhs
        return method(self, lhs, rhs)

    return broadcast_impl_value


def _sanitized(method: Method) -> Method:
    def sanitize_overflow(self: Any, lhs: Any, rhs: Any, operator: Any) -> None:
        """Overflow of 32-bit integers, checked with three numpy calls, not sixteen tensors: noted,
        since values wrap as on a GPU."""
        kind = lhs.type.scalar
        exact = _EXACT.get(operator.__name__)
        if exact is None or kind.int_bitwidth > 32:
            method(self, lhs, rhs, operator)
            return
        found = exact(lhs.handle.data, rhs.handle.data, dtype=np.int64, casting="unsafe")
        low, high = kind.get_int_min_value(), kind.get_int_max_value()
        if found.min() < low or found.max() > high:
            self.past = f"{kind} overflows in {operator.__name__}: use tl.int64 here"

    return sanitize_overflow


def _watched(operator: Method) -> Method:
    @functools.wraps(operator)
    def run(self: Any, lhs: Any, rhs: Any, *rest: Any) -> Any:
        """An address that is formed of a product or a sum that overflowed is an error."""
        for side, other in ((lhs, rhs), (rhs, lhs)):
            wrapped = getattr(getattr(side, "handle", None), "past", "")
            if wrapped and isinstance(other, type(side)) and other.dtype.is_ptr():
                raise OverflowError(wrapped)
        self.past = ""
        made = operator(self, lhs, rhs, *rest)
        made.handle.past = self.past
        return made

    return run


def _reduced(method: Method) -> Method:
    def generic_reduce(self: Any, input: Any) -> Any:
        """A function of the kernel's own, on halves of the block and not value by value."""
        if len(input) != 1 or self.axis is None or _branches(self.combine_fn.fn):
            return method(self, input)
        kind, rest = input[0].dtype, np.moveaxis(input[0].handle.data, self.axis, 0)
        while len(rest) > 1:
            half, odd = len(rest) // 2, rest[len(rest) // 2 * 2 :]
            sides = (self.to_tensor(rest[i * half : (i + 1) * half], kind) for i in (0, 1))
            rest = np.concatenate([self.combine_fn.fn(*sides).handle.data, odd])
        found = np.expand_dims(rest[0], self.axis) if self.keep_dims else rest[0]
        return [self.to_tensor(found, kind)]

    return generic_reduce


def _scanned(method: Method) -> Method:
    def generic_scan(self: Any, input: Any) -> Any:
        """A scan by a function of the kernel's own, on all rows at once and not value by value."""
        if _branches(self.combine_fn.fn):
            return method(self, input)
        kinds = [x.dtype for x in input]
        rows = [np.moveaxis(x.handle.data, self.axis, 0) for x in input]
        made = [np.array(x) for x in rows]
        for k in range(1, len(rows[0])):
            sides = [*(x[k - 1] for x in made), *(x[k] for x in rows)]
            found = self.combine_fn.fn(*map(self.to_tensor, sides, (*kinds, *kinds)))
            each = found if isinstance(found, tuple) else (found,)
            for x, tensor in zip(made, each, strict=True):
                x[k] = tensor.handle.data.reshape(x.shape[1:])
        moved = (np.moveaxis(x, 0, self.axis) for x in made)
        return [self.to_tensor(x, kind) for x, kind in zip(moved, kinds, strict=True)]

    return generic_scan
