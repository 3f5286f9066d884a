"""Two networks end to end, with torch's attention and with napkin's, from one run.

    python docs/measurements/bench_network.py [vit] [dinat] [--graphs] [--most N] [--json FILE]

A small vision transformer (scaled_dot_product_attention against napkin.torch.attention) and one of
neighborhood attention with alternating dilations (FlexAttention against
napkin.torch.NeighborhoodAttention2D), random weights, bf16, each under
torch.compile(fullgraph=True). `first` is the first call of the compiled network with empty caches
of inductor, Triton and napkin: tracing, deriving, compiling. Times are medians of calls taken in
turns. The share of attention is what a network takes more than without it, values passed on. What
a variant is off by is the relative norm from the same weights in float64, with attention by its
definition; the run fails where napkin is off by more than 1.5 times what torch is.

With --graphs, calls are replayed as CUDA graphs (mode="reduce-overhead"), where launches by the CPU
take longer than the kernels. With --tiny, the same on the CPU, not compiled, in Triton's
interpreter: to try this script.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from heading import heading
from networks import DiNAT, Network, ViT, variants
from torch import nn

from napkin.measure.timing import Sample, interleaved, sample

Problem = tuple[str, Network, int]
"""A name, a network, and images of a call."""

NETWORKS: list[Problem] = [
    ("vit", ViT(1024), 4), ("dinat", DiNAT(224), 32),
    ("vit", ViT(224), 64), ("dinat", DiNAT(768), 4),
]  # fmt: skip

TINY: list[Problem] = [
    ("vit", ViT(image=16, patch=4, width=32, heads=2, depth=1), 1),
    ("dinat", DiNAT(image=24, widths=(16, 32), depths=(2, 0), head=16, window=3), 1),
]

VARIANTS = ("torch", "napkin", "none")

FACTOR = 1.5
"""How much farther from the exact result than torch napkin may be: both round to bf16 in the same
places but inside attention."""

HELD = 2
"""Images that are compared with float64."""

Timed = Callable[[Mapping[str, Callable[[], Any]]], dict[str, Sample]]


@contextmanager
def empty_caches() -> Iterator[None]:
    """Nothing that was compiled before is found."""
    from torch._inductor.utils import fresh_inductor_cache

    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        fresh_inductor_cache(dir=folder, delete=False),
        patch.dict(os.environ, {"NAPKIN_CACHE": folder}),
    ):
        yield


def off(found: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative error by norm."""
    return float((found.double() - wanted).norm() / wanted.norm())


def first_call(call: Callable[[], torch.Tensor]) -> tuple[torch.Tensor, float]:
    """A call's result, and its seconds."""
    start = time.perf_counter()
    out = call()
    if out.is_cuda:
        torch.cuda.synchronize()
    return out, time.perf_counter() - start


@torch.no_grad()
def measured(
    network: Network,
    images: int,
    device: str = "cuda",
    dtype: torch.dtype = torch.bfloat16,
    compiled: bool = True,
    timed: Timed = interleaved,
    mode: str = "default",
) -> dict[str, Any]:
    """One network with every attention, as a row of the table."""
    torch._dynamo.reset()  # it gives up after so many variants of one function
    made = variants(network, list(VARIANTS), device, dtype)
    x = torch.randn(images, 3, network.image, network.image, device=device, dtype=dtype)
    wanted = exact(network, made["torch"], x[:HELD], device)
    calls: dict[str, Callable[[], torch.Tensor]] = {}
    row: dict[str, Any] = {"network": str(network), "images": images, "mode": mode}
    row |= {"off": {}, "first_s": {}}

    def started(name: str, net: nn.Module) -> None:
        made = torch.compile(net, fullgraph=True, dynamic=False, mode=mode) if compiled else net

        def call() -> torch.Tensor:
            torch.compiler.cudagraph_mark_step_begin()
            return made(x)

        with empty_caches():
            out, seconds = first_call(call)
            if mode != "default":  # the second call is recorded, and the third replayed
                out = [call() for _ in range(3)][-1]
        calls[name], row["first_s"][name] = call, seconds
        row["off"][name] = off(out[:HELD], wanted)

    for name, net in made.items():
        try:
            started(name, net)
        except Exception as error:
            if name != "torch":
                raise
            print(f"  (torch: {said(error)}; keys are gathered instead)")
            other = variants(network, ["exact"], device, dtype)["exact"]
            other.load_state_dict(net.state_dict())
            started(name, other)
    times = timed(calls)
    row["us"] = {name: [s.low, s.median, s.high] for name, s in times.items()}
    row["runs"] = {name: s.runs for name, s in times.items()}
    row["agrees"] = row["off"]["napkin"] <= FACTOR * row["off"]["torch"]
    return row


def said(error: Exception) -> str:
    """An error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def exact(network: Network, weights: nn.Module, x: torch.Tensor, device: str) -> torch.Tensor:
    """The network in float64 with attention by its definition."""
    made = variants(network, ["exact"], device, torch.float64)["exact"]
    made.load_state_dict(weights.state_dict())
    return made(x.double())


def shown(row: Mapping[str, Any]) -> str:
    """The row as lines of text."""
    us = {name: found[1] for name, found in row["us"].items()}
    lines = [f"{row['network']}, {row['images']} images"]
    for name, (low, median, high) in row["us"].items():
        text = f"  {name:7s} first {row['first_s'][name]:6.1f} s  median {median:9.1f} us"
        text += f" ({low:.1f} to {high:.1f}, {row['runs'][name]} runs)"
        if name != "none":
            text += f"  off by {row['off'][name]:.1e}"
            text += f"  share of attention {100 * (1 - us['none'] / median):5.1f} %"
        if name == "napkin":
            text += f"  {us['torch'] / median:.3f}x torch end to end"
            if min(us["torch"], median) > us["none"]:
                beside = (us["torch"] - us["none"]) / (median - us["none"])
                text += f", {beside:.2f}x in attention"
        lines.append(text)
    lines.append(f"  same outputs: {'yes' if row['agrees'] else 'NO'}")
    return "\n".join(lines)


def by_the_clock(calls: Mapping[str, Callable[[], Any]]) -> dict[str, Sample]:
    """One timed call each, by the host's clock."""
    return {name: sample([1e6 * first_call(call)[1]]) for name, call in calls.items()}


TRIAL = ("cpu", torch.float32, False, by_the_clock)
"""How --tiny measures."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where outputs differ."""
    parser = argparse.ArgumentParser()
    parser.add_argument("which", nargs="*", metavar="vit|dinat")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--graphs", action="store_true")
    parser.add_argument("--most", type=int, default=len(NETWORKS), help="networks, from the first")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    for name in given.which:
        if name not in {"vit", "dinat"}:
            parser.error(f"there is no network {name!r}; there are vit and dinat")
    print(heading(), flush=True)
    rows, failed = list[dict[str, Any]](), False
    mode = "reduce-overhead" if given.graphs else "default"
    chosen = [n for n in (TINY if given.tiny else NETWORKS) if n[0] in (given.which or n[0])]
    for _, network, images in chosen[: given.most]:
        try:
            trial = TRIAL if given.tiny else ()
            rows.append(measured(network, images, *trial, mode=mode))
        except Exception as error:  # which leaves the others standing
            print(f"{network}, {images} images: {said(error)}", flush=True)
            failed = True
            continue
        print(shown(rows[-1]), flush=True)
        if given.json:
            given.json.write_text(json.dumps(rows))
    return int(failed or not all(row["agrees"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
