"""`napkin check` on ranges, and on a file of inputs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

PAGE = """
import napkin as nk

@nk.diagram("n x, n -> n", sizes={"n": 8, "x": 24})
def grown(X, rate):
    return nk.reduce(X * nk.exp(rate * nk.index("x")), "sum", over="x")
"""


@pytest.fixture
def page(here: Path) -> Path:
    (here / "grown.py").write_text(PAGE)
    return here


def checked(napkin: Callable[..., Any], *how: str) -> Any:
    return napkin("check", "grown.py", "--sizes", "n=8,x=24", "--dtype", "fp32", *how)


def test_an_overflow_and_a_range(page: Path, napkin: Callable[..., Any]) -> None:
    found = checked(napkin, "--range", "rate=30..40", "--json")
    rows = json.loads(found.out)["values"]["rows"]
    assert found.status == 1
    assert {r["overflow"] for r in rows} != {""}
    assert "OVERFLOW" in checked(napkin, "--range", "rate=30..40").out
    good = checked(napkin, "--range", "rate=-0.5..0", "--json")
    assert (good.status, json.loads(good.out)["ok"]) == (0, True)


def test_a_file_of_inputs(page: Path, napkin: Callable[..., Any]) -> None:
    np.savez(page / "in.npz", X=np.ones((5, 24)), rate=np.zeros(5))
    found = napkin("check", "grown.py", "--dtype", "fp32", "--inputs", "in.npz", "--json")
    data = json.loads(found.out)
    assert (found.status, data["values"]["relative_error"]) == (0, 0.0)
    assert {r["counted"] for r in data["traffic"] if r["tensor"] == "X"} == {5 * 24 * 4}


def test_values_of_scalars(page: Path, napkin: Callable[..., Any]) -> None:
    (page / "scaled.py").write_text(
        "import napkin as nk\n\n"
        '@nk.diagram("x -> x", sizes={"x": 24})\n'
        "def scaled(X, s, t=2.0):\n    return X * s + t\n"
    )
    found = napkin("check", "scaled.py", "--scalars", "s=0.5,t=-1e1", "--json")
    assert (found.status, json.loads(found.out)["ok"]) == (0, True)
    for how, said in (
        ((), "scaled has no value for the scalar s; write --scalars s=1.0"),
        (("--scalars", "s=one"), "s='one' is no number; write --scalars scale=0.125"),
        (("--scalars", "s=1e999"), "s='1e999' is too large for a float64"),
        (("--scalars", "s=1,u=2"), "scaled has no scalar 'u'"),
        (("--gpu",), "write in the function, as its default, s=1.0"),
        (("--gpu", "--scalars", "s=1"), "leave --scalars out beside it"),
    ):
        found = napkin("check", "scaled.py", *how)
        assert (found.status, said in found.err) == (2, True), found.err


CASES = [
    (["--range", "rate=1"], "rate='1' is no range; write --range decay=0.9..1"),
    (["--range", "rate=a..b"], "rate='a..b' is no range"),
    (["--range", "rate=nan..1"], "is no range"),
    (["--range", "rate=0..1e999"], "both ends must be finite"),
    (["--range", "rate=1..0"], "runs backwards"),
    (["--range", "rate=0..1", "--range", "rate=0..1"], "rate is given twice"),
    (["--range", "rat=0..1"], "grown has no input 'rat'; did you mean 'rate'?"),
    (["--range", "rate"], "'rate' has no '='"),
    (["--inputs", "none.npz"], "--inputs none.npz cannot be read: No such file"),
    (["--inputs", "grown.py"], "it is no .npz file of numbers"),
    (["--inputs", "empty.npz"], "it is no .npz file of numbers"),
    (["--inputs", "."], "--inputs . cannot be read: Is a directory"),
    (["--inputs", "one.npy"], "one array has no name; save it with np.savez"),
    (["--inputs", "pickled.npz"], "it is no .npz file of numbers"),
    (["--inputs", "other.npz"], "axis n is 5 in X but 8 elsewhere"),
    (["--seed", "5"], "--seed goes with --gpu; without it, inputs are the same in every run"),
    (["--range", "rate=0..1", "--gpu"], "--gpu draws inputs of its own"),
]


@pytest.mark.parametrize(("how", "said"), CASES, ids=lambda x: " ".join(x)[:40])
def test_wrong_input(page: Path, napkin: Callable[..., Any], how: list[str], said: str) -> None:
    np.save(page / "one.npy", np.ones(3))
    (page / "empty.npz").write_bytes(b"")
    np.savez(page / "pickled.npz", X=np.array([{}], dtype=object))
    np.savez(page / "other.npz", X=np.ones((5, 24)))
    found = checked(napkin, *how)
    assert (found.status, found.out) == (2, "")
    assert said in found.err
    assert found.err.count("\n") == 1


@pytest.mark.parametrize(
    "how",
    [
        ("matmul", "--sizes", "a=16,b=8,c=16", "--parts", "b=2"),
        ("attention", "--sizes", "q=16,x=64,d=16", "--parts", "x=2"),
        ("gated_delta_rule", "--sizes", "t=8"),
    ],
)
def test_sizes_of_a_plan_whose_axes_are_cut(napkin: Callable[..., Any], how: list[str]) -> None:
    """In parts of a fold, and in blocks of a scan: axes that the diagram has not."""
    found = napkin("check", *how)
    assert found.status == 0
    assert "every prediction holds" in found.out
