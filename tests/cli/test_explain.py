"""`napkin explain`: every step from a diagram to its source, and why other ways were dropped."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import napkin as nk
from napkin.algebra.tracer import times
from napkin.cut import ways
from napkin.diagram.library import load

PRODUCT = """
import napkin as nk
@nk.diagram("a b, b c -> a c", sizes={"a": 256, "b": 256, "c": 256})
def product(A, B):
    return nk.contract(A, B, over="b")
"""

CHAIN = """
import napkin as nk
@nk.diagram("a b, b c, c d -> a d", sizes={"a": 1024, "b": 1024, "c": 1024, "d": 1024})
def chain(A, B, C):
    return nk.contract(nk.maximum(nk.contract(A, B, over="b"), 0.0), C, over="c")
"""

TALL = """
import napkin as nk
@nk.diagram("a b -> a b")
def tall(X):
    return nk.sort(X, along="b")
"""


@pytest.fixture(scope="module")
def attention() -> str:
    """What is explained of attention."""
    from napkin.algebra.tracer import tracing
    from napkin.plan.explained import explained, explanation

    diagram = load("attention")
    with tracing() as tracer:
        plan = nk.derive(diagram)
    return explanation(explained(diagram, tracer, plan))


def after(text: str, line: str) -> str:
    """The text from a line on, up to an empty one."""
    return text[text.index(f"\n{line}\n") + 1 :].partition("\n\n")[0]


def test_attention_becomes_the_online_softmax(attention: str) -> None:
    step = after(attention, "step: stream (attention)")
    assert "law: fold(x (+) y) = step(fold(x), y) = merge(fold(x), fold(y))" in step
    assert "for each chunk of x:" in step
    assert "m = maximum(m_old, max(S, over x)) [q] from -3.40282e+38" in step
    assert "z = z_old * exp(m_old - m) + sum(exp(S - m), over x) [q] from 0; running" in step
    assert "O = O / where(z == 0, 1, z) [q d]" in step
    assert "move: separate z: exp(S - m) = [exp(S - m)]; running m" in step


def test_a_rewrite_has_its_rule_its_law_and_both_terms(attention: str) -> None:
    step = after(attention, "step: expand")
    assert "law: softmax, logsumexp, mean, renames and takes = what they stand for" in step
    old, _, new = step.partition("  after:\n")
    assert "softmax = softmax(S, over x) [q x]" in old
    assert "softmax" not in new
    assert "m = max(S, over x) [q]" in new


def test_labels_the_setting_and_the_source_close_it(attention: str) -> None:
    plan = nk.derive(load("attention"))
    tail = attention[attention.index("\nmove: stream x") :]
    tiles = plan.kernels[0].tiles
    assert f"move: tile q = {tiles['q']} (attention)" in tail
    assert "move: group q (attention)" in tail
    assert f"setting of attention: q={tiles['q']},x={tiles['x']}" in tail
    assert tail.endswith(f"source:\n\n{plan.source.rstrip()}\n")


def test_what_was_dropped_has_a_reason_and_the_time_of_the_winner(attention: str) -> None:
    lines = attention.splitlines()
    dropped = [i for i, line in enumerate(lines) if line.startswith("  dropped ")]
    assert dropped
    assert all(lines[i + 1].startswith("    because ") for i in dropped)
    assert "because stream d is refused at O: output O carries d and needs a reduction" in attention
    assert "because d x held whole is too much for a tile" in attention
    taken = nk.derive(load("attention")).seconds
    assert f"considered cut: Q_K, m, z, O fused: {times(taken)}\n" in attention
    most = times(ways.SAME * taken)
    assert f" us at least, where {most} is the most that pays\n" in attention


def test_after_a_rule_nothing_more_is_said(napkin: Callable[..., Any]) -> None:
    found = napkin("explain", "attention", "--after", "expand")
    assert (found.status, found.err) == (0, "")
    assert "step: expand" in found.out
    assert found.out.splitlines()[-1].startswith("move: expand softmax over x into max, exp, sum")
    assert "search:" not in found.out
    whole = napkin("explain", "attention", "--after", "separate").out
    assert whole.splitlines()[-1].startswith("move: separate O: ")
    assert "source:" not in whole


def test_a_rule_that_does_not_exist_is_an_error(napkin: Callable[..., Any]) -> None:
    found = napkin("explain", "attention", "--after", "seperate")
    assert (found.status, found.out) == (2, "")
    said = "napkin: --after 'seperate': no such rule; did you mean 'separate'? (known: expand, "
    assert found.err.startswith(said)


def test_a_rule_that_was_not_applied_is_an_error(napkin: Callable[..., Any], here: Path) -> None:
    (here / "mine.py").write_text(PRODUCT)
    found = napkin("explain", "mine.py:product", "--after", "expand")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith(
        "napkin: --after 'expand': no step here is of that rule; there are group, tile\n"
    )


def test_json_has_the_same_steps(napkin: Callable[..., Any], here: Path) -> None:
    (here / "mine.py").write_text(PRODUCT)
    text = napkin("explain", "mine.py:product").out
    found = napkin("explain", "mine.py:product", "--json")
    assert (found.status, found.err) == (0, "")
    data = json.loads(found.out)
    assert (data["name"], data["machine"], data["dtype"]) == ("product", "h100", "bf16")
    items = data["items"]
    kinds = [i["kind"] for i in items]
    assert (kinds[0], kinds[-1]) == ("diagram", "source")
    for kind in ("step", "move", "considered", "dropped"):
        assert text.count(f"{kind}: " if kind in {"step", "move"} else f"  {kind} ") == kinds.count(
            kind
        )
    assert all(i["why"] for i in items if i["kind"] == "dropped")
    assert all(i["law"] and i["rule"] for i in items if i["kind"] in {"step", "move"})


def test_two_kernels_say_why_they_are_cut(napkin: Callable[..., Any], here: Path) -> None:
    (here / "mine.py").write_text(CHAIN)
    items = json.loads(napkin("explain", "mine.py:chain", "--json").out)["items"]
    assert [i["kernel"] for i in items if i["kind"] == "setting"] == ["chain_larger", "chain"]
    assert "materialise larger [a c]" in [i["what"] for i in items if i["kind"] == "move"]
    (fused,) = (i for i in items if i["kind"] == "dropped" and i["what"] == "A_B, O fused")
    kept = next(i for i in items if i["what"] == "O alone, after the fastest way up to A_B")
    beside = f"{kept['time_us']:,.1f} us in 2 kernels"
    assert fused["why"].endswith(
        f" us in 1 kernel, and O alone, after the fastest way up to A_B: {beside}"
    )


def test_a_turned_sum_is_a_step_and_the_others_are_dropped(napkin: Callable[..., Any]) -> None:
    items = json.loads(napkin("explain", "linear_attention", "--json").out)["items"]
    assert next(i["rule"] for i in items if i["kind"] == "step") == "order contractions"
    terms = [i for i in items if i["kind"] == "dropped" and i["of"] == "term"]
    what = "sum(sum(Q * K, over d) * V, over x) in another order"
    left = next(i for i in terms if i["what"] == what)
    assert left["why"].startswith("of those found, 4 at most are priced")
    (before,) = (i for i in terms if i["what"] == "the term before")
    assert " us, and the best term takes " in before["why"]


def test_a_refusal_says_what_was_tried(napkin: Callable[..., Any], here: Path) -> None:
    (here / "mine.py").write_text(TALL)
    found = napkin("explain", "mine.py:tall", "--sizes", "a=8,b=1000000")
    assert found.status == 2
    assert found.err.startswith("napkin: derive tall for h100 is refused at ")
    assert "held whole is too much for a tile" in found.out
    assert "source:" not in found.out


def test_a_variable_traces_any_plan_on_stderr(
    monkeypatch: pytest.MonkeyPatch, napkin: Callable[..., Any], here: Path
) -> None:
    (here / "mine.py").write_text(PRODUCT)
    explained = napkin("explain", "mine.py:product").out
    plain = napkin("derive", "mine.py:product")
    assert plain.err == ""
    monkeypatch.setenv("NAPKIN_TRACE", "1")
    traced = napkin("derive", "mine.py:product")
    assert traced.out == plain.out
    assert traced.err == explained
