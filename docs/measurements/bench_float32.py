"""Products and attention in float32: the planner's settings beside cuBLAS and SDPA, and settings of
one product.

    python docs/measurements/bench_float32.py [--settings K]

With --settings, 4,096 x 4,096 x K in the settings of least predicted time, one of each number of
warps and of values of a sum in a tile.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable
from typing import Any

import torch
from heading import heading
from triton.testing import do_bench

import napkin as nk
from napkin.measure.tune import measured
from napkin.plan.ranked import ranked
from napkin.settings.choice import Choice

SHAPES = ((4096, 64), (4096, 128), (4096, 4096), (2048, 256), (1024, 1024))
HEADS = ((16, 4096, 64), (4, 4096, 128), (1, 4096, 64), (1, 4096, 128), (64, 512, 64))


@nk.diagram("a c, c b -> a b")
def product(X: nk.Array, Y: nk.Array):
    """A matrix product."""
    return nk.contract(X, Y, over="c")


@nk.diagram("a c, b c -> a b")
def along(X: nk.Array, Y: nk.Array):
    """The same of columns that lie along the axis that is summed, as a layer's weights do."""
    return nk.contract(X, Y, over="c")


@nk.diagram("h q d, h x d, h x e -> h q e")
def attention(Q: nk.Array, K: nk.Array, V: nk.Array):
    """Attention of several heads."""
    scores = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(scores, over="x"), V, over="x")


def beside(n: int, depth: int) -> None:
    """Prints products with the planner's setting."""
    sizes = {"a": n, "b": n, "c": depth}
    X, Y = torch.randn(n, depth, device="cuda"), torch.randn(depth, n, device="cuda")
    told(f"{n} x {n} x {depth}", nk.derive(product, "h200", sizes, "fp32"), torch.matmul, X, Y)
    plan = nk.derive(along, "h200", sizes, "fp32")
    told(f"{n} x {n} x {depth}, along", plan, torch.nn.functional.linear, X, Y.T.contiguous())


def heads(h: int, n: int, d: int) -> None:
    """Prints attention with the planner's settings."""
    sizes = {"h": h, "q": n, "x": n, "d": d, "e": d}
    Q, K, V = (torch.randn(h, n, d, device="cuda") for _ in range(3))
    plan = nk.derive(attention, "h200", sizes, "fp32")
    told(f"{h} heads, {n} x {n} x {d}", plan, _sdpa, Q, K, V)


def _sdpa(*arrays: torch.Tensor) -> torch.Tensor:
    """SDPA with an axis of one batch: of tensors with three axes it takes no fused kernel."""
    batch = (x[None] for x in arrays)
    return torch.nn.functional.scaled_dot_product_attention(*batch)[0]


def told(name: str, plan: nk.Plan, other: Callable[..., Any], *arrays: torch.Tensor) -> None:
    """Prints a plan beside what torch has."""
    wanted = other(*(x.double() for x in arrays))
    off = float((plan(*arrays).double() - wanted).norm() / wanted.norm())
    own = 1e3 * do_bench(lambda: plan(*arrays), return_mode="median")
    torches = 1e3 * do_bench(lambda: other(*arrays), return_mode="median")
    time = 1e6 * sum(k.choice.time.seconds for k in plan.kernels)
    print(f"{name}: {', then '.join(str(k.schedule) for k in plan.kernels)}")
    print(f"  predicted {time:.1f}, measured {own:.1f}, torch {torches:.1f} us, error {off:.1e}")


def settings(depth: int) -> None:
    """Prints settings of one product."""
    plan = nk.derive(product, "h200", {"a": 4096, "b": 4096, "c": depth}, "fp32")
    (k,) = plan.kernels
    kinds: dict[object, Choice] = {}
    for c in ranked(plan, k, 600):
        tiles = c.schedule.tiles
        if tiles["a"] * tiles["b"] >= 8192:
            kinds.setdefault((tiles["c"], c.schedule.warps, c.kernel.stream.axes), c)
    for row in measured(plan, k, [k.choice, *kinds.values()][:7], seed=0).rows:
        predicted = 1e6 * row.choice.time.seconds
        found = f"{row.measured.median:.1f}" if row.measured else row.note
        streamed = " ".join(row.choice.kernel.stream.axes) or "nothing"
        print(f"{row.choice.schedule}, streams {streamed}: predicted {predicted:.1f}, {found} us")


def main() -> None:
    """Prints the one or the other."""
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--settings", type=int, metavar="K")
    asked = parser.parse_args()
    print(heading())
    if asked.settings:
        settings(asked.settings)
        return
    for n, depth in SHAPES:
        beside(n, depth)
    for h, n, d in HEADS:
        heads(h, n, d)


if __name__ == "__main__":
    main()
