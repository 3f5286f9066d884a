"""generate: what is written, that it is the same each time, and what --check finds."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from napkin.check.verdict_rows import ResourceRow, TrafficRow, ValueRow, Verdict
from napkin.plan.plan import Plan
from napkin.show import files, goldens
from napkin.show.tables import COLUMNS, COSTS, VERDICTS, read_table, table_text

NAMES = ("kernel.py", "derivation.txt")
EXPECTED = {
    "h100/warpgroups.py",
    "diagram.svg",
    *(f"{arch}/{name}" for arch in ("a100", "h100") for name in NAMES),
}


def verdict(name: str, error: float = 0.00123) -> Verdict:
    """What a check found, without checking."""
    return Verdict(
        name,
        (ValueRow("even", "C", error, 1e-2), ValueRow("primes", "C", error / 2, 1e-2)),
        (TrafficRow("even", name, "A", "read", 64, 64),),
        (
            ResourceRow(name, "sm_90", 16, 64, 32, 128, 0),
            ResourceRow(name, "sm_80", 0, 0, 8, 64, 0),
        ),
    )


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    monkeypatch.setattr(Plan, "check", lambda plan, **_: verdict(plan.name))
    if "gradient" not in request.node.name:
        monkeypatch.setattr(goldens, "TRAINED", ())


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if not p.is_dir()}


def test_generate_and_check(napkin: Callable[..., Any], here: Path) -> None:
    found = napkin("generate", "matmul")
    assert (found.status, found.err) == (0, "")
    assert tree(here / "generated" / "matmul").keys() == EXPECTED
    first = tree(here)
    assert napkin("generate", "matmul", "--out", "again").status == 0
    assert tree(here / "again") == tree(here / "generated")
    found = napkin("generate", "matmul")
    assert found.out == "generated is up to date\n"
    found = napkin("generate", "matmul", "--check")
    assert (found.status, found.out, found.err) == (0, "generated is up to date\n", "")
    assert {k: v for k, v in tree(here).items() if k.startswith("generated")} == first


def test_a_gradient_has_a_folder_of_its_own(napkin: Callable[..., Any], here: Path) -> None:
    assert napkin("generate", "softmax", "greedy_token").status == 0
    folder = here / "generated"
    assert {p.name for p in folder.iterdir() if p.is_dir()} == {
        "softmax", "softmax_gradient", "greedy_token",
    }  # fmt: skip
    assert tree(folder / "softmax_gradient").keys() == {
        "diagram.svg", "h100/kernel.py", "h100/derivation.txt",
    }  # fmt: skip
    assert napkin("generate", "--check", "softmax").status == 0
    path = folder / "softmax_gradient" / "h100" / "kernel.py"
    path.write_text(path.read_text() + "\n")
    found = napkin("generate", "--check", "softmax")
    assert found.status == 1
    assert "generated/softmax_gradient/h100/kernel.py: differs" in found.err


def test_what_the_files_hold(napkin: Callable[..., Any], here: Path) -> None:
    napkin("generate", "matmul")
    folder = here / "generated" / "matmul" / "h100"
    assert "@triton.jit" in (folder / "kernel.py").read_text()
    assert (folder / "derivation.txt").read_text().startswith("matmul on h100, bf16")


def test_costs_are_a_row_for_each_kernel(napkin: Callable[..., Any], here: Path) -> None:
    napkin("generate", "matmul")
    rows = read_table(here / "generated" / COSTS)
    assert rows is not None
    assert [(r["machine"], r["warpgroups"]) for r in rows] == [
        ("a100", ""), ("h100", ""), ("h100", "2 along a"),
    ]  # fmt: skip
    first = rows[0]
    data = json.loads(napkin("derive", "matmul", "--on", "a100", "--json").out)["kernels"][0]
    assert (first["H"], first["M"], first["bound"]) == (
        data["H"]["total"], data["M"], data["bound"],
    )  # fmt: skip
    assert first["bytes"].startswith(f"A={data['bytes']['A']} B=")
    assert first["sizes"] == "a=4096 b=4096 c=4096"
    assert float(first["time_us"]) == data["time_us"]


def test_verdicts_are_a_row_for_each_architecture(napkin: Callable[..., Any], here: Path) -> None:
    napkin("generate", "matmul")
    rows = read_table(here / "generated" / VERDICTS)
    assert rows is not None
    assert [(r["machine"], r["arch"], r["allocated"]) for r in rows] == [
        ("a100", "sm_90", "32"), ("a100", "sm_80", "8"),
        ("h100", "sm_90", "32"), ("h100", "sm_80", "8"),
    ]  # fmt: skip
    assert {(r["cases"], r["relative_error"], r["tolerance"], r["byte_figures"]) for r in rows} == {
        ("2", "1.2e-03", "1e-02", "1")
    }


def test_diagrams_keep_their_rows_as_others_are_generated(
    napkin: Callable[..., Any], here: Path
) -> None:
    napkin("generate", "softmax")
    napkin("generate", "matmul")
    assert napkin("generate", "--check", "matmul", "softmax").status == 0
    rows = read_table(here / "generated" / COSTS) or []
    assert [r["diagram"] for r in rows] == ["matmul"] * 3 + ["softmax"] * 2


@pytest.mark.parametrize("name", ["kernel.py", "derivation.txt"])
def test_a_file_that_differs_or_is_missing(
    napkin: Callable[..., Any], here: Path, name: str
) -> None:
    napkin("generate", "matmul")
    path = here / "generated" / "matmul" / "a100" / name
    path.write_text(path.read_text() + "\n")
    found = napkin("generate", "--check", "matmul")
    assert (found.status, found.out) == (1, "")
    assert found.err.startswith("napkin: 1 found wrong in generated; napkin generate writes")
    assert f"generated/matmul/a100/{name}: differs\n" in found.err
    path.unlink()
    found = napkin("generate", "--check", "matmul")
    assert f"generated/matmul/a100/{name}: missing\n" in found.err
    assert not path.exists()
    assert napkin("generate", "matmul").out.startswith(f"generated/matmul/a100/{name}\n")
    assert napkin("generate", "--check", "matmul").status == 0


@pytest.mark.parametrize(
    ("table", "change", "said"),
    [
        (VERDICTS, {"digest": "0" * 16}, "matmul on h100 was checked with another kernel"),
        (VERDICTS, {"machine": "b200"}, "matmul on h100 is missing"),
        (COSTS, {"time_us": "1.0"}, "matmul on h100 differs"),
        (COSTS, {"machine": "b200"}, "matmul on h100 is missing"),
    ],
)
def test_a_row_on_something_else(
    napkin: Callable[..., Any], here: Path, table: str, change: dict[str, str], said: str
) -> None:
    napkin("generate", "matmul")
    path = here / "generated" / table
    rows = read_table(path) or []
    changed = [{**r, **change} if r["machine"] == "h100" else r for r in rows]
    path.write_bytes(table_text(table, changed))
    found = napkin("generate", "--check", "matmul")
    assert found.status == 1
    assert f"generated/{table}: {said}\n" in found.err


@pytest.mark.parametrize("text", ["", "[]", "diagram,machine\nmatmul,h100\n", "\xff"])
@pytest.mark.parametrize("table", [COSTS, VERDICTS])
def test_a_table_that_is_none(
    napkin: Callable[..., Any], here: Path, table: str, text: str
) -> None:
    napkin("generate", "matmul")
    (here / "generated" / table).write_bytes(text.encode("latin1"))
    found = napkin("generate", "--check", "matmul")
    assert found.status == 1
    assert f"generated/{table}: is no table of costs or verdicts\n" in found.err
    assert napkin("generate", "matmul").status == 0
    assert napkin("generate", "--check", "matmul").status == 0


def test_a_row_that_is_cut_short_is_no_row(here: Path) -> None:
    path = here / COSTS
    path.write_text(",".join(COLUMNS[COSTS]) + "\nmatmul,h100\n")
    assert read_table(path) is None


def test_a_kernel_of_warpgroups_that_is_stale(napkin: Callable[..., Any], here: Path) -> None:
    """One that differs, and one of a machine that has none."""
    napkin("generate", "matmul")
    path = here / "generated" / "matmul" / "h100" / "warpgroups.py"
    path.write_text(path.read_text() + "\n")
    (here / "generated" / "matmul" / "a100" / "warpgroups.py").write_text("")
    found = napkin("generate", "--check", "matmul")
    assert found.status == 1
    assert "generated/matmul/h100/warpgroups.py: differs\n" in found.err
    assert "generated/matmul/a100/warpgroups.py: left over; delete it" in found.err


def test_several_diagrams_are_compared_each_with_its_own_files(
    napkin: Callable[..., Any], here: Path
) -> None:
    napkin("generate", "matmul")
    napkin("generate", "softmax")
    assert napkin("generate", "--check", "matmul", "softmax").status == 0
    (here / "generated" / "softmax" / "diagram.svg").write_text("")
    path = here / "generated" / "matmul" / "h100" / "kernel.py"
    path.write_text(path.read_text() + "\n")
    found = napkin("generate", "--check", "softmax", "matmul")
    assert found.status == 1
    said = [line.strip() for line in found.err.splitlines() if "differs" in line]
    assert said[-2:] == [
        "generated/softmax/diagram.svg: differs",
        "generated/matmul/h100/kernel.py: differs",
    ]


def test_rows_of_a_diagram_that_is_gone(
    napkin: Callable[..., Any], here: Path, monkeypatch
) -> None:
    napkin("generate", "matmul")
    napkin("generate", "softmax")
    monkeypatch.setattr("napkin.show.goldens.names", lambda: ["matmul"])
    found = napkin("generate", "--check")
    assert found.status == 1
    assert f"generated/{COSTS}: softmax on h100 is left over; delete its rows" in found.err
    assert "generated/softmax/h100/kernel.py: left over; delete it" in found.err


def test_left_over(napkin: Callable[..., Any], here: Path) -> None:
    napkin("generate", "matmul")
    (here / "generated" / "matmul" / "old.txt").write_text("")
    (here / "generated" / "elsewhere").mkdir()
    (here / "generated" / "elsewhere" / "old.txt").write_text("")
    found = napkin("generate", "--check", "matmul")
    assert found.status == 1
    assert "generated/matmul/old.txt: left over; delete it" in found.err
    assert "elsewhere" not in found.err  # only what was asked about
    assert napkin("generate", "matmul").status == 1
    assert (here / "generated" / "matmul" / "old.txt").exists()  # never deleted


def test_a_failed_check_writes_nothing(
    napkin: Callable[..., Any], here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Plan, "check", lambda plan, **_: verdict(plan.name, error=math.nan))
    found = napkin("generate", "matmul")
    assert found.status == 1
    assert "matmul on h100: not written, as some prediction does not hold" in found.err
    assert "see napkin check matmul --on h100" in found.err
    assert tree(here / "generated").keys() == {"matmul/diagram.svg"}


def test_nothing_is_half_written(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = here / "kernel.py"
    files.write_file(path, b"whole")

    def stop(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", stop)
    with pytest.raises(KeyboardInterrupt):
        files.write_file(path, b"half")
    assert tree(here) == {"kernel.py": b"whole"}


def test_a_folder_in_the_place_of_a_file(napkin: Callable[..., Any], here: Path) -> None:
    (here / "out" / "kernel.py").mkdir(parents=True)
    found = napkin("derive", "matmul", "--sizes", "a=64,b=64,c=64", "--out", "out")
    assert found.status == 2
    assert "kernel.py is a folder; remove it, or write to another place" in found.err


def test_a_link_stays_one(here: Path) -> None:
    (here / "real").write_text("old")
    (here / "link").symlink_to("real")
    files.write_file(here / "link", b"new")
    assert (here / "link").is_symlink()
    assert (here / "real").read_text() == "new"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_may_not_be_written(napkin: Callable[..., Any], here: Path) -> None:
    (here / "locked").mkdir(mode=0o500)
    found = napkin("generate", "matmul", "--out", "locked")
    assert (found.status, found.out) == (2, "")
    assert found.err.startswith("napkin: locked cannot be written: Permission denied")
