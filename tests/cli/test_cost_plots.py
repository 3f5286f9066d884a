"""`napkin cost --plot`: SVG files, and what they are drawn from."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.show.cost_plots import plot_plan, traffic_terms
from napkin.show.plans import heading
from napkin.studies.landscape import landscape

MATMUL = ("cost", "matmul", "--sizes", "a=512,b=512,c=512")


@pytest.mark.parametrize(
    ("arguments", "files"),
    [
        ((), {"traffic_matmul", "roofline_matmul", "tiles_matmul"}),
        (("--compare", "naive,fused"), {"strategies_matmul"}),
        (("--against", "a100,h100"), {"machines_matmul"}),
    ],
)
def test_plots(
    napkin: Callable[..., Any], here: Path, arguments: tuple[str, ...], files: set[str]
) -> None:
    pytest.importorskip("matplotlib")
    found = napkin(*MATMUL, *arguments, "--plot", "plots")
    assert found.status == 0
    assert "Drawn in plots:" in found.out
    made = {f.stem: f for f in (here / "plots").iterdir()}
    assert set(made) == files
    for file in made.values():
        assert ElementTree.parse(file).getroot().tag.endswith("svg")
    before = {name: f.read_bytes() for name, f in made.items()}
    assert napkin(*MATMUL, *arguments, "--plot", "plots", "--json").status == 0
    assert {name: f.read_bytes() for name, f in made.items()} == before


def test_a_plot_of_a_sweep(napkin: Callable[..., Any], here: Path) -> None:
    pytest.importorskip("matplotlib")
    found = napkin("cost", "softmax", "--sweep", "n=64..256", "--plot", "plots")
    assert found.status == 0
    text = (here / "plots" / "time_softmax.svg").read_text()
    for words in ("predicted", "inputs and outputs once from DRAM", "microseconds", ">128<"):
        assert words in text


def test_the_exponents_of_traffic() -> None:
    # So deep that b is streamed: of 256 values a group is predicted to be faster with all at once.
    (kernel,) = nk.derive(
        load("matmul"), sizes={"a": 512, "b": 4096, "c": 128}, parts={"b": 1}
    ).kernels
    assert kernel.choice.kernel.stream.axes == ("b",)
    assert sorted(traffic_terms(kernel), key=lambda t: t[1]) == [
        (512 * 128, 0.0),
        (2 * 512 * 4096 * 128, 0.5),
    ]


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("matmul", {"a": 1024, "b": 1024, "c": 1024}),
        # what reads tokens at computed places has no persistent instances, which would be faster
        ("mixture_of_experts", {}),
    ],
)
def test_the_plan_is_the_lowest_of_its_landscape(name: str, sizes: dict[str, int]) -> None:
    kernel = nk.derive(load(name), sizes=sizes).kernels[0]
    found = landscape(kernel)
    assert found is not None
    assert found.chosen == tuple(kernel.tiles[a] for a in found.axes)
    assert found.seconds[found.chosen] == kernel.choice.time.seconds
    # of settings that take about as long, the plan has the one with the larger chunk
    assert min(found.seconds.values()) == pytest.approx(kernel.choice.time.seconds, rel=0.02)


def test_kernels_that_run_in_place_of_others_have_a_roofline(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan = nk.derive(load("attention"), sizes={"q": 16384, "x": 16384})
    (fast,) = plan.launched.kernels
    assert "roofline_attention_warpgroups.svg" in plot_plan(tmp_path, plan)
    text = (tmp_path / "roofline_attention_warpgroups.svg").read_text()
    assert f"kernel attention, {fast.schedule.side} of attention on h100" in text


def test_a_long_title_takes_several_lines(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    plan = nk.derive(load("mixture_of_experts"))
    drawn = plot_plan(tmp_path, plan)
    text = (tmp_path / "roofline_mixture_of_experts_H.svg").read_text()
    assert "roofline_mixture_of_experts_H.svg" in drawn
    assert f"mixture_of_experts_H of {heading(plan)}" not in text
    lines = re.findall(r"<text[^>]*>([^<]*mixture_of_experts_H of [^<]*)</text>", text)
    assert [len(line) <= 90 for line in lines] == [True]


@nk.diagram("n x -> n x", sizes={"n": 64, "x": 64})
def without_operations(A: nk.Array) -> nk.Array:
    return nk.sort(A, "x")


@nk.diagram("n, () -> n", sizes={"n": 1024})
def with_a_term_of_one_axis(A: nk.Array, s: nk.Array) -> nk.Array:
    return A * s


@pytest.mark.parametrize("diagram", [without_operations, with_a_term_of_one_axis])
def test_plots_of_small_kernels(tmp_path: Path, diagram: nk.Diagram) -> None:
    pytest.importorskip("matplotlib")
    plan = nk.derive(diagram)
    assert f"roofline_{diagram.name}.svg" in plot_plan(tmp_path, plan)
    assert all(isinstance(alpha, float) for alpha, _ in traffic_terms(plan.kernels[0]))


def test_matplotlib_is_missing(
    napkin: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    found = napkin(*MATMUL, "--plot", "plots")
    assert (found.status, found.out) == (2, "")
    assert "--plot needs matplotlib, which is not installed; pip install" in found.err
    assert not (here / "plots").exists()


def test_a_folder_that_is_a_file(napkin: Callable[..., Any], here: Path) -> None:
    pytest.importorskip("matplotlib")
    (here / "plots").write_text("")
    found = napkin(*MATMUL, "--plot", "plots")
    assert (found.status, found.out) == (2, "")
    assert "plots cannot be written" in found.err
    found = napkin(*MATMUL, "--levels", "--plot", "elsewhere")
    assert found.status == 2
    assert "--plot goes with every table but that of --levels" in found.err
