"""What is wrong with a call is said before anything runs: what, where, what to write instead."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest
import torch

import napkin as nk
import napkin.torch as nkt
from napkin.torch.given import beside_tensors

Q, K = torch.zeros(1, 4, 8, 16), torch.zeros(1, 2, 9, 16)
T = torch.zeros(1, 8, 4, 16)
P = torch.zeros(1, 8, 6, 4, 16)


@nk.diagram("n d, n:int -> n d")
def shifted(X: Any, N: Any, eps: Any = 1.0) -> Any:
    return X * N + eps


@nk.diagram("n, n:bool -> n")
def chosen(X: Any, M: Any) -> Any:
    return nk.where(M, X, 0.0)


CALLS = {
    "dropout": (
        lambda: nkt.attention(Q, Q, Q, dropout_p=0.1),
        "attention: dropout_p=0.1; kernels drop nothing, so it must be 0",
    ),
    "a text for a flag": (
        lambda: nkt.attention(Q, Q, Q, is_causal="False"),  # pyright: ignore
        "attention: is_causal='False' is not True or False",
    ),
    "a tensor for a flag": (
        lambda: nkt.attention(Q, Q, Q, enable_gqa=torch.tensor([True, False])),  # pyright: ignore
        "attention: enable_gqa=tensor([ True, False]) is not True or False",
    ),
    "causal and a mask": (
        lambda: nkt.attention(Q, Q, Q, torch.ones(8, 8).bool(), is_causal=True),
        "is_causal and attn_mask are both given; join the causal mask to attn_mask",
    ),
    "a type": (
        lambda: nkt.attention(Q.double(), Q.double(), Q.double()),
        "attention: query is torch.float64; kernels take torch.bfloat16, torch.float16 and "
        "torch.float32, so convert it with .to(...)",
    ),
    "two types": (
        lambda: nkt.attention(Q, Q.half(), Q),
        "query is torch.float32, key is torch.float16; convert them to one type with .to(...)",
    ),
    "a bias of another type": (
        lambda: nkt.attention(Q.half(), Q.half(), Q.half(), torch.zeros(8, 8).bfloat16()),
        "attn_mask is torch.bfloat16; give booleans, or a bias of torch.float32 or of the query's "
        "type with .to(torch.float16)",
    ),
    "widths": (
        lambda: nkt.attention(Q, Q[..., :8], Q),
        "query has d=16, but key has d=8; the last axis of both must have one size",
    ),
    "lengths": (
        lambda: nkt.attention(Q, K, K[:, :, :5], enable_gqa=True),
        "key has 9 positions, but value has 5",
    ),
    "a mask for heads of keys": (
        lambda: nkt.attention(Q, K, K, torch.zeros(2, 8, 9), enable_gqa=True),
        "attn_mask has shape (2, 8, 9), with 2 heads; it needs one, or those of the 4 of queries",
    ),
    "heads": (
        lambda: nkt.attention(Q, K, K),
        "attention: 4 heads of queries, but [2] of keys and values; for query heads that share "
        "heads of keys write enable_gqa=True",
    ),
    "grouped heads": (
        lambda: nkt.attention(Q[:, :3], K, K, enable_gqa=True),
        "enable_gqa with 3 heads of queries and [2] of keys and values; these must be one number, "
        "which divides the first",
    ),
    "a mask that does not fit": (
        lambda: nkt.attention(Q, Q, Q, torch.ones(8, 9).bool()),
        "attn_mask has shape (8, 9), with 9 where the others have 8",
    ),
    "no tensor": (
        lambda: nkt.attention(np.zeros((1, 2, 8, 16)), Q, Q),
        "attention takes torch tensors, not a ndarray",
    ),
    "gradients": (
        lambda: nkt.attention(Q, Q, Q, scale=torch.ones((), requires_grad=True)),
        "attention: scale requires gradients, and a scalar of the call has none; multiply a tensor "
        "by it before the call, make it an input without axes, or give scale.item()",
    ),
    "a device": (
        lambda: nkt.compile(shifted)(torch.zeros(3, 4, device="meta"), torch.zeros(3).int()),
        "shifted: X is on meta, N is on cpu; move them to one device",
    ),
    "a layout": (
        lambda: nkt.compile(shifted)(torch.zeros(3, 4).to_sparse(), torch.zeros(3).int()),
        "shifted: X is torch.sparse_coo; give it as .to_dense()",
    ),
    "a window that does not fit": (
        lambda: nkt.na1d(T, T, T, kernel_size=3, dilation=3),
        "na1d: kernel_size 3 with dilation 3 spans 9 tokens, but axis X has 8; "
        "kernel_size * dilation may be at most 8 there",
    ),
    "a window that does not fit along one axis": (
        lambda: nkt.na2d(P, P, P, kernel_size=(8, 7)),
        "na2d: kernel_size 7 spans 7 tokens, but axis Y has 6",
    ),
    "a stride": (
        lambda: nkt.na1d(T, T, T, kernel_size=3, stride=4),
        "na1d: stride 4 exceeds kernel_size 3",
    ),
    "parameters of other axes": (
        lambda: nkt.na2d(P, P, P, kernel_size=(3, 3, 3)),
        "na2d: kernel_size names 3, there are 2 axes; give one number, or one for every axis",
    ),
    "a number of axes": (
        lambda: nkt.na2d(T, T, T, 3),
        "na2d: query has shape (1, 8, 4, 16); the layout is [B X Y heads D]",
    ),
    "layouts that differ": (
        lambda: nkt.na1d(T, T[:, :7], T[:, :7], 3),
        "all three lie on one layout of tokens, [B X]",
    ),
    "shared heads": (
        lambda: nkt.na1d(T, T[:, :, :3], T[:, :, :3], 3),
        "4 heads of queries cannot share 3 heads of keys; the second must divide the first",
    ),
    "half of the extra tokens": (
        lambda: nkt.na1d(T, T, T, 3, additional_keys=T),
        "na1d: additional_keys and additional_values come together or not",
    ),
    "extra tokens of other heads": (
        lambda: nkt.na1d(T, T, T, 3, additional_keys=T[:, :, :2], additional_values=T),
        "additional_keys has shape (1, 8, 2, 16); it needs [B N heads D] with B=1, heads=4, D=16, "
        "and one N for both",
    ),
    "a scalar": (
        lambda: nkt.compile(shifted)(torch.zeros(3, 4), torch.zeros(3).int(), ep=2),
        "shifted has no scalar 'ep'; did you mean 'eps'?",
    ),
    "a count": (
        lambda: nkt.compile(shifted)(torch.zeros(3, 4)),
        "shifted takes 2 arrays (X, N), not 1",
    ),
    "whole numbers": (
        lambda: nkt.compile(shifted)(torch.zeros(3, 4), torch.zeros(3)),
        "shifted: N holds whole numbers, but is torch.float32",
    ),
    "tests of complex numbers": (
        lambda: nkt.compile(chosen)(torch.zeros(3), torch.zeros(3).cfloat()),
        "chosen: M holds true or false, but is torch.complex64",
    ),
    "sizes": (
        lambda: nkt.compile(shifted)(torch.zeros(3, 4), torch.zeros(5).int()),
        "shifted: axis n is 3 in X but 5 in N",
    ),
    "no diagram": (
        lambda: nkt.compile(lambda x: x),
        "napkin.torch.compile takes a diagram, as nk.diagram makes it, not <function",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_message(name: str) -> None:
    call, text = CALLS[name]
    with pytest.raises(nk.InputError, match=re.escape(text)):
        call()


def test_a_scalar_may_be_no_number() -> None:
    asked = nk.diagram("a -> a", name="asked")(lambda X, s: nk.where(X > 0, X, s))
    wanted, X = [1.0, math.nan], np.array([1.0, -1.0])
    plan, compiled = nk.derive(asked, sizes={"a": 2}, dtype="fp32"), nkt.compile(asked)
    assert np.array_equal(asked.evaluate(X, s=math.nan), wanted, equal_nan=True)
    assert np.array_equal(plan(X, s=math.nan), wanted, equal_nan=True)
    assert np.array_equal(compiled(torch.tensor(X).float(), s=math.nan), wanted, equal_nan=True)
    for call in (lambda: asked.evaluate(X), lambda: plan(X), lambda: compiled(torch.tensor(X))):
        with pytest.raises(nk.InputError, match=r"asked needs a value for the scalar s; give it"):
            call()
    assert beside_tensors((math.nan, 1.0)) == beside_tensors((float("nan"), 1.0))
