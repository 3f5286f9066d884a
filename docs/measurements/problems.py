"""Problems on which the time model is judged: those that its constants were read off, those that
they were not, sweeps, and shapes drawn from a seed."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load

Problem = tuple[str, Diagram, dict[str, int]]


def heads(keys: Any = None) -> Diagram:
    """Attention over heads, under a key set."""

    @nk.diagram("h q d, h x d, h x d -> h q d")
    def attention(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return attention


KEYS = {
    "full": None,
    "causal": nk.causal("q", "x"),
    "window 1024": nk.sliding(1024, 0, queries="q", keys="x"),
    "window 4096": nk.sliding(4096, 0, queries="q", keys="x"),
}


def attentions(shapes: list[tuple[str, int, int, int]]) -> Iterator[Problem]:
    for keys, h, s, d in shapes:
        yield f"attention {keys}", heads(KEYS[keys]), {"h": h, "q": s, "x": s, "d": d}


def products(shapes: list[tuple[int, int, int]], name: str = "matmul") -> Iterator[Problem]:
    for a, c, b in shapes:
        yield name, load(name), {"a": a, "b": b, "c": c}


def rows(shapes: list[tuple[str, int, int]]) -> Iterator[Problem]:
    for name, n, d in shapes:
        diagram = load(name)
        (first, *_), last = diagram.inputs[0].axes, diagram.inputs[0].axes[-1]
        yield name, diagram, {first: n, last: d}


def fitted() -> Iterator[Problem]:
    yield from products([(4096, 4096, 4096), (8192, 8192, 1024), (512, 8192, 8192)])
    yield from attentions(
        [("full", 16, 4096, 128), ("full", 32, 4096, 64), ("causal", 16, 8192, 128)]
    )
    yield from rows([("rmsnorm", 16384, 8192), ("softmax", 8192, 4096)])
    yield from rows([("cross_entropy", 4096, 128256)])


def shapes() -> Iterator[Problem]:
    yield from products([(n, n, n) for n in (1280, 1792, 2560, 3584, 4608, 7168)])
    yield from products([
        (2048, 6144, 3072), (6144, 2048, 2048), (2048, 14336, 4096), (3072, 8192, 8192),
        (1024, 8192, 4096), (384, 8192, 4096), (128, 8192, 8192), (64, 4096, 11008),
        (32768, 512, 1024), (1024, 1024, 16384), (6000, 2500, 3000), (9999, 2048, 2048),
    ])  # fmt: skip
    yield from products([(2048, 8192, 2048), (16384, 2048, 1024), (4096, 4096, 8192)],
                        "matmul_bias_gelu")  # fmt: skip
    for keys in ("full", "causal"):
        for h, s, d in ((24, 2048, 128), (4, 32768, 128), (96, 1024, 128), (10, 5000, 128),
                        (32, 2048, 64), (24, 4096, 64), (8, 16384, 64), (8, 8192, 96),
                        (8, 4096, 256), (64, 768, 64)):  # fmt: skip
            yield from attentions([(keys, h, s, d)])
    for keys in ("window 1024", "window 4096"):
        for h, s, d in ((24, 6144, 128), (4, 65536, 128), (32, 12288, 64)):
            yield from attentions([(keys, h, s, d)])
    for name in ("rmsnorm", "layernorm", "softmax"):
        yield from rows([(name, n, d) for n, d in ((8192, 3072), (49152, 768), (4096, 16384),
                                                   (24576, 1536), (100000, 384))])  # fmt: skip
    yield from rows([("cross_entropy", 4096, 32000), ("cross_entropy", 4096, 151936),
                     ("cross_entropy", 12288, 65536)])  # fmt: skip
    yield from rows([("logsumexp", 16384, 32000), ("variance", 8192, 12288)])
    for h, s in ((16, 131072), (8, 65536), (48, 32768)):
        yield "decode", heads(), {"h": h, "q": 1, "x": s, "d": 128}


def sweeps() -> list[Problem]:
    return [
        *products([(4096, 4096, 4096), (8192, 8192, 1024), (512, 8192, 8192)]),
        *attentions([
            ("full", 16, 4096, 128), ("full", 64, 2048, 64), ("causal", 16, 4096, 128),
            ("window 1024", 16, 8192, 128), ("full", 16, 4096, 96),
        ]),
        *rows([("cross_entropy", 8192, 32000)]),
    ]  # fmt: skip


def text(sizes: dict[str, int]) -> str:
    """Sizes as they stand in a table."""
    return " ".join(f"{a}={n}" for a, n in sizes.items())


# --- shapes that nobody chose -------------------------------------------------------------------


KNOWN = (
    "2026-11-21-h100-model.txt", "2026-11-21-h100-new-shapes-7.txt",
    "2026-11-21-h100-new-shapes-8.txt", "2026-11-21-h100-new-shapes-9.txt",
    "2026-11-22-h100-new-shapes-10.txt", "2026-11-22-h100-new-shapes-11.txt",
    "2026-11-22-h100-new-shapes-12.txt", "2026-11-22-h100-new-shapes-13.txt",
    "2026-11-22-h100-new-shapes-14.txt",
)  # fmt: skip
"""Runs that constants were read off, or mended after; where others are, they are added here."""


def measured_before() -> set[tuple[str, str]]:
    """Names and sizes of the runs that constants may know."""
    out: set[tuple[str, str]] = set()
    for name in KNOWN:
        for line in (Path(__file__).parent / name).read_text().splitlines():
            found = re.match(r"(\S.*?) {2,}((?:\w+=\d+ ?)+)", line)
            if found:
                out.add((found[1], found[2].strip()))
    return out


def drawn_shapes(seed: int) -> list[Problem]:
    """68 problems whose shapes are drawn: products, attention, norms and losses of many sizes, none
    of which was measured before. Sizes are spread evenly in their logarithm, and kept where the
    work takes some 10 us to some ms."""
    rng = random.Random(seed)
    before = measured_before()
    out: dict[tuple[str, str], Problem] = {}

    def add(count: int, draw: Callable[[random.Random], Problem | None]) -> None:
        wanted = len(out) + count
        while len(out) < wanted:
            made = draw(rng)
            if made is not None and (key := (made[0], text(made[2]))) not in before:
                out.setdefault(key, made)

    add(18, lambda r: _product(r, "matmul"))
    add(4, lambda r: _product(r, "matmul_bias_gelu"))
    for keys in ("full", "causal"):
        add(10, lambda r, keys=keys: _attention(r, keys))
    for keys in ("window 1024", "window 4096"):
        add(3, lambda r, keys=keys: _attention(r, keys))
    for name in ("rmsnorm", "layernorm", "softmax"):
        add(4, lambda r, name=name: _rows(r, name, (256, 16384), (2**24, 2**29)))
    add(4, lambda r: _rows(r, "cross_entropy", (16384, 200000), (2**26, 2**29)))
    add(2, lambda r: _rows(r, "logsumexp", (4096, 65536), (2**25, 2**29)))
    add(2, lambda r: _rows(r, "variance", (1024, 16384), (2**25, 2**29)))
    return list(out.values())


def _between(rng: random.Random, low: float, high: float, step: int) -> int:
    """A multiple of `step`, evenly in its logarithm."""
    return max(1, round(math.exp(rng.uniform(math.log(low), math.log(high))) / step)) * step


def _product(rng: random.Random, name: str) -> Problem | None:
    step = rng.choice((8, 64, 128, 256))
    a, b, c = (_between(rng, 256, 16384, step) for _ in range(3))
    if not 2e9 < 2 * a * b * c < 2e12:
        return None
    return next(products([(a, c, b)], name))


def _attention(rng: random.Random, keys: str) -> Problem | None:
    d = rng.choice((64, 64, 80, 96, 128, 128, 128, 192, 256))
    s = _between(rng, 512, 32768, rng.choice((8, 128, 512)))
    h = rng.randint(2, 128)
    seen = int(keys.split()[1]) if keys.startswith("window") else s
    if keys.startswith("window") and seen > s / 2:
        return None
    work = 4 * h * s * seen * d / (2 if keys == "causal" else 1)
    if not 1e10 < work < 1.5e12 or h * s * d > 2**28:
        return None
    return next(attentions([(keys, h, s, d)]))


def _rows(
    rng: random.Random, name: str, width: tuple[int, int], values: tuple[int, int]
) -> Problem | None:
    d = _between(rng, *width, rng.choice((8, 64, 256)))
    n = _between(rng, 512, 200000, 8)
    return next(rows([(name, n, d)])) if values[0] < n * d < values[1] else None
