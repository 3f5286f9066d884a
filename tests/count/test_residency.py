"""What a group holds in registers at once."""

from typing import Any

import napkin as nk
from napkin.count.residency import chained, live_set, register_bytes, tile_bytes
from napkin.diagram.library import load


@nk.diagram("i d, d e, d e -> i e", sizes={"i": 65536, "d": 64, "e": 256})
def gated(X: Any, G: Any, P: Any) -> Any:
    return nk.sigmoid(nk.contract(X, G, over="d")) * nk.contract(X, P, over="d")


def test_results_of_products_that_meet_are_held_at_once() -> None:
    """Tiles in which each alone fits were spilled."""
    kernel = gated.group("i").group("e").kernel
    held, tiles = live_set(kernel), {"i": 128, "e": 128, "d": 64}
    assert held.together == ((("i", "e"), ("i", "e")),)
    both = 2 * 4 * 128 * 128
    assert register_bytes(held, tiles) >= both
    assert tile_bytes(held, tiles, 2) >= both
    for on in ("a100", "h100"):
        for k in nk.derive(gated, on=on, dtype="bf16").kernels:
            most = 4 * 255 * 32 * k.schedule.warps
            assert register_bytes(live_set(k.choice.kernel), k.tiles) <= most


@nk.diagram("x h, x c, h c -> h c, x c", sizes={"x": 8192, "h": 128, "c": 512})
def both_gradients(S: Any, C: Any, Q: Any) -> Any:
    """One product is added up, and one is stored in every iteration."""
    return nk.contract(S, C, over="x"), nk.contract(S, Q, over="h")


def test_a_product_that_an_iteration_stores_is_waited_for() -> None:
    """The loop of such a kernel was priced as one of sums alone: 419 us, and it took 1,039."""
    kernel = both_gradients.stream("x").group("c").kernel
    assert chained(kernel)
    assert not chained(kernel, stored=False)
    assert not chained(nk.derive(load("matmul")).kernels[0].choice.kernel)


@nk.diagram("x h, x c, h c, x c -> h c, x c", sizes={"x": 8192, "h": 128, "c": 512})
def beside_a_residual(S: Any, C: Any, Q: Any, B: Any) -> Any:
    return nk.contract(S, C, over="x"), B + nk.contract(S, Q, over="h")


def test_a_product_that_is_stored_with_something_added_is_waited_for() -> None:
    assert chained(beside_a_residual.stream("x").group("c").kernel)
