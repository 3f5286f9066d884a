"""The least bytes of a kernel that holds one set of arrays after another."""

from __future__ import annotations

from collections.abc import Mapping

import napkin as nk
from napkin.bound.least import for_memory
from napkin.diagram.library import load
from napkin.show.costs import cost_json
from napkin.show.levels import levels_json

SIZES: Mapping[str, int] = {a: 128 for a in "cdeijk"}


def test_sets_that_bind_together() -> None:
    plan = nk.derive(load("triangle_multiplication"), sizes=SIZES)
    levels = levels_json(plan, ("l2", "shared"))
    for k, data, outer in zip(plan.kernels, cost_json(plan)["kernels"], levels, strict=True):
        least = for_memory(k.byte_cost, k.choice.sizes, plan.machine.shared_per_block)
        assert least <= sum(k.bytes.values()) * (1 + 1e-9)
        assert data["at_sizes"]["H_least"] <= data["at_sizes"]["H"]
        inner = outer["levels"][-1]["optimum"]["bytes"]
        assert abs(sum(inner.values()) - least) <= 1e-3 * least
