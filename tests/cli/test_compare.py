"""`napkin cost --compare`: strategies beside the least there is."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from napkin.bound.least import for_memory
from napkin.diagram.library import load
from napkin.studies.strategies import compare

SIZES = ("--sizes", "q=8192,x=8192,d=128", "--dtype", "fp16")


def test_unfused_against_fused_attention(napkin: Callable[..., Any]) -> None:
    """Fact 36 of the derivation: 2.73e8 values without fusion, 4.61e7 with it, 5.9 times."""
    given = ("cost", "attention", *SIZES, "--compare", "naive,unfused,fused", "--json")
    data = json.loads(napkin(*given).out)
    naive, unfused, fused = data["strategies"]
    n, d = 8192, 128
    states = 8 * n  # the maximum, in float32, and the sum of each row, written and read
    assert unfused["once"] / 2 == 2 * n * d + 2 * n * d + 4 * n * n + states
    assert unfused["once_values"] == "2*d*q + 2*d*x + 4*q*x + 5*q"
    assert unfused["once"] / 2 == pytest.approx(2.73e8, rel=2e-3)
    plan = compare(load("attention"), sizes=data["sizes"], dtype="fp16").plan
    (kernel,) = plan.kernels
    least = for_memory(kernel.byte_cost, kernel.choice.sizes, data["memory"], chunk=64)
    group = data["memory"] / 2 / (2 * d) - 64
    assert group == pytest.approx(390)
    assert least / 2 == pytest.approx(4.61e7, rel=2e-3)
    assert unfused["once"] / least == pytest.approx(5.9, abs=0.02)
    # the optimum has chunks as short as can be: 2qd + 4xqd^2/M values
    assert data["optimum"] == fused["least"]
    assert data["optimum"] / 2 == pytest.approx(2 * n * d + 4 * n * n * d**2 / (data["memory"] / 2))
    assert data["compulsory"] == 2 * 4 * n * d
    assert fused["over_optimum"] == pytest.approx(fused["moved"] / data["optimum"])
    assert fused["moved"] < unfused["moved"] < naive["moved"]
    assert fused["seconds"] < unfused["seconds"] < naive["seconds"]
    assert (fused["kernels"], unfused["kernels"], naive["kernels"]) == (1, 4, 4)
    assert (fused["workspace"], fused["at_least"], naive["at_least"]) == (0, False, True)
    # scores, maxima and sums are alive together
    assert unfused["workspace"] == 2 * (n * n + 3 * n)
    # each score reads a row and a column, each result a row of weights, its maximum and its sum
    # and a column of values; a maximum counts twice, as it is stored in float32
    scores, results = n * n * (2 * d + 1), n * d * (2 * n + 3 + 1)
    rows = (n * n + 2 * n) + (n * n + 3 * n)
    assert naive["moved"] / 2 == scores + rows + results


def test_a_single_product_has_nothing_to_fuse(napkin: Callable[..., Any]) -> None:
    given = ("cost", "matmul", "--compare", "unfused,fused,naive", "--json")
    data = json.loads(napkin(*given).out)
    unfused, fused, naive = data["strategies"]
    a, b, c = (data["sizes"][axis] for axis in "abc")
    assert {k: v for k, v in unfused.items() if k != "strategy"} == {
        k: v for k, v in fused.items() if k != "strategy"
    }
    assert naive["moved"] == 2 * (2 * a * b * c + a * c)
    assert data["optimum"] / 2 == pytest.approx(
        2 * a * b * c / (data["memory"] / 2) ** 0.5 + a * c, rel=1e-6
    )


@pytest.mark.parametrize("name", ["causal_attention", "layernorm_linear", "cross_entropy"])
def test_what_is_least_is_least(name: str) -> None:
    found = compare(load(name))
    for s in found.strategies:
        assert s.moved >= s.once >= found.compulsory
        assert s.least is None or (found.optimum is not None and s.least >= found.optimum)
        assert found.optimum is None or s.moved >= found.optimum >= found.compulsory
    assert [s.name for s in found.strategies] == ["fused", "unfused", "naive"]


def test_the_table_says_what_its_words_mean(napkin: Callable[..., Any], here: Path) -> None:
    found = napkin("cost", "attention", *SIZES, "--compare", "fused,unfused", "--csv", "rows.csv")
    assert found.status == 0
    shown = " ".join(found.out.split())
    assert "unfused: every reduction is a kernel of its own" in shown
    assert "unfused: 2*d*q + 2*d*x + 4*q*x + 5*q values" in shown
    assert "compulsory: every input read once" in shown
    assert "naive" not in shown
    with (here / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [r["strategy"] for r in rows] == ["fused", "unfused"]
    assert rows[0]["compulsory"] == str(2 * 4 * 8192 * 128)


def test_no_optimum_is_said(napkin: Callable[..., Any]) -> None:
    shown = " ".join(napkin("cost", "document_attention", "--compare", "fused").out.split())
    said = "how many values of x a group visits (visited_x) is in no closed form."
    assert f"There is no optimum in symbols: kernel document_attention: {said}" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--compare", "fusd"), "--compare: no strategy 'fusd'; did you mean 'fused'?"),
        (("--compare", ""), "no strategy ''; known: fused, unfused, naive"),
        (("--compare", "fused,fused"), "fused is given twice; write it once"),
        (("--compare", "fused", "--levels"), "--levels and --compare are tables of their own"),
        (("--compare", "fused", "--csv", "rows.txt"), "the file's name ends in .csv"),
        (("--csv", "rows.csv"), "--csv goes with"),
    ],
)
def test_wrong_input(napkin: Callable[..., Any], arguments: tuple[str, ...], message: str) -> None:
    found = napkin("cost", "attention", *arguments)
    assert (found.status, found.out) == (2, "")
    assert message in found.err


def test_a_plan_that_is_not_the_fastest_is_said(napkin: Callable[..., Any]) -> None:
    """Whether a diagram has such a plan is for the time model to say; the line follows from it."""
    for name in ("attention", "layernorm_linear"):
        given = ("cost", name, "--compare", "unfused,fused")
        unfused, fused = json.loads(napkin(*given, "--json").out)["strategies"]
        shown = " ".join(napkin(*given).out.split())
        slower = unfused["seconds"] < fused["seconds"]
        assert ("Here unfused is predicted to be faster than the plan" in shown) == slower


def test_a_kernel_that_holds_more_than_shared_memory_is_said(
    napkin: Callable[..., Any], here: Path
) -> None:
    """Two rows of 16,000 values stay in registers, where M counts four of them."""
    (here / "kl.py").write_text(
        "import napkin as nk\n"
        "@nk.diagram('n v, n v -> n', sizes=dict(n=4096, v=16000))\n"
        "def kl(P, Q):\n"
        "    p = P - nk.reduce(P, 'logsumexp', over='v')\n"
        "    q = Q - nk.reduce(Q, 'logsumexp', over='v')\n"
        "    return nk.reduce(nk.exp(p) * (p - q), 'sum', over='v')\n"
    )
    given = ("cost", str(here / "kl.py"), "--compare", "fused", "--on", "rtx4090")
    found = json.loads(napkin(*given, "--json").out)
    (fused,) = found["strategies"]
    below = fused["moved"] < found["optimum"]
    shown = " ".join(napkin(*given).out.split())
    assert ("fused moves less than the optimum: a kernel holds more than" in shown) == below
    assert below
