"""Attention's backward pass, `torch.autograd.grad` of `napkin.torch.attention`, beside those of
cuDNN and of FlexAttention as `torch.compile` makes it, in one run: medians of 12, warm, and
relative errors of dQ, dK and dV of the first head by float64.

    python docs/measurements/bench_gradients.py [0 3 ...]

Operations are counted as 2.5 times the forward's, half of them where it is causal. Numbers choose
problems; a process for each compiles them side by side.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable
from functools import partial

import torch
from heading import heading
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
from torch.nn.functional import scaled_dot_product_attention

import napkin.torch as nkt

SHAPES = ((4, 16, 4096, 128), (1, 16, 16384, 128), (4, 32, 4096, 64), (16, 16, 1024, 128))
PROBLEMS = [(shape, causal) for shape in SHAPES for causal in (False, True)]


def microseconds(call: Callable[[], object], runs: int = 12) -> float:
    """The median time of a call on the device."""
    found: list[float] = []
    for i in range(runs + 3):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        if i >= 3:
            found.append(begin.elapsed_time(end) * 1e3)
    return statistics.median(found)


FLEX = torch.compile(flex_attention, dynamic=False)


def flex(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, is_causal: bool
) -> torch.Tensor:
    """FlexAttention, with a mask of blocks where it is causal."""
    size, mask = query.shape[-2], None
    if is_causal:
        mask = create_block_mask(lambda b, h, q, k: q >= k, None, None, size, size)
    return FLEX(query, key, value, block_mask=mask)


def main() -> None:
    """Times the problems that are asked for."""
    print(heading("shape, us and TFLOP/s of each, the others' times over napkin's, errors"))
    for i in map(int, sys.argv[1:] or range(len(PROBLEMS))):
        shape, causal = PROBLEMS[i]
        made = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4)]
        *inputs, cotangent = [t.requires_grad_(j < 3) for j, t in enumerate(made)]
        exact = [t[:1, :1].detach().double().requires_grad_() for t in inputs]
        S = exact[0] @ exact[1].mT * shape[-1] ** -0.5
        if causal:
            ones = torch.ones(S.shape[-2:], dtype=torch.bool, device="cuda")
            S = S.masked_fill(~ones.tril(), -torch.inf)
        wanted = torch.autograd.grad(S.softmax(-1) @ exact[2], exact, cotangent[:1, :1].double())
        times, errors = list[float](), list[list[str]]()
        for attention in (nkt.attention, scaled_dot_product_attention, flex):
            with sdpa_kernel([SDPBackend.CUDNN_ATTENTION]):
                out = attention(*inputs, is_causal=causal)

                backward = partial(torch.autograd.grad, out, inputs, cotangent, retain_graph=True)
                pairs = zip(backward(), wanted, strict=True)
                off = [float((a[:1, :1] - b).norm() / b.norm()) for a, b in pairs]
                times.append(microseconds(backward))
                errors.append([f"{e:.1e}" for e in off])
        work = 10 * shape[0] * shape[1] * shape[2] ** 2 * shape[3] * (0.5 if causal else 1.0)
        rates = [work / t / 1e6 for t in times]
        each = "  ".join(
            f"{name} {t:8.1f} {r:4.0f} ({t / times[0]:.2f})"
            for name, t, r in zip(("napkin", "cuDNN", "flex"), times, rates, strict=True)
        )
        print(f"{shape!s:22} {'causal' if causal else 'full':6} {each}  {errors}", flush=True)


if __name__ == "__main__":
    main()
