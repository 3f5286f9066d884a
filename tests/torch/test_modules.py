"""The modules against the same computation written out, and under NATTEN's names."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import pytest
import torch

import napkin as nk
import napkin.torch as nkt
from napkin.torch import keys

MODULES = [
    (nkt.NeighborhoodAttention1D, nkt.na1d, (30,)),
    (nkt.NeighborhoodAttention2D, nkt.na2d, (8, 9)),
    (nkt.NeighborhoodAttention3D, nkt.na3d, (4, 5, 6)),
]


@pytest.mark.parametrize(("module", "function", "layout"), MODULES)
def test_projections_around_the_function(module, function, layout) -> None:
    made = module(32, 2, kernel_size=3, qkv_bias=False, qk_scale=0.2, proj_drop=0.5).eval()
    x = torch.randn(2, *layout, 32)
    with torch.no_grad():
        q, k, v = made.qkv(x).reshape(2, *layout, 3, 2, 16).movedim(-3, 0)
        wanted = made.proj(function(q, k, v, 3, scale=0.2).flatten(-2))
        assert torch.equal(made(x), wanted)


def test_names_that_states_are_saved_under() -> None:
    made = nkt.NeighborhoodAttention2D(embed_dim=64, num_heads=4, kernel_size=(3, 5))
    shapes = {name: tuple(t.shape) for name, t in made.state_dict().items()}
    assert shapes == {
        "qkv.weight": (192, 64), "qkv.bias": (192,), "proj.weight": (64, 64), "proj.bias": (64,),
    }  # fmt: skip
    assert list(inspect.signature(nkt.NeighborhoodAttention2D).parameters) == [
        "embed_dim", "num_heads", "kernel_size", "stride", "dilation", "is_causal", "qkv_bias",
        "qk_scale", "proj_drop",
    ]  # fmt: skip
    assert "kernel_size=(3, 5), stride=(1, 1)" in repr(made)


def test_a_compiled_diagram_in_another_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a module that is sent to the processes that train it."""

    @nk.diagram("n x, x -> n x")
    def sent(X: Any, W: Any) -> Any:
        return nk.softmax(X, over="x") * W

    data = pickle.dumps(nkt.compile(sent))
    monkeypatch.setattr(keys, "_FUNCTIONS", {})
    x, w = torch.randn(3, 5), torch.randn(5, requires_grad=True)
    (found,) = torch.autograd.grad(pickle.loads(data)(x, w).sum(), w)
    torch.testing.assert_close(found, x.softmax(1).sum(0))


def test_messages() -> None:
    with pytest.raises(nk.InputError, match="3 heads do not divide embed_dim 64"):
        nkt.NeighborhoodAttention1D(64, 3, 5)
    with pytest.raises(
        nk.InputError, match="NeighborhoodAttention1D: num_heads='4' is not a whole"
    ):
        nkt.NeighborhoodAttention1D(64, "4", 5)  # pyright: ignore
    assert nkt.NeighborhoodAttention1D(64, 4, 5, qk_scale=0.0).scale == 0.0
    with pytest.raises(nk.InputError, match=r"na2d: kernel_size names 3, there are 2 axes"):
        nkt.NeighborhoodAttention2D(64, 4, (3, 3, 3))
    made = nkt.NeighborhoodAttention1D(64, 4, 5)
    with pytest.raises(nk.InputError, match=r"has shape \(1, 8, 8, 64\); it takes \[B X 64\]"):
        made(torch.randn(1, 8, 8, 64))
