"""Norms, softmax, gated units, losses and rotary embedding beside torch's own functions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.nn import functional

import napkin as nk
import napkin.torch as nkt
from napkin.diagram import library
from napkin.ir.node import postorder
from napkin.torch.keys import built, called, key_of
from napkin.torch.ops import _saved, trained

T = torch.tensor([[1, 9, -100], [0, 3, 3]])

Case = tuple[Callable[..., Any], Callable[..., Any], Sequence[tuple[int, ...]]]


def losses(logits: Any, **how: Any) -> Any:
    return functional.cross_entropy(logits.flatten(0, 1), T.flatten(), **how)


def halves(x: Any, c: Any, s: Any) -> Any:
    a, b = x.chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1)


def neighbors(x: Any, c: Any, s: Any) -> Any:
    a, b = x[..., ::2], x[..., 1::2]
    return torch.stack([a * c - b * s, b * c + a * s], -1).flatten(-2)


CASES: dict[str, Case] = {
    "rms_norm": (
        lambda x, w: nkt.rms_norm(x, w, 1e-3),
        lambda x, w: functional.rms_norm(x, (10,), w, 1e-3),
        [(2, 3, 10), (10,)],
    ),
    "rms_norm alone": (nkt.rms_norm, lambda x: functional.rms_norm(x, (10,), eps=2**-23), [(10,)]),
    "rms_norm of a residual": (
        lambda x, w, r: nkt.rms_norm(x, w, 1e-3, r),
        lambda x, w, r: (functional.rms_norm(x + r, (10,), w, 1e-3), x + r),
        [(2, 3, 10), (10,), (2, 3, 10)],
    ),
    "layer_norm": (
        nkt.layer_norm,
        lambda x, w, b: functional.layer_norm(x, (10,), w, b),
        [(2, 3, 10), (10,), (10,)],
    ),
    "softmax": (lambda x: nkt.softmax(x, 1), lambda x: functional.softmax(x, 1), [(2, 3, 10)]),
    "swiglu": (nkt.swiglu, lambda a, b: functional.silu(a) * b, [(2, 3, 10)] * 2),
    "geglu": (nkt.geglu, lambda a, b: functional.gelu(a) * b, [(2, 3, 10)] * 2),
    "geglu of tanh": (
        lambda a, b: nkt.geglu(a, b, "tanh"),
        lambda a, b: functional.gelu(a, approximate="tanh") * b,
        [(2, 3, 10)] * 2,
    ),
    "cross_entropy": (lambda x: nkt.cross_entropy(x, T), losses, [(2, 3, 10)]),
    "cross_entropy, smoothed": (
        lambda x: nkt.cross_entropy(x, T, label_smoothing=0.1, reduction="sum"),
        lambda x: losses(x, label_smoothing=0.1, reduction="sum"),
        [(2, 3, 10)],
    ),
    "cross_entropy in torch's layout": (
        lambda x: nkt.cross_entropy(x, T, dim=1, reduction="none", ignore_index=3),
        lambda x: functional.cross_entropy(x, T.clamp(0), reduction="none", ignore_index=3)
        * (T >= 0) + torch.where(T < 0, torch.nan, 0.0),
        [(2, 10, 3)],
    ),
    "linear_cross_entropy": (
        lambda x, w: nkt.linear_cross_entropy(x, w, T),
        lambda x, w: losses(x @ w.T),
        [(2, 3, 7), (12, 7)],
    ),
    "rotary": (nkt.rotary, halves, [(2, 3, 10), (3, 5), (3, 5)]),
    "rotary of whole tables": (
        lambda x, c, s: nkt.rotary(x, torch.cat([c, c], -1), torch.cat([s, s], -1)),
        halves,
        [(2, 3, 4, 10), (3, 1, 5), (3, 1, 5)],
    ),
    "rotary of neighbors": (
        lambda x, c, s: nkt.rotary(x, c, s, interleaved=True),
        neighbors,
        [(2, 3, 10), (3, 5), (3, 5)],
    ),
}  # fmt: skip


def many(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def agree(found: Any, wanted: Any) -> None:
    for a, b in zip(many(found), many(wanted), strict=True):
        torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=2e-6, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name: str) -> None:
    ours, torchs, shapes = CASES[name]
    arrays = [torch.randn(s, requires_grad=True) for s in shapes]
    wide = [t.detach().double().requires_grad_() for t in arrays]
    found, wanted = many(ours(*arrays)), many(torchs(*wide))
    agree(found, wanted)
    cotangents = [torch.randn_like(o) for o in found]
    agree(
        torch.autograd.grad(found, arrays, cotangents),
        torch.autograd.grad(wanted, wide, [g.double() for g in cotangents]),
    )


@pytest.mark.parametrize(
    ("name", "shipped", "arguments"),
    [
        ("rms_norm", "rmsnorm", ("n d, d -> n d", ("x", "weight"), ("eps",), (False,))),
        ("layer_norm", "layernorm",
         ("n d, d, d -> n d", ("x", "weight", "bias"), ("eps",), (False,))),
    ],
)  # fmt: skip
def test_a_norm_is_the_shipped_one(name: str, shipped: str, arguments: Any) -> None:
    f, g = built("rows", name, *arguments).diagram, library.load(shipped)
    arrays = [torch.randn(4, 6).numpy(), *(torch.randn(6).numpy() for _ in f.inputs[1:])]
    for eps in (1e-5, 0.5):
        assert (f.evaluate(*arrays, eps=eps) == g.evaluate(*arrays, eps=eps)).all()


@pytest.mark.parametrize("how", ["swiglu", "geglu", "tanh"])
def test_a_unit_of_the_halves_of_one_tensor(how: str) -> None:
    def ours(gate: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
        if how == "swiglu":
            return nkt.swiglu(gate, up)
        return nkt.geglu(gate, up, "none" if how == "geglu" else "tanh")

    both = torch.randn(2, 3, 20)[..., 2:18].requires_grad_()
    fused, halves = ours(both), ours(*both.chunk(2, -1))
    agree(fused, halves.double())
    g = torch.randn(2, 3, 8)
    agree(torch.autograd.grad(fused, both, g)[0], torch.autograd.grad(halves, both, g)[0].double())
    agree(ours(both[0, 0]), halves[0, 0].double())


def test_rows_of_any_strides() -> None:
    packed = torch.randn(2, 3, 4, 10).transpose(1, 2)
    agree(nkt.softmax(packed), functional.softmax(packed.double(), -1))
    agree(nkt.swiglu(packed, packed[:, :1].expand_as(packed)),
          functional.silu(packed.double()) * packed[:, :1])  # fmt: skip
    with torch.no_grad():
        for _ in range(2):  # the second call takes the launch that the first has prepared
            x = torch.randn(2, 3, 10)
            agree(nkt.softmax(x[..., ::2]), functional.softmax(x[..., ::2].double(), -1))


def test_one_derivation_for_every_eps() -> None:
    x = torch.randn(3, 10)
    for eps in (1e-6, 1e-2):
        agree(nkt.layer_norm(x, eps=eps), functional.layer_norm(x.double(), (10,), eps=eps))
    key = ("layer_norm", "n d -> n d", ("x",), ("eps",), (False,))
    assert len(built("rows", *key)._recipes) == 1


def test_types() -> None:
    x, w = torch.randn(2, 3, 10).bfloat16(), torch.randn(10)
    out, stream = nkt.rms_norm(x, w, 1e-3, residual=w.expand(2, 3, 10))
    assert (out.dtype, stream.dtype) == (torch.bfloat16, torch.float32)
    torch.testing.assert_close(stream, x + w)
    wanted = functional.rms_norm(stream.double(), (10,), w.double(), 1e-3)
    torch.testing.assert_close(out.double(), wanted, rtol=1e-2, atol=1e-2)
    assert nkt.cross_entropy(x.half(), T).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        found, want = nkt.layer_norm(x, w), functional.layer_norm(x.float(), (10,), w)
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, want.float(), rtol=1e-2, atol=1e-2)
        assert nkt.swiglu(x, x).dtype == torch.bfloat16
        loss = nkt.linear_cross_entropy(w.expand(2, 3, 10), torch.randn(4, 10), T.clamp(max=3))
        assert loss.dtype == torch.float32


def test_graphs_and_transforms() -> None:
    torch._dynamo.reset()
    x, w, r = torch.randn(2, 3, 10), torch.randn(10), torch.randn(2, 3, 10)

    def block(x: Any, w: Any, r: Any) -> Any:
        out, stream = nkt.rms_norm(x * 2, w, 1e-3, r)
        return nkt.swiglu(out, stream).sum() + nkt.cross_entropy(out, T)

    fast = torch.compile(block, fullgraph=True, backend="aot_eager", dynamic=False)
    torch.testing.assert_close(fast(x, w, r), block(x, w, r))
    found = torch.func.grad(block)(x, w, r)
    x.requires_grad_()
    torch.testing.assert_close(torch.autograd.grad(block(x, w, r), x)[0], found)
    torch.testing.assert_close(torch.autograd.grad(fast(x, w, r), x)[0], found)


@pytest.mark.parametrize("name", ["cross_entropy", "linear_cross_entropy"])
def test_the_backward_of_a_loss_reads_maximum_and_sum(name: str) -> None:
    inputs = {"cross_entropy": ("logits",), "linear_cross_entropy": ("x", "weight")}[name]
    axes = {"cross_entropy": "n v", "linear_cross_entropy": "n d, v d"}[name]
    arguments = (f"{axes}, n:int -> n, n, n", (*inputs, "target"), ("ignored",), (True,) * 3)
    wanted = ",".join(str(i) for i in range(len(inputs)))
    back = called(key_of("gradient", f"{wanted}/0/0,1,2", built("rows", name, *arguments).key))
    assert back.reads.outputs == [1, 2]
    # A loss alone has a cotangent: beside one for its maximum, ties of logits would be looked for.
    needed = (*(True for _ in inputs), False)
    key = built("rows", name, *arguments).key
    assert trained(key, needed) == key
    assert _saved(key, 3, needed)[1] == (1, 2)
    computed = list(postorder(back.diagram.roots))
    assert not [n for n in computed if n.op == "max"]
    assert not [n for n in computed if n.op == "sum" and n.args[0].op == "exp"]


def test_equal_gradients_are_tensors_of_their_own() -> None:
    x, stream = (torch.randn(2, 3, 10, requires_grad=True) for _ in range(2))
    both = nkt.rms_norm(x, residual=stream)
    torch.autograd.backward(both, both)
    want = x.grad.clone()
    x.grad.zero_()
    torch.testing.assert_close(stream.grad, want)


def test_a_target_that_is_no_class() -> None:
    x = torch.randn(3, 10)
    loss = nkt.cross_entropy(x, torch.tensor([10, -1, 2]), reduction="none")
    assert loss.isnan().tolist() == [True, True, False]


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int8, torch.int32])
def test_a_target_of_few_bits_that_wraps_to_the_ignored_one(dtype: torch.dtype) -> None:
    """In uint8, -100 is 156; in int8, 300 is 44."""
    ignored, classes = (-100, [156, 3, 7]) if dtype == torch.uint8 else (300, [44, 3, 7])
    x, target = torch.randn(3, 200), torch.tensor(classes, dtype=dtype)
    wanted = torch.nn.functional.cross_entropy(x, target.long())
    torch.testing.assert_close(nkt.cross_entropy(x, target, ignore_index=ignored), wanted)


X, Y = torch.zeros(2, 3, 10), torch.zeros(2, 3, 8)
CALLS = {
    "a weight": (
        lambda: nkt.rms_norm(X, torch.zeros(8)), "rms_norm: weight has shape (8,); it needs (10)",
    ),
    "a residual": (
        lambda: nkt.rms_norm(X, residual=Y),
        "rms_norm: residual has shape (2, 3, 8); it needs (2, 3, 10)",
    ),
    "no rows": (
        lambda: nkt.layer_norm(torch.zeros(())), "layer_norm: x has shape (); it needs (d)",
    ),
    "an axis": (lambda: nkt.softmax(X, 3), "softmax: x has shape (2, 3, 10); it has no axis dim=3"),
    "an axis that is no whole number": (
        lambda: nkt.softmax(X, 1.0),  # pyright: ignore
        "softmax: x has shape (2, 3, 10); it has no axis dim=1.0",
    ),
    "no axis": (
        lambda: nkt.softmax(X, None),  # pyright: ignore
        "softmax: x has shape (2, 3, 10); it has no axis dim=None",
    ),
    "a gate": (lambda: nkt.swiglu(X, Y), "swiglu: up has shape (2, 3, 8); it needs (2, 3, 10)"),
    "halves": (
        lambda: nkt.swiglu(torch.zeros(2, 3)),
        "swiglu: gate has shape (2, 3); without up, its last axis is two halves",
    ),
    "two types": (
        lambda: nkt.swiglu(X, X.half()),
        "swiglu: gate is torch.float32, up is torch.float16; convert them to one type",
    ),
    "a type": (lambda: nkt.softmax(X.double()), "softmax: x is torch.float64; kernels take"),
    "an approximation": (
        lambda: nkt.geglu(X, X, "sigmoid"), "geglu: approximate='sigmoid'; write 'none' or 'tanh'",
    ),
    "a layout": (
        lambda: nkt.cross_entropy(torch.zeros(2, 10, 3), T),
        "cross_entropy: target has shape (2, 3); it needs (2, 10): classes lie along dim, the last "
        "axis by default; in torch's own layout that is dim=1",
    ),
    "targets": (
        lambda: nkt.cross_entropy(X, torch.zeros(2, 3)),
        "cross_entropy: target holds whole numbers, but is torch.float32",
    ),
    "tests as targets": (
        lambda: nkt.cross_entropy(X, T > 0),
        "cross_entropy: target holds tests; if they are classes, give target.long()",
    ),
    "tests as targets of a product": (
        lambda: nkt.linear_cross_entropy(X, X, T > 0),
        "linear_cross_entropy: target holds tests; if they are classes, give target.long()",
    ),
    "a reduction": (
        lambda: nkt.cross_entropy(X, T, reduction="max"),  # pyright: ignore
        "cross_entropy: reduction='max'; write 'mean', 'sum' or 'none'",
    ),
    "smoothing": (
        lambda: nkt.cross_entropy(X, T, label_smoothing=2.0),
        "cross_entropy: label_smoothing=2.0; write 0 to 1",
    ),
    "smoothing that is no number": (
        lambda: nkt.cross_entropy(X, T, label_smoothing="much"),  # pyright: ignore
        "cross_entropy: label_smoothing='much' is no number",
    ),
    "no ignored target": (
        lambda: nkt.cross_entropy(X, T, ignore_index=None),  # pyright: ignore
        "cross_entropy: ignore_index=None is no number",
    ),
    "an ignored target": (
        lambda: nkt.linear_cross_entropy(X, X[0], T, ignore_index=2**31),
        "linear_cross_entropy: ignore_index=2147483648; it is at most 2^24 either way",
    ),
    "an ignored target between two": (
        lambda: nkt.cross_entropy(X, T, ignore_index=1.5),  # pyright: ignore
        "cross_entropy: ignore_index=1.5 is not a whole number",
    ),
    "an ignored target that is no number": (
        lambda: nkt.cross_entropy(X, T, ignore_index=math.nan),  # pyright: ignore
        "cross_entropy: ignore_index=nan is not a whole number",
    ),
    "a table of one angle": (
        lambda: nkt.rotary(X, torch.zeros(3, 1), torch.zeros(3, 1)),
        "rotary: cos has shape (3, 1); it needs (3, 5)",
    ),
    "no gate": (
        lambda: nkt.swiglu(None, X),  # pyright: ignore
        "swiglu takes torch tensors, not a NoneType",
    ),
    "no tensor": (
        lambda: nkt.softmax(X.numpy()),  # pyright: ignore
        "softmax takes torch tensors, not a ndarray",
    ),
    "an odd width": (
        lambda: nkt.rotary(torch.zeros(3, 5), X, X),
        "rotary: x has shape (3, 5); the last axis holds pairs",
    ),
    "a table": (
        lambda: nkt.rotary(X, torch.zeros(4, 5), torch.zeros(4, 5)),
        "rotary: cos has shape (4, 5); it needs (3, 5)",
    ),
    "a table of all and one of halves": (
        lambda: nkt.rotary(torch.zeros(2, 2, 8), torch.zeros(2, 8), torch.zeros(2, 4)),
        "rotary: cos has shape (2, 8); it needs (2, 4)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_message(name: str) -> None:
    call, text = CALLS[name]
    with pytest.raises(nk.InputError, match=re.escape(text)):
        call()


def test_what_reading_an_input_gives_again_is_not_kept() -> None:
    """A sum of squares is found in what the gradient reads in any case."""
    arguments = ("n d, d -> n d", ("x", "weight"), ("eps",), (False,))
    key = built("rows", "rms_norm", *arguments).key
    assert trained(key, (True, True)) == key
