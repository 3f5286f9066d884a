"""Times dense and causal attention over tiles, warps and stages on the GPU that is there: what the
constants of `napkin.timing.kernel_time` were read from.

    python docs/measurements/bench_attention_tiles.py
"""

from dataclasses import replace

import torch
import triton
from bench_key_sets import attention, draw, event
from torch.nn.functional import scaled_dot_product_attention as sdpa

import napkin as nk

SHAPES = [(16, 16384, 128), (1, 32768, 128), (128, 4096, 64), (32, 4096, 256)]
"""Batch times heads, tokens, head size."""

SETTINGS = [
    (128, 64, 4, 2), (128, 128, 8, 2), (128, 128, 8, 3), (128, 64, 8, 3),
    (64, 64, 4, 3), (64, 128, 4, 2), (128, 32, 4, 3), (128, 64, 4, 3),
    (64, 128, 4, 1), (64, 64, 4, 1), (64, 32, 4, 1), (128, 64, 4, 1), (64, 256, 4, 1),
]  # fmt: skip
"""Queries, keys, warps, stages."""


def main() -> None:
    print(torch.cuda.get_device_name(), "torch", torch.__version__, "triton", triton.__version__)
    for keys in (None, nk.causal("q", "x")):
        for h, s, d in SHAPES:
            Q, K, V = (draw(h, s, d) for _ in range(3))
            wanted = sdpa(Q[None], K[None], V[None], is_causal=keys is not None)[0].float()
            sizes = {"h": h, "q": s, "x": s, "d": d}
            plan = nk.derive(attention(keys), on="h100", sizes=sizes, dtype="bf16")
            (kernel,) = plan.kernels
            for q, x, warps, stages in SETTINGS:
                tiles = {**kernel.tiles} | {"q": q, "x": x}
                chosen = kernel.choice.under(tiles=tiles, warps=warps, stages=stages)
                made = replace(plan, kernels=(replace(kernel, choice=chosen),))
                if made.kernels[0].shared_bytes > plan.machine.shared_per_block:
                    continue
                error = float((made(Q, K, V).float() - wanted).norm() / wanted.norm())
                print(
                    f"{'causal' if keys else 'dense'} {h}x{s}x{d} {q}/{x} w{warps} s{stages}: "
                    f"{event(made.bound_call(Q, K, V)):.1f} us, from SDPA by {error:.1e}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
