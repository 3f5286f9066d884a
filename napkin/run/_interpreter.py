"""The interpreting child: launches kernels on the CPU inside Triton's interpreter.

Runs in a process of its own (see `worker`), with ``TRITON_INTERPRET=1`` set before Triton is
imported. What napkin knows of the interpreter's insides is at the end of this file and in
`_formats` and `_speed`; it was read in Triton 3.6 and 3.9.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import min_dot_size
from triton.runtime import interpreter as _interpreter

from napkin.errors import InputError, did_you_mean
from napkin.run._formats import teach_formats
from napkin.run._memory import BadAccess, Memory
from napkin.run._source import find, load
from napkin.run._speed import shorten
from napkin.run._wire import Landing, Launch, Packed
from napkin.run.formats import CODED, element
from napkin.run.worker import KernelError, OutOfBounds

interpreter: Any = _interpreter  # all of it is internal, and none of it is typed
_memory = Memory()


def handle(launch: Launch) -> Landing:
    """Run every program of a launch; raises `KernelError` when the kernel is wrong."""
    module = load(launch.text, launch.path)
    kernel = find(module, launch.kernel, interpreter.InterpretedFunction)
    bound = _bind(kernel, launch)
    _memory.clear()
    args = {name: _argument(name, value) for name, value in bound.items()}
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            kernel[launch.grid](**args, **launch.constexprs)
    except Exception as error:
        raise _explain(error, launch, str(module.__file__)) from None
    written = {name for (name, direction) in _memory.bytes if direction != "read"}
    contents = {name: _memory.contents(name) for name in written}
    return Landing(tuple(bound), _memory.bytes, contents)


def _bind(kernel: Any, launch: Launch) -> dict[str, Packed | int | float]:
    """The run-time parameters by name; refuses a call that Triton's launcher would refuse."""
    parameters = inspect.signature(kernel.fn).parameters
    unknown = [name for name in launch.constexprs if name not in parameters]
    if unknown:
        hint = did_you_mean(unknown[0], parameters)
        raise InputError(f"kernel {launch.kernel} has no parameter {unknown[0]!r}; {hint}")
    free = [name for name in parameters if name not in launch.constexprs]
    for name in free:
        if "constexpr" in str(parameters[name].annotation):
            if parameters[name].default is inspect.Parameter.empty:
                raise InputError(f"kernel {launch.kernel} needs a compile-time {name!r}")
            free = [each for each in free if each != name]
    needed = [name for name in free if parameters[name].default is inspect.Parameter.empty]
    if not len(needed) <= len(launch.args) <= len(free):
        raise InputError(
            f"kernel {launch.kernel} takes {len(free)} arguments ({', '.join(free)}) beside its "
            f"compile-time ones, but {len(launch.args)} were given"
        )
    return dict(zip(free, launch.args, strict=False))


def _argument(name: str, value: Packed | int | float) -> Any:
    """A parameter's value as the interpreter holds it."""
    if isinstance(value, Packed):
        pointer = _pointer(_memory.place(name, value), value.dtype)
        return _descriptor(name, value, pointer) if value.block else pointer
    if isinstance(value, bool):
        return _scalar(value, np.bool_, tl.int1)
    if isinstance(value, float):
        return _scalar(value, np.float32, tl.float32)
    narrow = -(2**31) <= value < 2**31
    return _scalar(value, np.int32, tl.int32) if narrow else _scalar(value, np.int64, tl.int64)


def _explain(error: Exception, launch: Launch, file: str) -> KernelError:
    """The root of what was raised inside the kernel, with the kernel's own line."""
    frames: list[traceback.FrameSummary] = []
    root: BaseException = error
    link: BaseException | None = error
    while link is not None:
        frames += traceback.extract_tb(link.__traceback__)
        root, link = link, link.__cause__
    lines = [frame.lineno for frame in frames if frame.filename == file and frame.lineno]
    at = ""
    if lines:
        place = f"{launch.path}:{lines[-1]}" if launch.path else f"line {lines[-1]}"
        at = f", at {place}: {launch.text.splitlines()[lines[-1] - 1].strip()}"
    program = getattr(interpreter.interpreter_builder, "grid_idx", None) or (0, 0, 0)
    index = ", ".join(map(str, program[: len(launch.grid)]))
    what = str(root) if isinstance(root, BadAccess) else f"{type(root).__name__}: {root}"
    kind = OutOfBounds if isinstance(root, BadAccess) else KernelError
    return kind(f"kernel {launch.kernel}, program ({index}): {what}{at}")


# Everything below knows the inside of Triton's interpreter.

_ADDITIONS = {interpreter._ir.ATOMIC_OP.ADD, interpreter._ir.ATOMIC_OP.FADD}


def _scalar(value: object, storage: Any, dtype: Any) -> Any:
    return tl.tensor(interpreter.TensorHandle(np.array([value], storage), dtype), dtype)


def _pointer(address: int, dtype: str) -> Any:
    target: Any = tl.str_to_ty(element(dtype), None)
    return _scalar(address, np.uint64, tl.pointer_type(target))


