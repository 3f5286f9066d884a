"""Calls of other libraries that compute what a diagram says, to be timed beside its plan.

`torch` and `compile` evaluate any diagram, term by term or by torch.compile. The others are calls
for attention and serve diagrams that have that form (`napkin.measure.attention`): tensors are
brought into the layout that a library asks for before the clock starts, and what it gives back is
compared with float64 like the plan's own results. A diagram's file may name more in a dictionary
`baselines`, from a name to a function that takes the tensors and returns a call.

Beside a gradient the call is the backward pass that torch's autograd has of a baseline of the
diagram, whose forward pass has run and has kept what it reads.
"""

from __future__ import annotations

import ast
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch._functorch import config
from torch.nn.attention import SDPBackend, sdpa_kernel

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.ir.key_sets import bounds_of, spec_of
from napkin.ir.node import Node, postorder
from napkin.ir.operators import POINTWISE
from napkin.keys.neighbors import neighborhood
from napkin.measure.attention import AGAINST, Attention, NotAttention, constant
from napkin.measure.heads import Problem, heads, seen_of
from napkin.run.prepared import DTYPES
from napkin.torch.reference import evaluation

Call = Callable[[], Any]

MASKED = 2**28
"""Pairs of queries and keys for which a mask is written out, at most."""


FASTEST = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION,
           SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]  # fmt: skip
"""What torch's attention is made of where its backward pass is timed, the first that can be."""


class NotHere(Exception):
    """A library cannot be timed here; the message says why, and what would help."""


@dataclass(frozen=True)
class Baseline:
    """A call, how its result is turned into the diagram's outputs, and what tensors it reads."""

    call: Call
    outputs: Callable[[Any], Sequence[torch.Tensor]]
    reads: Sequence[torch.Tensor]


def made(name: str, problem: Problem, own: Mapping[str, Callable[..., Any]]) -> Baseline:
    """The baseline `name` for a problem; `own` are those of the diagram's file.

    Raises:
        NotHere: it is not installed, or does not compute this diagram.
    """
    if problem.gradient_of is not None:
        return _backward(name, problem, problem.gradient_of, own)
    try:
        if name in own:
            return Baseline(own[name](*problem.tensors), _plain, problem.tensors)
        return BASELINES[name](problem)
    except NotAttention as why:
        raise NotHere(f"the diagram is not attention as {name} has it: {why}") from None


def _plain(found: Any) -> Sequence[torch.Tensor]:
    return found if isinstance(found, list | tuple) else [found]


def _backward(name: str, p: Problem, f: Diagram, own: Mapping[str, Callable[..., Any]]) -> Baseline:
    """The backward pass of a baseline of `f`."""
    count = len(f.inputs)
    leaves = [t.detach().requires_grad_(n.kind == "real")
              for t, n in zip(p.tensors, f.inputs, strict=False)]  # fmt: skip
    forward = made(name, Problem(f, p.sizes, p.dtype, leaves), own)
    # A compiled backward pass that runs again and again may write into nothing that it reads.
    with sdpa_kernel(FASTEST, set_priority=True), config.patch(donated_buffer=False):
        found = forward.call()
    outputs = [o for o, n in zip(forward.outputs(found), f.outputs, strict=True)
               if n.node.kind == "real"]  # fmt: skip
    results = [t for t in _plain(found) if t.requires_grad]
    reads = [t for t in forward.reads if t.requires_grad]
    given = _gradients(outputs, results, p.tensors[count:])
    wanted = [t for t in leaves if t.requires_grad]
    return Baseline(
        partial(_gradients, results, reads, given),
        lambda gradients: _gradients(reads, wanted, gradients),
        p.tensors,
    )


def _gradients(
    of: Sequence[torch.Tensor], by: Sequence[torch.Tensor], cotangents: Sequence[torch.Tensor]
) -> Sequence[torch.Tensor]:
    how = {"retain_graph": True, "allow_unused": True, "materialize_grads": True}
    return torch.autograd.grad(of, by, cotangents, **how)


# --- any diagram --------------------------------------------------------------------------------


def _torch(p: Problem) -> Baseline:
    made = evaluation(p.diagram, p.sizes, real=DTYPES[p.dtype])
    return Baseline(lambda: made(*p.tensors), _plain, p.tensors)


def _compiled(p: Problem) -> Baseline:
    from torch.fx.experimental.proxy_tensor import make_fx

    made = evaluation(p.diagram, p.sizes, real=DTYPES[p.dtype])
    # Traced first: what is compiled is tensor operations, and none of the walk over nodes.
    call: Any = torch.compile(make_fx(made)(*(t.detach() for t in p.tensors)))
    return Baseline(lambda: call(*p.tensors), _plain, p.tensors)


# --- attention ----------------------------------------------------------------------------------


def _scale(p: Problem, f: Attention) -> float:
    scale = f.scale(p.sizes)
    if scale is None:
        raise NotAttention("its scores are more than a product times a number")
    return scale


def _sdpa(p: Problem) -> Baseline:
    from torch.nn.functional import scaled_dot_product_attention as sdpa

    h = heads(p)
    settings: dict[str, Any] = {"scale": _scale(p, h.form), "enable_gqa": h.grouped}
    seen = seen_of(p, h.form)
    if seen is not None and seen.plain == "causal":
        settings["is_causal"] = True
    elif seen is not None and seen.plain != "all":
        n, m = h.query.shape[2], h.key.shape[2]
        if n * m > MASKED:
            raise NotHere(f"its mask would have {n:,} x {m:,} entries; flex needs none")
        q, k = (torch.arange(i, device=h.query.device) for i in (n, m))
        settings["attn_mask"] = seen(q[:, None], k[None, :])
    return Baseline(lambda: sdpa(*h.reads, **settings), h.outputs, h.reads)


