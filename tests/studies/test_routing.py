"""Loads of experts against drawn ones, and layouts against the choices they are made from."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load


def drawn(r: nk.Routing, rng: np.random.Generator) -> np.ndarray:
    return np.array([rng.permutation(r.experts)[: r.chosen] for _ in range(r.tokens)])


def test_loads_are_those_of_drawn_choices() -> None:
    r, rng = nk.Routing(tokens=60, experts=16, chosen=2), np.random.default_rng(0)
    loads = np.array([np.bincount(drawn(r, rng).ravel(), minlength=r.experts) for _ in range(2000)])
    assert r.mean == loads.mean() == 7.5
    few = nk.Routing(tokens=8, experts=16, chosen=2)
    active = [len(np.unique(drawn(few, rng))) for _ in range(4000)]
    assert few.active == pytest.approx(16 * (1 - (7 / 8) ** 8))
    assert few.active == pytest.approx(np.mean(active), rel=0.01)
    assert r.busiest == pytest.approx(loads.max(1).mean(), rel=0.03)
    for slots in (6, 9, 12):
        wanted = np.maximum(loads - slots, 0).sum() / loads.sum()
        assert r.dropped(slots) == pytest.approx(wanted, rel=0.05)
    assert r.dropped(r.worst) == 0


def test_slots_are_the_fewest_that_do() -> None:
    r = nk.Routing(tokens=4096, experts=16, chosen=2)
    found = r.slots(0.001)
    assert r.dropped(found) <= 0.001 < r.dropped(found - 1)
    assert r.mean < found < r.worst
    assert nk.Routing(tokens=40, experts=4, chosen=2).slots(0.0) == 40
    # The shipped page has room for all but one choice in a thousand.
    sizes = load("mixture_of_experts").sizes
    assert nk.Routing(sizes["t"], sizes["e"], sizes["k"]).dropped(sizes["s"]) < 0.001


def test_every_token_goes_to_every_expert() -> None:
    r = nk.Routing(tokens=5, experts=3, chosen=3)
    assert (r.mean, r.active, r.busiest, r.slots(0.0)) == (5, 3, 5, 5)


def test_a_layout_gives_the_layer_of_its_choices() -> None:
    r, rng = nk.Routing(tokens=23, experts=5, chosen=2), np.random.default_rng(1)
    choices = drawn(r, rng)
    most = int(np.bincount(choices.ravel()).max())
    for slots in (most, most - 2):
        tokens, places = r.dispatch(choices, slots)
        for t, k in np.ndindex(*choices.shape):
            assert places[t, k] < 0 or tokens[choices[t, k], places[t, k]] == t
        assert (
            (tokens >= 0).sum()
            == (places >= 0).sum()
            == np.minimum(np.bincount(choices.ravel()), slots).sum()
        )
    X, U, W = rng.normal(size=(23, 6)), rng.normal(size=(5, 6, 7)), rng.normal(size=(5, 7, 4))
    G = rng.uniform(size=choices.shape)
    tokens, places = r.dispatch(choices, most)
    found = load("mixture_of_experts").evaluate(X, tokens, U, W, G, choices, places)
    one = nk.diagram("m, m f, f n -> n")(
        lambda x, u, w: nk.contract(nk.gelu(nk.contract(x, u, over="m")), w, over="f")
    )
    wanted = np.zeros_like(found)
    for (t, k), e in np.ndenumerate(choices):
        wanted[t] += G[t, k] * one.evaluate(X[t], U[e], W[e])
    np.testing.assert_allclose(found, wanted)


@pytest.mark.parametrize("rows", [1, 4, 64])
def test_blocks_give_the_layer_of_all_choices(rows: int) -> None:
    r, rng = nk.Routing(tokens=23, experts=5, chosen=2), np.random.default_rng(2)
    choices = drawn(r, rng)
    tokens, serving, block, row = r.packed(choices, rows)
    assert tokens.shape == (r.blocks(rows), rows)
    assert (tokens >= 0).sum() == choices.size
    np.testing.assert_array_equal(serving[block], choices)
    np.testing.assert_array_equal(tokens[block, row], np.arange(23)[:, None].repeat(2, 1))
    X, U, W = rng.normal(size=(23, 6)), rng.normal(size=(5, 6, 7)), rng.normal(size=(5, 7, 4))
    G = rng.uniform(size=choices.shape)
    found = load("grouped_experts").evaluate(X, tokens, serving, U, W, G, block, row)
    most = int(np.bincount(choices.ravel()).max())
    slots, places = r.dispatch(choices, most)
    wanted = load("mixture_of_experts").evaluate(X, slots, U, W, G, choices, places)
    np.testing.assert_allclose(found, wanted)


def test_blocks_suffice_however_choices_fall() -> None:
    for tokens, experts, chosen, rows in itertools.product((1, 3, 9), (2, 4), (1, 2), (1, 2, 4)):
        r = nk.Routing(tokens, experts, chosen)
        alike = np.tile(np.arange(chosen), (tokens, 1))
        spread = (alike + np.arange(tokens)[:, None]) % experts
        used = [len({*r.packed(c, rows)[2].ravel().tolist()}) for c in (alike, spread)]
        assert max(used) <= r.blocks(rows)
    assert nk.Routing(7, 4, 1).blocks(4) == 4  # 1, 1, 1 and 4 tokens
    assert nk.Routing(tokens=4096, experts=16, chosen=2).blocks(128) == 79


def test_what_is_no_routing() -> None:
    with pytest.raises(nk.InputError, match="chooses no more experts than there are"):
        nk.Routing(tokens=4, experts=2, chosen=3)
    r = nk.Routing(tokens=2, experts=2, chosen=1)
    with pytest.raises(nk.InputError, match=r"choices of shape \(1, 1\); write 2 x 1"):
        r.dispatch([[0]], 1)
    with pytest.raises(nk.InputError, match="not one of 0 to 1"):
        r.dispatch([[0], [2]], 1)
    with pytest.raises(nk.InputError, match="blocks of 0 rows; write a whole number from 1"):
        r.packed([[0], [1]], 0)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda r: type(r)(4.5, 2, 1), "tokens=4.5; write a whole number from 1"),
        (lambda r: type(r)(4, "2", 1), "experts='2'; write a whole number from 1"),
        (lambda r: r.dispatch([[0], [1]], -1), "-1 slots; write a whole number from 0"),
        (lambda r: r.dropped(1.5), "1.5 slots; write a whole number from 0"),
        (lambda r: r.slots(-1), "dropped=-1 is no share; write a number from 0 to 1"),
        (lambda r: r.blocks(0), "blocks of 0 rows; write a whole number from 1"),
        (lambda r: r.packed([[0], [1]], 1.5), "blocks of 1.5 rows; write a whole number from 1"),
        (lambda r: r.packed([[0.5], [1]], 4), "choices hold float64; write numbers of experts"),
        (lambda r: r.dispatch([["a"], ["b"]], 4), "choices hold <U1; write numbers of experts"),
        (lambda r: r.dispatch([[0], [0, 1]], 4), "tokens have different numbers of experts"),
        (lambda r: r.dispatch(np.zeros((2, 1), bool), 4), "choices hold bool; write numbers"),
    ],
)
def test_what_is_no_number_of_anything(call: Any, said: str) -> None:
    with pytest.raises(nk.InputError, match=said):
        call(nk.Routing(2, 2, 1))
