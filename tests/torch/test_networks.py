"""Whole networks with our attention give what they give with torch's, and the run that times them
says so."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import napkin.torch as nkt

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "measurements"))
import bench_network
import bench_training
import gpt
import networks


@pytest.mark.parametrize("problem", bench_network.TINY, ids=lambda p: p[0])
@torch.no_grad()
def test_the_switch_changes_nothing(problem: bench_network.Problem) -> None:
    _, how, images = problem
    made = networks.variants(how, ["exact", "torch", "napkin", "none"], "cpu", torch.float32)
    x = torch.randn(images, 3, how.image, how.image)
    wanted = made["exact"].double()(x.double())
    for which in ("torch", "napkin"):
        assert bench_network.off(made[which](x), wanted) < 1e-5
    assert bench_network.off(made["none"](x), wanted) > 1e-2  # attention matters to the outputs


def test_the_table(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    file = tmp_path / "rows.json"
    assert bench_network.main(["vit", "--tiny", "--json", str(file)]) == 0
    out = capsys.readouterr().out
    assert "same outputs: yes" in out
    assert "x torch end to end" in out
    (row,) = json.loads(file.read_text())
    assert set(row["us"]) == set(bench_network.VARIANTS)
    wrong = networks.Switch(lambda q, k, v: q, networks.SWITCHES["napkin"].near)
    monkeypatch.setitem(networks.SWITCHES, "napkin", wrong)
    assert bench_network.main(["vit", "--tiny"]) == 1
    assert "same outputs: NO" in capsys.readouterr().out


def test_where_torch_or_napkin_fails(capsys: Any, monkeypatch: Any) -> None:
    """Keys are gathered in torch's place; a network that does not run is none of the rows."""

    def none(*_: Any) -> torch.Tensor:
        raise RuntimeError("no kernel")

    with monkeypatch.context() as patch:
        broken = networks.Switch(none, networks.SWITCHES["torch"].near)
        patch.setitem(networks.SWITCHES, "torch", broken)
        assert bench_network.main(["vit", "--tiny"]) == 0
        out = capsys.readouterr().out
        assert "(torch: RuntimeError: no kernel; keys are gathered instead)" in out
        assert "same outputs: yes" in out
        patch.setitem(networks.SWITCHES, "napkin", broken)
        assert bench_network.main(["vit", "--tiny"]) == 1
        assert "1 images: RuntimeError: no kernel" in capsys.readouterr().out


def test_dilations_alternate() -> None:
    how = networks.DiNAT(image=224)
    assert list(zip(how.layouts(), how.dilations(), strict=True)) == [
        (56, 8), (28, 4), (14, 2), (7, 1),
    ]  # fmt: skip
    with torch.device("meta"):
        stage = how.made(networks.SWITCHES["napkin"]).stages[0]
    assert [block.attention.dilation for block in stage] == [(1, 1), (8, 8), (1, 1)]


@pytest.mark.parametrize(("side", "window", "dilation"), [(6, 3, 1), (8, 4, 2), (12, 3, 4)])
@torch.no_grad()
def test_what_networks_are_held_to(side: int, window: int, dilation: int) -> None:
    """Gathered keys and FlexAttention's blocks, against a mask of every pair."""
    import napkin as nk

    q, k, v = (torch.randn(1, side, side, 2, 16) for _ in range(3))
    seen = torch.tensor(nk.neighborhood((window,) * 2, dilation=(dilation,) * 2).mask((side, side)))
    flat = [t.flatten(1, 2).transpose(1, 2) for t in (q, k, v)]
    wanted = torch.nn.functional.scaled_dot_product_attention(*flat, attn_mask=seen)
    for function in (networks.gathered, networks.flex):
        found = function(q, k, v, window, dilation).flatten(1, 2).transpose(1, 2)
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


TRAINED = ["--tiny", "--steps", "2", "--seeds", "2"]


def test_a_network_is_trained(capsys: Any) -> None:
    assert bench_training.main([*TRAINED, "gpt"]) == 0
    out = capsys.readouterr().out
    assert ": as near" in out
    assert ": follows" in out


def test_a_wrong_gradient_is_found(capsys: Any, monkeypatch: Any) -> None:
    wrong = replace(gpt.NAPKIN, swiglu=lambda x: nkt.swiglu(x.detach()) + 0 * x[..., :48])
    monkeypatch.setattr(gpt, "NAPKIN", wrong)
    assert not bench_training.gradients_at_start(bench_training.TINY["gpt"], bench_training.TRIAL)
    assert "NOT as near" in capsys.readouterr().out


def test_a_vision_network_is_trained(capsys: Any) -> None:
    assert bench_training.main([*TRAINED, "dinat"]) == 0
    assert ": follows" in capsys.readouterr().out
