"""Rules that are broken on purpose are found where they are applied, at points that are hard."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.algebra.law_points import points
from napkin.algebra.rule import LawError, agree
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import part as parts
from napkin.ir import behind
from napkin.ir.infer import pointwise
from napkin.ir.key_sets import Interval, box_member, position
from napkin.ir.node import Node, number
from napkin.ir.rewrite import substitute
from napkin.keys import visits
from napkin.keys.residues import Split
from napkin.rewrite import divide, together
from napkin.rewrite import split as apart


def streamed(d: nk.Diagram) -> Any:
    ready = prepare(d)
    return label("k", ready.outputs, ready.names, streamed="x")


@nk.diagram("q x, x v -> q v")
def attention(S: Any, V: Any) -> Any:
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


@nk.diagram("q x, q x -> q")
def quotient(X: Any, Y: Any) -> Any:
    return nk.reduce(X / (nk.reduce(Y * Y, "sum", over="x") + 1.0), "sum", over="x")


@nk.diagram("q x -> q")
def squared(S: Any) -> Any:
    P = nk.softmax(S, over="x")
    return nk.contract(P, P, over="x")


@nk.diagram("q x, x v -> q v")
def by_boxes(S: Any, V: Any) -> Any:
    keys = nk.global_tokens(2) | nk.sliding(2, 2)
    return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")


@nk.diagram("x -> p")
def pooled(X: Any) -> Any:
    taps = nk.slide(nk.exp(X), over="x", into="p w", padding=1, window=3)
    return nk.reduce(taps, "sum", over="w")


def test_states_of_many_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = streamed(attention)
    parts.parted(kernel, 3)
    sides = ("left", "right")  # as they are, brought to no maximum of both
    monkeypatch.setattr(parts, "_brought", lambda x, _: tuple(map(x.leaf, sides)))
    with pytest.raises(LawError, match="merge"):
        parts.parted(kernel, 3)


def test_states_of_one_part_after_another(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, joined = streamed(attention), parts.joined
    monkeypatch.setattr(parts, "_of_many", lambda *_: None)
    parts.parted(kernel, 3)
    monkeypatch.setattr(parts, "joined", lambda x, *_: joined(x, *_) if x.name == "m" else x)
    with pytest.raises(LawError, match="merge"):
        parts.parted(kernel, 3)


def test_a_product_by_a_reciprocal(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed(quotient)

    def upside_down(n: Node) -> Node:
        return pointwise("mul", (n.args[1], n.args[0].args[1])) if n.op == "mul" else n

    monkeypatch.setattr(divide, "quotients", upside_down)
    with pytest.raises(LawError, match="divide"):
        streamed(quotient)


def test_an_exponent(monkeypatch: pytest.MonkeyPatch) -> None:
    streamed(squared)
    grouped = together._by_coefficient
    monkeypatch.setattr(
        together, "_by_coefficient", lambda e: {2 * c: t for c, t in grouped(e).items()}
    )
    with pytest.raises(LawError, match="shift before it is scaled"):
        streamed(squared)


def test_a_mask_is_no_multiple_of_infinity() -> None:
    """In the exponent of a masked score stands inf where it is masked, and 0 elsewhere."""

    @nk.diagram("q n x, q:bool -> n x")
    def masked(S: Any, seen: Any) -> Any:
        weights = nk.softmax(nk.where(seen, S, -float("inf")), over="n")
        return nk.reduce(weights, "sum", over="q")

    ready = prepare(masked)
    for axis in "qnx":
        with suppress(nk.Refusal):
            label("k", ready.outputs, ready.names, streamed=axis)


def test_a_key_that_lies_in_two_boxes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert streamed(by_boxes).visits

    def in_its_box(self: visits.Visits, box: int) -> Node:
        return box_member(self.boxes[box], self.axes)

    monkeypatch.setattr(visits.Visits, "test", in_its_box)
    with pytest.raises(LawError, match="visit boxes"):
        assert streamed(by_boxes).visits


def test_padding_behind_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(pooled)
    monkeypatch.setattr(behind, "_keeps_zero", lambda _: True)
    with pytest.raises(LawError, match="'expand'"):
        prepare(pooled)


def test_the_last_residues_are_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows lie whole in the places of their residue: of 5 positions in steps of 2, 3 and 2."""

    @nk.diagram("q x -> q")
    def dilated(S: Any) -> Any:
        return nk.reduce(S, "logsumexp", over="x", keys=nk.neighborhood(3, dilation=2))

    ready, undilated = prepare(dilated), apart._undilated
    assert list(apart.split_terms(ready.outputs, ready.names))

    def as_long_as_the_first(i: Interval, pair: tuple[Split, Split]) -> Interval:
        found = undilated(i, pair)
        assert found is not None
        ends = [found.first, found.end]
        done = substitute(ends, {position(pair[0].residue): number(0)})
        return Interval(*(done[n] for n in ends))

    monkeypatch.setattr(apart, "_undilated", as_long_as_the_first)
    with pytest.raises(LawError, match="'split'"):
        list(apart.split_terms(ready.outputs, ready.names))


def test_an_output_may_have_the_name_of_a_split_axis_of_a_tensor() -> None:
    """S is read along its axis x under another name, whose residues are apart, and the output has
    an axis x, which is whole."""

    @nk.diagram("q x, y, x -> q x")
    def dilated(S: Any, V: Any, Y: Any) -> Any:
        keys = nk.neighborhood(3, dilation=2, queries="q", keys="y")
        return nk.contract(nk.rename(S, x="y"), V, over="y", keys=keys) * Y

    ready = prepare(dilated)
    (term,) = apart.split_terms(ready.outputs, ready.names)
    assert "x" in {s.axis for s in term.own}
    assert "x" in term.outputs[0].axes


def test_a_quotient_by_0_that_a_choice_cuts_off() -> None:
    """Another order of the terms may have NaN for it, and no other number; where nothing is divided
    by 0, NaN is an error."""

    @nk.diagram("q x:bool, q, q -> q")
    def chosen(K: Any, Z: Any, Y: Any) -> Any:
        return nk.reduce(nk.where(K & (Z > 9), Y / (Z - Z), 0.0), "sum", over="x")

    (term,) = (o.node for o in prepare(chosen).outputs)
    point = next(points([term], {}, (), True, False))
    (wanted,) = point.values([term])
    assert not wanted.any()
    assert agree(np.full_like(wanted, np.nan), wanted, point, term)
    assert not agree(np.ones_like(wanted), wanted, point, term)
    (other,) = (o.node for o in prepare(squared).outputs)
    point = next(points([other], {}, (), True, False))
    (wanted,) = point.values([other])
    assert not agree(np.full_like(wanted, np.nan), wanted, point, other)


def test_a_divisor_that_is_no_normal_float() -> None:
    """A product with its reciprocal is infinite where the quotient is a number."""

    @nk.diagram("x, x -> ()")
    def quotients(Y: Any, Z: Any) -> Any:
        return nk.reduce(Y / Z, "sum", over="x")

    (term,) = (o.node for o in prepare(quotients).outputs)
    point = next(points([term], {}, (), False, False))
    (wanted,) = point.values([term])
    assert not agree(np.full_like(wanted, np.inf), wanted, point, term)
    tiny = nk.diagram("x, x -> ()")(lambda Y, Z: nk.reduce((Y * 1e-310) / (Z * Z), "sum", over="x"))
    (term,) = (o.node for o in prepare(tiny).outputs)
    (wanted,) = point.values([term])
    assert agree(np.full_like(wanted, np.inf), wanted, point, term)
