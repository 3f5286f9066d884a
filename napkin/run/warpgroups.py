"""Kernels of warpgroups run on the CPU: Gluon's language in numpy, a thread for each part.

Triton interprets no Gluon. What the generated kernels use of it is little, and stands here: tiles
are numpy arrays without layouts, shared memory is poisoned before it is written, and again where a
copy into it begins, which arrives when its barrier is waited for. A product is made when it is
waited for, in the order in which they began, from what shared memory holds then; so is a copy out
of it. So a place in a ring that is given back or stored to too early, or read before it is full,
shows in the values. A barrier that nobody reaches ends the run, and so does what a GPU takes ill or
leaves open: an address outside its tensor, a box that begins at no multiple of 16 bytes, and
numbers stored to shared memory that a copy or a product reads before a fence.
Bytes are counted as in Triton's interpreter: those of every value inside a tensor that is copied,
loaded or stored.
"""

from __future__ import annotations

import ast
import builtins
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np

from napkin.lower.launch import ROW_BYTES
from napkin.run.arrays import Descriptor, DeviceArray
from napkin.run.formats import CODED, decode, encode
from napkin.run.gluon_tiles import (
    BY_NAME,
    LANGUAGE,
    SPELLED,
    Memory,
    Spelled,
    Type,
    fence,
    multiply,
    tile,
    waited,
)
from napkin.run.interpret import Argument, Traffic
from napkin.run.worker import KernelError

PATIENCE = 20.0
"""Seconds after which a barrier that is waited for is taken for one that nobody reaches."""


def run_cta(
    source: str,
    kernel: str,
    grid: int,
    args: Sequence[Argument],
    constexprs: Mapping[str, object],
) -> Traffic:
    """Launch a kernel of warpgroups; array arguments change in place.

    Args:
        source: the text of the kernel's file, as napkin wrote it.
        args: the run-time parameters, in the kernel's order.
        constexprs: the compile-time parameters by name.

    Raises:
        KernelError: the kernel raised, or a barrier was never reached.
    """
    run = _Run(grid)
    known = {**vars(builtins), **SPELLED, "__import__": run.imported}
    space: dict[str, Any] = {"__builtins__": known}
    tree = ast.fix_missing_locations(Spelled().visit(ast.parse(source)))
    exec(compile(tree, f"<{kernel}>", "exec"), space)
    function = space[kernel]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    given = [run.argument(n, a) for n, a in zip(names, args, strict=False)]
    try:
        with np.errstate(all="ignore"):
            for pid in range(grid):
                run.pid = pid
                function(*given, **constexprs)
    except KernelError:
        raise
    except Exception as error:
        raise KernelError(f"kernel {kernel}: {type(error).__name__}: {error}") from error
    return +run.moved  # what moved nothing is left out


class Barrier:
    """A barrier in shared memory: a phase ends when all have arrived, and all bytes."""

    def __init__(self, among: threading.Condition) -> None:
        self.among, self.count, self.left, self.bytes, self.phase = among, 0, 0, 0, 0
        self.place = Memory(np.zeros(1), BY_NAME["i64"])
        self.coming: list[tuple[Memory, np.ndarray, int]] = []

    def passed(self, phase: int) -> bool:
        """Whether a phase has ended, when the copies that were asked for are there."""
        for into, values, count in self.coming:
            into.values[...] = values.reshape(into.values.shape)
            self.bytes -= count
        if self.coming:
            self.coming.clear()
            self.changed()
        return self.phase != phase

    def changed(self) -> None:
        """A phase ends, if nothing is left of it."""
        if self.left == 0 and self.bytes == 0:
            self.phase ^= 1
            self.left = self.count
            self.among.notify_all()


class Pointer:
    """Addresses of values of a tensor."""

    def __init__(self, array: DeviceArray, name: str, at: Any = 0) -> None:
        self.array, self.name, self.at = array, name, at
        self.dtype = BY_NAME[array.dtype]

    def __add__(self, offset: Any) -> Pointer:
        return Pointer(self.array, self.name, self.at + offset)


