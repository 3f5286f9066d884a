"""What a stream that a key set governs reads of padded windows: no value of the padding."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.count.window_images import pairs


@nk.diagram("b c, x -> x", sizes={"b": 40, "c": 37, "x": 37})
def by_both(D: Any, E: Any) -> Any:
    windows = nk.slide(D, over="b", into="p w", window=3, padding=2)
    return nk.contract(windows, E, over="c p w", keys=nk.causal("x", "c"))


@nk.diagram("b c, x -> p x", sizes={"b": 35, "c": 37, "x": 5})
def queries_are_windows(D: Any, E: Any) -> Any:
    windows = nk.slide(D, over="b", into="p w", window=3, padding=2)
    return nk.contract(windows, E, over="c w", keys=nk.causal("p", "c"))


@nk.diagram("b c, x -> c x", sizes={"b": 70, "c": 36, "x": 5})
def keys_are_windows(D: Any, E: Any) -> Any:
    windows = nk.slide(D, over="b", into="p w", window=3, padding=2, stride=2)
    return nk.contract(windows, E, over="p w", keys=nk.causal("c", "p"))


@nk.diagram("b c, x -> c x", sizes={"b": 70, "c": 37, "x": 3})
def keys_are_taps(D: Any, E: Any) -> Any:
    windows = nk.slide(D, over="b", into="p w", window=3, padding=2, dilation=2)
    return nk.contract(windows, E, over="p w", keys=nk.causal("x", "w"))


@nk.diagram("b c, x -> p x", sizes={"b": 30, "c": 7, "x": 3})
def windows_see_taps(D: Any, E: Any) -> Any:
    windows = nk.slide(D, over="b", into="p w", window=5, padding=3)
    return nk.contract(windows, E, over="c w", keys=nk.sliding(2, 1, "p", "w", at=nk.index("p")))


@nk.diagram("b c, x -> w x", sizes={"b": 70, "c": 7, "x": 3})
def taps_see_windows(D: Any, E: Any) -> Any:
    windows = nk.slide(D, over="b", into="p w", window=9, padding=4)
    return nk.contract(
        windows, E, over="c p", keys=nk.sliding(3, 8, "w", "p", at=nk.index("w") + 20)
    )


@nk.diagram("b c, x -> p x", sizes={"b": 30, "c": 7, "x": 3})
def some_see_nothing(D: Any, E: Any) -> Any:
    windows = nk.slide(D, over="b", into="p w", window=5, padding=3)
    keys = nk.sliding(1, 2, "p", "w", at=nk.index("p") - 20)
    return nk.contract(windows, E, over="c w", keys=keys)


@nk.diagram("b c, x -> x", sizes={"b": 30, "c": 7, "x": 40})
def others_see_nothing(D: Any, E: Any) -> Any:
    windows = nk.slide(D, over="b", into="p w", window=5, padding=3)
    keys = nk.sliding(1, 2, "x", "p", at=2 * nk.index("x") - 20)
    return nk.contract(windows, E, over="c w p", keys=keys)


ALL = [
    some_see_nothing,
    others_see_nothing,
    by_both,
    queries_are_windows,
    keys_are_windows,
    keys_are_taps,
    windows_see_taps,
    taps_see_windows,
]


@pytest.mark.parametrize("diagram", ALL, ids=lambda d: d.name)
def test_values_and_bytes(diagram: nk.Diagram) -> None:
    nk.derive(diagram, dtype="fp32").check(resources=False).raise_if_wrong()


def test_each_long_axis_is_counted_once_in_a_search() -> None:
    """A search asks for the same pairs at hundreds of settings of tiles."""
    pairs.cache_clear()
    nk.derive(by_both, sizes={"b": 2**18, "c": 64, "x": 64}, dtype="fp32")
    found = pairs.cache_info()
    assert found.misses <= 16 < found.hits
