"""The diagrams of the functions in this room, built from the arguments of a call."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from typing import Any

from napkin.diagram.diagram import Diagram
from napkin.diagram.language import cast, index, size, where
from napkin.diagram.reductions import contract, reduce, softmax
from napkin.diagram.trace import diagram
from napkin.ir.array import Array
from napkin.keys.neighbors import neighborhood
from napkin.keys.patterns import causal as causal_keys

Parameters = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], tuple[bool, ...]]
"""kernel_size, stride, dilation and is_causal, each for every axis of tokens."""


def attention_diagram(signature: str, masked: bool, causal: str, scaled: bool) -> Diagram:
    """Attention of arrays with these axes.

    Args:
        signature: of queries [.. q d], keys [.. x d], values [.. x e], a mask or a bias if there is
            one, and the output; axes that an array is broadcast over are left out of it.
        masked: whether there is a mask of booleans, rather than a bias or nothing.
        causal: where query i is among the keys, of which it sees none that come later: at "self",
            where there are as many, counted from the "first" key, or from the "last", where the
            last query is; "" where it sees all.
        scaled: whether the scale is given at the call, rather than d ** -0.5.
    """

    def attend(arrays: Sequence[Array], scale: Any) -> Array:
        scores = contract(*arrays[:2], over="d") * scale
        if masked:
            scores = where(arrays[3], scores, -math.inf)
        elif len(arrays) > 3:
            scores = scores + arrays[3]
        later = size("x") - size("q") if causal == "last" else 0
        at = None if causal == "self" else index("q") + later
        keys = causal_keys("q", "x", at=at) if causal else None
        return contract(softmax(scores, over="x", keys=keys), arrays[2], over="x")

    names = ["query", "key", "value", "attn_mask"]
    return scaled_diagram("attention", signature, names, attend, scaled)


def neighborhood_diagram(signature: str, window: Parameters, scaled: bool, lse: bool) -> Diagram:
    """Neighborhood attention of arrays with these axes.

    Args:
        signature: of queries [.. q0 .. d], keys [.. x0 .. d], values [.. x0 .. e], extra keys
            [.. a d] and extra values [.. a e] if there are any, and the outputs.
        window: the parameters of every axis of tokens.
        scaled: whether the scale is given at the call, rather than d ** -0.5.
        lse: whether the log-sum-exp of the scores is an output, too.
    """
    queries, over = (" ".join(f"{a}{i}" for i in range(len(window[0]))) for a in "qx")
    keys = neighborhood(*window, queries=queries, keys=over)

    def attend(arrays: Sequence[Array], scale: Any) -> Any:
        query, key, value, *extra = arrays
        scores = [contract(query, key, over="d") * scale]
        values, axes, sets = [value], [over], [keys]
        if extra:
            scores.append(contract(query, extra[0], over="d") * scale)
            values, axes, sets = [value, extra[1]], [over, "a"], [keys, None]
        weights = softmax(scores, over=axes, keys=sets)
        parts = [contract(*p, over=a) for *p, a in zip(weights, values, axes, strict=True)]
        out = parts[0] + parts[1] if extra else parts[0]
        if not lse:
            return out
        return out, cast(reduce(scores, "logsumexp", over=axes, keys=sets), "fp32")

    names = ["query", "key", "value", "additional_keys", "additional_values"]
    return scaled_diagram("neighborhood_attention", signature, names, attend, scaled)


def scaled_diagram(
    name: str,
    signature: str,
    names: Sequence[str],
    attend: Callable[[Sequence[Array], Any], Any],
    scaled: bool,
) -> Diagram:
    """The diagram of `attend(arrays, scale)`; its inputs have the first of these names.

    Args:
        scaled: whether the scale is a scalar of the diagram, rather than d ** -0.5.
    """

    def body(*arrays: Array, scale: Array | None = None) -> Any:
        return attend(arrays, size("d") ** -0.5 if scale is None else scale)

    count = signature.partition("->")[0].count(",") + 1
    return traced(name, signature, [*names[:count], *["scale"] * scaled], body)


def traced(name: str, signature: str, names: Sequence[str], body: Callable[..., Any]) -> Diagram:
    """The diagram of a function whose parameters have these names: inputs, then scalars."""
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(n, kind) for n in names]
    body.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return diagram(signature, name=name)(body)
