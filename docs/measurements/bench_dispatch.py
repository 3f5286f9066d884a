"""Times what a call costs the CPU, on tensors so small that the GPU waits for it.

    python docs/measurements/bench_dispatch.py

Rows, in microseconds a call (the least of several runs): Triton's own launch of the same kernel
with arguments at hand, napkin.torch around it, and torch's attention. Without a GPU the launches
are left out and what napkin.torch adds to them is timed alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
import triton
from torch.nn.functional import scaled_dot_product_attention

import napkin.torch as nkt
from napkin.torch import prepared

ON = "cuda" if torch.cuda.is_available() else "cpu"
RUNS, CALLS = 20, 500
clock = time.perf_counter if ON == "cuda" else time.thread_time


class _Absent:
    """A kernel file whose kernels do nothing."""

    def __getattr__(self, _: str) -> Any:
        return self

    def __getitem__(self, _: Any) -> Callable[..., None]:
        return lambda *_, **__: None


@contextmanager
def without_launches() -> Iterator[None]:
    """CPU tensors take the way of CUDA tensors, up to the launch."""
    with (
        patch.object(prepared, "interpreted", lambda _: False),
        patch.object(prepared, "module_of", lambda _: _Absent()),
        patch.object(torch.cuda, "current_device", lambda: None),
        patch.object(torch.cuda, "get_device_capability", lambda _: (9, 0)),
    ):
        yield


def cost(call: Callable[[], Any]) -> float:
    """Microseconds a call."""
    best = float("inf")
    for _ in range(RUNS):
        begin = clock()
        for _ in range(CALLS):
            call()
        if ON == "cuda":
            torch.cuda.synchronize()
        best = min(best, clock() - begin)
    return 1e6 * best / CALLS


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
    found: list[Callable[[], Any]] = []
    run = prepared.OnCuda.__call__

    def note(self: prepared.OnCuda, arrays: Any) -> Any:
        found.extend(self.calls(arrays))
        return run(self, arrays)

    with patch.object(prepared.OnCuda, "__call__", note):
        call()
    (only,) = found
    return only


def table() -> None:
    """Print the rows."""
    print(f"{'':26} {'launch':>8} {'napkin':>8} {'more':>8} {'torch':>8}")
    for name, call, rival in cases():
        call()
        bare = cost(launch_alone(call)) if ON == "cuda" else 0.0
        ours = cost(call)
        theirs = f"{cost(rival):8.1f}" if rival and ON == "cuda" else f"{'-':>8}"
        print(f"{name:26} {bare:8.1f} {ours:8.1f} {ours - bare:8.1f} {theirs}")


def main() -> None:
    """Print the table."""
    where = torch.cuda.get_device_name() if ON == "cuda" else "no GPU, launches left out"
    print(where, "torch", torch.__version__, "triton", triton.__version__)
    with torch.no_grad():
        if ON == "cuda":
            table()
        else:
            with without_launches():
                table()


if __name__ == "__main__":
    main()
