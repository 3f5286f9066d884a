"""Gradients of the functions on tensors: torch's `gradcheck` in float64, kernels beside torch's own
autograd, and what torch does around a backward pass."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.autograd import gradcheck
from torch.nn.functional import scaled_dot_product_attention, silu
from torch.utils.checkpoint import checkpoint

import napkin as nk
import napkin.torch as nkt
from napkin.torch.keys import _FUNCTIONS, built, called, key_of

WORDS = torch.tensor([2, 0, 3])


@nk.diagram("n d, d, n:int -> n d, n")
def normed(X: Any, G: Any, T: Any, eps: Any = 0.1) -> Any:
    """Two outputs, a scalar of the call, and an input of whole numbers."""
    Y = X * nk.rsqrt(nk.reduce(X * X, "mean", over="d") + eps) * G
    return Y, nk.reduce(Y, "logsumexp", over="d") - nk.take(Y, d=T)


def seen(q: Any, k: Any, v: Any) -> Any:
    mask = torch.tensor([[True, False, True], [True, True, True]])
    return nkt.attention(q, k, v, attn_mask=mask)


Shapes = Sequence[tuple[int, ...]]

CHECKED: dict[str, tuple[Callable[..., Any], Shapes]] = {
    "attention": (nkt.attention, [(2, 3, 4), (2, 5, 4), (2, 5, 3)]),
    "heads that share keys": (
        lambda q, k, v: nkt.attention(q, k, v, is_causal=True, enable_gqa=True),
        [(1, 4, 3, 2), (1, 2, 5, 2), (1, 2, 5, 2)],
    ),
    "a bias": (
        lambda q, k, v, b: nkt.attention(q, k, v, b, scale=0.3),
        [(2, 2, 3, 4), (2, 1, 5, 4), (1, 2, 5, 4), (1, 3, 1)],
    ),
    "a mask": (seen, [(2, 4), (3, 4), (3, 4)]),
    "na1d and its log-sum-exp": (
        lambda q, k, v, a, b: nkt.na1d(
            q, k, v, 3, dilation=2, additional_keys=a, additional_values=b, return_lse=True
        ),
        [(1, 7, 2, 3), (1, 7, 1, 3), (1, 7, 1, 2), (1, 2, 1, 3), (1, 2, 1, 2)],
    ),
    "na2d": (
        lambda q, k, v: nkt.na2d(q, k, v, (3, 2), stride=(2, 1), is_causal=(False, True)),
        [(2, 4, 5, 1, 2)] * 3,
    ),
    "na3d": (lambda q, k, v: nkt.na3d(q, k, v, (2, 3, 1)), [(1, 3, 3, 2, 1, 2)] * 3),
    "a module": (
        lambda x: nkt.NeighborhoodAttention1D(4, 2, kernel_size=3).double()(x),
        [(1, 5, 4)],
    ),
    "a diagram": (lambda x, g: nkt.compile(normed)(x, g, WORDS, eps=0.2), [(3, 4), (4,)]),
}


@pytest.mark.parametrize("name", CHECKED)
def test_gradcheck(name: str, in_float64: None) -> None:
    function, shapes = CHECKED[name]
    arrays = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in shapes]

    def same_each_time(*given: torch.Tensor) -> Any:
        torch.manual_seed(1)  # parameters of a module
        return function(*given)

    assert gradcheck(same_each_time, arrays, fast_mode=True)


def test_only_what_is_asked_for_is_computed(in_float64: None) -> None:
    q = torch.randn(2, 3, 4, dtype=torch.float64, requires_grad=True)
    out = nkt.attention(q, q.detach(), q.detach())
    assert out.requires_grad
    found = torch.autograd.grad(out.sum(), q)[0]
    want = torch.autograd.grad(scaled_dot_product_attention(q, q.detach(), q.detach()).sum(), q)[0]
    torch.testing.assert_close(found, want)


def test_the_log_sum_exp_alone(in_float64: None) -> None:
    q, k = (torch.randn(1, 5, 2, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    _, level = nkt.na1d(q, k, k, 5, scale=1.0, return_lse=True)
    scores = torch.einsum("bqhd, bxhd -> bqhx", q, k)
    for found, want in zip(
        torch.autograd.grad(level.square().sum(), (q, k)),
        torch.autograd.grad(scores.logsumexp(-1).square().sum(), (q, k)),
        strict=True,
    ):
        torch.testing.assert_close(found, want)


def test_transforms(in_float64: None) -> None:
    k = torch.randn(5, 4, dtype=torch.float64)
    q = torch.randn(3, 2, 4, dtype=torch.float64)

    def energy(attend: Any) -> Any:
        return torch.func.grad(lambda q: attend(q, k, k).square().sum())

    want = torch.stack([energy(scaled_dot_product_attention)(x) for x in q])
    torch.testing.assert_close(torch.stack([energy(nkt.attention)(x) for x in q]), want)
    torch.testing.assert_close(torch.func.vmap(energy(nkt.attention))(q), want)
    mapped = torch.func.vmap(nkt.attention, (0, None, None))
    torch.testing.assert_close(energy(mapped)(q), want)


class Attends(torch.nn.Module):
    def forward(self, q: Any) -> Any:
        return nkt.attention(q, q, q)


def test_a_backward_through_what_was_exported_without_gradients(in_float64: None) -> None:
    q = torch.randn(1, 2, 8, 16, requires_grad=True)
    with torch.no_grad():
        exported = torch.export.export(Attends(), (q.detach(),)).module()
    found = torch.autograd.grad(exported(q).sum(), q)[0]
    torch.testing.assert_close(found, torch.autograd.grad(Attends()(q).sum(), q)[0])


def test_autocast(in_float64: None) -> None:
    q = torch.randn(1, 2, 7, 4, requires_grad=True)
    bias = torch.randn(7, 7, requires_grad=True)
    with torch.autocast("cpu", torch.bfloat16):
        out = nkt.attention(q, q, q, bias)
    assert out.dtype == torch.bfloat16
    found = torch.autograd.grad(out.float().sum(), (q, bias))
    want = torch.autograd.grad(scaled_dot_product_attention(q, q, q, bias).sum(), (q, bias))
    for got, expected in zip(found, want, strict=True):
        assert got.dtype == torch.float32
        assert (got - expected).norm() <= 0.02 * expected.norm()


@pytest.mark.parametrize("scale", [1, 0.5])
def test_a_rounded_output_is_not_read_where_an_exponential_would_be(scale: float) -> None:
    """Scores serve where they are stored in float32, and so do those that it reads a part of."""

    def kept(*casts: str) -> Any:
        def weights(X: Any, W: Any) -> Any:
            S = nk.contract(X, W, over="x")
            return nk.cast(S, "fp32") if casts else S, nk.exp(S if scale == 1 else S * scale)

        f = nk.diagram("n x, x y -> n y, n y", name="weights")(weights)
        return called(key_of("gradient", "0/1/0", nkt.compile(f)._key)).reads.outputs

    assert kept() == []
    assert kept("fp32") == [0]


def test_a_rounded_number_of_each_row_is_not_read() -> None:
    """It may be rounded by as much as is left of a difference from it."""

    def kept(*casts: str) -> Any:
        def skewness(Y: Any, X: Any, W: Any) -> Any:
            level = nk.contract(X, W, over="d")
            far = nk.reduce((Y - level) ** 3, "sum", over="f")
            return nk.cast(level, "fp32") if casts else level, far

        f = nk.diagram("n e f, n d, d e -> n e, n e", name="skewness")(skewness)
        return called(key_of("gradient", "0/1/0", nkt.compile(f)._key)).reads.outputs

    assert kept() == []
    assert kept("fp32") == [0]


# --- kernels ------------------------------------------------------------------------------------


def attend(q: torch.Tensor) -> torch.Tensor:
    return nkt.attention(q * 2, q, q, is_causal=True)


def gradient_of(function: Any, q: torch.Tensor) -> torch.Tensor:
    return torch.autograd.grad(function(q).sum(), q)[0]


@pytest.fixture(scope="module")
def query() -> torch.Tensor:
    return torch.randn(1, 2, 20, 16, requires_grad=True)


def test_kernels_beside_torchs_autograd(query: torch.Tensor) -> None:
    want = gradient_of(lambda q: scaled_dot_product_attention(q * 2, q, q, is_causal=True), query)
    torch.testing.assert_close(gradient_of(attend, query), want, rtol=1e-4, atol=1e-5)


def test_its_backward_reads_numbers_of_rows_and_stores_no_scores(query: torch.Tensor) -> None:
    gradient_of(attend, query)
    own = (f for key, f in _FUNCTIONS.items() if key.startswith("gradient") and f._recipes)
    (found,) = [f for f in own if "attention('h q d, h x d" in f.key and "'self'" in f.key]
    read = [str(n.params[0]) for n in found.diagram.inputs]
    assert read == ["query", "key", "value", "dO", "O", "m", "z"]
    stored = [t.axes for recipe in found._recipes.values() for t in recipe.stored]
    assert not [axes for axes in stored if {"q", "x"} <= {*axes}]


def test_recorded_calls_pass_the_dispatcher_by(monkeypatch: Any) -> None:
    """And tensors are arranged once for each kind of call."""
    from napkin.torch import arranged, ops, rows, scaled_dot_product

    def none(*_: Any) -> Any:
        raise AssertionError("the operator is called")

    for module in (ops, arranged):
        monkeypatch.setattr(module, "run", none)
    q = torch.randn(2, 20, 2, 16, requires_grad=True)
    heads = q.transpose(1, 2)
    calls: list[Callable[[torch.Tensor], Any]] = [
        lambda h: nkt.attention(h, h, h, is_causal=True),
        lambda h: nkt.na1d(*[h.transpose(1, 2)] * 3, 3),
        lambda h: nkt.swiglu(h, h),
        nkt.compile(nk.diagram("a b c d -> a b c d", name="twice")(lambda X: X * 2.0)),
    ]
    first = [torch.autograd.grad(f(heads).sum(), q)[0] for f in calls]
    for module, name in ((rows._Rows, "_arranged"), (scaled_dot_product, "_arranged")):
        monkeypatch.setattr(module, name, none)
    for f, wanted in zip(calls, first, strict=True):
        torch.testing.assert_close(torch.autograd.grad(f(heads).sum(), q)[0], wanted)
    with pytest.raises(AssertionError):  # other strides
        nkt.swiglu(q, q)


def test_cotangents_of_any_strides(in_float64: None) -> None:
    """Those that no view has with the axes of the diagram are copied, at every call."""
    q, k, every = (torch.randn(2, h, 20, 16, requires_grad=True) for h in (4, 2, 4))

    def found(attend: Any, cotangent: torch.Tensor) -> Any:
        shared = attend(q, k, k, enable_gqa=True), attend(q, every, every)
        return torch.autograd.grad(shared, (q, k, every), (cotangent,) * 2)

    for cotangent in (
        torch.randn(2, 6, 20, 20)[:, 1:5, :, 2:18],
        torch.ones(2, 1, 20, 1).expand(2, 4, 20, 16),
        torch.randn(16, 20, 4, 2).permute(3, 2, 1, 0),
        torch.randn(4 * 2 * 20 * 16 + 9).as_strided((2, 4, 20, 16), (640, 3, 32, 2)),
    ):
        want = found(scaled_dot_product_attention, cotangent)
        for _ in range(2):
            torch.testing.assert_close(found(nkt.attention, cotangent), want)


def test_cotangents_that_autograd_makes_negated_or_sparse() -> None:
    """No caller could have given them otherwise."""
    x, at = torch.randn(3, 4, requires_grad=True), torch.tensor([[0], [2], [2]])

    def negated(y: torch.Tensor) -> torch.Tensor:
        return torch.complex(torch.ones_like(y), y).conj().pow(3).real.sum()

    found = torch.autograd.grad(negated(nkt.softmax(x, -1)), x)
    torch.testing.assert_close(found, torch.autograd.grad(negated(torch.softmax(x, -1)), x))
    found = torch.autograd.grad(nkt.softmax(x, -1).gather(1, at, sparse_grad=True).sum(), x)
    torch.testing.assert_close(
        found, torch.autograd.grad(torch.softmax(x, -1).gather(1, at).sum(), x)
    )


def test_equal_gradients_are_one_output(in_float64: None) -> None:
    x, stream = (torch.randn(4, 10, requires_grad=True) for _ in range(2))

    def total(x: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        return nkt.rms_norm(x, residual=stream)[0].sin().sum()

    found = torch.autograd.grad(total(x, stream), (x, stream))
    assert found[0].data_ptr() == found[1].data_ptr()
    rows = built(
        "rows", "rms_norm", "n d, n d -> n d, n d", ("x", "residual"), ("eps",), (False,) * 2
    )
    made = called(key_of("gradient", "0,1/0/", rows.key))
    assert (len(made.diagram.outputs), made.reads.held) == (1, [0, 0])
    each = torch.func.vmap(torch.func.grad(total, (0, 1)))(x, stream)
    torch.testing.assert_close(each, found)


@pytest.mark.parametrize(
    ("function", "kept"),
    [
        (lambda x: nkt.rotary(x, torch.ones(5, 8), torch.ones(5, 8)), False),
        (lambda x: nkt.rms_norm(x, residual=torch.ones(5, 16)), False),
        (lambda x: nkt.rms_norm(x), True),
    ],
)
def test_inputs_that_the_backward_does_not_read_are_let_go(
    function: Any, kept: bool, in_float64: None
) -> None:
    """A norm of a sum with a residual reads the sum."""
    x = torch.randn(5, 16, requires_grad=True) * 2
    seen = weakref.ref(x)
    out = function(x)
    del x
    gc.collect()
    assert (seen() is not None) == kept
    assert out is not None


def test_graphs_and_checkpoints(query: torch.Tensor) -> None:
    torch._dynamo.reset()
    want = gradient_of(attend, query)
    fast = torch.compile(attend, fullgraph=True, backend="aot_eager", dynamic=False)
    assert torch.equal(gradient_of(fast, query), want)
    assert torch.equal(gradient_of(lambda q: checkpoint(attend, q, use_reentrant=False), query),
                       want)  # fmt: skip


def test_an_output_that_is_changed_in_place() -> None:
    """On the CPU it was a view, which autograd lets nobody change."""
    x, by_torch = (torch.linspace(-1, 2, 6).view(2, 3).requires_grad_() for _ in range(2))
    nkt.swiglu(x, x).mul_(2.0).square().sum().backward()
    (2 * by_torch * silu(by_torch)).square().sum().backward()
    torch.testing.assert_close(x.grad, by_torch.grad)
