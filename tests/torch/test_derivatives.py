"""There are no derivatives yet: what asks for one is told so, and gets no zeros."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import napkin as nk
import napkin.torch as nkt

BACKWARD = "there is no backward pass yet"
Q = torch.randn(1, 2, 8, 16)
T = torch.randn(1, 8, 2, 16)


@nk.diagram("n d, d -> n d", name="scaled")
def scaled(X: Any, G: Any, eps: Any = 0.5) -> Any:
    return X * G + eps


CALLS = {
    "attention": lambda t: nkt.attention(t, Q, Q),
    "neighborhood": lambda t: nkt.na1d(t, T, T, 3),
    "diagram": lambda t: nkt.compile(scaled)(t[0, 0], t[0, 0, 0]),
}


class Attends(torch.nn.Module):
    def forward(self, q: Any) -> Any:
        return nkt.attention(q, q, q)


@pytest.fixture
def exported() -> Any:
    """A module that was exported where gradients are not recorded."""
    with torch.no_grad():
        return torch.export.export(Attends(), (Q,)).module()


def test_a_backward_through_what_was_exported_without_gradients(exported: Any) -> None:
    q = Q.clone().requires_grad_()
    with pytest.raises(nk.InputError, match=BACKWARD):
        exported(q)
    with torch.no_grad():
        found = exported(q)
    assert torch.equal(found, nkt.attention(Q, Q, Q))
    assert torch.equal(exported(Q), found)


@pytest.mark.parametrize("name", CALLS)
def test_gradients_of_a_transform(name: str) -> None:
    given = T if name == "neighborhood" else Q
    with pytest.raises(nk.InputError, match=BACKWARD):
        torch.func.grad(lambda t: CALLS[name](t).sum())(given)
    with pytest.raises(nk.InputError, match=BACKWARD):
        torch.func.grad(lambda t: torch.ops.napkin.run(*_operator(t))[0].sum())(Q[0])


def _operator(t: torch.Tensor) -> Any:
    """The operator of graphs on tensors, with its arguments."""
    return [t, t, t], "attention('h q d, h x d, h x d -> h q d', False, '', False)", []


@pytest.mark.parametrize("name", CALLS)
def test_a_forward_tangent(name: str) -> None:
    given = T if name == "neighborhood" else Q
    with pytest.raises(nk.InputError, match="carries a forward-mode tangent"):
        torch.func.jvp(CALLS[name], (given,), (given,))
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(given, torch.ones_like(given))
        with pytest.raises(nk.InputError, match="carries a forward-mode tangent"):
            CALLS[name](dual)
        if name == "attention":
            heads = forward_ad.make_dual(Q[0], torch.ones_like(Q[0]))
            with pytest.raises(nk.InputError, match="carries a forward-mode tangent"):
                torch.ops.napkin.run(*_operator(heads))
        found = CALLS[name](given)  # a tensor without one is computed
    assert torch.equal(found, CALLS[name](given))


def test_a_scale_that_is_a_parameter() -> None:
    scale = torch.nn.Parameter(torch.tensor(0.3))
    for call in (
        lambda: nkt.attention(Q, Q, Q, scale=scale),
        lambda: nkt.na1d(T, T, T, 3, scale=scale),
        lambda: nkt.compile(scaled)(Q[0, 0], Q[0, 0, 0], eps=scale),
    ):
        with pytest.raises(nk.InputError, match="requires gradients, and there is no backward"):
            call()
    with torch.no_grad():
        found = nkt.attention(Q, Q, Q, scale=scale)
    assert torch.equal(found, nkt.attention(Q, Q, Q, scale=scale.item()))


def test_a_plan_on_tensors_that_require_gradients() -> None:
    plan = nk.derive(scaled, sizes=dict(n=8, d=16), dtype="fp32")
    x, g = Q[0, 0], Q[0, 0, 0]
    with pytest.raises(nk.InputError, match=f"scaled: .*{BACKWARD}"):
        plan(x.clone().requires_grad_(), g)
    with pytest.raises(nk.InputError, match="eps requires gradients"):
        plan(x, g, eps=torch.nn.Parameter(torch.tensor(0.3)))
    with torch.no_grad():
        torch.testing.assert_close(plan(x.clone().requires_grad_(), g), x * g + 0.5)
