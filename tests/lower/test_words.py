"""Key sets as words, a bit for every position of a chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import napkin as nk
from napkin.plan.plan import Plan


def test_words_of_key_axes_with_dimensions_of_their_own(forced: Callable[..., Plan]) -> None:
    """A factor that carries one key axis alone keeps the other in a dimension of its own."""

    @nk.diagram("i j h, x k a, k -> i j a h")
    def near(Z: Any, K: Any, W: Any):
        seen = nk.neighborhood((2, 2), stride=(1, 2), queries="i j", keys="x k")
        return nk.contract(Z * W, K, over="x k", keys=seen)

    sizes = {"i": 5, "j": 4, "h": 3, "x": 5, "k": 4, "a": 3}
    plan = forced(near, sizes, "x k", {"x": 4, "k": 2})
    assert "place = " in plan.source
    rng = np.random.default_rng(0)
    data = [rng.normal(size=[sizes[a] for a in n.axes]) for n in near.inputs]
    np.testing.assert_allclose(plan(*data), near.evaluate(*data), rtol=1e-5, atol=1e-5)
