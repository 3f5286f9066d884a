"""Attention with the arguments and the meaning of torch's `scaled_dot_product_attention`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from napkin.errors import InputError
from napkin.run.prepared import facts
from napkin.torch.arranged import Arranged, Result, graph_call, known_call
from napkin.torch.call_axes import Seen, joined, seen_axes
from napkin.torch.given import (
    beside_tensors,
    captured,
    causal_bias,
    in_autocast,
    same,
    scalar,
    truth,
)


def attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor:
    """softmax(query key^T * scale + bias) value: `scaled_dot_product_attention` of torch.

    Sizes of 1 before the last two axes are broadcast, in every argument. Any strides will do, and
    nothing is copied. A query that sees no key has the output 0.

    Args:
        query: [..., heads, L, d].
        key: [..., heads of keys, S, d].
        value: [..., heads of keys, S, e].
        attn_mask: broadcast to [..., heads, L, S]: booleans, true where a query sees a key, or
            numbers of the query's type or of float32, added to the scores. Of a `CausalBias` of
            torch, its variant is what is computed.
        dropout_p: 0.
        is_causal: query i sees keys 0..i, counted from the first also where L and S differ.
        scale: of the scores; d ** -0.5 by default. A tensor of one number is read at each call.
        enable_gqa: query head h reads the head h // (heads / heads of keys) of keys and values.

    Returns:
        [..., heads, L, e], of the query's type, or of autocast's, whose axes lie in memory in the
        order of the query's.

    Raises:
        InputError: the arguments do not fit together, or ask for dropout.
    """
    if dropout_p:
        raise InputError(f"attention: dropout_p={dropout_p}; kernels drop nothing, so it must be 0")
    causal = "first" if truth("attention", "is_causal", is_causal) else ""
    shared = truth("attention", "enable_gqa", enable_gqa)
    if variant := causal_bias(attn_mask):
        _check_bias(attn_mask, query, key, causal)
        causal, attn_mask = variant, None
    tensors = [query, key, value] if attn_mask is None else [query, key, value, attn_mask]
    seen = captured("attention", tensors)
    tensors = in_autocast(tensors)
    scalars = () if scale is None else (scalar("attention", "scale", scale),)
    arrange = partial(_arranged, tensors, causal, bool(scalars), shared)
    if seen == "graph":
        return graph_call("attention", arrange(), scalars)[0]
    known = ("attention", causal, shared, beside_tensors(scalars), *map(facts, tensors))
    return known_call("attention", known, seen, tensors, scalars, arrange)[0]


def _arranged(
    tensors: Sequence[torch.Tensor], causal: str, scaled: bool, grouped: bool
) -> Arranged:
    _check(tensors, causal)
    lead, arrays = _heads(tensors, grouped)
    seen, sizes = _sized(arrays, lead)
    own = [["g", "r"] if a == "g" else [a] for a in [*lead, "q", "e"] if a != "r"]
    each = sizes.get("r", 1)
    shape = [sizes[axes[0]] * each if len(axes) > 1 else sizes[axes[0]] for axes in own]
    order = memory_order(tensors[0], shape)
    out = [a for i in order for a in own[i]]
    seen, out = joined(lead, seen, out)
    # Where values are as wide as keys, the two axes are one.
    if same(sizes["e"], sizes["d"]):
        seen = [(t, ["d" if a == "e" else a for a in own]) for t, own in seen]
        out = ["d" if a == "e" else a for a in out]
    parts = [" ".join(own) or "()" for _, own in seen]
    masked = len(tensors) > 3 and tensors[3].dtype == torch.bool
    if len(tensors) > 3:
        parts[-1] += _kind(tensors[3], tensors[0])
    signature = f"{', '.join(parts)} -> {' '.join(out)}"
    causal = "self" if causal and same(sizes["q"], sizes["x"]) else causal
    arguments = signature, masked, causal, scaled
    return Arranged(arguments, [t for t, _ in seen], [Result(shape, order)])


def _check(tensors: Sequence[torch.Tensor], causal: str) -> None:
    if causal and len(tensors) > 3:
        raise InputError(
            "attention: is_causal and attn_mask are both given; join the causal mask to attn_mask"
        )
    for name, t in zip(("query", "key", "value"), tensors, strict=False):
        if t.dim() < 2:
            raise InputError(f"attention: {name} has shape {tuple(t.shape)}; it needs [..., L, d]")
    _agree(*tensors[:3])


def _sized(arrays: Sequence[torch.Tensor], lead: list[str]) -> tuple[list[Seen], dict[str, int]]:
    """The tensors without the axes that they are broadcast over, and the sizes of all axes."""
    query, _, value = arrays[:3]
    sizes = dict(zip(["q", "d"], query.shape[-2:], strict=True))
    sizes |= dict(zip(["x", "e"], value.shape[-2:], strict=True))
    axes = [[*lead, "q", "d"], [*lead, "x", "d"], [*lead, "x", "e"], [*lead, "q", "x"]]
    names = ["query", "key", "value", "attn_mask"]
    named = [own[len(own) - t.dim() :] for t, own in zip(arrays, axes, strict=False)]
    for t, own, name in zip(arrays, named, names, strict=False):
        _measure(t, own, sizes, name)
    return [seen_axes(t, own, sizes) for t, own in zip(arrays, named, strict=True)], sizes


def _check_bias(bias: Any, query: torch.Tensor, key: torch.Tensor, causal: str) -> None:
    """Check that a `CausalBias` of torch is for these lengths, and stands alone."""
    if causal:
        raise InputError("attention: is_causal and a CausalBias are both given; give one of them")
    wanted, given = (bias.seq_len_q, bias.seq_len_kv), (query.shape[-2], key.shape[-2])
    if wanted != given:
        raise InputError(
            f"attention: attn_mask is a CausalBias for {wanted[0]} queries and {wanted[1]} keys, "
            f"but there are {given[0]} and {given[1]}"
        )


def _kind(mask: torch.Tensor, query: torch.Tensor) -> str:
    """What a signature says of a mask's type."""
    if mask.dtype == torch.bool:
        return ":bool"
    if mask.dtype == query.dtype:
        return ""
    if mask.dtype == torch.float32:
        return ":fp32"
    raise InputError(
        f"attention: attn_mask is {mask.dtype}; give booleans, or a bias of torch.float32 or of "
        f"the query's type with .to({query.dtype})"
    )


