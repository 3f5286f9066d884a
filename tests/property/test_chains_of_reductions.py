"""Reductions that share terms, streamed in several passes: what separates from a result of one pass
is often what another pass sums."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from fold_law import breach

import napkin as nk
from napkin.derive.kernel import Kernel

SIZES = {"n": 9, "h": 2}
CUTS = ((5, 0, 4), (1, 8), (0, 6, 3), (3, 3, 3), (1, 1, 7))

BODIES: dict[Callable[[Any, Any, Any, Any], Any], int] = {
    lambda a, b, c, d: a * b: 7,
    lambda a, b, c, d: a: 3,
    lambda a, b, c, d: a - b: 2,
    lambda a, b, c, d: a * b * c: 2,
    lambda a, b, c, d: nk.sigmoid(a * b): 2,
    lambda a, b, c, d: (a - b) ** 2: 1,
    lambda a, b, c, d: nk.exp(a - nk.maximum(b, 1.0)): 1,
    lambda a, b, c, d: a * d * b: 1,
    lambda a, b, c, d: nk.where(a > b, a, b): 1,
}
"""Bodies over the chunks a and d and the results b and c, with how often they are drawn."""

CHOICES: dict[Callable[[Any, Any, Any, Any], Any], int] = {
    lambda a, b, c, d: nk.where(d > 0.0, a, b): 4,
    lambda a, b, c, d: nk.where(d > 0.0, a - b, c): 4,
    lambda a, b, c, d: nk.where(d > 0.0, a * b, 0.0): 4,
    lambda a, b, c, d: nk.where(d > 0.0, 0.0, a - b): 4,
    lambda a, b, c, d: nk.where(d > 0.0, b, c) * a: 4,
    lambda a, b, c, d: nk.where(d > 0.0, a, -np.inf): 2,
}
"""Of seeds from `CHOOSING` on, beside: what the chunk chooses of results."""

CHOOSING = 2000


def chain(seed: int) -> nk.Diagram:
    """A diagram of reductions over n, each of chunks and of results before it."""
    rng = random.Random(seed)
    bodies = BODIES | CHOICES if seed >= CHOOSING else BODIES

    def drawn(X: nk.Array, Z: nk.Array, Y: nk.Array, W: nk.Array) -> nk.Array:
        chunks, results = [X, Z, Y], [W]
        for _ in range(rng.choice((4, 5, 6, 7))):
            a, d = rng.choices(chunks, k=2)
            (body,) = rng.choices(list(bodies), list(bodies.values()))
            t = body(a, rng.choice(results[-3:]), rng.choice(results), d)
            over = "n" if "h" not in t.axes or rng.random() < 0.8 else "h n"
            op = rng.choice(("sum", "sum", "sum", "max", "mean", "min"))
            results.append(nk.reduce(t, op, over=over))
            if rng.random() < 0.2 and t is not a:
                chunks.append(t)
        found = results[-1]
        for x in rng.sample(results[1:-1], 2):
            found = found * x if rng.random() < 0.4 else found + x
        return found * W + found

    return nk.diagram("n h, n h, n, h -> h")(drawn)


def kernels(seed: int) -> list[Kernel]:
    """The kernels of a chain, in as many passes as it is streamed; none of one that leaves out an
    input."""
    found: list[Kernel] = []
    with suppress(nk.InputError):
        diagram = chain(seed)
        for passes in (1, 2, 3, 4):
            with suppress(nk.Refusal):
                found.append(diagram.stream("n", passes=passes).kernel)
    return found


@pytest.mark.parametrize("first", range(0, 2500, 250))
def test_each_pass_knows_what_it_takes_as_final(first: int) -> None:
    """Every digit of a result that is 0 but for rounding may differ."""
    held = 0
    for seed in range(first, first + 250):
        rng = np.random.default_rng(seed)
        data = {"X": rng.normal(size=(9, 2)) - 0.3, "Z": rng.normal(size=(9, 2)) + 0.2}
        data |= {"Y": rng.normal(size=9), "W": rng.uniform(0.5, 1.5, size=2)}
        for kernel in kernels(seed):
            wrong = breach(kernel, data, SIZES, CUTS[seed % len(CUTS)])
            assert wrong is None or wrong.error > 0.99, (seed, wrong)
            held += 1
    assert held > 100
