"""The changes that may save most of the time of a cut are looked at first."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.cli.request import load
from napkin.cut import cut as cutting
from napkin.cut import rewritten
from napkin.cut.cut import cut
from napkin.cut.spent import Spent
from napkin.cut.ways import Cut
from napkin.derive.prepare import Prepared, prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.node import postorder
from napkin.moves.refactor import MOST, refactorings
from napkin.plan.derive import memo_of
from napkin.settings import effort

LIGHT = MOST + 2
SIZES = {"a": 64, "c": 64, "b": 8192, "d": 1024, "e": 1024}


@nk.diagram(f"{'a c, ' * LIGHT}b d, d e, b e -> , b")
def slow_at_last(*given: Any) -> Any:
    """Norms that take next to no time, and a form that takes nearly all of it in its own order."""
    *light, X, W, Y = given
    norms = [nk.reduce(A * A, "sum", over="a c") for A in light]
    return sum(norms[1:], norms[0]), nk.contract(X, W, Y, over="d e")


def cut_of(d: Diagram, sizes: dict[str, int] | None = None) -> tuple[Prepared, Cut]:
    ready = prepare(d)
    known = d.check_sizes(sizes or {})
    found = cut(d.name, ready.outputs, ready.names, known, memo_of("h200", "bf16"))
    assert found is not None
    return ready, found


@pytest.mark.parametrize("name", ["attention", "layernorm_gradient", "decode_attention", "mlp"])
def test_all_kernels_compute_some_term(name: str) -> None:
    """Those of parts and those that merge them, too."""
    ready, found = cut_of(load(name))
    spent = Spent(found, ready.outputs)
    every = list(postorder(o.node for o in ready.outputs))
    assert spent.computing(every) == pytest.approx(found.seconds)
    assert spent.computing(n for n in every if n.op == "input") == pytest.approx(found.seconds)
    assert spent.computing([]) == 0


def test_a_term_is_computed_by_the_kernels_that_do_not_read_it() -> None:
    @nk.diagram("b d, d e, e f -> b f")
    def two(X: Any, W: Any, V: Any) -> Any:
        return nk.contract(nk.softmax(nk.contract(X, W, over="d"), over="e"), V, over="e")

    ready, found = cut_of(two, {"b": 8192, "d": 2048, "e": 8192, "f": 2048})
    assert len(found.pieces) > 1
    spent = Spent(found, ready.outputs)
    every = postorder(o.node for o in ready.outputs)
    first, last = (n for n in every if n.op == "sum" and len(n.axes) == 2)
    result = ready.outputs[0].name
    of = {p.binding[o.name]: p.seconds for p in found.pieces for o in p.choice.kernel.outputs}
    assert spent.computing([last]) == of[result]
    assert 0 < spent.computing([first]) <= found.seconds - of[result]
    assert spent.computing([first, last]) <= found.seconds
    assert of[result] <= spent.taken_away(last, first) <= found.seconds
    # To compute `first` otherwise leaves the kernel as it is that reads it from memory.
    assert spent.taken_away(first, first.args[0]) == spent.computing([first])
    assert spent.taken_away(first, last) == 0


def test_rewrites_that_may_save_most_come_first() -> None:
    ready, found = cut_of(slow_at_last, SIZES)
    outputs = ready.outputs, ready.names, SIZES
    form = outputs[0][1].node
    assert form not in {r.at for r in refactorings(*outputs)}
    saved = Spent(found, ready.outputs).taken_away
    first = list(refactorings(*outputs, saved=saved))
    assert first[0].at is form
    took = [saved(r.at, r.made) for r in first if r.at is not form]
    assert took == sorted(took, reverse=True)
    assert len({r.at for r in first}) == MOST


def test_a_slow_term_after_many_others_is_rewritten() -> None:
    plan = nk.derive(slow_at_last, on="h200", sizes=SIZES)
    assert "refactor" in {m.rule for m in plan.trail}
    assert plan.check(sizes={"a": 3, "c": 5, "b": 7, "d": 17, "e": 5}).ok


@nk.diagram("h q d, x d, p, x v -> h q v")
def turned(Q: Any, K: Any, F: Any, V: Any) -> Any:
    """Attention by turned queries and keys, whose angles each group would compute again."""

    def turn(X: Any, place: str) -> Any:
        angle = nk.index(place) * nk.take(F, p=nk.index("d") % nk.size("p"))
        return nk.cos(angle) * X + nk.sin(angle) * nk.take(X, d=nk.size("d") - 1 - nk.index("d"))

    scores = nk.contract(turn(Q, "q"), turn(K, "x"), over="d")
    return nk.contract(nk.softmax(scores, over="x"), V, over="x")


def test_quick_cuts_store_operands_that_take_most_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A search in full, which may come to it too late, goes on from there."""
    sizes = {"h": 32, "q": 4096, "x": 4096, "d": 128, "p": 64, "v": 128}
    ready, known = prepare(turned), turned.check_sizes(sizes)

    def quick(before: Cut | None = None) -> Cut:
        memo = memo_of("h200", "bf16")
        on = turned.name, ready.outputs, ready.names, known, memo
        found = cut(*on, move="quick", before=before)
        assert found is not None
        return found

    kept = quick()
    assert len(kept.materialised) > 1
    monkeypatch.setattr(cutting, "COMPUTING", 1.1)
    alone = quick()
    assert not alone.materialised
    assert kept.seconds < 0.5 * alone.seconds
    # A form of a term whose cut stores operands is cut so at first, and one whose cut does not not.
    assert quick(before=kept).seconds == kept.seconds
    assert quick(before=alone).seconds == alone.seconds
    monkeypatch.undo()
    monkeypatch.setattr(rewritten, "LARGE", 0)
    monkeypatch.setattr(effort, "AS_IT_IS", 0)
    plan = nk.derive(turned, on="h200", sizes=sizes)
    assert plan.seconds <= kept.seconds
    assert plan.check(sizes={"h": 2, "q": 5, "x": 7, "d": 16, "p": 8, "v": 3}).ok
