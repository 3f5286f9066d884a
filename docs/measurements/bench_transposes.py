"""Times copies that are scaled and stored with their axes in another order, beside torch's.

Every row is one round of calls taken in turns, each with a cold L2 (`napkin.measure.timing`). torch
multiplies, and then copies what is permuted; under torch.compile it does both at once.

    python docs/measurements/bench_transposes.py
"""

import torch
from heading import heading

import napkin as nk
import napkin.torch as nkt
from napkin.measure.timing import interleaved

SHAPES = {
    "a b -> b a": (8192, 8192),
    "a b c -> c b a": (256, 256, 256),
    "a b c -> c a b": (300, 200, 500),
    "a b c -> a c b": (256, 256, 256),
    "a b c d -> d b c a": (64, 64, 64, 64),
    "b t h d -> b h t d": (8, 2048, 16, 64),
    "b h t d -> b h d t": (4, 16, 2048, 64),
}
"""Axes as they are read and stored, and their sizes."""


def main() -> None:
    """A row for each shape."""
    print(heading("bf16; us"))
    for axes, sizes in SHAPES.items():
        read, stored = (side.split() for side in axes.split(" -> "))
        order = [read.index(a) for a in stored]
        turned = nkt.compile(nk.diagram(axes)(lambda X: X * 2.0))
        x = torch.randn(sizes, device="cuda", dtype=torch.bfloat16)

        def plain(x: torch.Tensor = x, order: list[int] = order) -> torch.Tensor:
            return (x * 2).permute(order).contiguous()

        compiled = torch.compile(plain)
        assert torch.equal(turned(x), plain())
        calls = {
            "napkin": lambda: turned(x),  # noqa: B023
            "torch": plain,
            "torch.compile": lambda: compiled(x, order),  # noqa: B023
            "x * 2": lambda: x * 2,  # noqa: B023
        }
        found = interleaved(calls)
        row = "  ".join(f"{name} {s.median:7.1f}" for name, s in found.items())
        print(f"{axes:20} {' '.join(map(str, sizes)):16} {row}", flush=True)


if __name__ == "__main__":
    main()
