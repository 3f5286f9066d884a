"""`napkin cost --levels` and `napkin machines measure`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from napkin.machine.machines import machine
from napkin.measure import device
from napkin.measure import machine as measuring
from napkin.measure.machine import Facts, measured

SIZES = ("--sizes", "q=65536,x=65536,d=128")


def test_levels(napkin: Callable[..., Any]) -> None:
    found = napkin("cost", "attention", *SIZES, "--levels")
    assert found.status == 0
    shown = " ".join(found.out.split())
    assert "tiles from dram inwards" in shown
    assert "132 of the next, together" in shown
    assert "memory of shared" in shown
    assert "128-byte granules of Q, K, V, O, 2 B a value" in shown
    data = json.loads(napkin("cost", "attention", *SIZES, "--levels", "--json").out)
    (levels,) = data["levels"]
    assert data["kernels"]
    assert levels["through"] == ["dram", "l2", "shared", "registers"]
    l2, shared, registers = levels["levels"]
    assert l2["optimum"]["tiles"]["q"] == pytest.approx(132 * 454, rel=1e-3)
    assert shared["optimum"]["tiles"]["q"] == pytest.approx(454, rel=1e-3)
    assert shared["whole"]["tiles"] == {"q": 384, "x": 16}
    assert l2["whole"]["tiles"]["q"] % shared["whole"]["tiles"]["q"] == 0
    assert registers["whole"]["multiples"] == {"d": 16, "q": 64, "x": 16}
    assert shared["whole"]["multiples"]["d"] == 64
    per_level = sum(s["whole"]["seconds"] for s in levels["levels"])
    assert levels["seconds"]["whole"] == pytest.approx(per_level)
    assert levels["seconds"]["whole"] >= levels["seconds"]["optimum"]


@pytest.mark.parametrize(
    ("through", "on", "stages"),
    [
        ("nvme,host,dram,l2,shared", "h100", ["host", "dram", "l2", "shared"]),
        ("peers,dram,shared", "a100_40", ["dram", "shared"]),
        ("dram,cluster:4,shared", "h100_pcie", ["cluster:4", "shared"]),
        ("dram,cluster,shared", "h100", ["cluster:2", "shared"]),
        ("dram,infinity,l2,shared,registers", "mi300x", ["infinity", "l2", "shared", "registers"]),
    ],
)
def test_any_chain_of_levels(
    napkin: Callable[..., Any], through: str, on: str, stages: list[str]
) -> None:
    given = ("cost", "attention", *SIZES, "--on", on, "--levels", "--through", through, "--json")
    (found,) = json.loads(napkin(*given).out)["levels"]
    assert [s["level"] for s in found["levels"]] == stages
    assert found["seconds"]["whole"] > 0


def test_several_gpus_share_the_queries(napkin: Callable[..., Any]) -> None:
    given = ("cost", "attention", *SIZES, "--through", "peers,dram,l2,shared", "--json")
    (found,) = json.loads(napkin(*given).out)["levels"]
    dram = found["levels"][0]
    assert (found["chips"], dram["count"]) == (8, 8)
    assert dram["optimum"]["tiles"]["q"] == pytest.approx(65536 / 8)
    # each reads every key: Q and O once, K and V eight times
    assert sum(dram["optimum"]["bytes"].values()) == pytest.approx(2 * 65536 * 128 * (2 + 16))
    assert "a tile for each of 8 chips" in dram["optimum"]["binds"]


@pytest.mark.parametrize(
    ("through", "message"),
    [
        ("dram", "a chain of levels has two or more, as in dram,l2,shared"),
        ("foo", "--through 'foo': a chain of levels has two or more, as in dram,l2,shared"),
        ("dram,,shared", "a level is empty; write --through dram,l2,shared"),
        ("dram,smem", "machine 'h100' has no level 'smem'"),
        ("shared,dram", "from 'shared' to 'dram'; levels go from the outermost inwards"),
        ("dram,dram", "level 'dram' stands twice in dram,dram"),
        ("dram,peers", "level 'peers' joins chips: it can only begin a chain"),
        ("cluster,shared", "'cluster' stands once, between two levels"),
        (
            "dram,cluster:3,shared",
            "joins no memories of 'shared' by 'cluster:3'; known: cluster:2, cluster:4",
        ),
        ("dram,l2,cluster,shared", "saves nothing, as their link moves 3.79 TB/s"),
    ],
)
def test_a_wrong_chain(napkin: Callable[..., Any], through: str, message: str) -> None:
    found = napkin("cost", "attention", "--through", through)
    assert (found.status, found.out) == (2, "")
    assert message in found.err


def test_what_has_no_levels_says_why(napkin: Callable[..., Any]) -> None:
    shown = " ".join(napkin("cost", "document_attention", "--levels").out.split())
    assert "no cost over levels: H depends on visited_x" in shown
    shown = " ".join(napkin("cost", "softmax", "--levels").out.split())
    assert "every tile moves as much" in shown


def test_measuring_a_machine(
    napkin: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    found = napkin("machines", "measure")
    assert (found.status, found.out) == (2, "")
    assert "machines measure needs a CUDA device" in found.err
    found = napkin("machines", "measure", "--output", "mine.txt")
    assert found.status == 2
    assert "a machine file ends in .toml" in found.err
    found = napkin("machines", "h100", "--output", "mine.toml")
    assert found.status == 2
    assert "napkin machines measure" in found.err
    facts = Facts("NVIDIA H100 80GB HBM3", "sm_90", 132, 85_000_000_000, 52_428_800)
    made = measured(machine("h100"), facts, {"bf16": 1.6e-3, "copy": 7e-4}, {}, "2026-01-02")
    monkeypatch.setattr(device, "require", lambda what: None)
    monkeypatch.setattr(measuring, "measure", lambda: made)
    found = napkin("machines", "measure", "-o", "mine.toml")
    assert found.status == 0
    assert "measured: torch.matmul" in " ".join(found.out.split())
    assert machine(here / "mine.toml").dram_rate == made.dram_rate
    assert napkin("machines", "measure").out == (here / "mine.toml").read_text()
    data = json.loads(napkin("machines", "measure", "--json").out)
    assert data["figures"]["chip.sms"]["value"] == 132


def test_windows_enter_levels_tap_by_tap(napkin: Callable[..., Any]) -> None:
    given = ("cost", "conv1d", "--sizes", "i=256,c=64,o=64", "--levels")
    said = "Windows enter every level tap by tap, as kernels load them"
    assert said in napkin(*given).out
    whole = json.loads(napkin(*given, "--json").out)["levels"][0]["levels"]
    assert [level["whole"]["tiles"]["w"] for level in whole] == [1] * len(whole)
    assert said not in napkin("cost", "matmul", "--levels").out


def test_what_the_weight_of_a_cluster_is(napkin: Callable[..., Any]) -> None:
    h100 = machine("h100")
    through = ("--through", "dram,cluster:2,shared")
    shown = " ".join(napkin("cost", "matmul", "--levels", *through).out.split())
    passed = h100.links("shared")[2].rate.value
    weight = 1 / h100.dram_rate - 1 / passed
    assert f"cluster:2 dram-l2, l2-shared {1e-12 / weight:.3g} " in shown
    said = "cluster:2: every byte into it crosses dram-l2, l2-shared once, and is then passed on"
    assert said in shown
    assert "less what shared-sharedx2 does" in shown
