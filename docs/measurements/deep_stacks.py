"""CPU seconds to derive the gradient of a stack of layers, and the plan's predicted time: rewrites
of a kind tried together, and one node after another.

    python docs/measurements/deep_stacks.py LAYERS [LAYERS ...]
"""

from __future__ import annotations

import inspect
import sys
import time
from typing import Any

import napkin as nk
from napkin.cut import rewritten

SIZES = {"b": 4096, "d": 1024, "e": 4096}


def stack(layers: int) -> nk.Diagram:
    """Layers of a norm, a product, a maximum with 0, a product and a residual."""

    def deep(x: Any, *weights: Any) -> Any:
        for up, down in zip(weights[::2], weights[1::2], strict=True):
            centred = x - nk.reduce(x, "mean", over="d")
            scale = nk.rsqrt(nk.reduce(centred * centred, "mean", over="d") + 1e-5)
            inner = nk.maximum(nk.contract(centred * scale, up, over="d"), 0.0)
            x = x + nk.contract(inner, down, over="e")
        return x

    weights = [f"{w}{i}" for i in range(layers) for w in "UV"]
    kind = inspect.Parameter.POSITIONAL_ONLY
    named = [inspect.Parameter(name, kind) for name in ["X", *weights]]
    deep.__signature__ = inspect.Signature(named)  # pyright: ignore  # it names the inputs
    axes = ", ".join(["b d", *["d e, e d"] * layers])
    return nk.diagram(f"{axes} -> b d", sizes=SIZES)(deep)


def main() -> None:
    together = rewritten.everywhere
    for layers in map(int, sys.argv[1:]):
        for how, every in (("one by one", lambda first, *_: [first]), ("together", together)):
            rewritten.everywhere = every  # pyright: ignore
            gradient = nk.gradient(stack(layers))
            start = time.process_time()
            plan = nk.derive(gradient, on="h200")
            took = time.process_time() - start
            kernels, ms = len(plan.kernels), plan.seconds * 1e3
            print(f"{layers:2} layers, {how:10}  {took:6.1f} s  {kernels:3} kernels  {ms:6.2f} ms")


if __name__ == "__main__":
    main()
