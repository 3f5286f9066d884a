"""The machine file that a measurement writes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from napkin.machine.machine_file import written
from napkin.machine.machines import machine
from napkin.measure.machine import COPIED, ITERATIONS, SIDE, THREADS, Facts, measured

ABOUT = {"device": "a stand-in", "arch": "sm_90", "torch": "9.9", "triton": "", "napkin": "0"}
SECONDS = {
    "copy": 2 * COPIED / 3.0e12,
    "bf16": 2 * SIDE**3 / 700e12,
    "fp8": 1.0,  # no product that is known
    "exp": THREADS * ITERATIONS / 3.5e12,
}
SAME = Facts("NVIDIA H100 80GB HBM3", "sm_90", 132, 85_000_000_000, 52_428_800)


def test_what_is_measured_replaces_what_is_printed() -> None:
    base = machine("h100")
    found = measured(base, SAME, SECONDS, ABOUT, "2026-01-02")
    assert found.dram_rate == pytest.approx(3.0e12, rel=1e-3)
    assert found.peak("bf16") == pytest.approx(700e12, rel=1e-3)
    assert found.special_rate == pytest.approx(3.5e12, rel=1e-3)
    assert found.level("dram").capacity.value == 85e9
    was, now = dict(base.figures()), dict(found.figures())
    changed = {k for k in now if now[k] != was[k]}
    assert changed == {
        "chip.sms",
        "compute.tensor_bf16",
        "compute.special",
        "levels.dram.capacity",
        "levels.l2.capacity",
        "pipes.dram-l2.rate",
    }
    for key in changed:
        assert "2026-01-02" in now[key].source
        assert "NVIDIA H100 80GB HBM3 (torch 9.9, napkin 0)" in now[key].source
    assert "700 TFLOP/s" in now["compute.tensor_bf16"].source


def test_a_chip_with_fewer_multiprocessors() -> None:
    base = machine("h100")
    found = measured(base, Facts("NVIDIA H800", "sm_90", 66, 1, 1), {}, {}, "today")
    assert (found.sms, found.level("shared").count) == (66, 66)
    assert found.peak("fp16") == base.peak("fp16") / 2
    pipes = {p.name: p.rate.value / base.pipes[i].rate.value for i, p in enumerate(found.pipes)}
    half = {"l2-shared", "shared-registers", "registers-fragments"}
    assert {n for n, r in pipes.items() if r == pytest.approx(0.5, rel=1e-3)} >= half
    assert pipes["dram-l2"] == 1
    assert "scaled to 66 SMs" in found.pipe("l2", "shared").rate.source


def test_the_file_is_read_back(tmp_path: Path) -> None:
    found = measured(machine("h100"), SAME, SECONDS, ABOUT, "2026-01-02")
    file = tmp_path / "h100.toml"
    file.write_text(written(found))
    assert machine(file) == found


def test_the_kernel_computes_exponentials() -> None:
    """In the interpreter: x = 2**-x is reached from anywhere."""
    code = (
        "import torch; from napkin.measure._exponentials import exponentials;"
        "x = torch.rand(2048); exponentials(x, 60);"
        "print(float((x - 0.6411857).abs().max()) < 1e-5)"
    )
    env = {**os.environ, "TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env)
    assert run.stdout.strip() == "True", run.stderr
