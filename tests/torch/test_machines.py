"""Which machine file a GPU is planned for."""

from __future__ import annotations

import shutil
import warnings
from importlib import resources
from pathlib import Path

import pytest
import torch

import napkin as nk
from napkin.machine.machines import machines
from napkin.torch.device_machine import NAMES, machine_of, nearest

KB = 1024
KNOWN = {
    "NVIDIA H100 80GB HBM3": ("h100", 90, 227),
    "NVIDIA H200": ("h200", 90, 227),
    "NVIDIA H100 PCIe": ("h100_pcie", 90, 227),
    "NVIDIA A100-SXM4-80GB": ("a100", 80, 163),
    "NVIDIA A100-SXM4-40GB": ("a100_40", 80, 163),
    "NVIDIA A100-PCIE-40GB": ("a100_40", 80, 163),
    "NVIDIA B200": ("b200", 100, 227),
    "NVIDIA GeForce RTX 4090": ("rtx4090", 89, 99),
    "NVIDIA GeForce RTX 5090": ("rtx5090", 120, 99),
    "NVIDIA L40S": ("l40s", 89, 99),
}
OTHERS = {
    "NVIDIA GeForce RTX 3090": ("l40s", 86, 99),
    "NVIDIA RTX PRO 6000": ("rtx5090", 120, 99),
    "NVIDIA B300": ("b200", 103, 227),
    "NVIDIA T4": ("a100", 75, 64),  # all have more, so the nearest
    # those in whose names another's stands
    "NVIDIA GH200 480GB": ("h100", 90, 227),
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb": ("h100", 90, 227),
    "NVIDIA GB200": ("b200", 100, 227),
    "NVIDIA RTX A1000": ("l40s", 86, 99),
    "NVIDIA GeForce RTX 4090 Laptop GPU": ("l40s", 89, 99),
}


@pytest.mark.parametrize("name", KNOWN)
def test_a_machine_by_its_name(name: str) -> None:
    wanted, capability, shared = KNOWN[name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert nearest(name, capability, shared * KB).name == wanted


def test_every_machine_has_a_name() -> None:
    assert {*NAMES.values()} == {*machines()}


@pytest.mark.parametrize("name", OTHERS)
def test_another_by_what_it_can(name: str) -> None:
    wanted, capability, shared = OTHERS[name]
    with pytest.warns(RuntimeWarning, match="set NAPKIN_MACHINE to its path") as said:
        assert nearest(name, capability, shared * KB).name == wanted
    assert f"no machine file for {name} (" in str(said[0].message)


def test_one_that_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = tmp_path / "mine.toml"
    shutil.copy(str(resources.files("napkin") / "machine" / "a100.toml"), own)
    machine_of.cache_clear()
    assert machine_of(torch.device("cpu")).name == "h100"
    machine_of.cache_clear()
    monkeypatch.setenv("NAPKIN_MACHINE", str(own))
    assert machine_of(torch.device("cpu")).name == "mine"
    machine_of.cache_clear()
    monkeypatch.setenv("NAPKIN_MACHINE", "h1000")
    with pytest.raises(nk.InputError, match="NAPKIN_MACHINE: unknown machine 'h1000'"):
        machine_of(torch.device("cpu"))
    machine_of.cache_clear()