def _flex(p: Problem) -> Baseline:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    h = heads(p)
    seen = seen_of(p, h.form)
    scale = h.form.scale(p.sizes)
    settings: dict[str, Any] = {"scale": 1.0 if scale is None else scale, "enable_gqa": h.grouped}
    if scale is None:
        settings["score_mod"] = scored(h.form, p.sizes)
    if seen is not None and seen.plain != "all":
        n, m = h.query.shape[2], h.key.shape[2]
        # Compiled, it writes no table of all pairs.
        blocks: Any = torch.compile(create_block_mask) if n * m > MASKED else create_block_mask
        settings["block_mask"] = blocks(
            lambda _b, _h, q, k: seen(q, k), None, None, n, m, device=str(h.query.device)
        )
    call: Any = torch.compile(flex_attention)
    return Baseline(lambda: call(*h.reads, **settings), h.outputs, h.reads)


def scored(f: Attention, sizes: Mapping[str, int]) -> Callable[..., torch.Tensor]:
    """The scores as a function of the product of query and key, as FlexAttention asks for it.

    Raises:
        NotAttention: they are more than arithmetic on that product and numbers.
    """
    from napkin.torch.reference import NAMES

    order = [n for n in postorder([f.scores]) if n not in set(postorder([f.dot])) - {f.dot}]
    if any(n is not f.dot and not n.constant and n.op not in POINTWISE for n in order):
        raise NotAttention("its scores are more than arithmetic on a product")
    numbers = {n: constant(n, sizes) for n in order if n.constant}

    def change(score: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        values: dict[Node, Any] = {f.dot: score}
        for n in order:
            if n in numbers:
                values[n] = torch.full_like(score, numbers[n])
            elif n is not f.dot:
                values[n] = POINTWISE[n.op].evaluate(NAMES, *(values[a] for a in n.args))
        return values[f.scores]

    return change


def _imported(package: str, *modules: str) -> Any:
    for module in modules:
        try:
            return importlib.import_module(module)
        except ImportError:
            continue
    raise NotHere(f"not installed; pip install {package}")


def _fa3(p: Problem) -> Baseline:
    h = heads(p)
    scale, seen = _scale(p, h.form), seen_of(p, h.form)
    if seen is not None and h.form.seen is not None and not seen.plain:
        raise NotHere(f"it has no call for the key set {spec_of(h.form.seen).text}")
    flash = _imported("fa3-fwd (Hopper alone)", "fa3_fwd_interface", "flash_attn_interface")
    q, k, v = (t.transpose(1, 2).contiguous() for t in (h.query, h.key, h.value))
    causal = seen is not None and seen.plain == "causal"

    def outputs(found: Any) -> Sequence[torch.Tensor]:
        return h.outputs((found[0] if isinstance(found, tuple) else found).transpose(1, 2))

    call = partial(flash.flash_attn_func, q, k, v, softmax_scale=scale, causal=causal)
    return Baseline(call, outputs, (q, k, v))


def _natten(p: Problem) -> Baseline:
    h = heads(p)
    f, scale = h.form, _scale(p, h.form)
    window = window_of(f)
    natten = _imported("natten", "natten")
    key, value = h.repeated()
    layout = [p.sizes[a] for a in f.queries]
    q, k, v = (
        t.transpose(1, 2).reshape(1, *layout, t.shape[1], t.shape[3]).contiguous()
        for t in (h.query, key, value)
    )
    call = getattr(natten, f"na{len(layout)}d")
    settings: dict[str, Any] = {**window, "scale": scale}
    try:
        call(q, k, v, **settings)
    except Exception:
        # Built without kernels of its own, it has FlexAttention to fall back on.
        natten.allow_flex_compile()
        settings |= {"backend": "flex-fna", "torch_compile": True}

    def outputs(found: torch.Tensor) -> Sequence[torch.Tensor]:
        return h.outputs(found.reshape(1, -1, *found.shape[-2:]).transpose(1, 2))

    return Baseline(lambda: call(q, k, v, **settings), outputs, (q, k, v))


def window_of(f: Attention) -> dict[str, Any]:
    """The parameters of the neighborhood that a key set is.

    They are read off its text, and hold only if the set they describe has the same bounds.

    Raises:
        NotAttention: it is another key set.
    """
    what = "its key set is no neighborhood of one layout of queries and keys"
    if f.seen is None:
        raise NotAttention(what)
    spec = spec_of(f.seen)
    try:
        parsed = ast.parse(spec.text, mode="eval").body
        if not isinstance(parsed, ast.Call) or ast.unparse(parsed.func) != "neighborhood":
            raise NotAttention(what)
        settings = {str(k.arg): ast.literal_eval(k.value) for k in parsed.keywords}
        settings["kernel_size"] = ast.literal_eval(parsed.args[0])
        again = neighborhood(**settings, queries=" ".join(f.queries), keys=" ".join(f.keys))
    except (SyntaxError, IndexError, ValueError, TypeError, InputError):
        raise NotAttention(what) from None
    if bounds_of(again.boxes) != list(f.seen.args):
        raise NotAttention(what)
    return settings


BASELINES: dict[str, Callable[[Problem], Baseline]] = {
    "torch": _torch,
    "compile": _compiled,
    "sdpa": _sdpa,
    "flex": _flex,
    "fa3": _fa3,
    "natten": _natten,
}
assert tuple(BASELINES) == AGAINST
