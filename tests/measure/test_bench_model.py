"""The run that judges the time model: which shapes it draws, what it makes of their times."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "measurements"))
import bench_model
import problems

import napkin as nk
from napkin.diagram.library import load


def named(seed: int) -> list[tuple[str, str]]:
    return [(name, problems.text(sizes)) for name, _, sizes in problems.drawn_shapes(seed)]


def test_shapes_are_drawn_and_new() -> None:
    first = named(1)
    assert len(set(first)) == len(first) >= 60
    assert named(1) == first
    assert not {*first} & problems.measured_before()
    assert len({*first} & {*named(2)}) < 5
    kinds = {name for name, _ in first}
    assert {"matmul", "attention full", "attention causal", "softmax", "cross_entropy"} <= kinds
    assert any(name.startswith("attention window") for name in kinds)
    depths = {text.split("d=")[1] for name, text in first if name.startswith("attention")}
    assert len(depths) >= 4
    for name, diagram, sizes in problems.drawn_shapes(1):
        assert diagram.check_sizes(sizes), name


def test_what_was_measured_is_known() -> None:
    before = problems.measured_before()
    assert ("matmul", "a=1280 b=1280 c=1280") in before
    assert ("attention full", "h=16 q=4096 x=4096 d=128") in before
    assert {(n, problems.text(s)) for n, _, s in problems.shapes()} <= before


@pytest.fixture
def small(device: Any, monkeypatch: Any) -> Any:
    """Two problems of a size that a CPU evaluates."""
    own = [*problems.products([(64, 64, 32)]), *problems.rows([("softmax", 40, 64)])]
    monkeypatch.setattr(bench_model, "drawn_shapes", lambda seed: own)
    monkeypatch.setattr(bench_model, "sweeps", lambda: own[:1])
    return device


def test_predicted_and_measured(small: Any, tmp_path: Path, capsys: Any) -> None:
    (m, s) = (nk.derive(d, on="h100", sizes=n) for _, d, n in bench_model.drawn_shapes(1))
    small.us = {
        "matmul": m.seconds * 1e6 / 1.1, "softmax": s.seconds * 1e6 / 0.8,
        "torch.matmul": m.seconds * 1e6,
    }  # fmt: skip
    file = tmp_path / "rows.json"
    assert bench_model.main(["new", "--seed", "5", "--json", str(file)]) == 0
    rows = {r["name"]: r for r in json.loads(file.read_text())}
    assert set(rows) == {"matmul", "torch.matmul", "softmax"}
    assert rows["torch.matmul"]["predicted"] == rows["matmul"]["predicted"]
    assert bench_model.off(rows["matmul"]) == pytest.approx(0.1)
    assert bench_model.off(rows["softmax"]) == pytest.approx(0.2)
    out = capsys.readouterr().out
    assert "3 times of generated kernels and of cuBLAS: mean absolute error 10.0 %" in out
    assert "2 of generated kernels: mean absolute error 15.0 %" in out
    assert "1 of cuBLAS: mean absolute error 0.0 %" in out
    assert out.index("worst: softmax") < out.index("worst: matmul")


def test_a_sweep_has_enough_settings(small: Any, tmp_path: Path, capsys: Any) -> None:
    """The ranking first; what a setting that fails says is no time."""
    small.us = {"0": 12.0, "3": 10.0}
    small.refuse = lambda plan: (
        RuntimeError("registers") if plan.kernels[0].schedule.stages == 4 else None
    )
    file = tmp_path / "rows.json"
    assert bench_model.main(["tiles", "--settings", "24", "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text())
    assert row["first"] == pytest.approx(1.2)
    assert row["five"] == 1.0
    assert row["settings"] <= 24
    assert "first choice over best: median 1.200, worst 1.200" in capsys.readouterr().out


def test_what_the_planner_drops_fits_memory() -> None:
    diagram = problems.heads()
    plan = nk.derive(diagram, on="h100", sizes={"h": 4, "q": 2048, "x": 2048, "d": 128})
    chosen, by_model = bench_model.widened(plan, 56)
    assert len(chosen) == 56 > by_model
    assert len({bench_model.setting(c) for c in chosen}) == 56
    assert chosen[0].rank == min(c.rank for c in chosen[:by_model])
    made = [bench_model.replace(plan.kernels[0], choice=c) for c in chosen]
    assert all(k.shared_bytes <= plan.machine.shared_per_block for k in made)


def test_processes_share_what_is_compiled(small: Any, monkeypatch: Any) -> None:
    every = list[list[str]]()
    for share in ("0/3", "1/3", "2/3"):
        seen = list[str]()

        def opened(plan: Any, *_: Any, seen: list[str] = seen) -> tuple[Any, Any, list[Any]]:
            seen.append(bench_model.shown(plan.kernels[0].choice))
            return plan, {}, []

        monkeypatch.setattr(bench_model.launching, "opened", opened)
        bench_model.main(["tiles", "--settings", "20", "--compile", share])
        every.append(seen)
    found = sorted(s for seen in every for s in seen)
    plan = nk.derive(load("matmul"), on="h100", sizes=bench_model.sweeps()[0][2])
    assert found == sorted(map(bench_model.shown, bench_model.widened(plan, 20)[0]))
    assert max(map(len, every)) - min(map(len, every)) <= 1
