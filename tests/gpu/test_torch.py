"""napkin.torch on the GPU: values, streams, devices, graphs, and no copies on the way."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
if torch.cuda.is_available():
    from torch.nn.functional import scaled_dot_product_attention

    import napkin.torch as nkt

LIMIT = {"float32": 1e-5, "float16": 3e-3, "bfloat16": 1.5e-2}


def draw(*shape: int, dtype: Any = "bfloat16", device: str = "cuda") -> Any:
    return torch.randn(*shape, device=device, dtype=getattr(torch, dtype))


def close(found: Any, wanted: Any) -> None:
    """Relative error by norm is small; NaN never is."""
    error = float((found.double() - wanted).norm() / wanted.norm())
    assert error <= LIMIT[str(found.dtype).removeprefix("torch.")], error


def agrees(*arrays: Any, **how: Any) -> None:
    """`attention` and torch's in float64."""

    def wide(t: Any) -> Any:
        return t.double() if torch.is_tensor(t) and t.is_floating_point() else t

    wanted = scaled_dot_product_attention(
        *map(wide, arrays), **{name: wide(value) for name, value in how.items()}
    )
    close(nkt.attention(*arrays, **how), wanted)


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("width", [64, 72, 128])
def test_attention(dtype: str, width: int) -> None:
    q, k, v = (
        draw(2, 4, 700, width, dtype=dtype),
        *(draw(2, 2, 900, width, dtype=dtype) for _ in range(2)),
    )
    grouped = dict(enable_gqa=True)
    agrees(q, k, v, **grouped)
    agrees(q, k, v, is_causal=True, **grouped)
    agrees(q, k[:, :, :700], v[:, :, :700], is_causal=True, scale=0.05, **grouped)
    mask = torch.rand(2, 1, 700, 900, device="cuda") > 0.5
    agrees(q, k, v, attn_mask=mask, **grouped)
    agrees(q, k, v, attn_mask=draw(4, 700, 900, dtype=dtype), **grouped)
    agrees(q[:, :2], k, v[..., : width // 2])


def test_memory_that_is_not_row_major() -> None:
    packed = draw(2, 500, 3, 8, 64)
    q, k, v = (t.transpose(1, 2) for t in packed.unbind(2))
    agrees(q, k, v)
    agrees(draw(2, 8, 64, 300).mT, k, v)  # no descriptor serves a transposed tensor
    odd = draw(2 * 8 * 500 * 64 + 1)[1:].view(2, 8, 500, 64)  # nor one that begins anywhere
    agrees(q, odd, v)


@pytest.mark.parametrize("shape", [(2, 500, 8, 64), (1, 500, 8, 64), (2, 1, 8, 64)])
def test_results_lie_in_memory_as_those_of_torch(shape: tuple[int, ...]) -> None:
    flat = draw(shape[0], shape[2], shape[1], shape[3])
    late = draw(*shape).transpose(1, 2)
    packed = draw(shape[0], shape[1], 3, *shape[2:]).select(2, 0).transpose(1, 2)
    for q in (flat, late, packed):
        agrees(q, flat, flat)
        found, wanted = nkt.attention(q, flat, flat), scaled_dot_product_attention(q, flat, flat)
        steps = [
            [t.stride(i) for i in range(4) if t.shape[i] > 1] for t in (found, wanted)
        ]  # that of an axis of one position means nothing
        assert steps[0] == steps[1]


def test_autocast() -> None:
    q, k = draw(1, 4, 300, 64, dtype="float32"), draw(1, 4, 400, 64, dtype="float16")
    bias = draw(300, 400, dtype="float32")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        found = nkt.attention(q, k, k, attn_mask=bias)
        wanted = scaled_dot_product_attention(q, k, k, attn_mask=bias)
    assert found.dtype == wanted.dtype == torch.bfloat16
    close(found, wanted.double())


def test_a_bias_of_float32_beside_half_inputs() -> None:
    q, k = draw(1, 4, 300, 64, dtype="float16"), draw(1, 4, 400, 64, dtype="float16")
    agrees(q, k, k, attn_mask=draw(300, 400, dtype="float32") * 1e3)


@pytest.mark.parametrize("lengths", [(300, 300), (200, 333), (1, 500)])
def test_causal_biases(lengths: tuple[int, int]) -> None:
    from torch.nn.attention.bias import causal_lower_right, causal_upper_left

    q, k = (draw(2, 4, n, 64) for n in lengths)
    for made in (causal_upper_left, causal_lower_right):
        bias = made(*lengths)
        wanted = scaled_dot_product_attention(
            q.double(), k.double(), k.double(), bias._materialize(q.device)
        )
        close(nkt.attention(q, k, k, bias), wanted)


def test_a_map_and_a_scale_on_the_device() -> None:
    q, k, v = (draw(3, 2, 4, 128, 64) for _ in range(3))
    # A map has a plan of its own: 24 heads take other tiles than 8, and round otherwise.
    wanted = scaled_dot_product_attention(q.double(), k.double(), v.double())
    close(torch.vmap(nkt.attention)(q, k, v), wanted)
    scale = torch.tensor(0.1, device="cuda")
    for value in (0.1, 0.3):
        found = nkt.attention(q[0], q[0], q[0], scale=scale.fill_(value))
        assert torch.equal(found, nkt.attention(q[0], q[0], q[0], scale=float(scale)))


def test_empty_axes() -> None:
    q, none = draw(1, 2, 64, 64), draw(1, 2, 0, 64)
    assert not nkt.attention(q, none, none).any()
    assert nkt.attention(none, q, q).shape == none.shape


WINDOWS = {
    "line": (1, (3000,), dict(kernel_size=255, stride=5, dilation=3)),
    "line, causal": (1, (3001,), dict(kernel_size=128, is_causal=True)),
    "plane": (2, (61, 70), dict(kernel_size=(12, 17), stride=(3, 1), is_causal=(False, True))),
    "video": (3, (10, 20, 21), dict(kernel_size=(4, 6, 8), dilation=(1, 2, 1))),
}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("name", WINDOWS)
def test_neighborhoods(name: str, dtype: str, batch: int) -> None:
    dims, layout, how = WINDOWS[name]
    function = (nkt.na1d, nkt.na2d, nkt.na3d)[dims - 1]
    q = draw(batch, *layout, 4, 64, dtype=dtype)
    k, v = (draw(batch, *layout, 2, 64, dtype=dtype) for _ in range(2))
    extra = [draw(batch, 33, 2, 64, dtype=dtype) for _ in range(2)]
    out, lse = function(
        q, k, v, **how, additional_keys=extra[0], additional_values=extra[1], return_lse=True
    )

    def flat(t: Any) -> Any:
        return t.double().flatten(1, -3).transpose(1, 2)

    K = torch.cat([flat(k), flat(extra[0])], 2).repeat_interleave(2, 1)
    V = torch.cat([flat(v), flat(extra[1])], 2).repeat_interleave(2, 1)
    mask = torch.tensor(nk.neighborhood(**how).mask(layout if dims > 1 else layout[0]))
    S = flat(q) @ K.mT / 8
    S[..., : mask.shape[1]].masked_fill_(~mask.to("cuda"), -torch.inf)
    close(out.flatten(1, -3).transpose(1, 2), S.softmax(-1) @ V)
    close(lse.flatten(1, -2).transpose(1, 2), S.logsumexp(-1))


def test_results_repeat() -> None:
    q = draw(2, 900, 4, 64)
    first = nkt.na1d(q, q, q, kernel_size=100)
    assert all(torch.equal(first, nkt.na1d(q, q, q, kernel_size=100)) for _ in range(5))


def test_the_current_stream() -> None:
    """Kernels wait for what their stream computes, and for nothing else."""
    q = draw(1, 4, 512, 64)
    wanted = nkt.attention(q, q, q)
    side = torch.cuda.Stream()
    late = torch.zeros_like(q)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(1_000_000_000)  # half a second, in which a busy host gets on
        late.copy_(q)
        found = nkt.attention(late, late, late)
    assert not side.query()  # the call did not wait
    side.synchronize()
    assert torch.equal(found, wanted)


def test_a_cuda_graph() -> None:
    q = draw(1, 4, 512, 64)
    nkt.attention(q, q, q, is_causal=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = nkt.attention(q, q, q, is_causal=True)
    q.copy_(draw(1, 4, 512, 64))
    graph.replay()
    assert torch.equal(out, nkt.attention(q, q, q, is_causal=True))


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_another_device_than_the_current() -> None:
    q = draw(1, 4, 512, 64, device="cuda:1")
    assert torch.cuda.current_device() == 0
    found = nkt.attention(q, q, q)
    assert found.device == q.device
    assert torch.cuda.current_device() == 0
    near = q.to("cuda:0")
    assert torch.equal(found.cpu(), nkt.attention(near, near, near).cpu())
    with pytest.raises(
        nk.InputError, match="query is on cuda:1, key is on cuda:0; move them to one"
    ):
        nkt.attention(q, near, near)


def test_graphs_of_steps_with_gradients() -> None:
    """Two, in one pool of memory; the second after its step was called outside, too. Each step has
    leaves of its own: torch's thread may keep those of the step before for a moment, and with them
    the stream outside the capture."""
    own = draw(2, 4, 100, 64), draw(64)

    def step() -> tuple[torch.Tensor, ...]:
        x, gain = (t.detach().requires_grad_() for t in own)
        out = nkt.attention(*[nkt.rms_norm(x, gain)] * 3, is_causal=True)
        return torch.autograd.grad(out, (x, gain), torch.ones_like(out))

    step()  # as torch asks before a capture: kernels of a backward pass are loaded by its thread
    graphs, found = list[torch.cuda.CUDAGraph](), list[tuple[torch.Tensor, ...]]()
    for i in range(2):
        graphs.append(torch.cuda.CUDAGraph())
        with torch.cuda.graph(graphs[i], pool=graphs[0].pool() if i else None):
            found.append(step())
        step()
    own[0].copy_(draw(2, 4, 100, 64))
    wanted = step()
    for graph, values in zip(graphs, found, strict=True):
        graph.replay()
        for value, expected in zip(values, wanted, strict=True):
            close(value, expected.double())


def test_graphs_of_inductor() -> None:
    made = nkt.NeighborhoodAttention2D(256, 4, kernel_size=7).cuda().bfloat16()
    x = draw(2, 20, 24, 256)

    def both(x: Any) -> Any:
        tokens = made(x * 2).flatten(1, 2).unflatten(-1, (4, 64)).transpose(1, 2)
        return nkt.attention(tokens, tokens, tokens, is_causal=True).sum(1)

    with torch.no_grad():
        fast = torch.compile(both, fullgraph=True, dynamic=False)
        close(fast(x), both(x).double())


def test_any_diagram() -> None:
    @nk.diagram("n d, d -> n d", name="rms")
    def rms(X: Any, G: Any, eps: Any = 1e-6) -> Any:
        return X * nk.rsqrt(nk.reduce(X * X, "mean", over="d") + eps) * G

    x, g = draw(500, 1000), draw(1000)
    wanted = torch.nn.functional.rms_norm(x.double(), (1000,), g.double(), 0.1)
    close(nkt.compile(rms)(x, g, eps=0.1), wanted)


def turned(x: Any, cos: Any, sin: Any) -> Any:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def row_cases() -> dict[str, tuple[Any, Any, list[tuple[int, ...]]]]:
    """Functions on rows, torch's in float64, and the shapes of their inputs."""
    from torch.nn import functional

    shape, wide = (3, 211, 1001), (1001,)
    target = torch.randint(0, 1001, shape[:-1], device="cuda")
    target[0, :5] = -100

    def loss(logits: Any) -> Any:
        return functional.cross_entropy(logits.flatten(0, 1), target.flatten())

    return {
        "rms_norm": (
            nkt.rms_norm,
            lambda x, w: functional.rms_norm(x, wide, w, 2**-23),
            [shape, wide],
        ),
        "rms_norm of a residual": (
            lambda x, w, r: nkt.rms_norm(x, w, 1e-6, r),
            lambda x, w, r: (functional.rms_norm(x + r, wide, w, 1e-6), x + r),
            [shape, wide, shape],
        ),
        "layer_norm": (
            nkt.layer_norm,
            lambda x, w, b: functional.layer_norm(x, wide, w, b),
            [shape, wide, wide],
        ),
        "softmax": (nkt.softmax, lambda x: x.softmax(-1), [shape]),
        "swiglu": (nkt.swiglu, lambda a, b: functional.silu(a) * b, [shape] * 2),
        "geglu": (nkt.geglu, lambda a, b: functional.gelu(a) * b, [shape] * 2),
        "geglu of tanh": (
            lambda a, b: nkt.geglu(a, b, "tanh"),
            lambda a, b: functional.gelu(a, approximate="tanh") * b,
            [shape] * 2,
        ),
        "cross_entropy": (lambda x: nkt.cross_entropy(x, target), loss, [shape]),
        "linear_cross_entropy": (
            lambda x, w: nkt.linear_cross_entropy(x, w, target),
            lambda x, w: loss(x @ w.T),
            [(3, 211, 72), (1001, 72)],
        ),
        "rotary": (nkt.rotary, turned, [(3, 211, 5, 66), (211, 1, 33), (211, 1, 33)]),
    }


@pytest.mark.parametrize("dtype", LIMIT)
@pytest.mark.parametrize("name", row_cases() if torch.cuda.is_available() else [])
def test_rows_and_their_gradients(name: str, dtype: str) -> None:
    ours, torchs, shapes = row_cases()[name]
    arrays = [draw(*s, dtype=dtype).requires_grad_() for s in shapes]
    wide = [t.detach().double().requires_grad_() for t in arrays]
    found, wanted = ours(*arrays), torchs(*wide)
    many = [o if isinstance(o, tuple) else (o,) for o in (found, wanted)]
    cotangents = [torch.randn_like(o) for o in many[0]]
    given = torch.autograd.grad(many[0], arrays, cotangents)
    exact = torch.autograd.grad(many[1], wide, [g.double() for g in cotangents])
    for a, b in zip((*many[0], *given), (*many[1], *exact), strict=True):
        # A mean's gradient by one score may be less than the least float16 that has all its bits.
        error, rounding = (float((t.double() - b).norm() / b.norm()) for t in (a, b.to(a.dtype)))
        assert error <= LIMIT[dtype] + rounding, (tuple(a.shape), error)
