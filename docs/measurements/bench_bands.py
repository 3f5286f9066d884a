"""Kernels of warpgroups beside the plain ones, predicted and measured, with other bands than the
planner's where there is time.

Every problem is one round of calls taken in turns, each with a cold L2. The difference is that of
the outputs of the two kernels, by relative norm.

    python docs/measurements/bench_bands.py [attention | windows | products] [--all]
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from heading import heading
from problems import KEYS, Problem, heads, text
from torch.nn.attention import SDPBackend, sdpa_kernel

import napkin as nk
from napkin.diagram.library import load
from napkin.measure.tensors import drawn
from napkin.measure.timing import interleaved
from napkin.plan.plan import Plan
from napkin.plan.ranked import with_choices
from napkin.settings.choice import Choice
from napkin.settings.specialised import specialised_choices
from napkin.torch.diagrams import neighborhood_diagram

ATTENTION = [
    (16, 16384, 128), (64, 4096, 128), (256, 1024, 128), (128, 4096, 64), (48, 8192, 64),
    (64, 4096, 96), (32, 4096, 192), (32, 4096, 256),
]  # fmt: skip
"""Heads, tokens, head size."""

MOST = 8
"""Other bands of each problem."""

WINDOWS = [
    ((2048,), (1,), (32768,), 1), ((2048,), (256,), (32768,), 1),
    ((80, 80), (1, 1), (256, 256), 24), ((80, 80), (16, 16), (256, 256), 24),
    ((18, 24, 24), (1, 1, 1), (30, 48, 80), 24), ((18, 24, 24), (2, 8, 8), (30, 48, 80), 24),
]  # fmt: skip
"""Window, stride, layout, heads; 128 values a head."""


PRODUCTS = [
    (8192, 1024, 8192), (4096, 4096, 4096), (8192, 8192, 8192), (512, 8192, 8192),
    (2048, 2048, 2048), (16384, 512, 4096), (4096, 11008, 4096), (1024, 4096, 11008),
    (3000, 5000, 2504), (16384, 4096, 256), (50000, 768, 3072), (1500, 1024, 1000),
]  # fmt: skip
"""Rows, what is summed, columns."""


def attention() -> Iterator[Problem]:
    """Attention in full and causal."""
    for h, s, d in ATTENTION:
        for keys in ("full", "causal"):
            yield f"attention {keys}", heads(KEYS[keys]), {"h": h, "q": s, "x": s, "d": d}


def windows() -> Iterator[Problem]:
    """Windows in one to three dimensions."""
    for window, stride, layout, h in WINDOWS:
        n = len(layout)
        q, x = (" ".join(f"{a}{i}" for i in range(n)) for a in "qx")
        how = (window, stride, (1,) * n, (False,) * n)
        diagram = neighborhood_diagram(
            f"{q} h d, {x} h d, {x} h d -> {q} h d", how, scaled=False, lse=False
        )
        sizes = {f"{a}{i}": m for a in "qx" for i, m in enumerate(layout)}
        yield f"window stride {'x'.join(map(str, stride))}", diagram, {**sizes, "h": h, "d": 128}


def products() -> Iterator[Problem]:
    """Products, by themselves and with bias and gelu."""
    for a, b, c in PRODUCTS:
        for name in ("matmul", "matmul_bias_gelu"):
            yield name, load(name), {"a": a, "b": b, "c": c}


PARTS = {f.__name__: f for f in (attention, windows, products)}


def others(plan: Plan, most: int) -> list[Choice]:
    """The bands of a plan's kernel that are predicted to take least."""
    (k,) = plan.kernels
    own = k.choice.kernel, k.choice.sizes
    found = [c for part in specialised_choices(*own, plan.dtype, plan.machine) for c in part]
    return sorted(found, key=lambda c: c.rank)[:most]


def setting(cta: Choice) -> str:
    """A band in words."""
    tiles = " ".join(f"{a}={n}" for a, n in cta.schedule.tiles.items() if n > 1)
    s = cta.schedule
    blocks = f", rows {s.swizzle}" if s.swizzle else ""
    return f"{s.side}, {tiles}, {s.stages} stages{blocks}"


def beside(name: str, *arrays: torch.Tensor) -> Any:
    with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
        own = (a[None] for a in arrays)
        return F.scaled_dot_product_attention(*own, is_causal="causal" in name)


def timed(name: str, plan: Plan, every: bool) -> float:
    """One problem, printed; predicted over measured time of the planner's band, or 0."""
    arrays = drawn(plan.diagram, plan.sizes, plan.dtype, 0)
    plain = replace(plan, specialised=False)
    (k,) = plan.launched.kernels
    own = k.choice if k.schedule.warpgroups else None
    more = others(plan, MOST) if every else []
    calls: dict[str, Any] = {"plain": plain.bound_call(*arrays)}
    known: dict[str, float] = {"plain": plain.kernels[0].choice.time.seconds}
    for cta in ([own] if own else []) + more:
        try:
            made = with_choices(plan, [cta])
            call = made.bound_call(*arrays)
            call()
            torch.cuda.synchronize()
        except Exception as error:  # what does not fit leaves the others standing
            print(f"  {setting(cta)}: {type(error).__name__}: {str(error)[:120]}")
            continue
        calls[setting(cta)], known[setting(cta)] = call, cta.time.seconds
    if name.startswith("attention"):
        calls["cuDNN"] = partial(beside, name, *arrays)
    if name.startswith("matmul"):
        calls["cuBLAS"] = partial(torch.mm, *arrays[:2])
    times = {n: s.median for n, s in interleaved(calls, 0.08).items()}
    wanted, found = (p(*arrays).float() for p in (plain, plan))
    off = float((found - wanted).norm() / wanted.norm())
    for n, us in times.items():
        predicted = f"predicted {known[n] * 1e6:9.1f} us" if n in known else " " * 22
        print(f"{name:22s} {text(dict(plan.sizes)):58s} {n:60s} {predicted}  measured {us:9.1f} us"
              f"  {times['plain'] / us:5.2f}x plain", flush=True)  # fmt: skip
    print(f"  {'planned' if own else 'no cta planned'}; difference {off:.1e}", flush=True)
    return own.time.seconds * 1e6 / times[setting(own)] if own else 0.0


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"{name} is none of {', '.join(PARTS)}")
    return name


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", nargs="*", type=_part, help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--all", action="store_true", help="other bands, too")
    given = parser.parse_args()
    print(heading(), flush=True)
    ratios: list[float] = []
    for name, diagram, sizes in (x for p in given.part or PARTS for x in PARTS[p]()):
        try:
            ratios.append(timed(name, nk.derive(diagram, on="h100", sizes=sizes), given.all))
        except Exception as error:
            print(f"{name} {text(sizes)}: {type(error).__name__}: {str(error)[:200]}", flush=True)
    own = [abs(math.log(r)) for r in ratios if r]
    print(f"{len(own)} bands planned: mean error of the predicted time {sum(own) / len(own):.1%}")


if __name__ == "__main__":
    main()
