"""`napkin simulate`: what it prints, draws, and says to wrong input."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import napkin as nk

VIDEO = ("simulate", "30x48x80", "--kernel", "18x24x24")
TILES = ("--q-tile", "4x8x8", "--kv-tile", "2x8x8")


def test_json_is_that_of_the_function(napkin: Callable[..., Any]) -> None:
    given = ("--stride", "1x8x8", "--heads", "24", "--share", "0.6", "--kv-tiling", "dynamic")
    found = napkin(*VIDEO, *TILES, *given, "--json")
    assert (found.status, found.err) == (0, "")
    wanted = nk.simulate(
        (30, 48, 80), kernel_size=(18, 24, 24), stride=(1, 8, 8), q_tile=(4, 8, 8),
        kv_tile=(2, 8, 8), heads=24, share=0.6, kv_tiling="dynamic",
    )  # fmt: skip
    assert json.loads(found.out) == json.loads(json.dumps(wanted.to_json()))


def test_one_number_stands_for_every_axis(napkin: Callable[..., Any]) -> None:
    given = ("--dilation", "2", "--causal", "0x1", "--batch", "3", "--q-tile", "4")
    found = napkin("simulate", "16x24", "--kernel", "5", *given, "--kv-tile", "8x4", "--json")
    data = json.loads(found.out)
    assert (data["kernel_size"], data["dilation"], data["q_tile"]) == ([5, 5], [2, 2], [4, 4])
    assert (data["is_causal"], data["kv_tile"]) == ([False, True], [8, 4])


def test_table(napkin: Callable[..., Any]) -> None:
    found = napkin(*VIDEO, *TILES, "--share", "0.6")
    assert (found.status, found.err) == (0, "")
    lines = [" ".join(line.split()) for line in found.out.splitlines()]
    assert lines[0] == "30x48x80, window 18x24x24, static tiles 4x8x8 / 2x8x8"
    for line in (
        "speed-up bound 3.27x: 900 key tiles dense, 275 at worst",
        "speed-up, FLOP-wise 11.11x: tokens by keys of a window",
        "end to end 1.71x: attention is 60% of the run",
    ):
        assert line in lines
    counts = nk.simulate(
        (30, 48, 80), kernel_size=(18, 24, 24), q_tile=(4, 8, 8), kv_tile=(2, 8, 8)
    )
    assert f"pairs of tiles {counts.visited:,} visited" in lines
    assert any(line.startswith(f"full {counts.full:,} = ") for line in lines)


def test_sweep(napkin: Callable[..., Any]) -> None:
    found = napkin(*VIDEO, *TILES, "--sweep", "--top", "3")
    assert (found.status, found.err) == (0, "")
    rows = [line.split() for line in found.out.splitlines() if line[2:3].isdigit()]
    assert rows == [
        ["16x8x8", "4x8x8", "2x8x8", "11.11x", "11.11x", "81", "900", "100%"],
        ["2x8x8", "4x8x8", "2x8x8", "10.00x", "10.67x", "90", "900", "92%"],
        ["1x8x8", "4x8x8", "2x8x8", "9.09x", "10.26x", "99", "900", "85%"],
    ]
    assert "10,368 problems" in found.out
    shared = napkin(*VIDEO, *TILES, "--sweep", "--top", "1", "--share", "0.6").out
    assert {"end", "to"} <= set(shared.split())  # a narrow table breaks its heading
    assert shared.rstrip().endswith("2.20x")


def test_sweep_json(napkin: Callable[..., Any]) -> None:
    found = napkin(*VIDEO, "--sweep", "--stride", "2x8x8", "--json")
    data = json.loads(found.out)
    assert data["tried"] > 1000
    assert [r["stride"] for r in data["results"]] == [[2, 8, 8]]
    assert data["results"][0]["tiles_worst"] == 90


@pytest.mark.parametrize("more", [(), ("--sweep",)])
def test_plot(napkin: Callable[..., Any], here: Path, more: tuple[str, ...]) -> None:
    first = napkin(*VIDEO, *TILES, *more, "--plot", "a.svg")
    assert (first.status, first.err) == (0, "")
    assert first.out == napkin(*VIDEO, *TILES, *more).out
    text = (here / "a.svg").read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    napkin(*VIDEO, *TILES, *more, "--plot", "b.svg")
    assert (here / "b.svg").read_text() == text
    napkin(*VIDEO, *TILES, *more, "--plot", "c.png", "--json")
    assert (here / "c.png").read_bytes().startswith(b"\x89PNG")


def test_plot_without_matplotlib(
    napkin: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("matplotlib", "matplotlib.figure"):
        monkeypatch.setitem(sys.modules, name, None)
    found = napkin(*VIDEO, *TILES, "--plot", "a.svg")
    assert (found.status, found.out) == (2, "")
    assert found.err == (
        "napkin: --plot needs matplotlib, which is not installed; pip install 'napkin[report]'\n"
    )
    assert not list(here.iterdir())
    assert napkin(*VIDEO, *TILES).status == 0


CASES: list[tuple[list[str], str]] = [
    (["30x48y80", "--kernel", "3"], "LAYOUT '30x48y80': write whole numbers joined by x"),
    (["30x", "--kernel", "3"], "LAYOUT '30x': write whole numbers joined by x, one for every axis"),
    (["-8", "--kernel", "3"], "no such option: -8"),
    (["8", "--kernel", "2.5"], "--kernel '2.5': write whole numbers joined by x"),
    (["8", "--kernel", ""], "--kernel '': write whole numbers joined by x"),
    (["8"], "missing option '--kernel' (see napkin simulate --help)"),
    ([], "missing argument"),
    (["8", "--kernel", "9" * 40], "--kernel: a number of 40 digits is too large"),
    (["8", "--kernel", "3"], "simulate needs --q-tile, as in --q-tile 4x8x8; or --sweep"),
    (
        ["8", "--kernel", "3", "--q-tile", "2"],
        "simulate needs --kv-tile, as in --kv-tile 4x8x8; or --sweep",
    ),
    (
        ["8", "--kernel", "9", "--sweep"],
        "a window of 9 keys does not fit axis 0 of 8 tokens; write a kernel_size of at most 8",
    ),
    (["8", "--kernel", "3", "--stride", "4", "--sweep"], "stride 4 exceeds kernel_size 3"),
    (["8x8", "--kernel", "3x3x3", "--sweep"], "kernel_size names 3, there are 2 axes"),
    (["8", "--kernel", "3", "--causal", "2", "--sweep"], "is_causal=2 is not True or False"),
    (
        ["8", "--kernel", "3", "--kv-tiling", "dynamics", "--sweep"],
        "kv_tiling='dynamics' is unknown; did you mean 'dynamic'?",
    ),
    (["8", "--kernel", "3", "--share", "60", "--sweep"], "share=60.0 is not between 0 and 1"),
    (["8", "--kernel", "3", "--share", "most"], "invalid value for '--share'"),
    (["8", "--kernel", "3", "--sweep", "--top", "0"], "top=0 is not a whole number from 1"),
    (
        ["8", "--kernel", "3", "--q-tile", "2", "--kv-tile", "2", "--top", "3"],
        "--top goes with --sweep, which has several results",
    ),
    (["0", "--kernel", "1", "--sweep"], "layout=0 is not a whole number from 1"),
    (["99999999", "--kernel", "1", "--sweep"], "99999999 tokens is too long to look at every"),
    (
        ["8", "--kernel", "3", "--sweep", "--plot", "a.txt"],
        "--plot a.txt: the ending says what to write; known: svg, png, pdf",
    ),
    (
        ["8", "--kernel", "3", "--sweep", "--plot", "none/a.svg"],
        "none/a.svg cannot be written: No such file",
    ),
]


@pytest.mark.parametrize(("arguments", "said"), CASES, ids=lambda x: " ".join(x)[:60])
def test_wrong_input(
    here: Path, napkin: Callable[..., Any], arguments: list[str], said: str
) -> None:
    found = napkin("simulate", *arguments)
    assert found.err.startswith("napkin: ")
    assert said in found.err
    assert found.err.count("\n") == 1
    assert (found.status, found.out) == (2, "")
    assert not list(here.iterdir())


def test_it_imports_what_it_uses(command: list[str]) -> None:
    def imported(*arguments: str) -> set[str]:
        timed = [command[0], "-X", "importtime", *command[1:], *arguments]
        done = subprocess.run(timed, capture_output=True, text=True, timeout=60, check=True)
        rows = [row for row in done.stderr.splitlines() if row.startswith("import time:")]
        return {row.split("|")[-1].strip().split(".")[0] for row in rows}

    assert not imported("simulate", "--help") & {"numpy", "sympy", "rich", "matplotlib"}
    heavy = {"sympy", "rich", "matplotlib", "torch", "triton", "networkx"}
    assert not imported(*VIDEO, *TILES, "--json") & heavy
