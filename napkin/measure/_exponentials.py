"""A kernel that does little but exponentials, to time the unit that computes them."""

# No postponed annotations: triton reads them.

from typing import Any

import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def _kernel(values, iterations, block: tl.constexpr):  # pyright: ignore
    at = tl.program_id(0) * block + tl.arange(0, block)
    x = tl.load(values + at)
    for _ in range(iterations):
        x = tl.exp2(-x)  # settles near 0.64; a sign costs no instruction
    tl.store(values + at, x)


def exponentials(values: Any, iterations: int) -> None:
    """Compute `iterations` exponentials of each value, one after another, in place.

    Args:
        values: float32 [n] on the device, n a multiple of 1024.
    """
    _kernel[(values.numel() // BLOCK,)](values, iterations, BLOCK)  # pyright: ignore
