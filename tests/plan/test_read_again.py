"""What is computed without a reduction and then read at computed addresses is stored before."""

from collections.abc import Callable
from typing import Literal

import numpy as np
import pytest

import napkin as nk
from napkin.plan.derive import Searched, frugal, memo_of, searched

SIZES = {"q": 6, "c": 2, "k": 6}
SEEN = nk.sliding(1, queries="q", keys="k")


@nk.diagram("q c -> p k w", sizes=SIZES | {"p": 5, "w": 2})
def slid(x: nk.Array):
    return nk.slide(nk.spread(x, SEEN, over="c"), over="q", into="p w", window=2)


@nk.diagram("q c, q k -> p k w", sizes=SIZES | {"p": 5, "w": 2})
def weighted(x: nk.Array, y: nk.Array):
    return nk.slide(nk.spread(x, SEEN, over="c") * y, over="q", into="p w", window=2)


@nk.diagram("q c, p -> q p, q k", sizes=SIZES | {"p": 3})
def taken(x: nk.Array, y: nk.Array):
    t = nk.spread(x, SEEN, over="c")
    return nk.take(t, k=nk.index("p")) * y, t


@nk.diagram("i c -> q k w", sizes=SIZES | {"i": 7, "w": 2})
def windows(x: nk.Array):
    return nk.spread(nk.slide(x, over="i", into="q w", window=2), SEEN, over="c")


@nk.diagram("q c d -> q k m", sizes=SIZES | {"d": 2, "m": 6})
def twice(x: nk.Array):
    t = nk.sigmoid(nk.spread(x, SEEN, over="c"))
    return nk.spread(t, nk.sliding(1, queries="q", keys="m"), over="d")


@nk.diagram("q c -> p k w", sizes=SIZES | {"p": 5, "w": 2})
def summed(x: nk.Array):
    t = nk.slide(nk.spread(nk.softmax(x, over="c"), SEEN, over="c"), over="q", into="p w", window=2)
    return t * nk.reduce(t, "sum", over="p")


@pytest.mark.parametrize("diagram", [slid, weighted, taken, windows, twice, summed])
def test_a_reading_at_computed_addresses_is_stored_before_it_is_read_again(diagram: nk.Diagram):
    plan = nk.derive(diagram, dtype="fp32")
    rng = np.random.default_rng(0)
    data = [rng.standard_normal([diagram.sizes[a] for a in n.axes]) for n in diagram.inputs]
    found, wanted = plan(*data), diagram.evaluate(*data)
    many = isinstance(found, tuple)
    for a, b in zip(found if many else (found,), wanted if many else (wanted,), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6)


@nk.diagram("q c, k c -> q s, p k", sizes=SIZES | {"s": 3, "p": 6})
def compressed(x: nk.Array, y: nk.Array):
    t = nk.contract(x, y, over="c")
    kept = nk.compress(t, nk.neighborhood(3, queries="q", keys="k"), into="s")
    return nk.softmax(kept, over="s"), nk.rename(t, q="p")


def test_a_cast_that_is_read_under_other_names_is_stored_first() -> None:
    """A softmax of what is compressed has it stored in float32, and that is renamed."""
    plan = nk.derive(compressed, dtype="bf16")
    rng = np.random.default_rng(0)
    data = [
        rng.integers(-2, 3, [SIZES[a] for a in n.axes]).astype(float) for n in compressed.inputs
    ]
    for found, wanted in zip(plan(*data), compressed.evaluate(*data), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-2, atol=1e-3)


@nk.diagram("q k, k -> q", sizes={"q": 6, "k": 6})
def chosen(x: nk.Array, y: nk.Array):
    weights = nk.softmax(nk.compress(x, SEEN, into="s"), over="s")
    return nk.take(nk.spread(weights, SEEN, over="s"), k=nk.argmax(y, over="k"))


@nk.diagram("q -> ()", sizes={"q": 6})
def furthest(x: nk.Array):
    t = x - nk.reduce(x, "mean", over="q")
    return nk.take(t, q=nk.argmax(t, over="q"))


@pytest.mark.parametrize("stored", [None, "every"])
@pytest.mark.parametrize("diagram", [chosen, furthest])
def test_what_is_read_at_a_position_that_is_found_later_is_stored_by_then(
    diagram: nk.Diagram, stored: Literal["every"] | None
) -> None:
    plan = nk.derive(diagram, dtype="fp32", materialise=stored)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal([diagram.sizes[a] for a in n.axes]) for n in diagram.inputs]
    np.testing.assert_allclose(plan(*data), diagram.evaluate(*data), rtol=1e-6)


@nk.diagram("q c, k c, k -> q, q", sizes={"q": 64, "k": 64, "c": 4})
def brightest(x: nk.Array, y: nk.Array, z: nk.Array):
    t = nk.sigmoid(nk.contract(x, y, over="c"))
    return nk.take(t, k=nk.argmax(z, over="k")), nk.reduce(t, "max", over="k")


@pytest.mark.parametrize("search", [searched, frugal])
def test_what_is_read_at_a_position_is_stored_where_its_sum_is_computed_again(
    search: Callable[..., Searched],
) -> None:
    """The sum is smaller to compute again than to read; and it should not lie in memory."""
    plan = search(brightest, brightest.sizes, memo_of("h100", "fp32")).fitted()
    rng = np.random.default_rng(0)
    data = [rng.standard_normal([brightest.sizes[a] for a in n.axes]) for n in brightest.inputs]
    for found, wanted in zip(plan(*data), brightest.evaluate(*data), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