def _agree(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    if query.shape[-1] != key.shape[-1]:
        raise InputError(
            f"attention: query has d={query.shape[-1]}, but key has d={key.shape[-1]}; the last "
            "axis of both must have one size"
        )
    if key.shape[-2] != value.shape[-2]:
        raise InputError(
            f"attention: key has {key.shape[-2]} positions, but value has {value.shape[-2]}"
        )


def _heads(tensors: Sequence[torch.Tensor], grouped: bool) -> tuple[list[str], list[torch.Tensor]]:
    """The names of the axes before the last two, and the tensors under them. Where query heads
    share heads of keys, heads are two axes: g, and r in each."""
    query, key, value, *mask = tensors
    rank = max(t.dim() for t in (query, key, value)) - 2
    lead = [f"b{i}" for i in range(rank - 1)] + ["h"] * (rank > 0)
    if rank == 0:
        return lead, list(tensors)
    ours, *heads = (t.shape[-3] if t.dim() > 2 else 1 for t in (query, key, value))
    theirs = max(heads)
    if not grouped:
        if ours != 1 and any(n not in (1, ours) for n in heads):
            raise InputError(
                f"attention: {ours} heads of queries, but {sorted({*map(int, heads)})} of keys and "
                "values; for query heads that share heads of keys write enable_gqa=True"
            )
        return lead, list(tensors)
    if heads[0] != heads[1] or theirs == 0 or ours % theirs:
        raise InputError(
            f"attention: enable_gqa with {ours} heads of queries and {sorted({*map(int, heads)})} "
            "of keys and values; these must be one number, which divides the first"
        )
    if theirs in (1, ours):
        return lead, list(tensors)
    each = ours // theirs
    if mask and mask[0].dim() > 2:
        if mask[0].shape[-3] not in (1, ours):
            raise InputError(
                f"attention: attn_mask has shape {tuple(mask[0].shape)}, with {mask[0].shape[-3]} "
                f"heads; it needs one, or those of the {ours} of queries"
            )
        whole = mask[0].shape[-3] == ours
        mask = [mask[0].unflatten(-3, (theirs, each)) if whole else mask[0].unsqueeze(-3)]
    query = query.unflatten(-3, (theirs, each))
    views = [query, key.unsqueeze(-3), value.unsqueeze(-3), *mask]
    return [*lead[:-1], "g", "r"], views


def _measure(t: torch.Tensor, axes: Sequence[str], sizes: dict[str, int], name: str) -> None:
    """Note the sizes of a tensor's axes, those of the tensors before; a size of 1 is broadcast."""
    if t.dim() > len(axes):
        raise InputError(f"attention: {name} has shape {tuple(t.shape)}, more axes than the others")
    for axis, n in zip(axes, t.shape, strict=True):
        known = sizes.get(axis, 1)
        if n != 1 and known == 1 and axis not in {"q", "x"}:
            sizes[axis] = n
        elif n not in (1, known):
            raise InputError(
                f"attention: {name} has shape {tuple(t.shape)}, with {n} where the others have "
                f"{known}"
            )
        sizes.setdefault(axis, n)


def memory_order(query: torch.Tensor, shape: Sequence[int]) -> list[int]:
    """The axes of an output as they lie in memory: as those of the query do, where its rows are
    contiguous and it has all of them; else in order.

    An axis of one position lies before the axis that follows it.
    """
    last = len(shape) - 1
    plain = list(range(last + 1))
    if query.dim() != last + 1 or query.stride(-1) != 1:
        return plain
    order: list[int] = []
    for i in plain[:-1]:
        if shape[i] == 1:
            continue
        if query.shape[i] == 1 or query.stride(i) == 0:
            return plain
        at = len(order)
        while at and query.stride(order[at - 1]) < query.stride(i):
            at -= 1
        order.insert(at, i)
    order.append(last)
    for i in reversed(plain[:-1]):
        if shape[i] == 1:
            order.insert(order.index(i + 1), i)
    return order