class TmaBox:
    """A tensor descriptor."""

    def __init__(self, given: Descriptor, name: str) -> None:
        self.array, self.sizes, self.name = given.array, given.block_shape, name
        self.dtype, self.layout = BY_NAME[given.array.dtype], None


class _Run:
    """One launch: what it moves, and the language that it sees."""

    def __init__(self, grid: int) -> None:
        self.pid, self.grid = 0, grid
        self.moved = Traffic()
        self.condition = threading.Condition()
        self.own = threading.local()
        mbarrier = SimpleNamespace(
            MBarrierLayout=lambda: Barrier, init=self._init, expect=self._expect,
            wait=self._wait, arrive=self._arrive,
        )  # fmt: skip
        tma = SimpleNamespace(
            async_load=self._load_box,
            async_store=partial(self._leave, False),
            async_atomic_add=partial(self._leave, True),
            store_wait=self._left,
        )
        hopper = SimpleNamespace(
            fence_async_shared=fence, mbarrier=mbarrier, tma=tma,
            warpgroup_mma=multiply, warpgroup_mma_wait=waited,
        )  # fmt: skip
        self.modules = {
            "triton._C.libtriton": SimpleNamespace(ir=None),
            "triton.experimental.gluon.language._core": SimpleNamespace(
                builtin=lambda function: function
            ),
            "triton": SimpleNamespace(
                language=SimpleNamespace(PropagateNan=SimpleNamespace(ALL=True))
            ),
            "triton.experimental": SimpleNamespace(
                gluon=SimpleNamespace(jit=lambda function: function)
            ),
            "triton.experimental.gluon": SimpleNamespace(language=self._language()),
            "triton.experimental.gluon.language.nvidia.hopper": hopper,
        }

    def imported(self, name: str, *_: Any) -> Any:
        """What `import` finds."""
        return self.modules[name]

    def argument(self, name: str, value: Argument) -> Any:
        """An argument as the kernel sees it."""
        if isinstance(value, Descriptor):
            return TmaBox(value, name)
        return Pointer(value, name) if isinstance(value, DeviceArray) else value

    def _language(self) -> Any:
        own = {
            "program_id": lambda axis: 0 if axis else self.pid,
            "num_programs": lambda axis: self.grid,
            "allocate_shared_memory": self._allocate,
            "warp_specialize": self._specialised,
            "load": self._load,
            "store": self._store,
        }
        return SimpleNamespace(**LANGUAGE, **own)

    # --- shared memory ----------------------------------------------------------------------

    def _allocate(self, dtype: Type, shape: Sequence[int], layout: Any) -> Any:
        if layout is Barrier:
            return SimpleNamespace(
                index=[Barrier(self.condition) for _ in range(shape[0])].__getitem__
            )
        return Memory(np.full(shape, np.nan, np.float32), dtype)

    def _init(self, barrier: Barrier, count: int) -> None:
        barrier.count = barrier.left = count
        barrier.place.store(count)

    def _expect(self, barrier: Barrier, count: int) -> None:
        with self.condition:
            barrier.left -= 1
            barrier.bytes += count
            barrier.changed()

    def _arrive(self, barrier: Barrier) -> None:
        with self.condition:
            barrier.left -= 1
            barrier.changed()

    def _wait(self, barrier: Barrier, phase: int) -> None:
        with self.condition:
            if not self.condition.wait_for(lambda: barrier.passed(phase), PATIENCE):
                raise KernelError("a barrier is waited for that nobody reaches")

    def _load_box(self, box: TmaBox, corner: Sequence[int], barrier: Barrier, into: Memory) -> None:
        where, inside = _cut(box, corner)
        values = np.zeros(box.sizes, np.float32)
        values[inside] = _numbers(box.array, where)
        self._count(box.name, "read", values[inside].size, box.array)
        barrier.place.fenced()
        into.fenced()
        into.values[...] = np.nan
        with self.condition:
            barrier.coming.append((into, values, values.size * box.array.itemsize))
            self.condition.notify_all()

    def _leave(self, adds: bool, box: TmaBox, corner: Sequence[int], source: Memory) -> None:
        source.fenced()
        vars(self.own).setdefault("leaving", []).append((adds, box, corner, source))

    def _left(self, outstanding: int) -> None:
        leaving: list[Any] = vars(self.own).get("leaving", [])
        while len(leaving) > outstanding:
            self._store_box(*leaving.pop(0))

    def _store_box(self, adds: bool, box: TmaBox, corner: Sequence[int], source: Memory) -> None:
        where, inside = _cut(box, corner)
        values = source.values.reshape(box.sizes)[inside]
        self._count(box.name, "add" if adds else "write", values.size, box.array)
        if adds:
            values = values + _numbers(box.array, where)
        box.array.data[where] = _bits(values, box.array)

    # --- memory -----------------------------------------------------------------------------

    def _load(self, at: Pointer, mask: Any = True, other: Any = 0) -> Any:
        offsets, live = np.broadcast_arrays(np.asarray(at.at), np.asarray(mask))
        self._count(at.name, "read", int(live.sum()), at.array)
        found = np.full(offsets.shape, other, at.dtype.holds)
        found[live] = at.dtype.rounded(
            _decoded(_flat(at.array)[_inside(at, offsets[live])], at.array)
        )
        return tile(found)

    def _store(self, at: Pointer, value: Any, mask: Any = True) -> None:
        offsets, live, values = np.broadcast_arrays(np.asarray(at.at), np.asarray(mask), value)
        self._count(at.name, "write", int(live.sum()), at.array)
        _flat(at.array)[_inside(at, offsets[live])] = _bits(values[live], at.array)

    def _count(self, name: str, direction: str, values: int, array: DeviceArray) -> None:
        with self.condition:
            self.moved[name, direction] += int(values) * array.itemsize

    # --- warps ------------------------------------------------------------------------------

    def _specialised(
        self, parts: Sequence[tuple[Callable[..., Any], Sequence[Any]]], *_: Any
    ) -> None:
        failed: list[BaseException] = []

        def work(function: Callable[..., Any], arguments: Sequence[Any]) -> None:
            try:
                with np.errstate(all="ignore"):
                    function(*arguments)
            except BaseException as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=part, daemon=True) for part in parts]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if failed:
            raise failed[0]


