"""Plans of windows that share no position."""

from __future__ import annotations

from typing import Any

import napkin as nk


@nk.diagram("n c i, o c u -> n p o", sizes={"n": 64, "c": 4, "i": 4096, "u": 16, "o": 256})
def patches(X: Any, W: Any) -> Any:
    """Patches of 16 as tokens."""
    return nk.contract(nk.slide(X, over="i", into="p u", stride=16), W, over="c u")


def test_taps_are_depth_of_a_product() -> None:
    """Taps one by one would have a depth of c = 4 values, and a matrix instruction takes 16."""
    plan = nk.derive(patches)
    (kernel,) = plan.kernels
    tiles = kernel.choice.schedule.tiles
    assert tiles["u"] == 16
    assert kernel.choice.kernel.taps == frozenset()
    assert "tl.dot" in plan.source


def test_bytes_and_values_past_the_last_window() -> None:
    plan = nk.derive(patches, sizes={"n": 4, "i": 160, "u": 8, "o": 32})
    sizes = {"n": 3, "c": 4, "o": 20, "i": 155, "u": 5}
    plan.check(sizes=sizes).raise_if_wrong()
