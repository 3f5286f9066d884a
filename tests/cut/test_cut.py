"""Cuts: what is left underived because memory alone makes it too slow would never be taken."""

from __future__ import annotations

import math
from typing import Any

import pytest

import napkin as nk
from napkin.cut.way import Way, simplest
from napkin.cut.ways import Cutting
from napkin.derive.kernel import Kernel
from napkin.derive.prepare import prepare
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.settings.best import in_order, unpriced
from napkin.settings.choice import Choice
from napkin.settings.choose import Search
from napkin.settings.climb import best_tiles
from napkin.settings.labelled import least_seconds
from napkin.settings.labels import labellings
from napkin.settings.tiles import MAX_GROUP

NAMES = (
    "attention", "causal_attention", "layernorm_linear", "decode_attention", "longformer", "mlp",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_no_setting_undercuts_what_a_kernel_takes_at_least(name: str) -> None:
    """Of any labelling of the whole diagram as one kernel, in parts too."""
    (k, *others) = nk.derive(load(name), on="h100").kernels
    for planned in (k, *others):
        kernel, sizes = planned.choice.kernel, planned.choice.sizes
        terms = kernel.name, kernel.origin, kernel.names, sizes
        for labelled in [kernel] if kernel.part or kernel.merges else labellings(*terms):
            least = least_seconds(labelled, sizes, "bf16", planned.machine)
            found = list(in_order(unpriced(labelled, sizes, "bf16", planned.machine)))
            assert all(c.time.seconds >= least for c in found)
            assert not found or least > 0


def test_a_product_that_every_group_does_again_takes_as_long_as_all_of_them() -> None:
    @nk.diagram("q d, d f, f o -> q o", sizes={"q": 4096, "d": 4096, "f": 4096, "o": 4096})
    def products(X, U, W):
        return nk.contract(nk.contract(X, U, over="d"), W, over="f")

    place, sizes = machine("h100"), dict(products.sizes)
    ready = prepare(products)
    (kernel,) = [
        k for k in labellings("p", ready.outputs, ready.names, sizes) if k.stream.axis == "f"
    ]
    again = 2 * 4096**3 * (1 + 4096 // MAX_GROUP)
    assert least_seconds(kernel, sizes, "bf16", place) > again / place.peak("bf16")
    assert len(nk.derive(products, on=place).kernels) == 2


def test_a_labelling_that_takes_longer_at_least_has_no_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tiled: list[Kernel] = []

    def noted(kernel: Kernel, *place: Any) -> Choice | None:
        tiled.append(kernel)
        return best_tiles(kernel, *place)

    monkeypatch.setattr("napkin.settings.choose.best_tiles", noted)
    attention = load("attention")
    ready, sizes = prepare(attention), {"q": 2**16, "x": 2**16, "d": 128}
    search = Search("a", ready.outputs, ready.names, sizes, "bf16", machine("h100"))
    (best,) = search.best
    assert all(least_seconds(k, sizes, "bf16", machine("h100")) < best.rank[0] for k in tiled)


@pytest.mark.parametrize("name", NAMES)
def test_the_plan_is_that_of_all_cuts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the bound every cut is derived; plan and kernels are the same."""
    searched: list[Search] = []
    best = Search.best.func

    def counted(search: Search) -> object:
        searched.append(search)
        return best(search)

    monkeypatch.setattr(Search.best, "func", counted)
    some = nk.derive(load(name), on="h100")
    few = len(searched)
    searched.clear()
    for file in ("choose", "series"):
        monkeypatch.setattr(f"napkin.settings.{file}.least_seconds", lambda *_: 0.0)
    monkeypatch.setattr("napkin.settings.choose.least_moving", lambda *_: 0.0)
    every = nk.derive(load(name), on="h100")
    assert few < len(searched)
    assert every.to_json() == some.to_json()
    assert every.source == some.source


def test_of_a_turned_term_only_what_may_be_faster_has_tiles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Beside a cut that is known, kernels that leave too little time for the others have none."""

    @nk.diagram("q p d, x y d, x y d -> q p d")
    def neighbors(Q, K, V):
        S = nk.contract(Q, K, over="d")
        keys = nk.neighborhood((4, 4), stride=(2, 2), dilation=(1, 2), queries="q p", keys="x y")
        return nk.contract(nk.softmax(S, over="x y", keys=keys), V, over="x y")

    searched: list[Search] = []
    best = Search.best.func

    def counted(search: Search) -> object:
        searched.append(search)
        return best(search)

    monkeypatch.setattr(Search.best, "func", counted)
    sizes = {"q": 12, "x": 12, "p": 10, "y": 10, "d": 32}
    some = nk.derive(neighbors, on="h100", sizes=sizes, dtype="fp32")
    few = len(searched)
    searched.clear()
    monkeypatch.setattr(Cutting, "_left", lambda self, _: [math.inf] * (len(self.points) + 1))
    every = nk.derive(neighbors, on="h100", sizes=sizes, dtype="fp32")
    assert few < len(searched)
    assert every.to_json() == some.to_json()


@nk.diagram("n -> n", sizes={"n": 2**24})
def clipped_by_norm(G: Any) -> Any:
    """One kernel of one group could compute it, which takes a hundred times as long."""
    return G * nk.minimum(nk.rsqrt(nk.reduce(G * G, "sum", over="n")), 1.0)


def test_a_reduction_of_all_values_is_not_fused_with_results_as_wide_as_they_are() -> None:
    plan = nk.derive(clipped_by_norm)
    assert len(plan.kernels) > 1
    assert plan.seconds < nk.derive(clipped_by_norm, materialise=()).seconds / 10
    verdict = plan.check(sizes={"n": 5000}, resources=False)
    assert verdict.ok, str(verdict)


def test_rows_stay_in_one_kernel_with_what_is_computed_of_them() -> None:
    for name in ("rmsnorm", "layernorm", "softmax"):
        assert len(nk.derive(load(name)).kernels) == 1


def test_a_few_per_cent_decide_between_kernels_whose_time_is_told_well() -> None:
    few, more = Way(1.05, 1, 0, ()), Way(1.0, 3, 0, ())
    assert simplest([few, more]) is few
    warpgroups = Way(1.0, 3, 0, (), specialised=0.9)
    assert simplest([few, warpgroups]) is warpgroups
    assert simplest([Way(1.02, 1, 0, ()), warpgroups]).kernels == 1
