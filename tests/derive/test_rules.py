"""Rules that are applied keep their laws, and one that does not is told from rounding."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import napkin as nk
from napkin.algebra import rule as rules
from napkin.algebra.rule import Instance, LawError, Rule, between
from napkin.derive.prepare import exact, prepare
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.ir.infer import along, pointwise
from napkin.ir.names import with_named
from napkin.ir.node import Node, node, number
from napkin.moves.refactor import refactorings
from napkin.settings.labels import labellings


def leaf(name: str, axes: str, kind: Any = "real") -> Node:
    return node("input", params=(name,), axes=axes.split(), kind=kind)


def of(op: str, *args: Node) -> Node:
    return pointwise(op, args)


def held(before: Node, after: Node, name: str = "tried", *, infinite: bool = False) -> None:
    """Apply a rule that says that both are equal."""
    found = Instance("here", after, between([before], [after]))
    rule = Rule(name, "a = b", lambda: [found], infinite=infinite)
    for instance in rule.matches():
        assert rule.apply(instance) is after


X, W, R = leaf("X", "n x"), leaf("W", "n x"), leaf("R", "n")


def total(x: Node) -> Node:
    return along("sum", x, ("x",))


def mean() -> Node:
    return of("div", total(of("mul", W, X)), total(W))


def squares() -> Node:
    t = of("sub", X, mean())
    return total(of("mul", W, of("mul", t, t)))


def multiplied_out() -> Node:
    wx, m = of("mul", W, X), mean()
    first, second = total(of("mul", wx, X)), of("mul", of("mul", m, m), total(W))
    return of("sub", first, second)


def overflowing() -> Node:
    top = along("max", X, ("x",), (float("-inf"),))
    return of("mul", of("exp", of("neg", top)), total(of("exp", X)))


def shifted() -> Node:
    top = along("max", X, ("x",), (float("-inf"),))
    return total(of("exp", of("sub", X, top)))


WRONG: dict[str, tuple[Node, Node]] = {
    "a factor lost": (total(of("mul", X, X)), total(X)),
    "a square multiplied out": (squares(), multiplied_out()),
    "an exponential that overflows": (shifted(), overflowing()),
    "a maximum of a multiple that may be negative": (
        along("max", of("mul", X, R), ("x",), (float("-inf"),)),
        of("mul", along("max", X, ("x",), (float("-inf"),)), R),
    ),
    "the start of a reduction over nothing": (
        along("max", of("add", X, R), ("x",), (0.0,)),
        of("add", along("max", X, ("x",), (0.0,)), R),
    ),
    "a count": (total(of("mul", R, of("add", number(1.0), of("mul", X, number(0.0))))), R),
    "a small constant": (total(X), of("add", total(X), number(1e-9))),
}

RIGHT: dict[str, tuple[Node, Node]] = {
    "a factor that comes out": (total(of("mul", X, R)), of("mul", R, total(X))),
    "a sum in another order": (total(of("add", X, W)), of("add", total(W), total(X))),
    "nothing": (total(of("sub", X, X)), total(of("mul", X, number(0.0)))),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_law_that_fails_is_an_error(name: str) -> None:
    before, after = WRONG[name]
    with pytest.raises(LawError, match=r"rule 'tried' broke its law, a = b(.|\n)*at .*values"):
        held(before, after)


@pytest.mark.parametrize("name", RIGHT)
def test_what_only_rounds_is_none(name: str) -> None:
    before, after = RIGHT[name]
    held(before, after)


def test_infinities_count_where_a_rule_claims_them() -> None:
    """0 * inf is NaN on the right, and on the left nobody multiplies."""
    seen = of("greater", W, number(0.0))
    before = total(of("where", seen, X, number(0.0)))
    after = total(of("mul", X, of("where", seen, number(1.0), number(0.0))))
    held(before, after, "finite")
    with pytest.raises(LawError):
        held(before, after, "infinite", infinite=True)


@nk.diagram("q d, x d, x v -> q v")
def everything(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d")
    weights = nk.softmax(S, over="x")
    m = nk.contract(weights, V, over="x")
    return nk.contract(weights, (V - m) ** 2, over="x") + nk.contract(S**2, V, over="x")


def dilated() -> Diagram:
    @nk.diagram("q d, x d, x v -> q v")
    def made(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d")
        keys = nk.neighborhood(3, dilation=2)
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return made


def test_every_rule_that_a_plan_applies_is_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = set[str]()
    hold = rules._hold

    def noted(rule: Rule, *args: Any) -> None:
        seen.add(rule.name)
        hold(rule, *args)

    monkeypatch.setattr(rules, "_hold", noted)
    monkeypatch.setattr(rules, "_HELD", set())
    sizes = {"q": 64, "x": 64, "d": 16, "v": 16}
    for diagram in (everything, dilated(), load("l1_attention")):
        ready = prepare(diagram)
        for term in (
            exact(ready, "fp16", sizes),
            ready,
            *refactorings(ready.outputs, ready.names, sizes),
        ):
            known = with_named(sizes, getattr(term, "same_size", {}))
            list(labellings("k", term.outputs, term.names, known))
    assert {"expand", "order contractions", "keep scores exact", "separate"} <= seen
    assert "split" in seen


def test_a_broken_rule_is_found_where_it_is_applied(monkeypatch: pytest.MonkeyPatch) -> None:
    """Axes are summed where another factor carries them, too."""
    from napkin.rewrite import order

    def carried(self: Any, made: Any) -> tuple[str, ...]:
        return tuple(a for a in self.gone if a in made.axes)

    monkeypatch.setattr(order._Opened, "_private", carried)
    ready = prepare(everything)
    with pytest.raises(LawError, match="order contractions"):
        list(refactorings(ready.outputs, ready.names, {"q": 4, "x": 4, "d": 4, "v": 4}))


def test_the_environment_turns_it_on() -> None:
    code = "from napkin.algebra.rule import VERIFYING; print(VERIFYING)"
    for value, wanted in (("1", "True"), ("0", "False"), ("", "False")):
        env = {**os.environ, "NAPKIN_VERIFY": value}
        found = subprocess.run(
            [sys.executable, "-c", code], env=env, capture_output=True, text=True
        )
        assert found.stdout.strip() == wanted, found.stderr