def _descriptor(name: str, array: Packed, base: Any) -> Any:
    itemsize = np.dtype(array.storage).itemsize
    strides = [_scalar(step // itemsize, np.int64, tl.int64) for step in array.strides]
    if array.strides[-1] != itemsize:
        raise InputError(f"the last stride of descriptor {name} must be 1")
    strides[-1] = tl.constexpr(1)
    return interpreter.interpreter_semantic.make_tensor_descriptor(
        base=base,
        shape=[_scalar(size, np.int32, tl.int32) for size in array.shape],
        strides=strides,
        block_shape=[tl.constexpr(size) for size in array.block],
        padding_option="zero",
    )


def _width(pointers: Any) -> int:
    return max(1, pointers.get_element_ty().primitive_bitwidth // 8)


def _adapt() -> None:
    """Make the interpreter count, check bounds, know bf16, and refuse what a GPU refuses.

    * Loads and stores of every kind, descriptors included, end in `create_masked_load` and
      `create_masked_store` of the builder; atomics in two methods of their own.
    * A masked load with no `other` is undefined on a GPU where it is masked off, zero in the
      interpreter; here it is NaN, so a kernel that leans on the zero shows.
    * A comparison has the type of what it compares in the interpreter, and so numbers where it is
      spread over a tile; here it holds truth values.
    * `_patch_lang` rewrites `triton.language` for each call of each jitted function. This process
      does nothing but interpret, so once is enough, and a launch is many times faster.
    """
    builder, tensor = interpreter.InterpreterBuilder, cast("Any", tl.tensor)
    load, store = builder.create_masked_load, builder.create_masked_store
    rmw, cas = builder.create_atomic_rmw, builder.create_atomic_cas

    def masked_load(self: Any, ptrs: Any, mask: Any, other: Any, *rest: Any, **more: Any) -> Any:
        mask = _mask(mask)
        live = mask.data
        _memory.touch(ptrs.data, live, _width(ptrs), ("read",))
        if other is None and not live.all():
            other = _undefined(ptrs)
        return load(self, ptrs, mask, other, *rest, **more)

    def masked_store(self: Any, ptrs: Any, value: Any, mask: Any, *rest: Any) -> Any:
        mask = _mask(mask)
        _memory.touch(ptrs.data, mask.data, _width(ptrs), ("write",))
        return store(self, ptrs, value, mask, *rest)

    def atomic_rmw(self: Any, op: Any, ptr: Any, value: Any, mask: Any, *rest: Any) -> Any:
        if ptr.get_element_ty().name in CODED:
            raise NotImplementedError("the interpreter has no atomics on bf16; use fp32")
        ways = ("add",) if op in _ADDITIONS else ("read", "write")
        _memory.touch(ptr.data, np.asarray(mask.data), _width(ptr), ways)
        return rmw(self, op, ptr, value, mask, *rest)

    def atomic_cas(self: Any, ptr: Any, *rest: Any) -> Any:
        _memory.touch(ptr.data, np.ones(ptr.data.shape, np.bool_), _width(ptr), ("read", "write"))
        return cas(self, ptr, *rest)

    for name in dir(builder):
        if name.startswith(("create_icmp", "create_fcmp")):
            setattr(builder, name, _test(getattr(builder, name)))
    builder.create_masked_load, builder.create_masked_store = masked_load, masked_store
    builder.create_atomic_rmw, builder.create_atomic_cas = atomic_rmw, atomic_cas
    teach_formats(interpreter, tl)
    shorten(interpreter)
    interpreter._patch_lang(SimpleNamespace(__globals__={"tl": tl, "core": tl.core}))
    # The interpreter multiplies blocks of any size, a GPU's tensor cores do not.
    target = GPUTarget("cuda", 90, 32)
    interpreter.interpreter_builder.codegen_fns["min_dot_size"] = min_dot_size(target)
    # Triton 3.6 refuses one sum that 32 bits have no room for; a tile of them wraps.
    folds, typed = interpreter.ReduceScanOpInterface, interpreter._get_np_dtype
    made = folds.to_tensor
    folds.to_tensor = lambda self, ret, dtype: made(self, _wrapped(ret, typed(dtype)), dtype)
    # Triton 3.6 lets NaN through where a GPU's max.f32 and min.f32, and Triton 3.9, drop it.
    builder.create_maxnumf = lambda self, a, b: self.binary_op(a, b, np.fmax)
    builder.create_minnumf = lambda self, a, b: self.binary_op(a, b, np.fmin)
    # Triton 3.6 converts a one-element array straight to int, which newer numpy refuses.
    tensor.__index__ = lambda self: int(self.handle.data.item())
    interpreter._patch_lang = lambda fn: interpreter._LangPatchScope()


def _test(compare: Any) -> Any:
    """A comparison whose result is of truth values."""
    return lambda self, lhs, rhs: _mask(compare(self, lhs, rhs))


def _mask(mask: Any) -> Any:
    """A mask of truth values; Triton 3.6 gives that of a descriptor as a bare array."""
    bare = isinstance(mask, np.ndarray)
    return interpreter.TensorHandle(np.asarray(mask if bare else mask.data, np.bool_), tl.int1)


def _wrapped(found: Any, storage: Any) -> Any:
    """A result in the type of its storage."""
    return np.asarray(found).astype(storage)[()]


def _undefined(ptrs: Any) -> Any:
    element = ptrs.get_element_ty()
    storage = interpreter._get_np_dtype(element)
    bits = np.full(storage.itemsize, 1 if storage.kind == "b" else 0xFF, np.uint8)
    return interpreter.TensorHandle(np.full(ptrs.data.shape, bits.view(storage)[0]), element)


if not isinstance(tl.sum, interpreter.InterpretedFunction):
    raise RuntimeError(f"Triton {triton.__version__} was imported without TRITON_INTERPRET=1")
_adapt()
