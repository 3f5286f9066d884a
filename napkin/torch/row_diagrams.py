"""The diagrams of the functions on rows, built from the arguments of a call.

The parameters of a body are the inputs and the scalars of its diagram, by their names; inputs that
are None are not given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from napkin.diagram import library
from napkin.diagram.diagram import Diagram
from napkin.diagram.language import cast, gelu, index, rsqrt, silu, size, take, tanh, where
from napkin.diagram.reductions import contract, reduce
from napkin.ir.array import Array
from napkin.ir.expansion import maximum_and_sum
from napkin.torch.diagrams import traced


def row_diagram(
    name: str,
    signature: str,
    inputs: tuple[str, ...],
    scalars: tuple[str, ...],
    results: tuple[bool, ...],
) -> Diagram:
    """The diagram of a function on rows.

    Args:
        name: of the function, a key of `BODIES`.
        signature: of the inputs that are given, and the outputs.
        inputs: their names.
        scalars: names of the scalars that are given.
        results: of each output, whether it is stored in float32 rather than in the plan's type.
    """
    names = [*inputs, *scalars]

    def body(*arrays: Array, **given: Any) -> Any:
        made = BODIES[name](**dict(zip(names, arrays, strict=False)), **given)
        made = made if isinstance(made, tuple) else (made,)
        found = [cast(o, "fp32") if w else o for o, w in zip(made, results, strict=True)]
        return tuple(found) if len(found) > 1 else found[0]

    return traced(name, signature, names, body)


def _rms_norm(x: Any, eps: Any, weight: Any = None, residual: Any = None) -> Any:
    stream = x if residual is None else x + residual
    out = stream * rsqrt(reduce(stream * stream, "mean", over="d") + eps)
    out = out if weight is None else out * weight
    return out if residual is None else (out, stream)


def _layer_norm(x: Any, eps: Any, weight: Any = None, bias: Any = None) -> Any:
    apart = x - reduce(x, "mean", over="d")
    out = apart * rsqrt(reduce(apart**2, "mean", over="d") + eps)
    out = out if weight is None else out * weight
    return out if bias is None else out + bias


def _gated(of: Callable[[Any], Any]) -> Callable[..., Any]:
    """A unit of two arrays, or of one with both."""

    def unit(gate: Any, up: Any = None) -> Any:
        if up is None:
            gate, up = take(gate, s=0), take(gate, s=1)
        return of(gate) * up

    return unit


def _gelu_tanh(x: Any) -> Any:
    return 0.5 * x * (1 + tanh((2 / math.pi) ** 0.5 * (x + 0.044715 * x**3)))


def _counted(loss: Any, logits: Any, target: Any, ignored: Any) -> Any:
    """Losses of rows: 0 where the target is the one that is ignored, NaN where it is no class; and
    the maximum and the sum inside the log-sum-exp, which the backward pass then reads."""
    known = (target >= 0) & (target < size("v"))
    top, total = maximum_and_sum([(logits.node, ("v",))])
    return where(target == ignored, 0.0, where(known, loss, math.nan)), Array(top), Array(total)


def _cross_entropy(logits: Any, target: Any, ignored: Any, smoothing: Any = None) -> Any:
    loss = library.load("cross_entropy")(logits, target)
    if smoothing is not None:
        level = reduce(logits, "logsumexp", over="v") - reduce(logits, "mean", over="v")
        loss = (1 - smoothing) * loss + smoothing * level
    return _counted(loss, logits, target, ignored)


def _linear_cross_entropy(x: Any, weight: Any, target: Any, ignored: Any) -> Any:
    loss = library.load("linear_cross_entropy")(x, weight, target)
    return _counted(loss, contract(x, weight, over="d"), target, ignored)


def _rotary(x: Any, cos: Any, sin: Any) -> Any:
    first = index("p") == 0
    other = take(x, p=size("p") - 1 - index("p"))
    return x * cos + where(first, -other, other) * sin


BODIES: dict[str, Callable[..., Any]] = {
    "rms_norm": _rms_norm,
    "layer_norm": _layer_norm,
    "softmax": lambda x: library.load("softmax")(x),
    "swiglu": _gated(silu),
    "geglu": _gated(gelu),
    "geglu_tanh": _gated(_gelu_tanh),
    "cross_entropy": _cross_entropy,
    "linear_cross_entropy": _linear_cross_entropy,
    "rotary": _rotary,
}
"""What the functions compute, by their names."""
