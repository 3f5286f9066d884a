"""Times generated kernels on the GPU that is there; prints one table from one run.

    python docs/measurements/bench.py

Columns: the diagram and sizes, predicted and measured microseconds (median), TFLOP/s or TB/s of
useful work, and the same work through torch where torch has a call for it.
"""

from __future__ import annotations

import torch
import triton
from torch.nn.functional import scaled_dot_product_attention

import napkin as nk
from napkin.diagram.library import load

CASES = [
    ("matmul", dict(a=4096, b=4096, c=4096)),
    ("matmul", dict(a=8192, b=8192, c=8192)),
    ("matmul_bias_gelu", dict(a=4096, b=4096, c=4096)),
    ("multi_head_attention", dict(b=1, h=16, q=16384, x=16384, d=128)),
    ("multi_head_attention", dict(b=4, h=16, q=4096, x=4096, d=128)),
    ("multi_head_attention", dict(b=4, h=32, q=4096, x=4096, d=64)),
    ("softmax", dict(n=8192, x=8192)),
    ("rmsnorm", dict(n=8192, d=4096)),
    ("layernorm", dict(n=8192, d=4096)),
    ("cross_entropy", dict(n=4096, v=128256)),
]


def rival(name, tensors):
    """The same work through torch, or None."""
    if name == "matmul":
        return lambda: tensors[0] @ tensors[1]
    if name == "multi_head_attention":
        return lambda: scaled_dot_product_attention(*tensors)
    if name == "softmax":
        return lambda: torch.softmax(tensors[0], -1)
    return None


def main() -> None:
    """Print the table."""
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    head = f"{'kernel':44} {'predicted':>10} {'measured':>10} {'rate':>14} {'torch':>10}"
    print(head)
    for name, sizes in CASES:
        plan = nk.derive(load(name), on="h100", sizes=sizes, dtype="bf16")
        tensors = []
        for n in plan.diagram.inputs:
            shape = [plan.sizes[a] for a in n.axes]
            made = torch.randn(shape, device="cuda", dtype=torch.bfloat16)
            tensors.append(made if n.kind == "real" else torch.zeros_like(made, dtype=torch.int32))
        call = plan.bound_call(*tensors)
        us = 1e3 * triton.testing.do_bench(call, return_mode="median")
        known = {s: plan.sizes.get(s.name, 1) for s in plan.flops.free_symbols}
        flops = float(plan.flops.subs(known))
        moved = sum(t.numel() * t.element_size() for t in tensors)
        rate = f"{flops / us / 1e6:.0f} TFLOP/s" if flops > 1e10 else f"{moved / us / 1e6:.2f} TB/s"
        other = rival(name, tensors)
        theirs = 1e3 * triton.testing.do_bench(other, return_mode="median") if other else 0
        text = f"{name} {','.join(f'{a}={n}' for a, n in sizes.items())}"
        print(f"{text:44} {plan.seconds * 1e6:10.1f} {us:10.1f} {rate:>14} {theirs:10.1f}")
        for k in plan.kernels:
            print("    ", dict(k.tiles), k.schedule.warps, k.schedule.stages, k.shared_bytes)


if __name__ == "__main__":
    main()
