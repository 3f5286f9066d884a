"""What commands print: JSON of a fixed shape, and tables and trees that say the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import sympy

import napkin as nk
from napkin.diagram import library

MINE = """
import napkin as nk
@nk.diagram("a b, b c -> a c", sizes={"a": 256, "b": 256, "c": 256})
def product(A, B):
    return nk.contract(A, B, over="b")
"""


def same(text: str, expected: str) -> bool:
    """Whether two expressions are equal, axis names being positive numbers."""
    names = {n: sympy.Symbol(n, positive=True) for n in ("q", "x", "d", "g_q", "s_x", "M")}
    difference = sympy.sympify(text, names) - sympy.sympify(expected, names)
    return sympy.simplify(difference) == 0


def test_derive_writes_files_that_run_alone(napkin: Callable[..., Any], here: Path) -> None:
    found = napkin("derive", "matmul", "--out", "made", "--sizes", "a=512,b=512,c=512")
    assert (found.status, found.err) == (0, "")
    texts = [p.read_text() for p in (here / "made").iterdir()]
    assert texts
    assert all("def run(A, B):" in text and "napkin import" not in text for text in texts)


def test_derive_leaves_no_file_of_another_plan(napkin: Callable[..., Any], here: Path) -> None:
    long = ("derive", "attention", "--sizes", "q=16384,x=16384")
    assert napkin(*long, "--out", "made").status == 0
    assert {p.name for p in (here / "made").iterdir()} == {"kernel.py", "warpgroups.py"}
    (here / "made" / "notes.txt").write_text("")
    assert napkin("derive", "rmsnorm", "--out", "made").status == 0
    assert {p.name for p in (here / "made").iterdir()} == {"kernel.py", "notes.txt"}
    (here / "made" / "warpgroups.py").write_text("mine = 1\n")
    assert napkin("derive", "rmsnorm", "--out", "made").status == 0
    assert (here / "made" / "warpgroups.py").read_text() == "mine = 1\n"


@pytest.mark.parametrize("columns", ["0", "\u00b2", "-1", "many"])
def test_a_width_that_is_none(
    napkin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    usual = napkin("machines").out
    monkeypatch.setenv("COLUMNS", columns)
    assert napkin("machines").out == usual
    monkeypatch.setenv("COLUMNS", "60")
    assert max(map(len, napkin("machines").out.splitlines())) <= 60


def test_a_plan_without_sizes_has_none_in_its_heading(
    napkin: Callable[..., Any], here: Path
) -> None:
    text = "import napkin as nk\n@nk.diagram('() -> ()')\ndef f(A):\n    return 2 * A\n"
    (here / "one.py").write_text(text)
    assert napkin("derive", "one.py").out.startswith("f on h100, bf16\n")


def test_derive_json(napkin: Callable[..., Any]) -> None:
    found = napkin("derive", "attention", "--json")
    assert (found.status, found.err) == (0, "")
    data = json.loads(found.out)
    assert (data["name"], data["machine"], data["dtype"]) == ("attention", "h100", "bf16")
    assert data["sizes"] == {"q": 4096, "d": 128, "x": 4096}
    assert "stream x" in data["trail"]
    (kernel,) = data["kernels"]
    assert same(kernel["H"]["total"], "2*d*q + 2*d*q*x/g_q")
    per_tensor = {"Q": "d*q", "K": "d*q*x/g_q", "V": "d*q*x/g_q", "O": "d*q"}
    assert kernel["H"]["per_tensor"].keys() == per_tensor.keys()
    assert all(same(kernel["H"]["per_tensor"][t], e) for t, e in per_tensor.items())
    assert same(kernel["bound"], "2*d*q + 4*d**2*q*x/M")
    assert [t["beta"] for t in kernel["terms"]] == ["0", "1"]
    alphas = [t["alpha"] for t in kernel["terms"]]
    assert same(alphas[0], "2*d*q")
    assert same(alphas[1], "4*d**2*q*x")
    assert same(kernel["flops"], "4*d*q*x")
    assert same(kernel["M"], "2*d*g_q + 2*d*s_x")
    assert kernel["bytes"]["Q"] == kernel["bytes"]["O"] == 2 * 4096 * 128
    assert kernel["bytes"]["K"] == 2 * 4096 * 128 * 4096 // kernel["tiles"]["q"]
    assert 0 < kernel["shared_bytes"] <= nk.machine("h100").shared_per_block
    assert kernel["time_us"] > 0
    assert kernel["limited_by"]


def test_derive_json_is_that_of_the_plan(napkin: Callable[..., Any]) -> None:
    given = ("--on", "a100", "--sizes", "a=512,b=1024", "--sizes", "c=256", "--dtype", "fp32")
    found = napkin("derive", "matmul", *given, "--json")
    sizes = {"a": 512, "b": 1024, "c": 256}
    plan = nk.derive(library.load("matmul"), on="a100", sizes=sizes, dtype="fp32")
    assert json.loads(found.out) == plan.to_json()


def test_a_machine_of_ones_own(napkin: Callable[..., Any], here: Path) -> None:
    shipped = Path(nk.__file__).parent / "machine" / "a100.toml"
    (here / "mine.toml").write_bytes(shipped.read_bytes())
    found = napkin("derive", "matmul", "--on", "mine.toml", "--json")
    assert json.loads(found.out)["machine"] == "mine"


def test_derive_shows_the_tree_and_the_costs(napkin: Callable[..., Any]) -> None:
    lines = napkin("derive", "attention").out.splitlines()
    assert lines[0] == "attention on h100, bf16, q=4096,d=128,x=4096"
    stream = next(i for i, line in enumerate(lines) if line.endswith("stream x"))
    assert lines[stream + 1].startswith("    │   ├── separate z: exp(S - m) = [exp(S - m)]")
    text = "\n".join(lines)
    assert "2*d*q + 2*d*q*x/g_q values = " in text
    assert "limited by" in text
    assert max(map(len, lines)) <= 120


def test_cost_json_adds_the_optimum(napkin: Callable[..., Any]) -> None:
    (kernel,) = json.loads(napkin("cost", "attention", "--json").out)["kernels"]
    assert same(kernel["H"]["total"], "2*d*q + 2*d*q*x/g_q")
    assert same(kernel["optimum"]["tiles"]["g_q"], "M/(2*d)")
    assert same(kernel["optimum"]["multiplier"], "4*d**2*q*x/M**2")
    at = kernel["at_sizes"]
    assert at["M"] == nk.machine("h100").shared_per_block // 2
    assert at["H"] == sum(kernel["bytes"].values()) // 2
    assert at["H_least"] <= at["H"]


def test_cost_at_sizes_where_memory_is_ample(napkin: Callable[..., Any]) -> None:
    found = napkin("cost", "attention", "--sizes", "q=128,x=128,d=32", "--json")
    at = json.loads(found.out)["kernels"][0]["at_sizes"]
    assert at["clipped"] == ["g_q"]
    assert at["H_least"] == 4 * 128 * 32  # each tensor once


@pytest.mark.parametrize("name", library.names()[::5])
def test_costs_of_shipped_diagrams(napkin: Callable[..., Any], name: str) -> None:
    found = napkin("cost", name)
    assert (found.status, found.err) == (0, "")
    assert "transfers" in found.out
    assert "the optimum for M values of memory" in found.out


def test_list(napkin: Callable[..., Any]) -> None:
    data = json.loads(napkin("list", "--json").out)
    assert [row["name"] for row in data] == list(library.names())
    first = next(row for row in data if row["name"] == "attention")
    assert first["signature"] == "q d, x d, x d -> q d"
    assert first["summary"].startswith("Attention: softmax(Q K^T / sqrt(d)) V")
    assert first["sizes"] == {"q": 4096, "x": 4096, "d": 128}
    assert all(row["summary"].endswith((".", "?")) for row in data)
    shown = napkin("list").out
    assert all(f"\n  {name} " in shown for name in library.names())


def test_machines(napkin: Callable[..., Any]) -> None:
    data = {row["name"]: row for row in json.loads(napkin("machines", "--json").out)}
    h100 = data["h100"]
    assert h100["arch"] == "sm_90"
    assert h100["figures"]["chip.sms"]["value"] == 132
    assert all(f["source"] for row in data.values() for f in row["figures"].values())
    shown = napkin("machines").out
    assert all(f"\n  {name} " in shown for name in data)
    assert "989.4" in shown
    assert "whitepaper" in napkin("machines", "h100").out
    (one,) = json.loads(napkin("machines", "h100", "--json").out)
    assert one == h100


def test_draw(napkin: Callable[..., Any], here: Path) -> None:
    shown = napkin("draw", "attention").out
    assert ElementTree.fromstring(shown).tag.endswith("svg")
    assert napkin("draw", "attention", "-o", "a.svg").out == ""
    assert (here / "a.svg").read_text() == shown
    napkin("draw", "matmul", "-o", "a.svg")
    assert (here / "a.svg").read_text() != shown
    assert [p.name for p in here.iterdir()] == ["a.svg"]
    assert napkin("draw", "attention", "-o", "/dev/null").status == 0
    assert not Path("/dev/null").is_file()


def test_draw_dot(napkin: Callable[..., Any]) -> None:
    assert napkin("draw", "attention", "--dot").out.splitlines()[-1] == "}"


def test_check_json(napkin: Callable[..., Any], here: Path) -> None:
    (here / "mine.py").write_text(MINE)
    found = napkin("check", "mine.py", "--sizes", "a=100,b=77,c=64", "--json")
    data = json.loads(found.out)
    assert found.err == ""
    assert found.status == (0 if data["ok"] else 1)
    assert data["values"]["ok"]
    assert data["values"]["relative_error"] < data["values"]["tolerance"]
    read = {r["tensor"]: r for r in data["traffic"] if r["direction"] == "read"}
    assert read["A"]["predicted"] == read["A"]["counted"] > 0
    assert read["A"]["counted"] % (100 * 77 * 2) == 0  # at just the sizes asked for
    assert {r["arch"] for r in data["resources"]} >= {"sm_80", "sm_90"}
    keys = {"arch", "operands", "allocated", "room", "registers", "spills"}
    assert all(keys <= r.keys() for r in data["resources"])


UNFIT = """
import napkin as nk
@nk.diagram("n d -> n d", sizes={"n": 4, "d": 10**7})
def ranked(X):
    return nk.sort(X, along="d")
