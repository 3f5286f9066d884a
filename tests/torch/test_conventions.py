"""What users of PyTorch expect: layouts, autocast, biases, "meta", maps, subclasses."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention

import napkin as nk
import napkin.torch as nkt
from napkin.torch.arranged import permuted
from napkin.torch.scaled_dot_product import memory_order

HOW = dict(rtol=2e-6, atol=2e-6)


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def compiled(function: Any) -> Any:
    torch._dynamo.reset()
    return torch.compile(function, fullgraph=True, backend="aot_eager", dynamic=False)


# --- layout -------------------------------------------------------------------------------------


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("heads", [4, 2])
def test_a_result_lies_in_memory_as_the_query(captured: bool, heads: int) -> None:
    q = draw(2, 9, 4, 16).transpose(1, 2)  # tokens before heads
    k = draw(2, heads, 9, 16)

    def call(q: Any, k: Any) -> Any:
        return nkt.attention(q, k, k, enable_gqa=True)

    found = (compiled(call) if captured else call)(q, k)
    assert found.stride() == q.stride()
    wanted = scaled_dot_product_attention(q, k, k, enable_gqa=True)
    torch.testing.assert_close(found, wanted, **HOW)
    found.transpose(1, 2).view(2, 9, 64)  # no copy


def test_a_result_fills_its_memory_though_the_query_does_not() -> None:
    packed = draw(2, 9, 3, 4, 16)
    q, k, v = (t.transpose(1, 2) for t in packed.unbind(2))
    assert nkt.attention(q, k, v).stride() == (9 * 64, 16, 64, 1)
    assert nkt.attention(q, k, v[..., :8]).stride() == (9 * 32, 8, 32, 1)


@pytest.mark.parametrize(
    ("query", "shape", "order"),
    [
        (draw(2, 4, 9, 16), (2, 4, 9, 16), [0, 1, 2, 3]),
        (draw(2, 9, 4, 16).transpose(1, 2), (2, 4, 9, 16), [0, 2, 1, 3]),
        (draw(1, 9, 4, 16).transpose(1, 2), (1, 4, 9, 16), [2, 0, 1, 3]),  # one batch: no matter
        (draw(4, 9, 2, 16).permute(2, 0, 1, 3), (2, 4, 9, 16), [1, 2, 0, 3]),
        (draw(2, 4, 16, 9).mT, (2, 4, 9, 16), [0, 1, 2, 3]),  # rows that are not contiguous
        (draw(1, 1, 9, 16), (2, 4, 9, 16), [0, 1, 2, 3]),  # a query that is broadcast
        (draw(1, 9, 4, 16).transpose(1, 2).expand(2, -1, -1, -1), (2, 4, 9, 16), [0, 1, 2, 3]),
        (draw(9, 16), (2, 4, 9, 16), [0, 1, 2, 3]),
    ],
)
def test_the_order_of_axes_in_memory(query: Any, shape: Any, order: list[int]) -> None:
    assert memory_order(query, shape) == order
    found = torch.empty_strided(*permuted(shape, order))
    assert found.permute(order).is_contiguous()
    assert found.shape == shape


# --- autocast and biases ------------------------------------------------------------------------


@pytest.mark.parametrize("captured", [False, True])
def test_autocast_is_that_of_torch(captured: bool) -> None:
    q, k, bias = draw(1, 2, 9, 16), draw(1, 2, 11, 16).bfloat16(), draw(9, 11)
    mask = torch.rand(9, 11) > 0.3
    mask[:, 0] = True

    def call(attend: Any) -> Any:
        return attend(q, k, k, attn_mask=bias), attend(q, k, k, attn_mask=mask)

    def ours() -> Any:
        return call(nkt.attention)

    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, wanted = (compiled(ours) if captured else ours)(), call(scaled_dot_product_attention)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype == torch.bfloat16
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)


def test_autocast_of_neighborhoods() -> None:
    q = draw(1, 9, 2, 16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out, lse = nkt.na1d(q, q.bfloat16(), q, 3, return_lse=True)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
    half = q.bfloat16()
    assert torch.equal(out, nkt.na1d(half, half, half, 3))


@pytest.mark.parametrize("captured", [False, True])
def test_a_bias_of_float32_beside_half_inputs(captured: bool) -> None:
    q, k = draw(1, 2, 9, 16).half(), draw(1, 2, 11, 16).half()
    bias = draw(2, 9, 11) * 3e4  # more than float16 holds

    def call(q: Any, k: Any, bias: Any) -> Any:
        return nkt.attention(q, k, k, attn_mask=bias)

    found = (compiled(call) if captured else call)(q, k, bias)
    wanted = scaled_dot_product_attention(q.double(), k.double(), k.double(), bias.double())
    torch.testing.assert_close(found.double(), wanted, rtol=2e-3, atol=2e-3)


# --- torch's own biases -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lengths", "captured"), [((8, 8), False), ((5, 9), False), ((9, 5), False), ((5, 9), True)]
)
@pytest.mark.parametrize("variant", [causal_upper_left, causal_lower_right])
@pytest.mark.filterwarnings("ignore:Lower right causal bias")
def test_a_causal_bias_is_its_variant(variant: Any, lengths: Any, captured: bool) -> None:
    q, k = draw(1, 2, lengths[0], 16), draw(1, 2, lengths[1], 16)
    bias = variant(*lengths)
    seen = bias._materialize()

    def call(q: Any, k: Any) -> Any:
        return nkt.attention(q, k, k, bias, scale=0.3)

    found = (compiled(call) if captured else call)(q, k)
    wanted = scaled_dot_product_attention(q, k, k, seen, scale=0.3)
    rows = seen.any(-1)
    torch.testing.assert_close(found[..., rows, :], wanted[..., rows, :], **HOW)
    assert not found[..., ~rows, :].any()  # a query that sees nothing


def test_a_causal_bias_of_other_lengths() -> None:
    q = draw(1, 2, 8, 16)
    with pytest.raises(nk.InputError, match="for 8 queries and 9 keys, but there are 8 and 8"):
        nkt.attention(q, q, q, causal_upper_left(8, 9))
    with pytest.raises(nk.InputError, match="is_causal and a CausalBias are both given"):
        nkt.attention(q, q, q, causal_upper_left(8, 8), is_causal=True)


# --- tensors that are more than numbers ---------------------------------------------------------


class Marked(torch.Tensor):
    """A subclass, of which kernels know nothing."""


def test_other_subclasses_are_refused() -> None:
    q = draw(1, 2, 8, 16)
    marked = q.as_subclass(Marked)
    with pytest.raises(nk.InputError, match="attention takes plain tensors, not a Marked"):
        nkt.attention(q, q, marked)
    with pytest.raises(nk.InputError, match="na1d takes plain tensors, not a Marked"):
        nkt.na1d(q, q, marked, 1)
    assert torch.equal(
        nkt.attention(q, q, marked.as_subclass(torch.Tensor)), nkt.attention(q, q, q)
    )


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_nested_tensors_are_told_the_way(layout: Any) -> None:
    parts = [draw(5, 2, 16), draw(7, 2, 16)]
    nested = torch.nested.nested_tensor(parts, layout=layout).transpose(1, 2)
    with pytest.raises(nk.InputError, match=r"no nested tensors; pad .* key set nk\.documents"):
        nkt.attention(nested, nested, nested)


def test_results_are_on_the_device_of_the_tensors_whatever_the_default() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    with torch.device("meta"):
        found = nkt.softmax(x)
        (gradient,) = torch.autograd.grad(found.square().sum(), x)
    torch.testing.assert_close(found, x.softmax(1))
    torch.testing.assert_close(gradient, torch.autograd.grad(x.softmax(1).square().sum(), x)[0])


def test_shapes_on_meta() -> None:
    q, k = (torch.empty(2, n, 4, 16, device="meta").transpose(1, 2).bfloat16() for n in (9, 11))
    found = nkt.attention(q, k, k)
    assert (found.device.type, found.dtype, found.shape) == ("meta", torch.bfloat16, q.shape)
    assert found.stride() == q.stride()
    out, lse = nkt.na1d(q, q, q, 3, return_lse=True)
    assert (out.shape, lse.shape, lse.dtype) == (q.shape, q.shape[:-1], torch.float32)

    @nk.diagram("n x, x -> n", name="dots")
    def dots(X: Any, W: Any) -> Any:
        return nk.contract(X, W, over="x")

    x, w = torch.empty(3, 5, device="meta"), torch.empty(5, device="meta")
    assert nkt.compile(dots)(x, w).shape == (3,)
    with pytest.raises(nk.InputError, match="axis x is 5 in X but 3 in W"):
        nkt.compile(dots)(x, w[:3])


# --- vmap ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("over", [(0, 0, 0), (1, 0, None), (None, None, 2)])
def test_vmap_is_weaving(over: Any) -> None:
    arrays = [draw(2, 5, 16), draw(2, 7, 16), draw(2, 7, 16)]
    stacks = [
        t if at is None else torch.stack([t, t + 1, t * 2], at)
        for t, at in zip(arrays, over, strict=True)
    ]
    found = torch.vmap(nkt.attention, in_dims=over)(*stacks)
    wanted = torch.vmap(scaled_dot_product_attention, in_dims=over)(*(t.double() for t in stacks))
    assert (found - wanted).norm() <= 2e-6 * wanted.norm()


def test_vmap_of_vmap_and_of_diagrams() -> None:
    @nk.diagram("n x, x -> n, n", name="sums")
    def sums(X: Any, W: Any, eps: Any = 0.5) -> Any:
        return nk.contract(X, W, over="x") + eps, nk.reduce(X, "max", over="x")

    x, w = draw(2, 3, 4, 5), draw(2, 5)
    twice = torch.vmap(torch.vmap(nkt.compile(sums), in_dims=(0, None), out_dims=1))
    dots, most = twice(x, w)
    torch.testing.assert_close(
        dots.movedim(2, 1), (x @ w[:, None, :, None]).squeeze(-1) + 0.5, **HOW
    )
    torch.testing.assert_close(most.movedim(2, 1), x.amax(-1))
