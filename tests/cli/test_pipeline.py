"""napkin pipeline: what it prints, and what it says to input that is wrong."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

PAPER = (
    "pipeline", "attention", "--storage", "Q=fp8,K=fp8", "--computed", "fp16",
    "--tiles", "q=128,x=64", "--cut", "O_x.d=32,O.d=8",
)  # fmt: skip


def test_json(napkin: Callable[..., Any]) -> None:
    found = napkin(*PAPER, "--json")
    assert (found.status, found.err) == (0, "")
    data = json.loads(found.out)
    assert (data["name"], data["machine"], data["team"]) == ("attention", "h100", "warpgroup")
    assert (data["teams"], data["group"]) == (3, 384)
    shared, registers = data["levels"]
    assert (shared["block_bytes"], shared["team_bytes"]) == (48 * 1024, 48 * 1024)
    assert (registers["team_bytes"], registers["thread_bytes"]) == (76544, 598)
    for level in (shared, registers):
        for owner in ("block", "team"):
            assert sum(x["bytes"] for x in level[owner]) == level[f"{owner}_bytes"]
    (loop,) = data["loops"]
    assert loop["pipes"] == {"tensor": 6, "fma_fp16": 1.0078125, "special": 4.0625}
    assert [round(b["least"]) for b in loop["bandwidth"]] == [295, 82]
    body, _ = data["blocks"]
    assert [s["name"] for s in body["steps"] if s["level"] == "tensor"] == ["Q_K", "O_x"]
    assert body["columns"][0] == ["m", "Q", "K", "z", "O", "V"]
    assert sorted(body["columns"][-1]) == ["O'", "m'", "z'"]
    assert data["remark"] == ""


def test_tables_say_what_figures_are_from(napkin: Callable[..., Any]) -> None:
    found = napkin(*PAPER, "--overhead", "2/3")
    assert (found.status, found.err) == (0, "")
    for line in (
        "O_x = sum(V * p, over x)  [tensor cores, 32 of d at once]",
        "N <= 3.73 = (232,448 - 49,152) / 49,152 B",
        "N <= 3.42 = (262,144 - 0) / 76,544 B",
        "N = 3 warpgroups (threads allow 8): g_q = 3 x 128 = 384",
        "ideal: 1,319 TFLOP/s = 32,768 / 6 clk of tensor x 132 SMs x 1.83 GHz",
        "24,576 B x 132 SMs / 3.35 TB/s / (6 clk / 1.83 GHz)",
        "not an independent prediction",
    ):
        assert " ".join(line.split()) in " ".join(found.out.split())
    plain = napkin(*PAPER)
    assert "independent" not in plain.out


def test_plot(napkin: Callable[..., Any], tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = tmp_path / "turns.svg"
    assert napkin(*PAPER, "--plot", str(path)).status == 0
    text = path.read_text()
    assert "warpgroup 3" in text
    again = tmp_path / "again.svg"
    napkin(*PAPER, "--plot", str(again))
    assert again.read_text() == text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("softmax",), "it has no matrix product"),
        (("attention", "--tiles", "q=100"), "q=100 is not a multiple of 128"),
        (("attention", "--tiles", "k=64"), "attention has no 'k' to set"),
        (("attention", "--cut", "O_x=32"), "--cut: 'O_x' is not ARRAY.AXIS; write --cut O_x.d=32"),
        (("attention", "--cut", "O_x.d"), "--cut: 'O_x.d' has no '='; write --cut O_x.d=32"),
        (("attention", "--cut", "O_x.d=8,O_x.d=4"), "--cut: O_x.d is given twice"),
        (("attention", "--cut", "O_x.d=0"), "--cut: O_x.d=0 is too small"),
        (("attention", "--storage", "Q"), "--storage: 'Q' has no '='"),
        (("attention", "--storage", "Q=fp8,Q=fp16"), "--storage: Q is given twice"),
        (("attention", "--storage", "X=fp8"), "attention has no 'X' to set"),
        (("attention", "--overhead", "two"), "--overhead 'two': write a number from 0"),
        (("attention", "--overhead", "1/0"), "--overhead '1/0': write a number from 0"),
        (("attention", "--stream", "q"), "instead, stream another axis than q"),
        (("attention", "--stream", "x x"), "stream: axis 'x' stands twice in 'x x'"),
        (("attention", "--dtype", "int4"), "machine 'h100' has no compute pipe 'tensor_int4'"),
        (("attention", "--computed", "fp8"), "in registers in fp8; write one of fp32, fp16, bf16"),
        (("attention", "--stream", "z"), "attention has no axis 'z'"),
        (("attention", "--on", "a100", "--storage", "K=fp8,Q=fp8"), "no compute pipe 'tensor_fp8'"),
        (("attention", "--plot", "turns.txt"), "the ending says what to write"),
        (("attention", "--draw", "turns.txt"), "--draw turns.txt: the drawing's name ends in .svg"),
        (
            ("attention", "--draw", "turns.svg", "--plot", "turns.svg"),
            "--plot and --draw both name turns.svg; name two files",
        ),
        (("attention", "--dtype", "bf17"), "dtype: no type 'bf17'; did you mean 'bf16'?"),
        (("attention", "--computed", "bf17"), "computed: no type 'bf17'; did"),
        (("attention", "--storage", "K=bf17"), "storage of K: no type 'bf17'; did"),
        (("mlp",), "take a smaller chunk of f, or stream d, of which 4096 are held"),
        (("attention", "--on", "b200"), "compute O_x in pieces of d, or take a smaller chunk of x"),
        (("attention", "--tiles", "x=4096"), "of shared for each chunk of x, and may have 232,448"),
    ],
)
def test_what_is_wrong(napkin: Callable[..., Any], given: tuple[str, ...], said: str) -> None:
    found = napkin("pipeline", *given)
    assert (found.status, found.out) == (2, "")
    assert said in found.err


def test_values_that_share_a_byte(napkin: Callable[..., Any]) -> None:
    found = napkin("pipeline", "attention", "--storage", "K=int4", "--json")
    assert found.status == 0
    held = {v["name"]: v for v in json.loads(found.out)["blocks"][0]["variables"]}
    assert held["K"]["item_bytes"] == 0.5
    assert held["K"]["bytes"] == held["K"]["values"] // 2
    assert "needs 1,048,576 B of shared" in napkin("pipeline", "matmul_w4a16").err


def test_draw(napkin: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "body.svg"
    assert napkin(*PAPER, "--draw", str(path)).status == 0
    drawing = ElementTree.fromstring(path.read_text())
    words = {"".join(e.itertext()) for e in drawing.iter() if e.tag.endswith("text")}
    assert {"shared", "registers", "tensor", "w_q", "s_x"} <= words
    assert not words & {"outer", "inner"}
    strokes = {e.get("stroke") for e in drawing.iter() if e.tag.endswith("path")}
    assert {"#e07b00", "#2e8b3d", "#2f6fd0"} <= strokes  # the paper's orange, green and blue


def test_the_documentation_shows_what_is_printed(napkin: Callable[..., Any]) -> None:
    page = (Path(__file__).parents[2] / "docs" / "hopper.md").read_text()
    command, *shown = re.findall(r"```(?:bash|text)\n(.*?)```", page, re.DOTALL)
    found = napkin(*command.replace("\\\n", "").split()[1:])
    printed = [line.strip() for line in found.out.splitlines()]
    blocks = [b for b in shown if not b.startswith("napkin")]
    assert len(blocks) == 11
    for block in blocks:
        for line in block.splitlines():
            assert line.strip() in printed
