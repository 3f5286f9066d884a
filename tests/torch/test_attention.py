"""`attention` against torch's own, in float64 on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from napkin.torch import attention
from napkin.torch.scaled_dot_product import _arranged


def wide(t: Any) -> Any:
    """A tensor of floats in float64; anything else as it is."""
    return t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t


def dense(t: torch.Tensor) -> bool:
    """Whether a tensor fills its memory, its axes in some order."""
    order = sorted(range(t.dim()), key=lambda i: -t.stride(i))
    return t.permute(order).is_contiguous()


def agrees(*arrays: Any, tolerance: float = 2e-6, **how: Any) -> Any:
    """What `attention` gives, after it was compared with torch in float64."""
    found = attention(*arrays, **how)
    wanted = scaled_dot_product_attention(
        *map(wide, arrays), **{name: wide(value) for name, value in how.items()}
    )
    assert found.dtype == arrays[0].dtype
    assert found.shape == wanted.shape
    assert dense(found)
    torch.testing.assert_close(found.double(), wanted, rtol=tolerance, atol=tolerance)
    return found


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def test_heads_first_at_sizes_that_divide_no_tile() -> None:
    agrees(draw(2, 3, 37, 16), draw(2, 3, 45, 16), draw(2, 3, 45, 16))


def test_values_wider_than_keys_and_a_scale() -> None:
    agrees(draw(2, 3, 21, 16), draw(2, 3, 30, 16), draw(2, 3, 30, 24), scale=0.4)


def test_causal_and_causal_of_other_lengths() -> None:
    q, k = draw(1, 2, 41, 16), draw(1, 2, 41, 16)
    agrees(q, k, k, is_causal=True)
    for length in (23, 60):
        other = draw(1, 2, length, 16)
        agrees(q, other, other, is_causal=True)


def test_grouped_heads() -> None:
    k = draw(2, 2, 33, 16)
    agrees(draw(2, 6, 20, 16), k, k, enable_gqa=True)
    one = draw(2, 1, 33, 16)
    agrees(draw(2, 6, 20, 16), one, one, enable_gqa=True)


@pytest.mark.parametrize("shape", [(20, 33), (2, 1, 20, 33), (2, 1, 1, 33), (6, 20, 1)])
def test_masks_are_broadcast(shape: tuple[int, ...]) -> None:
    q, k = draw(2, 6, 20, 16), draw(2, 6, 33, 16)
    mask = torch.rand(shape) > 0.3
    found = attention(q, k, k, attn_mask=mask)
    seen = mask.expand(2, 6, 20, 33).any(-1)
    wanted = scaled_dot_product_attention(wide(q), wide(k), wide(k), attn_mask=mask)
    torch.testing.assert_close(found[seen], wanted[seen].float(), rtol=2e-6, atol=2e-6)
    assert not found[~seen].any()  # a query that sees nothing


def test_a_bias_for_every_head_of_grouped_queries() -> None:
    k = draw(2, 2, 33, 16)
    agrees(draw(2, 4, 20, 16), k, k, attn_mask=draw(4, 20, 33), enable_gqa=True)
    agrees(draw(2, 4, 20, 16), k, k, attn_mask=draw(2, 1, 20, 33), enable_gqa=True)


def test_a_bias_that_is_one_number() -> None:
    q = draw(2, 3, 20, 16)
    bias = torch.tensor(0.5, requires_grad=True)
    found = attention(q, q, q, attn_mask=bias)
    torch.testing.assert_close(found.detach(), attention(q, q, q))
    (gradient,) = torch.autograd.grad(found.square().sum(), bias)
    assert gradient.shape == ()
    assert gradient.abs() < 1e-4


def test_tensors_without_heads_or_with_a_batch_of_keys_in_common() -> None:
    agrees(draw(21, 16), draw(30, 16), draw(30, 16))
    q, k = draw(3, 2, 21, 16), draw(1, 2, 30, 16)
    found = attention(q, k, k)
    torch.testing.assert_close(found, attention(q, k.expand(3, 2, 30, 16), k.expand(3, -1, -1, -1)))


def test_any_strides() -> None:
    packed = draw(2, 29, 3, 4, 16)  # as one linear map gives queries, keys and values
    q, k, v = (t.transpose(1, 2) for t in packed.unbind(2))
    assert not q.is_contiguous()
    agrees(q, k, v)
    agrees(draw(2, 4, 16, 29).mT, k, v[:, :, :, ::2])


def test_half_precision() -> None:
    q, k = draw(1, 2, 40, 32).bfloat16(), draw(1, 2, 50, 32).bfloat16()
    agrees(q, k, k, tolerance=2e-2)
    agrees(q.half(), k.half(), k.half(), tolerance=2e-3)


def test_nothing_to_attend_to() -> None:
    q, none = draw(1, 2, 5, 16), draw(1, 2, 0, 16)
    assert not attention(q, none, none).any()
    assert attention(q[:, :, :0], q, q).shape == (1, 2, 0, 16)


@pytest.mark.parametrize(
    ("heads_first", "axes"), [(True, "h q d, h x d, h x d -> h q d"), (False, "b0 h q d")]
)
def test_batches_and_heads_that_lie_as_one_are_one_axis(heads_first: bool, axes: str) -> None:
    """Boxes of three axes in memory arrive sooner than of four."""
    shape = (2, 3, 16, 16) if heads_first else (2, 16, 3, 16)
    q, k, v = (torch.randn(shape) for _ in range(3))
    if not heads_first:
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    made = _arranged([q, k, v], "", False, False)
    assert made.arguments[0].startswith(axes)
    assert {t.data_ptr() for t in made.views} == {t.data_ptr() for t in (q, k, v)}
    assert made.results[0].shape == [2, 3, 16, 16]


def dropped(kind: str) -> torch.Tensor:
    """A mask of 9 queries and 37 keys: some of each row, all of the first keys, or whole rows."""
    out = torch.rand(9, 37) < 0.4
    out[:, :30] |= kind == "beginnings"
    out[[0, 8]] |= kind == "rows"
    return out


@pytest.mark.parametrize("kind", ["some", "beginnings", "rows"])
@pytest.mark.parametrize("how", ["booleans", "bias", "bias with a gradient"])
def test_gradients_under_a_mask(kind: str, how: str) -> None:
    """Outputs and gradients of rows that are masked are 0, and never NaN."""
    mask, (q, k, v, dO) = dropped(kind), (draw(1, 2, n, 8) for n in (9, 37, 37, 9))
    given = ~mask if how == "booleans" else draw(9, 37).masked_fill(mask, -torch.inf)
    found = slopes(attention, q, k, v, given, dO, how)
    wanted = slopes(scaled_dot_product_attention, *map(wide, (q, k, v, given, dO)), how)
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f.double(), w, rtol=1e-5, atol=1e-5)
        assert f.isfinite().all()


def test_gradients_of_a_row_of_equal_large_biases() -> None:
    """Weights are 1 / n, also beside a bias that has no digits left for the logarithm of n."""
    q, k, v, dO = (draw(1, 2, n, 8) for n in (9, 37, 37, 9))
    bias = draw(9, 37)
    bias[0], bias[1] = torch.finfo(torch.float32).min, -1e9

    def plain(q: Any, k: Any, v: Any, attn_mask: Any) -> Any:
        return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5 + attn_mask, -1) @ v

    found, wanted = (slopes(f, q, k, v, bias, dO, "bias") for f in (attention, plain))
    for f, w in zip(found, wanted, strict=True):
        torch.testing.assert_close(f, w, rtol=1e-5, atol=1e-5)


def slopes(function: Any, *given: Any) -> list[torch.Tensor]:
    """The output and its gradients by queries, keys and values, and by the bias if it has one."""
    *arrays, mask, dO, how = given
    arrays = [a.clone().requires_grad_() for a in arrays]
    if how == "bias with a gradient":
        mask = mask.clone().requires_grad_()
        arrays.append(mask)
    out = function(*arrays[:3], attn_mask=mask)
    return [out.detach(), *torch.autograd.grad(out, arrays, dO)]
