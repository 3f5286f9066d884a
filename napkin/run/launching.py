"""A kernel launched on tensors of one kind, again and again.

Triton looks at every argument of every launch to find the machine code that goes with it. Tensors
of one kind have one machine code, so that is found once, and then only launched.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from triton import knobs
from triton.runtime import driver
from triton.runtime.jit import JITFunction
from triton.tools.tensor_descriptor import TensorDescriptor

from napkin.lower.launch import TmaBox
from napkin.run.assembler import assembler
from napkin.run.direct import Direct, direct
from napkin.schedule import others

Arguments = list[Any]
"""The run-time arguments of a kernel, in order."""

CHANGED = ("num_warps", "num_stages")
"""What is changed of a kernel that Triton does not compile."""

SPILLED = 64
"""Registers of a thread in memory from which twice the warps are tried."""

_COMPILING = threading.Lock()


@contextmanager
def loading() -> Generator[None]:
    """Load Triton's driver in a thread beside what is done meanwhile, where CUDA is in use: Triton
    compiles a C file for it, which takes half a second where it never did."""
    beside = threading.Thread(target=_load)
    if torch.cuda.is_initialized():
        beside.start()
    try:
        yield
    finally:
        if beside.ident is not None:
            beside.join()


def _load() -> None:
    with suppress(Exception):  # a launch says what is wrong
        _ = driver.active


class Launch:
    """One launch of a kernel, on a device that is current whenever it is called.

    Attributes:
        arguments: those of run time, with None where a tensor goes.
        specialised: whether the kernel is one of warpgroups.
        holes: these places, the tensor that goes there, and its descriptor if it has one.
        zeros: the tensors that are set to 0 before, as the kernel adds to them.
    """

    def __init__(
        self,
        kernel: Any,
        grid: int,
        arguments: Arguments,
        holes: Sequence[tuple[int, int, Described | None]],
        constexprs: Mapping[str, Any],
        settings: Mapping[str, Any],
        zeros: Sequence[int] = (),
    ) -> None:
        self.kernel, self.grid = kernel, (grid, 1, 1)
        self.arguments, self.holes, self.zeros = arguments, holes, zeros
        self._constexprs, self._settings = constexprs, settings
        self._run: Callable[[Arguments, int], Any] | None = None
        self._direct: Direct | None = None
        self.specialised = False

    def bound(self, tensors: Sequence[torch.Tensor]) -> Arguments:
        """The arguments with these tensors."""
        arguments = self.arguments.copy()
        for at, which, described in self.holes:
            t = tensors[which]
            arguments[at] = t if described is None else described.on(t)
        return arguments

    def __call__(self, tensors: Sequence[torch.Tensor], stream: int) -> None:
        """Launch on a stream, given by its address: the current one."""
        for which in self.zeros:
            tensors[which].zero_()
        if self._direct and not _hooked() and self._direct(tensors, stream):
            return
        if self.grid[0]:
            arguments = self.bound(tensors)
            (self._run or self._ready(arguments))(arguments, stream)

    def by_triton(self, arguments: Arguments) -> None:
        """Launch as Triton does it, on the current stream."""
        self.kernel[self.grid](*arguments, **self._constexprs, **self._settings)

    def _ready(self, arguments: Arguments) -> Callable[[Arguments, int], Any]:
        with _COMPILING:
            if self._run is None:
                self._run = self._compiled(arguments)
            return self._run

    def _compiled(self, arguments: Arguments) -> Callable[[Arguments, int], Any]:
        if not isinstance(self.kernel, JITFunction):  # Triton interprets
            return lambda arguments, _: self.by_triton(arguments)
        with assembler(_capability()):
            made = self._made(arguments)
        if made is None:  # a hook of Triton's keeps it from compiling
            return lambda arguments, _: self.by_triton(arguments)
        constexprs, grid = tuple(self._constexprs.values()), self.grid
        assert self.kernel.arg_names[len(arguments) :] == list(self._constexprs)
        launch, function, metadata = made.run, made.function, made.packed_metadata
        watched = made[grid]
        self._direct = direct(made, grid[0], arguments, {at: which for at, which, _ in self.holes})

        def run(arguments: Arguments, stream: int) -> None:
            if _hooked():
                watched(*arguments, *constexprs, stream=stream)
            else:
                launch(*grid, stream, function, metadata, None, None, None, *arguments, *constexprs)

        return run

    def _made(self, arguments: Arguments) -> Any:
        """The machine code; where Triton fails on it, that of other numbers of warps and stages,
        which take other ways through its passes."""
        refused: Exception | None = None
        for settings in (self._settings, *self._others()):
            try:
                made = self._loaded(arguments, settings)
            except Exception as problem:
                refused = refused or problem
                continue
            if refused is not None:
                self._say(settings, refused)
            self._settings = settings
            return self._roomier(arguments, made)
        assert refused is not None
        raise refused

    def _loaded(self, arguments: Arguments, settings: Mapping[str, Any]) -> Any:
        """The machine code with these settings."""
        made: Any = self.kernel.warmup(*arguments, grid=self.grid, **self._constexprs, **settings)
        made = made.result() if hasattr(made, "result") else made
        run = made and made.run  # loads it, which fails where it takes too much memory
        if isinstance(run, partial):  # it has failed before: Triton keeps the error as its launcher
            run()
        return made

    def _roomier(self, arguments: Arguments, made: Any) -> Any:
        """The machine code; where its threads keep much in memory, that of twice the warps, whose
        threads have half as much to hold, if these keep less than half of it there."""
        double = 2 * self._settings.get(CHANGED[0], 0)
        tried = next((s for s in self._others() if s[CHANGED[0]] == double), None)
        if not made or made.n_spills < SPILLED or tried is None:
            return made
        other = None
        with suppress(Exception):  # it runs as it is
            other = self._loaded(arguments, tried)
        if other is None or 2 * other.n_spills >= made.n_spills:
            return made
        kept = f"a thread of half as many warps keeps {made.n_spills} registers in memory"
        self._say(tried, f"{kept}, here {other.n_spills}")
        self._settings = tried
        return self._roomier(arguments, other)

    def _say(self, settings: Mapping[str, Any], why: object) -> None:
        """Warns that a kernel does not run with the settings that were priced."""
        said = ", ".join(f"{name}={settings[name]}" for name in CHANGED)
        warnings.warn(f"{self.kernel.__name__} runs with {said}: {why}", stacklevel=4)

    def _others(self) -> Iterator[Mapping[str, Any]]:
        """Other settings of the same kernel; none where its text depends on the warps."""
        if self.specialised or any(name not in self._settings for name in CHANGED):
            return
        warps, stages = (self._settings[name] for name in CHANGED)
        for changed in others(warps, stages):
            yield {**self._settings, **dict(zip(CHANGED, changed, strict=True))}


@dataclass(frozen=True)
class Described:
    """A descriptor without its tensor, checked.

    Attributes:
        kind: Triton's class of descriptors, or Gluon's.
        fields: what it holds beside.
    """

    kind: type
    fields: Mapping[str, Any]

    def on(self, t: torch.Tensor) -> Any:
        """The descriptor on a tensor, which is not checked anew."""
        made = object.__new__(self.kind)
        made.__dict__ = {**self.fields, "base": t}
        return made


def described(
    laid: tuple[list[int], list[int]], box: TmaBox, in_gluon: bool, dtype: torch.dtype
) -> Described:
    """A descriptor of a tensor with this shape and these strides; shape, strides and box are
    checked.

    Args:
        in_gluon: whether a kernel of warpgroups takes it, which is told how boxes lie in shared
            memory, by the bits of a value.
    """
    some = torch.empty(8, dtype=dtype, device="cpu")
    (shape, strides), sizes = map(box.seen, laid), list(box.sizes)
    if not in_gluon:
        return Described(TensorDescriptor, vars(TensorDescriptor(some, shape, strides, sizes)))
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as InGluon

    layout_of: Any = gl.NVMMASharedLayout.get_default_for
    of_bytes = {1: gl.float8e4nv, 2: gl.float16, 4: gl.float32}
    layout = layout_of(sizes, of_bytes[dtype.itemsize])
    return Described(InGluon, vars(InGluon(some, shape, strides, sizes, layout)))


def _capability() -> int:
    major, minor = torch.cuda.get_device_capability()
    return 10 * major + minor


def _hooked() -> bool:
    """Whether someone watches launches, as a profiler does."""
    runtime = knobs.runtime
    enter, leave = runtime.launch_enter_hook, runtime.launch_exit_hook
    return bool(getattr(enter, "calls", enter) or getattr(leave, "calls", leave))


current_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", lambda _: 0)  # pyright: ignore[reportPrivateUsage]
"""The address of a device's current stream; torch has none where it is built without CUDA."""
