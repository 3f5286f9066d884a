"""How fast memory adds: groups that add float32 tiles to one array, and attention's backward pass
as one kernel whose groups add dQ, beside two that add nothing.

    python docs/measurements/bench_accumulate.py

The share of L2's rate in the table of tiles, where values come from a product, is `l2_adds` of a
machine file (`napkin/machine/calibration.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import torch
import triton
import triton.language as tl
from heading import heading
from triton.testing import do_bench

import napkin as nk
from napkin.gradient.gradient import backward
from napkin.gradient.training_pair import backward_with
from napkin.machine.machines import machine
from napkin.measure.device import described
from napkin.measure.tensors import drawn
from napkin.plan.derive import memo_of
from napkin.plan.keeping import Pairs

HEADS, ROWS = 64, 4096
TILES = ((32, 64), (64, 64), (64, 128), (128, 64), (128, 128), (64, 256))
SHARED = (1, 32, 1024, 4096, 65536, 1 << 20)
"""Values of one array to which all groups add."""

GROUPS, TURNS = 4096, 64
"""Groups that add to such an array, and how often each adds a tile of it."""

ATTENTION = ((4, 16, 4096, 128), (4, 32, 4096, 64), (1, 16, 16384, 128), (16, 16, 1024, 128))


@triton.jit
def add_tiles(
    out, rows, ROW: tl.constexpr, COLUMN: tl.constexpr, FROM_PRODUCT: tl.constexpr,
    STORES: tl.constexpr,
):  # fmt: skip
    """Each group adds a tile to all rows of one head, as one of attention's groups of keys does;
    with STORES it stores it there, which gives wrong sums and shows what the rest takes."""
    row, column = tl.arange(0, ROW), tl.arange(0, COLUMN)
    value = tl.full([ROW, COLUMN], 1.0, tl.float32)
    if FROM_PRODUCT:
        depth = tl.arange(0, 16)
        a = (row[:, None] * 0 + depth[None, :]).to(tl.bfloat16)
        b = (depth[:, None] + column[None, :] * 0).to(tl.bfloat16)
        value = tl.dot(a, b)
    base = out + tl.program_id(1).to(tl.int64) * rows * COLUMN
    for start in range(0, rows, ROW):
        at = base + (start + row)[:, None] * COLUMN + column[None, :]
        if STORES:
            tl.store(at, value)
        else:
            tl.atomic_add(at, value, sem="relaxed")


@triton.jit
def add_to_one(out, size, turns, BLOCK: tl.constexpr):
    """Each group adds all of one array, `turns` times."""
    lane = tl.arange(0, BLOCK)
    for _ in range(turns):
        for start in range(0, size, BLOCK):
            tl.atomic_add(out + start + lane, 1.0, mask=start + lane < size, sem="relaxed")


def seconds(call: Callable[[], object]) -> float:
    """The median time of a call."""
    return 1e-3 * cast(float, do_bench(call, return_mode="median"))


def tiles(l2: float) -> Iterator[str]:
    """Adding tiles that lie in rows, by their size: of values as they are, and of a product."""
    yield f"{HEADS} heads of {ROWS} rows; 32 groups a head; share of {l2 / 1e12:.1f} TB/s"
    heads = ("tile", 10), ("values", 8), ("warps", 5), ("adds us", 9), ("TB/s", 6), ("share", 6)
    yield " ".join(f"{name:>{width}}" for name, width in (*heads, ("stores us", 9)))
    for row, column in TILES:
        out = torch.zeros(HEADS * ROWS * column, device="cuda")
        moved = 4 * 32 * out.numel()
        for product in (False, True):
            for warps in (4, 8):
                call = partial(add_tiles[(32, HEADS)], out, ROWS, row, column, product)
                adds, stores = (seconds(partial(call, s, num_warps=warps)) for s in (False, True))
                rate = moved / adds
                yield (
                    f"{row:>6}x{column:<3} {'product' if product else 'plain':>8} {warps:>5} "
                    f"{adds * 1e6:>9.1f} {rate / 1e12:>6.2f} {rate / l2:>6.3f} {stores * 1e6:>9.1f}"
                )


def collisions() -> Iterator[str]:
    """Adding to one array from many groups at once."""
    yield f"{GROUPS} groups add to one array"
    heads = ("values", 10), ("us", 10), ("G adds/s", 10), ("TB/s", 8)
    yield " ".join(f"{name:>{width}}" for name, width in (*heads, ("ns an addition to each", 24)))
    for size in SHARED:
        out = torch.zeros(size, device="cuda")
        turns = max(1, min(TURNS, (1 << 16) // size))
        block = min(1024, triton.next_power_of_2(size))
        took = seconds(partial(add_to_one[(GROUPS,)], out, size, turns, block))
        count = GROUPS * turns * size
        each = took / (GROUPS * turns)
        yield (
            f"{size:>10,} {took * 1e6:>10.1f} {count / took / 1e9:>10.1f} "
            f"{4 * count / took / 1e12:>8.3f} {each * 1e9:>24.2f}"
        )


@nk.diagram("q d, x d, x d -> q d")
def attention(Q: Any, K: Any, V: Any) -> Any:
    """Softmax attention."""
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


def backwards(on: str) -> Iterator[str]:
    """Attention's backward pass, which reads the output and two numbers of each row, both ways."""
    yield "attention's backward pass: predicted and measured us"
    f = attention.weave("b h")
    for b, h, length, d in ATTENTION:
        sizes = {"b": b, "h": h, "q": length, "x": length, "d": d}
        pairs = Pairs(f, backward(f), sizes, memo_of(on, "bf16"), "fastest")
        kept = tuple(k for k in pairs.keepable if k.name in {"O", "m", "z"})
        g = backward_with(pairs.back, kept)
        for what, how in (
            ("two kernels", {}),
            ("one that adds", {"materialise": [], "deterministic": False}),
        ):
            plan = nk.derive(g, on, sizes, "bf16", **cast(Any, how))
            call = plan.bound_call(*drawn(g, sizes, "bf16", 0))
            took = seconds(call)
            adds = ", ".join(plan.accumulates) or "nothing"
            yield (
                f"{b},{h},{length},{d} {what:>14} {plan.seconds * 1e6:>9.1f} {took * 1e6:>9.1f} "
                f"{10 * b * h * length**2 * d / took / 1e12:>7.1f} TFLOP/s  adds {adds}; "
                f"{dict(plan.kernels[0].tiles)}"
            )


def main() -> None:
    """Print the tables."""
    on = {"sm_80": "a100", "sm_90": "h100", "sm_100": "b200"}.get(described()["arch"], "h100")
    print(heading())
    for lines in (tiles(machine(on).l2_rate), collisions(), backwards(on)):
        print()
        for line in lines:
            print(line, flush=True)


if __name__ == "__main__":
    main()
