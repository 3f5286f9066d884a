"""Chunks read through tensor descriptors: the same values, whole boxes across the boundary."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk


@nk.diagram("q d, x d, x d -> q d")
def window(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S, over="x", keys=nk.neighborhood(9)), V, over="x")


def plan(dtype: str = "bf16", on: str = "h100") -> nk.Plan:
    return nk.derive(window, on=on, sizes={"q": 96, "x": 96, "d": 64}, dtype=dtype)


def test_values_and_bytes() -> None:
    made = plan()
    assert "K.load(" in made.source
    verdict = made.check(resources=False)
    assert verdict.ok, str(verdict)
    # Both ways of reading were run: boxes, some past the end, and addresses.
    moved = {r.case: r.counted for r in verdict.traffic if r.tensor == "K"}
    assert "boxes past the end" in moved
    assert "transposed" in moved


def test_boxes_and_addresses_move_different_bytes() -> None:
    # A box brings the keys beyond those that the set's test lets through.
    made = plan()
    (boxed,), (plain,) = made.kernels, made.without_descriptors().kernels
    assert boxed.bytes["K", "read"] > plain.bytes["K", "read"]
    assert boxed.bytes_at(made.sizes, boxed=False) == plain.bytes


def test_sizes_that_no_descriptor_serves() -> None:
    # Rows of 60 values are 120 bytes: not a multiple of 16.
    (k,) = plan().kernels
    sizes = {"q": 96, "x": 96, "d": 60}
    assert k.bytes_at(sizes) == k.bytes_at(sizes, boxed=False)
    assert k.bytes_at(sizes) != k.bytes_at(sizes, boxed=True)


@pytest.mark.parametrize(("dtype", "on"), [("fp32", "h100"), ("bf16", "a100")])
def test_where_there_are_none(dtype: str, on: str) -> None:
    assert "DESCRIPTORS" not in plan(dtype, on).source


def test_by_addresses_on_request() -> None:
    assert "DESCRIPTORS" not in plan().without_descriptors().source


@nk.diagram("n d, d, d m -> n m")
def scaled(X: Any, G: Any, W: Any) -> Any:
    return nk.contract(X, G, W, over="d")


def test_factors_of_an_operand_are_read_by_addresses() -> None:
    made = nk.derive(scaled, on="h100", sizes={"n": 512, "d": 2048, "m": 512})
    tensors = {str(leaf.params[0]) for k in made.kernels for leaf in k.program.boxes}
    assert tensors == {"W"}
    verdict = made.check()
    assert verdict.ok, str(verdict)


def lying_across(keys: nk.KeySet) -> nk.Plan:
    """Attention whose keys lie along the last axis of K, and which visits them by a key set."""

    @nk.diagram("q d, d x, x d -> q d")
    def attend(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return nk.derive(
        attend, on="h100", sizes={"q": 4096, "x": 4096, "d": 64}, dtype="bf16", materialise=()
    )


@pytest.mark.parametrize(
    ("keys", "served"),
    [
        (nk.causal(), True),
        (nk.blocked(64, 1, 0), True),
        (nk.blocked(64, 0, 0), True),
        (nk.blocked(6, 0, 0), False),
        (nk.sliding(64, 0), False),
        (nk.sinks(4) | nk.blocked(64, 0, 0), False),
    ],
    ids=str,
)
def test_boxes_begin_at_multiples_of_16_bytes(keys: nk.KeySet, served: bool) -> None:
    """The hardware takes no other box, and a visit may begin at any key."""
    made = lying_across(keys)
    assert ("K.load(" in made.source) == served
    small = {"q": 96, "x": 96, "d": 64}
    made.check(sizes=small, resources=False).raise_if_wrong()


def test_a_box_holds_keys_past_the_end_of_a_prefix() -> None:
    """Where every key of the window follows the sinks in their chunk, it counts once: a descriptor
    reads it there as it lies in memory, and loads by addresses read 0."""

    @nk.diagram("q d, x d, x d -> q d", name="sunk")
    def sunk(Q: Any, K: Any, V: Any) -> Any:
        keys = nk.sinks(4, queries="q", keys="x") | nk.sliding(1000, 0, queries="q", keys="x")
        S = nk.contract(Q, K, over="d") * 0.1
        return nk.contract(S * S, V, over="x", keys=keys)

    made = nk.derive(sunk, "h100", {"q": 8192, "x": 8192, "d": 64}, "bf16")
    assert "V.load(" in made.source
    made.check(sizes={"q": 96, "x": 96, "d": 64}, resources=False).raise_if_wrong()
