"""Nothing of one call is kept for another: scalars in tensors, recorded calls, symbolic lengths."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.functional import scaled_dot_product_attention

import napkin as nk
import napkin.torch as nkt

HOW = dict(rtol=2e-6, atol=2e-6)
Q = torch.randn(1, 2, 8, 16)
T = torch.randn(1, 8, 2, 16)


@nk.diagram("n d -> n d", name="shifted")
def shifted(X: Any, by: Any = 1.0) -> Any:
    return X + by


@nk.diagram("n -> n", name="inverse")
def inverse(X: Any, by: Any = 1.0) -> Any:
    return X / by


def test_a_scale_that_is_changed_in_place() -> None:
    scale = torch.tensor(0.3)
    for value in (0.3, 0.7):
        scale.fill_(value)
        found = nkt.attention(Q, Q, Q, scale=scale)
        torch.testing.assert_close(found, nkt.attention(Q, Q, Q, scale=float(scale)))
        near = nkt.na1d(T, T, T, 3, scale=scale)
        torch.testing.assert_close(near, nkt.na1d(T, T, T, 3, scale=float(scale)))
        moved = nkt.compile(shifted)(Q[0, 0], by=scale)
        torch.testing.assert_close(moved, Q[0, 0] + scale)


def test_a_window_that_is_changed_in_place() -> None:
    size = torch.tensor(3)
    first = nkt.na1d(T, T, T, size)
    assert torch.equal(first, nkt.na1d(T, T, T, 3))
    size.fill_(5)
    assert torch.equal(nkt.na1d(T, T, T, size), nkt.na1d(T, T, T, 5))
    with pytest.raises(nk.InputError, match=r"kernel_size=3\.0 is not a whole number"):
        nkt.na1d(T, T, T, 3.0)


def test_a_zero_and_a_negative_zero_are_two_scalars() -> None:
    function, x = nkt.compile(inverse), torch.ones(4)
    assert torch.equal(function(x, by=0.0), torch.full((4,), torch.inf))
    assert torch.equal(function(x, by=-0.0), torch.full((4,), -torch.inf))


@pytest.mark.parametrize(
    ("scale", "said"),
    [
        (torch.ones(3), r"scale is a tensor of shape \(3,\) and torch.float32; it must be one"),
        ("0.3", "scale='0.3' is no number"),
        ([0.3], r"scale=\[0.3\] is no number"),
    ],
)
def test_a_scale_that_is_no_number(scale: Any, said: str) -> None:
    with pytest.raises(nk.InputError, match=said):
        nkt.attention(Q, Q, Q, scale=scale)
    with pytest.raises(nk.InputError, match=said.replace("scale", "by")):
        nkt.compile(shifted)(Q[0, 0], by=scale)


def test_a_scale_that_a_map_carries() -> None:
    scales = torch.tensor([0.3, 0.7])
    with pytest.raises(nk.InputError, match="scale is a tensor, whose number is not known"):
        torch.vmap(lambda s: nkt.attention(Q, Q, Q, scale=s))(scales)


@pytest.mark.parametrize("mode", ["real", "fake", "symbolic"])
def test_a_recorded_call_is_replayed_on_other_values(mode: str) -> None:
    def call(q: Any, t: Any) -> Any:
        near = nkt.na1d(t, t, t, 3)
        return nkt.attention(q, q, q), near, nkt.compile(shifted)(q[0, 0])

    graph = make_fx(call, tracing_mode=mode)(Q, T)
    q, t = torch.randn_like(Q), torch.randn_like(T)
    for a, b in zip(graph(q, t), call(q, t), strict=True):
        assert torch.equal(a, b)


def test_a_trace_of_jit_is_refused() -> None:
    with pytest.raises(nk.InputError, match=r"torch\.jit\.trace would keep this call's result"):
        torch.jit.trace(lambda q: nkt.attention(q, q, q), (Q,), check_trace=False)


class Attends(torch.nn.Module):
    def __init__(self, causal: bool) -> None:
        super().__init__()
        self.causal = causal

    def forward(self, q: Any, k: Any, v: Any) -> Any:
        return nkt.attention(q, k, v, is_causal=self.causal)


@pytest.mark.parametrize("causal", [False, True])
def test_an_export_with_lengths_that_vary(causal: bool) -> None:
    """Those of queries and keys are the same where it is captured, and differ later."""
    queries, keys = (torch.export.Dim(name, min=2, max=512) for name in ("queries", "keys"))
    dynamic = dict(q={2: queries}, k={2: keys}, v={2: keys})
    with torch.no_grad():
        module = torch.export.export(
            Attends(causal), (Q, Q.clone(), Q.clone()), dynamic_shapes=dynamic
        ).module()
    for lengths in ((8, 8), (5, 11)):
        q, k = (torch.randn(1, 2, n, 16) for n in lengths)
        wanted = scaled_dot_product_attention(q, k, k, is_causal=causal)
        torch.testing.assert_close(module(q, k, k), wanted, **HOW)


def test_a_plan_is_run_and_not_recorded() -> None:
    plan = nk.derive(shifted, sizes=dict(n=8, d=16), dtype="fp32")
    with pytest.raises(nk.InputError, match=r"a plan runs at once.*napkin\.torch\.compile"):
        make_fx(lambda q: plan(q))(Q[0, 0])
    by = torch.tensor(0.5)
    torch.testing.assert_close(plan(Q[0, 0], by=by), Q[0, 0] + 0.5)
    torch.testing.assert_close(plan(Q[0, 0], by=by.fill_(2)), Q[0, 0] + 2)
    graph = torch.compile(lambda q: plan(q) + 1, backend="eager")
    torch.testing.assert_close(graph(Q[0, 0]), Q[0, 0] + 2)
