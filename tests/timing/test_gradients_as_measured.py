"""The time model beside the kernels of attention's gradient, as timed on an H100."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

import napkin as nk
from napkin.derive.prepare import prepare
from napkin.derive.rules.accumulate import ACCUMULATED
from napkin.gradient.gradient import backward
from napkin.gradient.training_pair import backward_with
from napkin.ir.node import over, postorder
from napkin.machine.machines import machine
from napkin.plan.derive import memo_of
from napkin.plan.keeping import Pairs
from napkin.plan.plan import Plan
from napkin.settings.pricing import Pricing
from napkin.settings.specialised import specialised_choices


@nk.diagram("b h q d, b h x d, b h x d -> b h q d")
def attention(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@cache
def planned(b: int, h: int, length: int, d: int) -> Plan:
    """The gradient that reads the output, the maximum and the sum of each row, whose logarithm its
    loops then take: so it was timed."""
    sizes = {"b": b, "h": h, "q": length, "x": length, "d": d}
    pairs = Pairs(attention, backward(attention), sizes, memo_of("h100", "bf16"), "fastest")
    named = [k for k in pairs.keepable if k.name in {"O", "m", "z"}]
    kept = [replace(k, node=[n for n in postorder([k.node]) if over(n)][-1]) for k in named]
    return nk.derive(backward_with(pairs.back, kept), "h100", sizes, "bf16")


@pytest.mark.parametrize(
    ("shape", "along", "us"),
    [
        ((4, 16, 4096, 128), "x", 1473.8),
        ((4, 16, 4096, 128), "q", 2287.3),
        ((4, 32, 4096, 64), "x", 1530.1),
        ((4, 32, 4096, 64), "q", 3463.7),
    ],
)
def test_plain_kernels_are_priced_as_they_were_timed(
    shape: tuple[int, int, int, int], along: str, us: float
) -> None:
    (k,) = (k for k in planned(*shape).kernels if k.choice.kernel.stream.axis == along)
    assert not k.schedule.warpgroups
    assert abs(math.log(k.choice.time.seconds * 1e6 / us)) < 0.18


@cache
def stored_weights() -> Plan:
    """One head of attention, whose weights and their gradients pass between two kernels."""
    return planned(1, 1, 4096, 128)


@pytest.mark.parametrize(
    ("q", "x", "us"), [(64, 128, 108.5), (64, 64, 108.8), (64, 32, 105.5), (16, 64, 83.8)]
)
def test_what_loops_of_products_store_is_priced(q: int, x: int, us: float) -> None:
    plan = stored_weights()
    (k,) = (k for k in plan.kernels if k.choice.kernel.stream.axis == "x")
    assert k.choice.run.emitted == 2 * 4096 * 4096
    pricing = Pricing(k.choice.kernel, k.choice.sizes, "bf16", plan.machine)
    tiles = dict.fromkeys(k.tiles, 1) | {"q": q, "x": x, "d": 128}
    made = pricing.at(replace(k.schedule, tiles=tiles, stages=3))
    assert abs(math.log(made.time.seconds * 1e6 / us)) < 0.25


@nk.diagram(
    "b h q d, b h x d, b h x d, b h q d, b h q:fp32, b h q:fp32, b h q:fp32"
    " -> b h q d, b h x d, b h x d"
)
def from_rows(Q: Any, K: Any, V: Any, dO: Any, m: Any, z: Any, D: Any) -> Any:
    """The gradient that reads the maximum, the logarithm of the sum and the level of each row."""
    scale = nk.size("d") ** -0.5
    P = nk.exp(nk.contract(Q, K, over="d") * scale - m - z)
    dS = P * (nk.contract(dO, V, over="d") - D)
    dQ, dK = nk.contract(dS, K, over="x"), nk.contract(dS, Q, over="q")
    return dQ * scale, dK * scale, nk.contract(P, dO, over="q")


@pytest.mark.parametrize(
    ("shape", "us"),
    [
        ((4, 16, 4096, 128), 2604.7),
        ((4, 32, 4096, 64), 3124.8),
        ((16, 16, 1024, 128), 825.9),
        ((1, 16, 16384, 128), 10222.7),
    ],
)
def test_warpgroups_that_add_in_bulk_are_priced_as_they_were_timed(
    shape: tuple[int, int, int, int], us: float
) -> None:
    ready = prepare(from_rows)
    (found,) = ACCUMULATED.matches("k", ready.outputs, ready.names, "x", "q")
    kernel, _ = ACCUMULATED.apply(found)
    sizes = dict(zip("bhqd", shape, strict=True)) | {"x": shape[2]}
    (choice,) = next(iter(specialised_choices(kernel, sizes, "bf16", machine("h100"))))
    assert abs(math.log(choice.time.seconds * 1e6 / us)) < 0.14
