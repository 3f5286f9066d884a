"""Settings are priced in the order of what they take at least: the best is the best of all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.settings.best import unpriced
from napkin.settings.choice import Choice, Unpriced, in_rank

NAMES = ("softmax", "cross_entropy", "attention", "causal_attention", "gelu_matmul", "conv2d")


def within(found: Iterable[Unpriced | Choice], looked: bool = False) -> Iterator[Unpriced]:
    """Settings and their parts; those that are `looked` at, or all."""
    for u in found:
        if isinstance(u, Unpriced) and ("parts" in vars(u) or not looked):
            yield u
            yield from within(u.parts, looked)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("dtype", "on"), [("bf16", "h100"), ("fp32", "a100")])
def test_no_choice_comes_before_what_its_tiles_take_at_least(
    name: str, dtype: str, on: str
) -> None:
    diagram = load(name)
    for k in nk.derive(diagram, on, dtype=dtype).kernels:
        found = list(unpriced(k.choice.kernel, k.choice.sizes, dtype, machine(on)))
        first = next(in_rank(found))
        priced = [
            u for u in within(found, looked=True) if any(isinstance(p, Choice) for p in u.parts)
        ]
        assert 0 < len(priced) < max(len(found) / 2, 30)
        every = [c for u in found for c in u.choices]
        assert all(c.rank >= u.least for u in within(found) for c in u.choices)
        ranked = sorted(every, key=lambda c: c.rank)
        assert first is ranked[0]
        assert [id(c) for c in in_rank(found)] == [id(c) for c in ranked]


def test_tiles_of_products_that_cannot_be_next_are_not_looked_at() -> None:
    """Their products, their iterations and what crosses from L2 say so."""
    (k,) = nk.derive(load("matmul"), "h100").kernels
    found = list(unpriced(k.choice.kernel, k.choice.sizes, "bf16", machine("h100")))
    next(in_rank(found))
    near = [p for u in found if "parts" in vars(u) for p in u.parts]
    assert 0 < sum("parts" in vars(p) for p in near) < len(found) / 4


def test_few_groups_take_as_long_as_their_loads_and_their_starts() -> None:
    """So of windows of few keys hardly any tiles are looked at."""
    sizes = dict(q0=31, q1=31, d=61, x0=31, x1=31)
    (k,) = nk.derive(load("neighborhood_attention_2d"), "h100", sizes=sizes).kernels
    found = list(unpriced(k.choice.kernel, k.choice.sizes, "bf16", machine("h100")))
    next(in_rank(found))
    assert 0 < sum("parts" in vars(u) for u in found) < len(found) / 4
    for u in within(found[::7]):
        assert all(c.rank >= u.least for c in u.choices)


def test_small_groups_that_last_start_once_beside_each_other() -> None:
    """Of short products the best take many small groups, whose starts are shared."""
    f = load("matmul")
    sizes = dict(zip(f.axes, (640, 64, 1152), strict=True))
    (k,) = nk.derive(f, "h100", sizes=sizes).kernels
    found = list(unpriced(k.choice.kernel, k.choice.sizes, "bf16", machine("h100")))
    assert any(c.schedule.persistent for u in found for c in u.choices)
    assert all(c.rank >= u.least for u in within(found) for c in u.choices)