def _cut(box: TmaBox, corner: Sequence[int]) -> tuple[tuple[slice, ...], tuple[slice, ...]]:
    """The part of a tensor that a box covers, and of the box what lies inside."""
    if int(corner[-1]) * box.array.itemsize % ROW_BYTES:
        raise KernelError(f"a box of {box.name} begins at no multiple of {ROW_BYTES} bytes")
    where: list[slice] = []
    inside: list[slice] = []
    for at, n, size in zip(corner, box.sizes, box.array.shape, strict=True):
        first, end = max(0, int(at)), min(int(at) + n, size)
        end = max(first, end)
        where.append(slice(first, end))
        inside.append(slice(first - int(at), end - int(at)))
    return tuple(where), tuple(inside)


def _numbers(array: DeviceArray, where: Any) -> np.ndarray:
    return _decoded(array.data[where], array)


def _decoded(bits: np.ndarray, array: DeviceArray) -> np.ndarray:
    return decode(bits, array.dtype) if array.dtype in CODED else bits


def _bits(values: np.ndarray, array: DeviceArray) -> np.ndarray:
    values = np.asarray(values)
    return encode(values, array.dtype) if array.dtype in CODED else values.astype(array.data.dtype)


def _flat(array: DeviceArray) -> np.ndarray:
    """The memory behind an array, by the distance from its first value."""
    reach = 1 + sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    return np.lib.stride_tricks.as_strided(array.data, (reach,), (array.itemsize,))


def _inside(at: Pointer, offsets: np.ndarray) -> np.ndarray:
    """Distances from the first value, of which none is past either end."""
    if offsets.size and not 0 <= offsets.min() <= offsets.max() < _flat(at.array).size:
        raise KernelError(f"an address lies outside {at.name}")
    return offsets
