"""ACSR: which key sets are one progression for each row, and the storage that it gives."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk

LENGTH = 13

ONE_AXIS = [
    nk.neighborhood(3),
    nk.neighborhood(4, 2, 3),
    nk.neighborhood(5, 2, is_causal=True),
    nk.neighborhood(20, clip=True),
    nk.causal(),
    nk.sliding(3, 1),
    nk.sliding(4) & nk.causal(),
    nk.dilated(2, 1, 3),
    nk.blocked(4, 1),
    nk.sinks(3),
    nk.global_tokens(2),
    nk.sinks(2) | nk.sinks(4),
    nk.causal() | nk.sliding(2),
]

SEVERAL = [
    (nk.neighborhood((1, 3)), (6, 6)),
    (nk.neighborhood((3, 1), dilation=(2, 1)), (6, 4)),
    (nk.neighborhood((3, 6)), (6, 6)),  # whole lines: the next one begins where the last ends
    (nk.neighborhood((3, 3)), (3, 3)),
    (nk.neighborhood((6, 1, 1)), (6, 2, 2)),
]


def check(keys: nk.KeySet, layout: int | tuple[int, ...]) -> None:
    found, mask = keys.acsr(layout), keys.mask(layout)
    assert (found.rows, found.columns) == mask.shape
    assert [found.keys(r) for r in range(found.rows)] == [np.flatnonzero(m).tolist() for m in mask]
    assert found.width == mask.sum(1).max()


@pytest.mark.parametrize("keys", ONE_AXIS, ids=str)
def test_one_box_over_one_axis_is_a_progression(keys: nk.KeySet) -> None:
    check(keys, LENGTH)


@pytest.mark.parametrize(("keys", "layout"), SEVERAL, ids=str)
def test_several_axes_without_a_jump(keys: nk.KeySet, layout: tuple[int, ...]) -> None:
    check(keys, layout)


@pytest.mark.parametrize("keys", ONE_AXIS, ids=str)
def test_values_there_and_back(keys: nk.KeySet) -> None:
    dense, mask = np.random.default_rng(0).normal(size=(LENGTH, LENGTH)), keys.mask(LENGTH)
    found = keys.acsr(LENGTH)
    values = found.pack(dense, fill=-np.inf)
    assert values.shape == (LENGTH, found.width)
    assert np.isneginf(values).sum() == LENGTH * found.width - mask.sum()
    assert np.array_equal(found.unpack(values), np.where(mask, dense, 0.0))


def test_its_values_are_the_compressed_array() -> None:
    keys = nk.neighborhood(4, 2, is_causal=True)

    @nk.diagram("q x -> q w")
    def compressed(S):
        return nk.compress(S, keys, over="x", into="w")

    dense = np.random.default_rng(1).normal(size=(LENGTH, LENGTH))
    packed = keys.acsr(LENGTH).pack(dense, fill=-np.inf)
    assert np.array_equal(compressed.evaluate(dense), packed)


def test_no_row_of_a_plane_is_a_progression() -> None:
    keys, layout = nk.neighborhood((3, 3)), (6, 6)
    steps = [np.diff(np.flatnonzero(m)) for m in keys.mask(layout)]
    assert sum(len(set(s.tolist())) == 1 for s in steps) == 0  # 0 of 36 rows
    with pytest.raises(nk.Refusal) as caught:
        keys.acsr(layout)
    assert str(caught.value) == (
        "store as ACSR is refused at row 0 (query 0, 0) of neighborhood((3, 3)): its keys 0, 1, 2, "
        "6, 7, 8, 12, 13, 14 are no progression: they are 1 apart and then 4, and ACSR holds one "
        "first key, step and count for each flattened row; instead, keep the key axes apart with "
        "nk.compress"
    )


def test_the_first_row_that_fails_is_named() -> None:
    with pytest.raises(nk.Refusal) as caught:
        nk.neighborhood((2, 2), is_causal=True).acsr((4, 4))
    assert caught.value.place.startswith("row 5 (query 1, 1) of neighborhood((2, 2)")
    with pytest.raises(nk.Refusal) as caught:
        nk.strided(3).acsr(LENGTH)
    assert str(caught.value) == (
        "store as ACSR is refused at row 6 of strided(3): its keys 0, 3, 4, 5, 6 are no "
        "progression: they are 3 apart and then 1, and ACSR holds one first key, step and count "
        "for each flattened row; instead, give each box an array of its own"
    )


def test_the_layout_is_checked() -> None:
    with pytest.raises(nk.InputError, match="a window of 9 keys does not fit"):
        nk.neighborhood(9).acsr(8)
