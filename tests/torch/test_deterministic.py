"""Whether kernels may add in memory is what torch is asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from napkin.diagram.library import load
from napkin.machine.machines import Machine, machine
from napkin.run.prepared import facts
from napkin.torch import ops
from napkin.torch.function import Function
from napkin.torch.given import beside_tensors

SIZES = {"n": 16384, "f": 4096}


@pytest.fixture(autouse=True)
def _as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    asked = torch.are_deterministic_algorithms_enabled()
    yield
    torch.use_deterministic_algorithms(asked)


def adding() -> Machine:
    """An H100 that adds in memory as fast as L2 reads."""
    h100 = machine("h100")
    figure = replace(h100.calibration["l2_adds"], value=1.0)
    return replace(h100, calibration={**h100.calibration, "l2_adds": figure})


def test_kernels_add_in_memory_unless_torch_is_to_be_deterministic() -> None:
    f = Function(load("bias_gelu_gradient"))
    for deterministic in (True, False, True):
        torch.use_deterministic_algorithms(deterministic)
        recipe = f.recipe(SIZES, "bf16", adding())
        assert any(s.added for s in recipe.steps) is not deterministic
    again = Function(load("bias_gelu_gradient"))  # from disk
    assert not any(s.added for s in again.recipe(SIZES, "bf16", adding()).steps)


def test_what_is_ready_for_one_is_not_taken_for_the_other() -> None:
    keys = set[object]()
    for deterministic in (True, False):
        torch.use_deterministic_algorithms(deterministic)
        keys.add(beside_tensors((1.0,)))
    assert len(keys) == 2
    f, x = Function(load("softmax")), torch.ones(3, 5)
    before = len(ops._WARM)
    for deterministic in (True, False):
        torch.use_deterministic_algorithms(deterministic)
        ops.warm(f, [x], ())
    assert len(ops._WARM) == before + 2
    assert len([k for k in ops._WARM if facts(x) in k and f in k]) == 2
