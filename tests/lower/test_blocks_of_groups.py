"""Groups that are numbered in blocks: values at tiles of one position, too."""

from __future__ import annotations

from dataclasses import replace

import pytest

import napkin as nk


@nk.diagram("n a i, n b -> a b", sizes={"n": 16, "a": 6, "i": 16, "b": 32})
def cubes(X, V):
    S = nk.contract(X, V, over="n")
    return nk.contract(S, S, S, over="i")


@pytest.mark.parametrize("axes", [{"a": 1}, {"a": 1, "b": 16}, {"a": 2, "b": 16}])
def test_a_tile_of_one_position_has_its_place_in_blocks_of_groups(axes):
    plan = nk.derive(cubes, on="h100", dtype="fp32", materialise=[])
    (k,) = plan.kernels
    choice = k.choice.under(tiles={**k.tiles, **axes}, swizzle=4, persistent=0, described=0)
    plan = replace(plan, kernels=(replace(k, choice=choice),), specialised=False)
    plan.check(resources=False, sizes=plan.sizes).raise_if_wrong()
