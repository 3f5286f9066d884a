"""`na1d`, `na2d`, `na3d` against windows that are listed one by one, in float64."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import napkin.torch as nkt


def window(i: int, size: int, k: int, s: int, d: int, causal: bool) -> list[int]:
    """The keys of query i: a window of k within its dilation group, shared by s queries."""
    group, place = i % d, i // d
    length = len(range(group, size, d))
    block = place // s * s
    if causal:
        leader = min(block + s - 1, length - 1)
        places = range(max(leader - k + 1, 0), place + 1)
    else:
        leader = min(block + s // 2, length - 1)
        first = min(max(leader - k // 2, 0), length - k)
        places = range(first, first + k)
    return [group + d * p for p in places]


def each(value: Any, dims: int) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, tuple) else (value,) * dims


def reference(q: Any, k: Any, v: Any, extra: Any = None, **how: Any) -> tuple[Any, Any]:
    """Output and log-sum-exp in float64, query by query."""
    layout = q.shape[1:-2]
    dims, scale = len(layout), how.get("scale") or q.shape[-1] ** -0.5
    plain = {"kernel_size": 1, "stride": 1, "dilation": 1, "is_causal": False}
    by_axis = zip(*(each(how.get(name, plain[name]), dims) for name in plain), strict=True)
    windows = [
        [window(i, n, *row) for i in range(n)] for n, row in zip(layout, by_axis, strict=True)
    ]
    share = q.shape[-2] // k.shape[-2]
    q, k, v, *extra = (t.double() for t in (q, k, v, *(extra or ())))
    k, v, *extra = (t.repeat_interleave(share, -2) for t in (k, v, *extra))
    out, lse = torch.empty(*q.shape[:-1], v.shape[-1]).double(), torch.empty(q.shape[:-1]).double()
    for place in itertools.product(*map(range, layout)):
        seen = list(itertools.product(*(w[i] for w, i in zip(windows, place, strict=True))))
        at = (slice(None), *place)
        keys = torch.stack([k[(slice(None), *p)] for p in seen], 1)
        values = torch.stack([v[(slice(None), *p)] for p in seen], 1)
        if extra:
            keys, values = torch.cat([keys, extra[0]], 1), torch.cat([values, extra[1]], 1)
        scores = torch.einsum("bhd,bnhd->bhn", q[at], keys) * scale
        out[at] = torch.einsum("bhn,bnhd->bhd", scores.softmax(-1), values)
        lse[at] = scores.logsumexp(-1)
    return out, lse


CASES = {
    "line": (nkt.na1d, (2, 41), dict(kernel_size=7, stride=3)),
    "line, dilated": (nkt.na1d, (1, 38), dict(kernel_size=(5,), dilation=3, scale=0.3)),
    "line, causal": (nkt.na1d, (1, 30), dict(kernel_size=6, is_causal=True)),
    "plane": (nkt.na2d, (1, 9, 11), dict(kernel_size=(3, 4), stride=(1, 2))),
    "plane, mixed": (
        nkt.na2d,
        (2, 9, 10),
        dict(kernel_size=3, dilation=(2, 1), is_causal=(False, True)),
    ),
    "video": (nkt.na3d, (2, 4, 5, 6), dict(kernel_size=(2, 3, 4), stride=(1, 2, 2))),
}


@pytest.mark.parametrize("name", CASES)
def test_windows(name: str) -> None:
    function, lead, how = CASES[name]
    q, k, v = (torch.randn(*lead, 2, 16) for _ in range(3))
    found = function(q, k, v, **how)
    assert found.is_contiguous()
    torch.testing.assert_close(found.double(), reference(q, k, v, **how)[0], rtol=2e-6, atol=2e-6)


def test_extra_keys_grouped_heads_and_the_log_sum_exp() -> None:
    q, k, v = torch.randn(2, 27, 4, 16), *(torch.randn(2, 27, 2, 16) for _ in range(2))
    extra = [torch.randn(2, 5, 2, 16) for _ in range(2)]
    given = dict(additional_keys=extra[0], additional_values=extra[1], return_lse=True)
    out, lse = nkt.na1d(q, k, v, kernel_size=3, **given)
    wanted = reference(q, k, v, extra, kernel_size=3)
    assert lse.shape == (2, 27, 4)
    torch.testing.assert_close(out.double(), wanted[0], rtol=2e-6, atol=2e-6)
    torch.testing.assert_close(lse.double(), wanted[1], rtol=2e-6, atol=2e-6)


def test_a_window_of_one_is_the_value() -> None:
    q, k, v = (torch.randn(1, 20, 2, 16) for _ in range(3))
    assert torch.equal(nkt.na1d(q, k, v, kernel_size=1), v)


def test_what_chooses_among_other_kernels_has_no_effect() -> None:
    q, k, v = (torch.randn(1, 20, 2, 16) for _ in range(3))
    plain = nkt.na1d(q, k, v, kernel_size=1)
    assert torch.equal(plain, nkt.na1d(q, k, v, 1, backend="hopper-fna", q_tile_shape=(64,)))
    with pytest.raises(TypeError, match="unexpected keyword argument 'tile'"):
        nkt.na1d(q, k, v, 1, tile=3)
