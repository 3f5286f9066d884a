"""Settings of a labelling that come after a faster one are left alone, and the best stays."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.derive.kernel import Kernel
from napkin.derive.prepare import prepare
from napkin.derive.rules.part import why_not_cut
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.machine.machines import machine
from napkin.settings.best import unpriced
from napkin.settings.choice import in_rank
from napkin.settings.choose import Search

NAMES = ("softmax", "attention", "layernorm", "linear_attention", "scaled")


def search(diagram: Diagram, n: int, dtype: str) -> Search:
    ready = prepare(diagram)
    sizes = diagram.check_sizes(dict.fromkeys(diagram.axes, n))
    return Search("a", ready.outputs, ready.names, sizes, dtype, machine("h100"))


@nk.diagram("x v, x v -> x v")
def scaled(A, B):
    n = nk.rsqrt(nk.reduce(A * A, "sum", over="v") + 1e-3)
    return nk.softmax(A * B * n, over="v") * B


@pytest.mark.parametrize("n", [64, 2048])
@pytest.mark.parametrize("dtype", ["bf16", "fp32"])
@pytest.mark.parametrize(
    "name", ["softmax", "attention", "layernorm", "linear_attention", "scaled"]
)
def test_the_best_way_is_that_of_all_settings(
    name: str, dtype: str, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    diagram = scaled if name == "scaled" else load(name)
    found = search(diagram, n, dtype).best
    monkeypatch.setattr(Search, "_most", lambda *_: float("inf"))
    every = search(diagram, n, dtype).best
    assert [(c.schedule, c.rank) for c in found] == [(c.schedule, c.rank) for c in every]


def test_only_what_has_no_parts_is_bound_by_a_rank_that_its_parts_may_undercut() -> None:
    """Of 2**20 keys and 1 query a labelling alone is slow, and its parts are the fastest."""
    attention = load("attention").with_sizes(q=1, x=2**20, d=128)
    ready, sizes = prepare(attention), attention.check_sizes({})
    made = Search("a", ready.outputs, ready.names, sizes, "bf16", machine("h100"))

    def bound(kernel: Kernel) -> bool:
        return made._most(kernel, 1.0) == 1.0

    assert {bound(k) for k in made.kernels} >= {False}
    assert all(bound(k) for k in made.kernels if why_not_cut(k))
    assert len(made.best) == 2


def test_a_rank_bounds_the_settings_that_are_looked_at() -> None:
    (k,) = nk.derive(load("matmul"), "h100").kernels
    own = k.choice.kernel, k.choice.sizes, "bf16", machine("h100")
    ranked = list(in_rank(unpriced(*own)))
    most = ranked[3].rank[0]
    found = list(unpriced(*own))
    assert [c.rank for c in in_rank(found, most)] == [c.rank for c in ranked if c.rank[0] <= most]
    assert not list(in_rank(found, ranked[0].rank[0] * 0.99))
    near = [p for u in found for p in u.parts]
    assert 0 < sum("parts" in vars(p) for p in near) < len(near)