@nk.diagram("n d -> n d")
def unsized(X):
    return X
"""


@pytest.mark.parametrize("name", ["ranked", "unsized"])
@pytest.mark.parametrize(
    ("command", "option"),
    [("derive", "--out"), ("report", "-o"), ("cost", "--plot"), ("generate", "--out")],
)
def test_a_refusal_leaves_no_folder(
    napkin: Callable[..., Any], here: Path, command: str, option: str, name: str
) -> None:
    (here / "mine.py").write_text(UNFIT)
    found = napkin(command, f"mine.py:{name}", option, "made/inner")
    assert (found.status, found.err.count("\n")) == (2, 1)
    assert not (here / "made").exists()


@pytest.mark.parametrize(
    "command",
    [
        ("bench", "matmul", "-o"),
        ("bench", "matmul", "--plot"),
        ("verify", "--gpu", "-o"),
        ("machines", "measure", "-o"),
    ],
)
def test_a_place_for_a_result_is_checked_first(
    napkin: Callable[..., Any], here: Path, command: tuple[str, ...]
) -> None:
    (here / "file").touch()
    path = f"file/x.{'svg' if command[-1] == '--plot' else 'toml'}"
    found = napkin(*command, path)
    assert found.status == 2
    assert f"{path} cannot be written: Not a directory" in found.err
