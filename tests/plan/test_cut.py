"""Cuts: what is left underived because memory alone makes it too slow would never be taken."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.choose import Search, ranked
from napkin.plan.labelled import least_seconds
from napkin.plan.labels import labellings

NAMES = ("attention", "causal_attention", "layernorm_linear", "decode_attention", "longformer")


@pytest.mark.parametrize("name", NAMES)
def test_no_setting_undercuts_what_a_kernel_takes_at_least(name: str) -> None:
    """Of any labelling of the whole diagram as one kernel, in parts too."""
    (k, *others) = nk.derive(load(name), on="h100").kernels
    for planned in (k, *others):
        kernel, sizes = planned.choice.kernel, planned.choice.sizes
        terms = kernel.name, kernel.origin, kernel.names, sizes
        for labelled in [kernel] if kernel.part or kernel.merges else labellings(*terms):
            least = least_seconds(labelled, sizes, "bf16", planned.machine)
            found = list(ranked(labelled, sizes, "bf16", planned.machine))
            assert all(c.time.seconds >= least for c in found)
            assert not found or least > 0


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
    monkeypatch.setattr("napkin.plan.choose.least_seconds", lambda *_: 0.0)
    every = nk.derive(load(name), on="h100")
    assert few < len(searched)
    assert every.to_json() == some.to_json()
    assert every.source == some.source
