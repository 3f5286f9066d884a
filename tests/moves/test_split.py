"""Axes split by residue, one move at a time."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dilated import LINE, PLANE, line, plane
from trails import replayed

import napkin as nk
from napkin.algebra.relabel import Labels
from napkin.errors import InputError, Refusal
from napkin.moves.derivation import Derivation


def test_a_split_is_a_move() -> None:
    diagram = plane(nk.neighborhood((5, 5), dilation=(2, 3), **PLANE), 64, 64)
    start = Derivation.start(diagram)
    made = start.split("y").split("x").stream("x_div_2 y_div_3").group(b_div_3=8)
    assert made.labels.split == (("b y", 3), ("a x", 2))
    assert [str(m).split(":")[0] for m in made.trail if m.rule == "split"] == [
        "split b y = 3", "split a x = 2",
    ]  # fmt: skip
    assert "b = 3 b_div_3 + b_mod_3 and y = 3 y_div_3 + b_mod_3" in str(made.trail)
    assert replayed(diagram, made.trail).trail == made.trail
    labels = made.trail.replay()
    assert labels == {diagram.name: made.labels}
    assert made.trail.invert(labels) == {diagram.name: Labels()}
    one = made.undo().undo().undo().undo()
    assert one.labels == replace(Labels(), expanded=made.labels.expanded, split=(("b y", 3),))
    assert one.stream("x y_div_3").kernel.stream.axes == ("x", "y_div_3")
    both = start.split()
    assert [m.argument for m in both.legal()][:3] == ["h", "a_div_2", "a_mod_2"]
    trail = nk.derive(line(nk.dilated(60, 30, 3, **LINE), 8192)).trail
    assert trail.invert(trail.replay()) == {"attention": Labels()}


def test_what_cannot_be_split_says_why() -> None:
    start = Derivation.start(line(nk.dilated(5, 3, 3, **LINE), 64))
    with pytest.raises(Refusal, match="split x is refused at attention: x is cut already"):
        start.stream("x").split("x")
    with pytest.raises(Refusal, match="split q is refused at attention: q is no key axis"):
        start.split("q")
    with pytest.raises(InputError, match=r"attention has no axis 'q'; known: .*q_div_3"):
        start.split("x").group("q")
    plain = Derivation.start(line(nk.sliding(5, 3, **LINE), 64))
    with pytest.raises(Refusal, match="split is refused at attention: no key set is dilated"):
        plain.split()
    union = Derivation.start(line(nk.strided(4, **LINE), 64))
    with pytest.raises(Refusal, match=r"split x .* queries see keys of other residues"):
        union.split("x")
