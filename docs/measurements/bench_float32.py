"""Products in float32: the planner's settings beside cuBLAS, and settings of one product.

    python docs/measurements/bench_float32.py [--settings K]

With --settings, 4,096 x 4,096 x K in the settings of least predicted time, one of each number of
warps and of values of a sum in a tile.
"""

from __future__ import annotations

import argparse
import warnings

import torch
from heading import heading
from triton.testing import do_bench

import napkin as nk
from napkin.measure.tune import measured
from napkin.plan.ranked import ranked
from napkin.settings.choice import Choice

SHAPES = ((4096, 64), (4096, 128), (4096, 4096), (2048, 256), (1024, 1024))


@nk.diagram("a c, c b -> a b")
def product(X: nk.Array, Y: nk.Array):
    """A matrix product."""
    return nk.contract(X, Y, over="c")


def beside(n: int, depth: int) -> None:
    """Prints a product with the planner's setting."""
    plan = nk.derive(product, "h200", {"a": n, "b": n, "c": depth}, "fp32")
    (k,) = plan.kernels
    X, Y = torch.randn(n, depth, device="cuda"), torch.randn(depth, n, device="cuda")
    wanted = X.double() @ Y.double()
    off = float((plan(X, Y).double() - wanted).norm() / wanted.norm())
    own = 1e3 * do_bench(lambda: plan(X, Y), return_mode="median")
    cublas = 1e3 * do_bench(lambda: X @ Y, return_mode="median")
    print(f"{n} x {n} x {depth}: {k.schedule}; predicted {1e6 * k.choice.time.seconds:.1f}")
    print(f"  measured {own:.1f}, cuBLAS {cublas:.1f} us, error {off:.1e}")


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


if __name__ == "__main__":
    main()
