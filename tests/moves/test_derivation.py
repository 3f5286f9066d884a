"""Derivations by hand: their moves, what they refuse, and what they cost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from fold_law import assert_law
from trails import replayed

import napkin as nk
from napkin.algebra.relabel import Labels
from napkin.derive.label import reduced
from napkin.diagram.library import load, names
from napkin.errors import InputError
from napkin.moves.derivation import Derivation

attention = load("attention")


def rules(d: Derivation) -> list[str]:
    return [m.rule for m in d.trail]


def test_costs() -> None:
    made = attention.stream("x").group("q")
    assert str(made.H) == "2*d*q + 2*d*q*x/g_q"
    assert str(made.M) == "2*d*g_q + 2*d*s_x"
    assert str(made.bound) == "2*d*q + 4*d**2*q*x/M"
    assert [str(t.beta) for t in made.terms] == ["0", "1"]
    assert str(made.cost.flops) == "4*d*q*x"


def test_trail_and_undo() -> None:
    made = attention.stream("x", 64, hold=["z"]).group(q=128).tile(q=32)
    assert made.labels.tiles == {"q": 32, "x": 64}
    assert rules(made) == [
        "expand", "hold", "stream", "separate", "separate", "tile", "group", "tile", "tile",
    ]  # fmt: skip
    assert made.undo().labels.tiles == {"q": 128, "x": 64}
    back = made.undo().undo().undo()
    assert back.labels == Labels(
        expanded=made.labels.expanded, stream="x", chunk=(("x", 64),), hold=("z",)
    )
    assert rules(back.undo()) == ["expand", "hold", "stream", "separate", "separate"]
    nothing = back.undo().undo()
    assert (nothing.labels, len(nothing.trail)) == (Labels(), 0)
    assert nothing.undo().labels == Labels()
    assert replayed(attention, made.trail).trail == made.trail
    assert rules(nothing.group("q").stream("x")) == [
        "expand", "group", "stream", "separate", "separate",
    ]  # fmt: skip


def test_holding_one_name_or_several() -> None:
    one, same = attention.stream("x", hold="z"), attention.stream("x", hold=["z"])
    assert one.labels == same.labels
    assert [s.name for s in one.kernel.stream.states] == ["m", "z", "r", "O"]
    with pytest.raises(
        InputError, match=r"hold 'Z': no reduction over x has that name; known: m, z, O"
    ):
        attention.stream("x", hold=["Z"])
    with pytest.raises(InputError, match="hold 5: no reduction over x has that name; known: m, z"):
        attention.stream("x", hold=5)  # pyright: ignore
    with pytest.raises(InputError, match=r"has no axis \['q'\]; known: q, d, x"):
        attention.group(["q"])  # pyright: ignore


def test_what_a_second_pass_allows() -> None:
    with pytest.raises(nk.Refusal, match=r"read d once more \(passes=2\)"):
        load("layernorm").stream("d")
    made = load("layernorm").stream("d", passes=2).group("n")
    assert str(made.cost.H.per_tensor["X"]) == "2*d*n"


def test_sizes_of_what_is_cut() -> None:
    with pytest.raises(nk.Refusal, match=r"tile q is refused .* cut q first with group or stream"):
        attention.stream("x").tile(q=32)
    with pytest.raises(InputError, match="tile: x=0 is not a whole number from 1"):
        attention.stream("x", 0)
    with pytest.raises(InputError, match="no axis 'k'"):
        attention.stream("x").tile(k=3)


def test_a_chunk_of_steps_is_one_position() -> None:
    @nk.diagram("x n -> x n")
    def largest(B: nk.Array) -> nk.Array:
        return nk.scan(lambda h: nk.maximum(h, B), -1.0, along="x")

    start = Derivation.start(largest)
    said = "tile x=4 is refused at largest: a scan takes one position of x after another"
    with pytest.raises(nk.Refusal, match=said):
        start.stream("x", chunk=4)
    assert start.stream("x", chunk=1).labels.tiles == {"x": 1}


@pytest.mark.parametrize("name", names())
def test_every_legal_stream_keeps_its_law(name: str) -> None:
    diagram = load(name)
    start = Derivation.start(diagram)
    for axis in reduced(start.prepared.outputs):
        for passes in (1, 2, 3):
            try:
                kernel = start.stream(axis, passes=passes).kernel
            except nk.Refusal:
                continue
            assert_law(kernel, trials=3, lengths=(1, 2, 3), scalars=diagram.scalars)
            break


def test_an_axis_is_cut_once() -> None:
    with pytest.raises(nk.Refusal, match=r"group q is refused .* q is streamed already"):
        attention.stream("q").group(q=8)
    with pytest.raises(nk.Refusal, match=r"stream q is refused .* q is grouped already"):
        attention.group("q").stream("q", 8)
    assert attention.stream("q").undo().group(q=8).labels.tiles == {"q": 8}


@pytest.mark.parametrize(
    ("axis", "more", "said"),
    [
        ("", {}, r"stream\(''\) cuts no axis"),
        ("x x", {}, "axis 'x' stands twice"),
        (5, {}, r"stream\(5\): axes are named"),
        ("x", {"passes": 0}, "stream: passes=0 is not a whole number from 1"),
        ("x", {"passes": "2"}, "stream: passes='2' is not a whole number"),
        ("x", {"pair": -1}, "stream: pair=-1 is not a whole number from 0"),
    ],
)
def test_what_no_stream_is(axis: Any, more: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        attention.stream(axis, **more)


def test_sizes_may_be_whole_numbers_of_numpy() -> None:
    made = attention.stream("x", np.int64(64), passes=np.int64(1)).group(q=np.int32(8))
    assert made.labels.tiles == {"q": 8, "x": 64}
    assert made.trail == attention.stream("x", 64).group(q=8).trail


def test_a_pair_is_taken_back_with_its_stream() -> None:
    start = load("gated_linear_attention")
    made = start.stream("t", pair=16)
    assert made.labels.pair == (("t", 16),)
    assert made.undo().labels == Labels()
    assert start.stream(" t ", pair=16).trail == made.trail
