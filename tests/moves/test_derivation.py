"""Derivations by hand: their moves, what they refuse, and what they cost."""

from __future__ import annotations

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


def test_what_a_second_pass_allows() -> None:
    with pytest.raises(nk.Refusal, match=r"read d once more \(passes=2\)"):
        load("layernorm").stream("d")
    made = load("layernorm").stream("d", passes=2).group("n")
    assert str(made.cost.H.per_tensor["X"]) == "2*d*n"


def test_sizes_of_what_is_cut() -> None:
    with pytest.raises(nk.Refusal, match=r"tile q is refused .* cut q first with group or stream"):
        attention.stream("x").tile(q=32)
    with pytest.raises(InputError, match="the size of x is 0"):
        attention.stream("x", 0)
    with pytest.raises(InputError, match="no axis 'k'"):
        attention.stream("x").tile(k=3)


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
