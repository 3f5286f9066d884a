"""Functions on rows and their backward passes (`torch.autograd.grad`) beside torch.compile's in one
run: what their kernels take on the device, medians of calls with the time of the processor in them,
and how far the gradients are apart.

    python docs/measurements/bench_rows.py
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import torch
from heading import heading
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from triton.testing import do_bench

import napkin.torch as nkt

ROWS, WIDTH, HIDDEN, CLASSES = 16384, 4096, 11008, 128256
RUNS = 20


def drawn(*shape: int) -> torch.Tensor:
    """Normal values that require gradients."""
    return torch.randn(shape, device="cuda", dtype=torch.bfloat16, requires_grad=True)


def microseconds(call: Callable[[], object]) -> float:
    """The median time of a call."""
    return 1e3 * cast(float, do_bench(call, return_mode="median"))


def on_device(call: Callable[[], object]) -> float:
    """Microseconds of the kernels of a call, which are found by torch's profiler."""
    call()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(RUNS):
            call()
        torch.cuda.synchronize()
    kernels = [e for e in found.key_averages() if e.device_type.name == "CUDA"]
    return sum(e.self_device_time_total for e in kernels) / RUNS


def rotated(x: Any, cos: Any, sin: Any) -> Any:
    """Rotary embedding as torch writes it."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def loss(x: Any, target: Any) -> Any:
    """Cross-entropy as torch computes it in float32."""
    return functional.cross_entropy(x.float(), target)


def problems() -> dict[str, tuple[Callable[..., Any], Callable[..., Any], Sequence[Any]]]:
    """napkin's function, torch's, and their arguments."""
    x, g, b = drawn(ROWS, WIDTH), drawn(WIDTH), drawn(WIDTH)
    up, gate = drawn(ROWS, HIDDEN), drawn(ROWS, HIDDEN)
    heads, table = drawn(4, 64, 4096, 128), drawn(4096, 128).detach()
    logits, target = drawn(8192, CLASSES), torch.randint(CLASSES, (8192,), device="cuda")
    return {
        "rms_norm": (nkt.rms_norm, lambda x, g: functional.rms_norm(x, (WIDTH,), g), [x, g]),
        "layer_norm": (
            nkt.layer_norm,
            lambda x, g, b: functional.layer_norm(x, (WIDTH,), g, b),
            [x, g, b],
        ),
        "softmax": (nkt.softmax, partial(functional.softmax, dim=-1), [x]),
        "swiglu": (nkt.swiglu, lambda a, b: functional.silu(a) * b, [gate, up]),
        "geglu": (nkt.geglu, lambda a, b: functional.gelu(a) * b, [gate, up]),
        "rotary": (nkt.rotary, rotated, [heads, table, table]),
        "cross_entropy": (nkt.cross_entropy, loss, [logits, target]),
    }


def main() -> None:
    """Times every function."""
    x = drawn(ROWS, WIDTH).detach()
    copy = on_device(lambda: torch.empty_like(x).copy_(x))
    print(heading(f"us forward and backward, napkin and torch.compile; a copy of rows {copy:.1f}"))
    print(f"{'':14}{'kernels':>36}{'calls':>36}")
    for name, (own, theirs, args) in problems().items():
        wanted = [t for t in args if t.requires_grad]
        kernels, calls, gradients = list[str](), list[str](), list[Sequence[torch.Tensor]]()
        for call in (own, torch.compile(theirs)):
            out = call(*args)
            cotangent = torch.ones_like(out)
            backward = partial(torch.autograd.grad, out, wanted, cotangent, retain_graph=True)
            both = partial(call, *args), backward
            kernels += [f"{on_device(each):9.1f}" for each in both]
            calls += [f"{microseconds(each):9.1f}" for each in both]
            gradients.append(backward())
        pairs = zip(*gradients, strict=True)
        apart = [float((a.float() - b.float()).norm() / b.float().norm()) for a, b in pairs]
        print(f"{name:14}", *kernels, *calls, *(f"{e:.1e}" for e in apart), flush=True)


if __name__ == "__main__":
    main()
