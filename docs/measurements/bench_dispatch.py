"""Times what a call costs the CPU, on tensors so small that the GPU waits for it.

    python docs/measurements/bench_dispatch.py

Rows, in microseconds a call (the median of several runs): Triton's own launch of the same kernel
with arguments at hand, the call of napkin.torch, and torch's attention. Without a GPU a stand-in
takes the place of the driver: kernels are compiled, and all but the driver's own work is timed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from statistics import median
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch.nn.functional import scaled_dot_product_attention
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

import napkin.torch as nkt
from napkin.run import direct, launching, prepared

ON = "cuda" if torch.cuda.is_available() else "cpu"
RUNS, CALLS = 20, 500
STREAM = 7
"""The address of the stand-in's stream."""
clock = time.perf_counter if ON == "cuda" else time.thread_time


@contextmanager
def played(note: Callable[..., Any] = lambda *_: None) -> Iterator[None]:
    """CPU tensors take the way of CUDA tensors on an H100, up to the call of the driver; `note` is
    called in its place, with grid, stream and all else that Triton's launchers are given."""

    class Launcher:
        def __init__(self, *_: Any) -> None:
            pass

        def __call__(self, *arguments: Any) -> None:
            note(*arguments)

    utils = SimpleNamespace(
        get_device_properties=lambda _: {"max_shared_mem": 232448},
        load_binary=lambda *_: (None, 0, 32, 0, 1024),
    )
    stand_in = SimpleNamespace(
        get_current_device=lambda: 0,
        get_current_stream=lambda _: STREAM,
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        launcher_cls=Launcher,
        utils=utils,
    )
    with (
        patch.object(driver, "_active", stand_in),
        patch.object(direct, "driver", lambda: None),
        patch.object(prepared, "interpreted", lambda _: False),
        patch.object(prepared, "current_stream", lambda _: STREAM),
        patch.object(torch.cuda, "current_device", lambda: None),
        patch.object(torch.cuda, "get_device_capability", lambda *_: (9, 0)),
    ):
        yield


def cost(call: Callable[[], Any]) -> float:
    """Microseconds a call."""
    found: list[float] = []
    for _ in range(RUNS):
        begin = clock()
        for _ in range(CALLS):
            call()
        if ON == "cuda":
            torch.cuda.synchronize()
        found.append(clock() - begin)
    return 1e6 * median(found) / CALLS


def cases() -> Iterator[tuple[str, Callable[[], Any], Callable[[], Any] | None]]:
    """Name, the call, and the same through torch."""

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=ON).bfloat16()

    q, k, v = (draw(1, 2, 128, 64) for _ in range(3))
    few = [draw(1, 1, 128, 64) for _ in range(2)]
    yield "attention", lambda: nkt.attention(q, k, v), lambda: scaled_dot_product_attention(q, k, v)
    yield (
        "attention, causal",
        lambda: nkt.attention(q, k, v, is_causal=True),
        lambda: scaled_dot_product_attention(q, k, v, is_causal=True),
    )
    yield (
        "attention, grouped heads",
        lambda: nkt.attention(q, *few, enable_gqa=True),
        lambda: scaled_dot_product_attention(q, *few, enable_gqa=True),
    )
    x, y, z = (draw(1, 8, 16, 2, 64) for _ in range(3))
    yield "na2d", lambda: nkt.na2d(x, y, z, kernel_size=3), None


def launch_alone(call: Callable[[], Any]) -> Callable[[], None]:
    """Triton's launch of a call's one kernel, on its tensors, with nothing else."""
    found: list[Callable[[], None]] = []
    launch = launching.Launch.__call__

    def note(self: launching.Launch, tensors: Sequence[torch.Tensor], stream: int) -> None:
        found.append(partial(self.by_triton, self.bound(tensors)))
        launch(self, tensors, stream)

    with patch.object(launching.Launch, "__call__", note):
        call()
    (only,) = found
    return only


def table() -> None:
    """Print the rows."""
    print(f"{'':26} {'launch':>8} {'napkin':>8} {'more':>8} {'torch':>8}")
    for name, call, rival in cases():
        call()
        bare = cost(launch_alone(call))
        ours = cost(call)
        theirs = f"{cost(rival):8.1f}" if rival and ON == "cuda" else f"{'-':>8}"
        print(f"{name:26} {bare:8.1f} {ours:8.1f} {ours - bare:8.1f} {theirs}")


def main() -> None:
    """Print the table."""
    where = torch.cuda.get_device_name() if ON == "cuda" else "no GPU, its driver left out"
    print(where, "torch", torch.__version__, "triton", triton.__version__)
    with torch.no_grad():
        if ON == "cuda":
            table()
        else:
            with played():
                table()


if __name__ == "__main__":
    main()
