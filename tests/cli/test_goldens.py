"""generate: what is written, that it is the same each time, and what --check finds."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from napkin.plan.plan import Plan
from napkin.show import files
from napkin.show.console import json_text
from napkin.show.goldens import VERDICT

NAMES = ("kernel.py", "cost.json", "derivation.txt", VERDICT)
EXPECTED = {
    "h100/warpgroups.py",
    "diagram.svg",
    *(f"{arch}/{name}" for arch in ("a100", "h100") for name in NAMES),
}


class Verdict:
    """What a check found, without checking."""

    def __init__(self, ok: bool = True) -> None:
        self.ok = ok

    def to_json(self) -> dict[str, Any]:
        return {"ok": self.ok, "values": {"relative_error": float("nan")}, "traffic": []}


@pytest.fixture(autouse=True)
def checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "check", lambda *_, **__: Verdict())


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


def test_what_the_files_hold(napkin: Callable[..., Any], here: Path) -> None:
    napkin("generate", "matmul")
    folder = here / "generated" / "matmul" / "h100"
    assert "@triton.jit" in (folder / "kernel.py").read_text()
    assert (folder / "derivation.txt").read_text().startswith("matmul on h100, bf16")
    assert json.loads((folder / "cost.json").read_text())["machine"] == "h100"
    verdict = json.loads((folder / VERDICT).read_text())
    assert verdict["ok"]
    assert len(verdict["kernel_sha256"]) == 64
    assert verdict["values"]["relative_error"] is None  # JSON knows no NaN


@pytest.mark.parametrize("name", ["kernel.py", "cost.json", "derivation.txt"])
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
    ("change", "said"),
    [
        ({"ok": False}, "says that some prediction does not hold"),
        ({"kernel_sha256": "0" * 64}, "was made for another kernel"),
        ({"launch": []}, "was made for another kernel"),
        (None, "is not the JSON of a verdict"),
    ],
)
def test_a_verdict_on_something_else(
    napkin: Callable[..., Any], here: Path, change: dict[str, Any] | None, said: str
) -> None:
    napkin("generate", "matmul")
    path = here / "generated" / "matmul" / "h100" / VERDICT
    path.write_text(
        "[]" if change is None else json_text({**json.loads(path.read_text()), **change})
    )
    found = napkin("generate", "--check", "matmul")
    assert found.status == 1
    assert f"generated/matmul/h100/verdict.json: {said}\n" in found.err


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
    monkeypatch.setattr(Plan, "check", lambda *_, **__: Verdict(ok=False))
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
