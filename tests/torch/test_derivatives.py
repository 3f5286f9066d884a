"""Derivatives that cannot be had: what asks for one is told so, and gets no zeros."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.autograd import forward_ad

import napkin as nk
import napkin.torch as nkt

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
        with pytest.raises(nk.InputError, match="requires gradients, and a scalar of the call has"):
            call()
    with torch.no_grad():
        found = nkt.attention(Q, Q, Q, scale=scale)
    assert torch.equal(found, nkt.attention(Q, Q, Q, scale=scale.item()))


def test_a_plan_on_tensors_that_require_gradients() -> None:
    plan = nk.derive(scaled, sizes=dict(n=8, d=16), dtype="fp32")
    x, g = Q[0, 0], Q[0, 0, 0]
    with pytest.raises(nk.InputError, match=r"a plan runs at once, .* call napkin.torch.compile"):
        plan(x.clone().requires_grad_(), g)
    with pytest.raises(nk.InputError, match="eps requires gradients"):
        plan(x, g, eps=torch.nn.Parameter(torch.tensor(0.3)))
    with torch.no_grad():
        torch.testing.assert_close(plan(x.clone().requires_grad_(), g), x * g + 0.5)


def test_a_gradient_of_a_gradient(in_float64: None) -> None:
    x = torch.randn(3, 4, requires_grad=True)
    (found,) = torch.autograd.grad(nkt.compile(scaled)(x, x[0]).sum(), x, create_graph=True)
    with pytest.raises(nk.InputError, match="scaled_gradient: a gradient of a gradient is asked"):
        found.sum().backward()


@nk.diagram("n d, m d -> n", name="square")
def square(X: Any, W: Any) -> Any:
    return nk.reduce(nk.contract(X, W, over="d"), "sum", over="m") ** 2


@pytest.mark.parametrize("how", ["a penalty", "a sum", "grad of grad"])
def test_a_gradient_of_a_gradient_that_reads_only_what_is_kept(how: str, in_float64: None) -> None:
    """It reads W and the sums, which are outputs beside those of the caller."""
    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(5, 4)

    def loss(x: torch.Tensor) -> torch.Tensor:
        return nkt.compile(square)(x, w).sum()

    (found,) = torch.autograd.grad(loss(x), x, create_graph=True)
    torch.testing.assert_close(found, 2 * (x @ w.sum(0))[:, None] * w.sum(0))
    second = {
        "a penalty": lambda: (loss(x) + found.square().sum()).backward(),
        "a sum": lambda: torch.autograd.grad(found.sum(), x, allow_unused=True),
        "grad of grad": lambda: torch.func.grad(lambda x: torch.func.grad(loss)(x).sum())(x),
    }
    with pytest.raises(nk.InputError, match="square_gradient: a gradient of a gradient is asked"):
        second[how]()


def test_a_batch_of_cotangents() -> None:
    x, each = torch.randn(3, 4), torch.eye(12).reshape(12, 3, 4)
    for found in (
        lambda: torch.autograd.grad(nkt.softmax(y := x.clone().requires_grad_()), y, each,
                                    is_grads_batched=True),
        lambda: torch.autograd.functional.jacobian(nkt.softmax, x, vectorize=True),
    ):  # fmt: skip
        with pytest.raises(nk.InputError, match="softmax_gradient: a batch of cotangents is given"):
            found()
    rows = torch.vmap(torch.func.vjp(nkt.softmax, x)[1])(each)[0]
    torch.testing.assert_close(rows.reshape(3, 4, 3, 4), torch.func.jacrev(nkt.softmax)(x))


def test_a_function_that_has_none(in_float64: None) -> None:
    """Asked for it is refused; an output that it does not hang on has its own."""

    @nk.diagram("n x -> n x, n")
    def ordered(X: Any) -> Any:
        return nk.sort(X, along="x"), nk.reduce(X, "sum", over="x")

    x = torch.randn(3, 4, requires_grad=True)
    _, total = nkt.compile(ordered)(x)
    assert torch.equal(torch.autograd.grad(total.sum(), x)[0], torch.ones(3, 4))
    found, _ = nkt.compile(ordered)(x)
    with pytest.raises(nk.Refusal, match="gradient is refused at sort"):
        found.sum().backward()


def _scaled(x: torch.Tensor) -> torch.Tensor:
    return nkt.softmax(x, -1).square().sum()


def _inner_value(x: torch.Tensor) -> torch.Tensor:
    return torch.func.grad_and_value(_scaled)(x)[1]


def test_a_value_of_an_inner_transform() -> None:
    """An outer transform or autograd takes its derivatives as without an inner one."""
    x = torch.randn(3)
    want = torch.func.grad(lambda x: x.softmax(-1).square().sum())(x)
    torch.testing.assert_close(torch.func.grad(_inner_value)(x), want)
    recorded = x.clone().requires_grad_()
    _inner_value(recorded).backward()
    torch.testing.assert_close(recorded.grad, want)
    recorded = x.clone().requires_grad_()
    torch.func.vmap(_inner_value)(recorded[None]).sum().backward()
    torch.testing.assert_close(recorded.grad, want)
    with torch.no_grad():
        assert not _inner_value(recorded).requires_grad


@pytest.mark.parametrize(
    "second",
    [
        lambda x: torch.func.grad(lambda x: torch.func.grad(_scaled)(x).square().sum())(x),
        lambda x: torch.func.jacrev(torch.func.jacrev(_scaled))(x),
        lambda x: torch.func.hessian(_scaled)(x),
        lambda x: torch.func.jvp(torch.func.grad(_scaled), (x,), (x,)),
        lambda x: torch.func.jvp(torch.func.vmap(_scaled), (x[None],), (x[None],)),
        lambda x: torch.func.jvp(torch.func.vmap(torch.func.grad(_scaled)), (x[None],), (x[None],)),
    ],
)
def test_transforms_of_transforms_are_refused(second: Any) -> None:
    with pytest.raises(nk.InputError, match=r"forward-mode tangent|a gradient of a gradient"):
        second(torch.randn(3))


def test_a_mapped_call_beside_tangents_of_others() -> None:
    x = torch.randn(2, 3)
    _, found = torch.func.jvp(
        lambda y: torch.func.vmap(_scaled)(x).sum() * y, (torch.tensor(1.0),), (torch.tensor(1.0),)
    )
    torch.testing.assert_close(found, x.softmax(-1).square().sum())
