"""Neighborhood attention with NATTEN's names, layout and meaning, over one axis to three."""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any, cast

import torch

from napkin.errors import InputError
from napkin.keys.neighbors import PerAxis, PerAxisFlag, windows
from napkin.run.prepared import facts
from napkin.torch.arranged import Arranged, graph_call, in_order, known_call
from napkin.torch.diagrams import Parameters
from napkin.torch.given import beside_tensors, captured, in_autocast, scalar

RANK = 5
"""Axes of a tensor that descriptors serve; a batch of one is left out to stay within."""

_PERFORMANCE = frozenset({
    "attention_kwargs", "backend", "q_tile_shape", "kv_tile_shape", "backward_q_tile_shape",
    "backward_kv_tile_shape", "backward_kv_splits", "backward_use_pt_reduction",
    "run_persistent_kernel", "kernel_schedule", "torch_compile",
})  # fmt: skip
"""What NATTEN's functions take to choose among its kernels."""

Tensors = Sequence[torch.Tensor]

Window = tuple[PerAxis, PerAxis, PerAxis, PerAxisFlag | None]
"""kernel_size, stride, dilation and is_causal, as they are given."""


def _over(dims: int, about: str):
    """The function for so many axes of tokens; `about` is what it says of itself."""
    name = f"na{dims}d"

    def attend(
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        dilation: PerAxis = 1,
        is_causal: PerAxisFlag | None = False,
        scale: float | None = None,
        additional_keys: torch.Tensor | None = None,
        additional_values: torch.Tensor | None = None,
        return_lse: bool = False,
        **performance: Any,
    ) -> Any:
        for other in performance:
            if other not in _PERFORMANCE:
                raise TypeError(f"{name}() got an unexpected keyword argument {other!r}")
        tensors = [query, key, value]
        if additional_keys is not None and additional_values is not None:
            tensors += [additional_keys, additional_values]
        elif additional_keys is not None or additional_values is not None:
            raise InputError(f"{name}: additional_keys and additional_values come together or not")
        scalars = () if scale is None else (scalar(name, "scale", scale),)
        window = kernel_size, stride, dilation, is_causal
        seen = captured(name, tensors)
        tensors = in_autocast(tensors)
        arrange = partial(_arranged, dims, tensors, window, bool(scalars), return_lse)
        if seen == "graph":
            out = graph_call("neighborhood", arrange(), scalars)
        else:
            how = *map(_plain, window), return_lse, beside_tensors(scalars)
            known = name, *how, *map(facts, tensors)
            out = known_call("neighborhood", known, seen, tensors, scalars, arrange)
        return tuple(out) if return_lse else out[0]

    attend.__name__ = attend.__qualname__ = name
    attend.__doc__ = about
    return attend


na1d = _over(
    1,
    """Neighborhood attention along one axis: every query sees the `kernel_size` keys around it.

    The window of a query near an end is shifted until it lies inside. Any strides of the tensors
    will do, and nothing is copied. Query heads may be a multiple h * r of the heads of keys; head i
    then reads head i // r.

    Args:
        query: [B, X, heads, D].
        key: [B, X, heads, D].
        value: [B, X, heads, E].
        kernel_size: keys that a query sees, at least 1; a number, or one for every axis.
        stride: queries that share a window, from 1 to kernel_size.
        dilation: how far apart the keys of a window lie; kernel_size * dilation is at most X.
        is_causal: a query sees itself and keys before it, kernel_size in all.
        scale: of the scores; D ** -0.5 by default.
        additional_keys: [B, N, heads, D], seen by every query beside its window.
        additional_values: [B, N, heads, E].
        return_lse: give the log-sum-exp of every query's scaled scores, too.
        performance: what chooses among NATTEN's own kernels, such as backend; it has no effect.

    Returns:
        [B, X, heads, E] of the query's type; with `return_lse` also [B, X, heads] in float32.

    Raises:
        InputError: a parameter is out of range, or tensors disagree.
    """,
)
na2d = _over(
    2,
    """Neighborhood attention over a plane; see `na1d`, with [B, X, Y, heads, D] for [B, X, heads,
    D], and a window that is a rectangle.""",
)
na3d = _over(
    3,
    """Neighborhood attention over a volume, such as video; see `na1d`, with [B, X, Y, Z, heads, D]
    for [B, X, heads, D], and a window that is a cuboid.""",
)


