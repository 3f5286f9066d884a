"""The memory that a plan needs beside inputs and outputs."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.plan import derive
from napkin.plan.derive import frugal, memo_of
from napkin.plan.workspace import materialised_bytes

SIZES = {"q": 256, "x": 512, "d": 64}


def test_workspace_is_what_is_alive_at_once():
    plan = nk.derive(load("attention"), sizes=SIZES, materialise=["S"])
    # An exponential reads S, which is stored in float32 for it.
    assert materialised_bytes(plan) == {"S": 256 * 512 * 4}
    assert plan.workspace == 256 * 512 * 4
    assert nk.derive(load("attention"), sizes=SIZES).workspace == 0


def test_memory_is_taken_where_it_halves_the_time():
    """Gradients of logits are larger than all inputs. Computed again for each product, they take
    many times as long in a device's memory."""
    back = nk.gradient(load("linear_cross_entropy"))
    sizes = back.check_sizes({"n": 2048, "v": 16384, "d": 1024})
    memo = memo_of("h100", "bf16")
    small, half, large = (frugal(back, sizes, memo, worth).predicted for worth in (0, 0.5, 1))
    logits = 2 * sizes["n"] * sizes["v"]
    assert small.workspace < logits <= half.workspace
    assert half.seconds < small.seconds / 2
    assert large.seconds == half.seconds
    attention = nk.gradient(load("attention"))
    sizes = attention.check_sizes(SIZES)
    assert frugal(attention, sizes, memo, 0.5).predicted.workspace < 2 * 256 * 512


def test_a_backward_is_searched_for_twice_within_one_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search for less time goes on with the work of the one for less memory."""
    works: list[Any] = []

    def looked(*args: Any, **settings: Any) -> Any:
        works.append(args[2].effort)
        return search(*args, **settings)

    search = derive._searched
    monkeypatch.setattr(derive, "_searched", looked)
    back = nk.gradient(load("linear_cross_entropy"))
    sizes = back.check_sizes({"n": 2048, "v": 16384, "d": 1024})
    frugal(back, sizes, memo_of("h100", "bf16"), 0.5)
    first, second = works
    assert first is second
    assert first.work > 0


def test_all_cuts_are_searched_for_within_the_same_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where no cut is without large arrays, all cuts are searched for: within the same bound, or a
    training that keeps the least is planned for twice as long."""
    works: list[Any] = []

    def refused_first(*args: Any, **settings: Any) -> Any:
        works.append(args[2].effort)
        found = search(*args, **settings)
        if len(works) == 1:
            raise nk.Refusal("plan", "attention", "no kernel fits")
        return found

    search = derive._searched
    monkeypatch.setattr(derive, "_searched", refused_first)
    attention = nk.gradient(load("attention"))
    frugal(attention, attention.check_sizes(SIZES), memo_of("h100", "bf16"))
    first, second = works
    assert first is second
    assert first.work > 0
