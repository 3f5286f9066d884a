"""`nk.training`: what is kept for a backward, by predicted time or memory."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.gradient.gradient import backward
from napkin.plan import keeping
from napkin.plan.derive import memo_of
from napkin.plan.keeping import Pairs


def test_b3_attention_keeps_its_output_and_two_numbers_for_each_query() -> None:
    """B2 is in it: of delta, a product of both outputs is left, and no pass over keys."""
    f = load("attention")
    pairs = Pairs(f, backward(f), f.check_sizes({}), memo_of("h100", "bf16"), "least")
    kept = pairs.best()
    assert [k.name for k in kept] == ["O", "m", "z"]
    assert pairs.bytes(*kept) == 8 * 4096
    made = pairs.chosen(kept)[1].predicted
    assert set(made.materialised.values()) == {("q",)}
    assert "dO_O = sum(dO * O, over d)" in str(made.diagram)
    assert "4*d*x + 2*d*q*x/g_x + 3*q*x/g_x values" in str(made)


def test_b7_softmax_keeps_its_result_and_does_not_read_its_input() -> None:
    made = nk.training(load("softmax"))
    assert made.kept == ("O",)
    assert made.bytes == 0
    assert [str(k.H.total) for k in made.backward.kernels] == ["3*n*x"]
    assert "X" not in made.backward.kernels[0].binding.values()


def test_b7_a_gain_s_gradient_comes_in_the_pass_that_reads_a_kept_number_for_each_row() -> None:
    f = load("rmsnorm")
    made = nk.training(f, keep=32768)
    without = nk.training(f, keep=0)
    assert not without.kept
    assert made.backward.seconds < 1.02 * without.backward.seconds
    (row,) = made.candidates
    assert abs(row.backward) < 0.05 * made.backward.seconds


def test_b9_cross_entropy_keeps_maximum_and_sum_and_reads_its_scores_once() -> None:
    made = nk.training(load("cross_entropy"))
    assert made.kept == ("m", "z")
    (kernel,) = made.backward.kernels
    assert str(kernel.H.per_tensor["L"]) == "n*v"
    assert str(kernel.H.per_tensor["dL"]) == "n*v"
    stored = {o.name: str(o.node.params[0]) for o in made.forward.diagram.outputs[1:]}
    assert stored == {"m": "fp32", "z": "fp32"}


def test_a_budget_of_bytes() -> None:
    f, sizes = load("cross_entropy"), {"n": 8192, "v": 32768}
    made = nk.training(f, keep=8 * 8192, sizes=sizes)
    assert made.kept == ("m", "z")
    less = nk.training(f, keep=8 * 8192 - 1, sizes=sizes)
    assert "z" not in less.kept
    assert less.seconds > made.seconds


def test_the_table() -> None:
    made = nk.training(load("cross_entropy"), sizes={"n": 64, "v": 512})
    lines = str(made).splitlines()
    assert lines[0] == "cross_entropy, trained on h100, keep=fastest"
    assert lines[2].split() == ["array", "bytes", "us", "to", "keep", "us", "to", "rebuild"]
    assert lines[3].startswith("m[n] fp32    256  ")
    assert lines[3].endswith(("kept", "rebuilt"))
    found = json.loads(json.dumps(made.to_json()))
    rows = [(row["array"], row["axes"], row["bytes"]) for row in found["candidates"]]
    assert rows == [("m", "n", 256), ("z", "n", 256)]
    assert found["kept"] == list(made.kept)
    assert {"forward", "backward", "time_us", "kept_bytes"} <= set(found)


def test_what_an_exponential_reads_a_multiple_of_is_kept_in_float32() -> None:
    """Rounded to bf16, a score of 60 is off by 1/8, and its weight by as much of itself."""
    made = nk.training(load("attention"), sizes={"q": 64, "x": 64, "d": 16})
    assert {c.name: c.dtype for c in made.candidates}["Q_K"] == "fp32"


def test_a_number_of_each_row_is_kept_in_float32_beside_an_output() -> None:
    """Rounded to bf16, a mean of 100 is off by 1/4, as much as is left of a difference from it."""

    @nk.diagram("n d -> n, n", sizes={"n": 32, "d": 256})
    def skewness(X: Any) -> Any:
        mean = nk.reduce(X, "mean", over="d")
        return nk.reduce((X - mean) ** 3, "mean", over="d"), mean

    made = nk.training(skewness, keep="fastest")
    assert {c.name: c.dtype for c in made.candidates if "mean" in c.name} == {"mean_exact": "fp32"}
    assert "mean" not in [str(n.params[0]) for n in made.backward.diagram.inputs]


def test_both_plans_hold() -> None:
    made = nk.training(load("softmax"), sizes={"n": 33, "x": 70}, dtype="fp32")
    for plan in (made.forward, made.backward):
        plan.check(resources=False).raise_if_wrong()


@pytest.mark.parametrize("keep", ["most", -1, True, 1.5])
def test_what_is_no_way_to_keep(keep: Any) -> None:
    with pytest.raises(nk.InputError, match="write 'fastest', 'least', or how many bytes may be"):
        nk.training(load("softmax"), keep=keep)


def test_what_has_no_gradient_is_refused() -> None:
    f = nk.diagram("n x -> n x", name="ordered")(lambda X: nk.sort(X, along="x"))
    with pytest.raises(nk.Refusal, match="gradient is refused at sort"):
        nk.training(f)


def test_no_more_arrays_are_looked_at_once_the_search_is_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The forward and the backward that keep outputs alone are searched for however long it is."""
    f = load("cross_entropy")
    monkeypatch.setattr(keeping, "PAIRS", 0)
    made = nk.training(f, sizes={"n": 64, "v": 512})
    assert made.bounded
    assert made.to_json()["bounded"]
    assert made.kept == ()
    lines = str(made).splitlines()
    assert [line.split()[-3:] for line in lines[3:5]] == [["-", "-", "rebuilt"]] * 2
    assert lines[5].startswith("the search is bounded: after the work of ")
    assert lines[5].endswith(" settings, no further arrays were looked at")
    monkeypatch.undo()
    assert not nk.training(f, sizes={"n": 64, "v": 512}).bounded


def test_results_of_scans_are_looked_at_first_and_then_small_arrays() -> None:
    def turns(name: str) -> list[str]:
        f = load(name)
        pairs = Pairs(f, backward(f), f.check_sizes({}), memo_of("h100", "bf16"), "fastest")
        return [k.name for k in sorted(pairs.keepable, key=pairs.turn)]

    assert turns("selective_scan") == ["H", "exp2", "exp", "step", "decay"]
    assert turns("softmax") == ["O", "z", "m"]


def test_a_backward_is_not_searched_for_where_its_forward_alone_takes_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    f = load("attention")
    pairs = Pairs(f, backward(f), f.check_sizes({}), memo_of("h100", "bf16"), "fastest")
    (wide,) = (k for k in pairs.keepable if k.name == "Q_K")
    now = pairs.forward((wide,))
    assert now is not None
    monkeypatch.setattr(pairs, "backward", lambda kept: pytest.fail("it was searched for"))
    assert pairs.rank((wide,), (now.predicted.seconds,)) == (math.inf, math.inf)