def checked(
    dims: int, kernel_size: PerAxis, stride: PerAxis, dilation: PerAxis, is_causal: PerAxisFlag
) -> Parameters:
    """The parameters of every axis.

    Raises:
        InputError: one is out of range, or has a number of axes other than `dims`.
    """
    found = windows(kernel_size, stride, dilation, is_causal, dims, f"na{dims}d")
    return (
        tuple(w.kernel_size for w in found),
        tuple(w.stride for w in found),
        tuple(w.dilation for w in found),
        tuple(w.is_causal for w in found),
    )


def _plain(value: Any) -> Any:
    """A parameter as a key: the whole numbers that it holds at this call."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, list | tuple):
        return tuple(map(_plain, cast("Sequence[Any]", value)))
    with contextlib.suppress(TypeError):
        return operator.index(value)
    return object()  # like no other, so that it is looked at


def _arranged(dims: int, tensors: Tensors, given: Window, scaled: bool, lse: bool) -> Arranged:
    kernel_size, stride, dilation, is_causal = given
    window = checked(dims, kernel_size, stride, dilation, is_causal or False)
    _check(f"na{dims}d", tensors, window)
    query, key, value = tensors[:3]
    batch, heads = query.shape[0], query.shape[-2]
    theirs = key.shape[-2]
    shared = heads != theirs
    views = list(tensors)
    if shared:
        views[0] = query.unflatten(-2, (theirs, heads // theirs))
    drop = batch == 1 and key.dim() > RANK
    if drop:
        views = [t.select(0, 0) for t in views]
    front = "" if drop else "b "
    ours, own = ("g r", "g") if shared else ("h", "h")
    queries, over = (" ".join(f"{a}{i}" for i in range(dims)) for a in "qx")
    wide = "d" if value.shape[-1] == query.shape[-1] else "e"
    parts = [f"{front}{queries} {ours} d", f"{front}{over} {own} d", f"{front}{over} {own} {wide}"]
    if len(tensors) > 3:
        parts += [f"{front}a {own} d", f"{front}a {own} {wide}"]
    results = [f"{front}{queries} {ours} {wide}"] + [f"{front}{queries} {ours}"] * lse
    shape = [*query.shape[:-1], value.shape[-1]]
    shapes = [shape, shape[:-1]] if lse else [shape]
    arguments = f"{', '.join(parts)} -> {', '.join(results)}", window, scaled, lse
    return Arranged(arguments, views, list(map(in_order, shapes)))


def _check(name: str, tensors: Tensors, window: Parameters) -> None:
    """Check that tensors and window fit together."""
    dims = len(window[0])
    query, key, value = tensors[:3]
    layout = " ".join("XYZ"[:dims])
    for what, t in (("query", query), ("key", key), ("value", value)):
        if t.dim() != dims + 3:
            raise InputError(
                f"{name}: {what} has shape {tuple(t.shape)}; the layout is [B {layout} heads D]"
            )
    if key.shape[:-2] != query.shape[:-2] or value.shape[:-1] != key.shape[:-1]:
        raise InputError(
            f"{name}: query has shape {tuple(query.shape)}, key {tuple(key.shape)} and value "
            f"{tuple(value.shape)}; all three lie on one layout of tokens, [B {layout}]"
        )
    if key.shape[-1] != query.shape[-1]:
        raise InputError(
            f"{name}: query has D={query.shape[-1]}, but key has D={key.shape[-1]}; scores need one"
        )
    heads, theirs = query.shape[-2], key.shape[-2]
    if heads != theirs and (theirs == 0 or heads % theirs):
        raise InputError(
            f"{name}: {heads} heads of queries cannot share {theirs} heads of keys; the second "
            "must divide the first"
        )
    for axis in range(dims):
        size, k, d = query.shape[1 + axis], window[0][axis], window[2][axis]
        if k * d > size:
            what = f"kernel_size {k}" if d == 1 else f"kernel_size {k} with dilation {d}"
            raise InputError(
                f"{name}: {what} spans {k * d} tokens, but axis {'XYZ'[axis]} has {size}; "
                f"kernel_size * dilation may be at most {size} there"
            )
    for what, t, like in zip(
        ("additional_keys", "additional_values"), tensors[3:], (key, value), strict=False
    ):
        wanted = (like.shape[0], tensors[3].shape[1] if t.dim() == 4 else 0, *like.shape[-2:])
        if tuple(t.shape) != wanted:
            raise InputError(
                f"{name}: {what} has shape {tuple(t.shape)}; it needs [B N heads D] with "
                f"B={like.shape[0]}, heads={like.shape[-2]}, D={like.shape[-1]}, and one N for both"
            )
