"""What the queries of tiles see together, of tiles that are made of smaller ones."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from napkin.ir.key_sets import Interval
from napkin.ir.storage import leaf
from napkin.keys.hulls import coarser, hull

FIRST, END = (leaf(name, ("q", "r"), "int") for name in "FE")


@given(
    sizes=st.fixed_dictionaries({a: st.integers(1, 40) for a in "qr"}),
    fine=st.fixed_dictionaries({a: st.sampled_from((1, 2, 4)) for a in "qr"}),
    by=st.fixed_dictionaries({a: st.sampled_from((1, 2, 8)) for a in "qr"}),
    seed=st.integers(0, 2**32 - 1),
)
def test_tiles_of_smaller_tiles_see_what_these_see(
    sizes: dict[str, int], fine: dict[str, int], by: dict[str, int], seed: int
) -> None:
    """Also the last ones, which are ragged, and whatever the bounds are."""
    rng = np.random.default_rng(seed)
    bind = {n: rng.integers(-9, 50, (sizes["q"], sizes["r"])) for n in (FIRST, END)}
    keys = Interval(FIRST, END)
    wanted = hull(keys, sizes, {a: n * by[a] for a, n in fine.items()}, bind)
    found = coarser(hull(keys, sizes, fine, bind), by)
    for part in ("first", "end", "inner_first", "inner_end"):
        np.testing.assert_array_equal(getattr(found, part), getattr(wanted, part))
