"""Norms, softmax, gated units, losses and rotary embedding, with the meaning of torch's functions.

A record says which axes the tensors of a call have; the rest is one way for all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from napkin.errors import InputError
from napkin.run.prepared import facts
from napkin.torch.arranged import Arranged, graph_call, in_order, known_call
from napkin.torch.call_axes import Seen, joined, seen_axes
from napkin.torch.dtypes import REAL
from napkin.torch.given import autocast_type, beside_tensors, captured, in_autocast, scalar

Reduction = Literal["mean", "sum", "none"]


@dataclass(frozen=True, eq=False)
class _Rows:
    """A function on rows.

    Attributes:
        name: of the function, and of its body in `napkin.torch.row_diagrams`.
        inputs: the axes of every input. "..." are those of rows, of the first input.
        outputs: the axes of every output: of a norm the sum with a residual is the second one, of
            a loss the maximum and the sum inside the log-sum-exp, which its backward reads.
        optional: inputs that may be None.
        wide: inputs that may be in float32 where the first is not.
        shared: inputs that are broadcast over rows along axes of one position.
        casts: what autocast does, as to torch's function on CUDA: "up" gives outputs in float32,
            "down" converts inputs.
        losses: whether outputs are in float32 in any case.
        hint: what the refusal of a shape adds.
    """

    name: str
    inputs: Mapping[str, str]
    outputs: Sequence[str]
    optional: frozenset[str] = frozenset()
    wide: frozenset[str] = frozenset()
    shared: frozenset[str] = frozenset()
    casts: Literal["", "up", "down"] = ""
    losses: bool = False
    hint: str = ""

    def __call__(
        self,
        given: Mapping[str, torch.Tensor | None],
        split: tuple[int, ...] = (),
        **scalars: Any,
    ) -> Sequence[torch.Tensor]:
        """The outputs of a call, of tensors by the names of inputs, and scalars.

        Args:
            split: the sizes of two axes that are the last one of tensors as large; they are one in
                outputs, too.
        """
        names = [n for n, t in given.items() if t is not None or n not in self.optional]
        tensors: list[Any] = [given[n] for n in names]
        seen = captured(self.name, tensors)
        values = tuple(scalar(self.name, n, v) for n, v in scalars.items())
        up = self.losses or (self.casts == "up" and autocast_type(tensors[0]) is not None)
        if self.casts == "down":
            tensors = list(in_autocast(tensors))
        named = dict(zip(names, tensors, strict=True))
        arrange = partial(self._arranged, named, tuple(scalars), up, split)
        if seen == "graph":
            return graph_call("rows", arrange(), values)
        known = (self, *names, *scalars, up, beside_tensors(values), *map(facts, tensors))
        return known_call("rows", known, seen, tensors, values, arrange)

    def _arranged(
        self,
        given: Mapping[str, torch.Tensor],
        scalars: tuple[str, ...],
        up: bool,
        split: tuple[int, ...],
    ) -> Arranged:
        """How a call is computed."""
        if split:
            pairs = {n for n, axes in self.inputs.items() if len(axes.split()) > len(split)}
            given = {n: t.unflatten(-1, split) if n in pairs else t for n, t in given.items()}
        lead, sizes = self._sizes(given)
        bare = not lead  # one row
        lead = lead or ["n"]
        sizes.setdefault("n", 1)
        seen: list[Seen] = []
        for name, t in given.items():
            axes = self.inputs[name].split()
            if axes[0] == "...":
                row = t[None] if bare else t
                count = row.dim() - len(axes) + 1
                seen.append(seen_axes(row, [*lead[len(lead) - count :], *axes[1:]], sizes))
            else:
                seen.append((t, axes))
        seen, left = joined(lead, seen, list(lead))
        first = next(iter(given.values()))
        parts = [
            (" ".join(own) or "()") + self._kind(name, t, first)
            for (name, t), (_, own) in zip(given.items(), seen, strict=True)
        ]
        alone = "residual" in self.inputs and "residual" not in given
        outputs = [o.split()[1:] for o in self.outputs][: 1 if alone else None]
        second = self.losses or given.get("residual", first).dtype != first.dtype
        signature = f"{', '.join(parts)} -> {', '.join(' '.join(left + o) for o in outputs)}"
        rows = [] if bare else [sizes[a] for a in lead]
        own = [[sizes[a] for a in o] for o in outputs]
        shapes = [[*rows, *([math.prod(o)] if split else o)] for o in own]
        wide = (up, second, second)[: len(outputs)]
        arguments = self.name, signature, tuple(given), scalars, wide
        return Arranged(arguments, [t for t, _ in seen], list(map(in_order, shapes)))

    def _sizes(self, given: Mapping[str, torch.Tensor]) -> tuple[list[str], dict[str, int]]:
        """The axes of rows, and the sizes of all axes; every tensor is held against them."""
        sizes: dict[str, Any] = {}
        lead: list[str] | None = None
        for name, t in given.items():
            axes = self.inputs[name].split()
            own = [a for a in axes if a != "..."]
            rows = t.dim() - len(own)
            if lead is None and rows >= 0:
                lead = [f"b{i}" for i in range(rows - 1)] + ["n"] * (rows > 0)
                sizes |= zip(lead, t.shape, strict=False)
            wanted = [*((lead or []) if "..." in axes else []), *own]
            shared = name in self.shared
            if shared and len(own) <= t.dim() < len(wanted):
                wanted = wanted[len(wanted) - t.dim() :]
            fits = t.dim() == len(wanted) and all(
                n == sizes.setdefault(a, n) or (shared and n == 1 and a not in own)
                for a, n in zip(wanted, t.shape, strict=True)
            )
            if not fits:
                need = ", ".join(str(sizes.get(a, a)) for a in wanted)
                raise InputError(
                    f"{self.name}: {name} has shape {tuple(t.shape)}; it needs ({need})" + self.hint
                )
        return lead or [], sizes

    def _kind(self, name: str, t: torch.Tensor, first: torch.Tensor) -> str:
        """What a signature says of an input's type."""
        if name == "target":
            return ":int"
        wide = name in self.wide and t.dtype == torch.float32 != first.dtype in REAL
        return ":fp32" if wide else ""


_RMS = _Rows(
    "rms_norm", {"x": "... d", "weight": "d", "residual": "... d"}, ["... d", "... d"],
    optional=frozenset({"weight", "residual"}), wide=frozenset({"weight", "residual"}), casts="up",
)  # fmt: skip
_LAYER = _Rows(
    "layer_norm", {"x": "... d", "weight": "d", "bias": "d"}, ["... d"],
    optional=frozenset({"weight", "bias"}), wide=frozenset({"weight", "bias"}), casts="up",
)  # fmt: skip
_SOFTMAX = _Rows("softmax", {"x": "... x"}, ["... x"], casts="up")
_GATED = {
    (name, packed): _Rows(name, {"gate": "... s f"} if packed else {"gate": "... f", "up": "... f"},
                          ["... f"])
    for name in ("swiglu", "geglu", "geglu_tanh") for packed in (False, True)
}  # fmt: skip
_CROSS = _Rows(
    "cross_entropy", {"logits": "... v", "target": "..."}, ["...", "...", "..."], losses=True,
    hint=": classes lie along dim, the last axis by default; in torch's own layout that is dim=1",
)  # fmt: skip
_LINEAR_CROSS = _Rows(
    "linear_cross_entropy", {"x": "... d", "weight": "v d", "target": "..."}, ["...", "...", "..."],
    casts="down", losses=True,
)  # fmt: skip
_ROTARY = {
    f"{pair}, {table}": _Rows(
        "rotary", {"x": f"... {pair}", "cos": f"... {table}", "sin": f"... {table}"},
        [f"... {pair}"], wide=frozenset({"cos", "sin"}), shared=frozenset({"cos", "sin"}),
    )
    for pair in ("p h", "h p") for table in (pair, "h")
}  # fmt: skip


def rms_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    eps: float | None = None,
    residual: torch.Tensor | None = None,
) -> Any:
    """x / sqrt(mean(x^2) + eps) * weight over the last axis, of x + residual where that is given.

    Args:
        x: [..., d].
        weight: [d], of the type of x or float32.
        eps: that of float32 by default, as torch's kernels take it.
        residual: [..., d] as x, of its type or float32.

    Returns:
        [..., d] of the type of x, or float32 under autocast. With a residual also x + residual, in
        the type of the residual; the norm reads it before it is rounded.

    Raises:
        InputError: shapes or types do not fit.
    """
    eps = torch.finfo(torch.float32).eps if eps is None else eps
    out = _RMS({"x": x, "weight": weight, "residual": residual}, eps=eps)
    return out[0] if residual is None else tuple(out)


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """Rows of the last axis with mean 0 and variance 1, times a weight, plus a bias.

    Args:
        x: [..., d].
        weight: [d], of the type of x or float32.
        bias: [d], of the type of x or float32.
        eps: added to the variance.

    Returns:
        [..., d] of the type of x, or float32 under autocast.

    Raises:
        InputError: shapes or types do not fit.
    """
    return _LAYER({"x": x, "weight": weight, "bias": bias}, eps=eps)[0]


def softmax(x: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """Softmax along an axis; [...] of the type of x, or float32 under autocast.

    Raises:
        InputError: there is no such axis, or no kernel takes the type.
    """
    return _SOFTMAX({"x": _last("softmax", "x", x, dim)})[0].movedim(-1, dim)


def swiglu(gate: torch.Tensor, up: torch.Tensor | None = None) -> torch.Tensor:
    """silu(gate) * up, of two tensors [..., f] of one type, or of the halves [..., 2 f] of one.

    The gradient of halves is one tensor, which nothing joins from two.

    Raises:
        InputError: shapes or types do not fit.
    """
    return _gated("swiglu", gate, up)


def geglu(
    gate: torch.Tensor, up: torch.Tensor | None = None, approximate: str = "none"
) -> torch.Tensor:
    """gelu(gate) * up, of tensors as of `swiglu`; `approximate` "none" or "tanh".

    Raises:
        InputError: shapes or types do not fit, or there is no such approximation.
    """
    if approximate not in ("none", "tanh"):
        raise InputError(f"geglu: approximate={approximate!r}; write 'none' or 'tanh'")
    return _gated("geglu_tanh" if approximate == "tanh" else "geglu", gate, up)


def _gated(name: str, gate: torch.Tensor, up: torch.Tensor | None) -> torch.Tensor:
    if up is not None:
        return _GATED[name, False]({"gate": gate, "up": up})[0]
    captured(name, [gate])  # refuses what is no tensor
    if gate.dim() == 0 or gate.shape[-1] % 2:
        raise InputError(
            f"{name}: gate has shape {tuple(gate.shape)}; without up, its last axis is two halves"
        )
    return _GATED[name, True]({"gate": gate}, (2, gate.shape[-1] // 2))[0]


def cross_entropy(
    logits: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    dim: int = -1,
) -> torch.Tensor:
    """Cross-entropy of logits against classes.

    Args:
        logits: [..., v]; the axis of classes is `dim`, which is 1 in torch's own function.
        target: [...] whole numbers from 0 to v - 1; the loss of any other is NaN.
        ignore_index: a target whose loss is 0, and which no mean counts.
        reduction: "mean", "sum" or "none".
        label_smoothing: from 0 to 1; the part of the target that is spread over all classes.
        dim: the axis of classes.

    Returns:
        The loss in float32: a number, or [...] without a reduction.

    Raises:
        InputError: shapes, types or parameters do not fit.
    """
    _check_loss("cross_entropy", target, ignore_index, reduction)
    scalars: dict[str, Any] = {"ignored": ignore_index}
    if label_smoothing:
        if not 0 <= scalar("cross_entropy", "label_smoothing", label_smoothing) <= 1:
            raise InputError(f"cross_entropy: label_smoothing={label_smoothing}; write 0 to 1")
        scalars["smoothing"] = label_smoothing
    logits = _last("cross_entropy", "logits", logits, dim)
    loss, *_ = _CROSS({"logits": logits, "target": target}, **scalars)
    return _reduced(loss, target, ignore_index, reduction)


def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    target: torch.Tensor,
    *,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
) -> torch.Tensor:
    """`cross_entropy` of the logits x weight^T, which no forward pass stores.

    Args:
        x: [..., d].
        weight: [v, d].
        target: [...] whole numbers from 0 to v - 1; the loss of any other is NaN.
        ignore_index: a target whose loss is 0, and which no mean counts.
        reduction: "mean", "sum" or "none".

    Returns:
        The loss in float32: a number, or [...] without a reduction.

    Raises:
        InputError: shapes, types or parameters do not fit.
    """
    _check_loss("linear_cross_entropy", target, ignore_index, reduction)
    given = {"x": x, "weight": weight, "target": target}
    loss, *_ = _LINEAR_CROSS(given, ignored=ignore_index)
    return _reduced(loss, target, ignore_index, reduction)


def rotary(
    x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool = False
) -> torch.Tensor:
    """Rotary position embedding: pairs of numbers of a row, turned by angles.

    Args:
        x: [..., d]. Numbers i and i + d/2 are a pair; if `interleaved`, 2i and 2i + 1.
        cos: [..., d] or [..., d/2], broadcast to rows of x; of the type of x or float32.
        sin: as cos.

    Returns:
        [..., d] of the type of x.

    Raises:
        InputError: shapes or types do not fit.
    """
    captured("rotary", [x, cos, sin])  # refuses what is no tensor
    if x.dim() == 0 or x.shape[-1] % 2:
        raise InputError(f"rotary: x has shape {tuple(x.shape)}; the last axis holds pairs")
    half = x.shape[-1] // 2
    pair, sizes = ("h p", (half, 2)) if interleaved else ("p h", (2, half))
    whole = all(t.dim() and t.shape[-1] == 2 * half for t in (cos, sin))
    rows = _ROTARY[f"{pair}, {pair if whole else 'h'}"]
    return rows({"x": x, "cos": cos, "sin": sin}, sizes)[0]


def _last(name: str, what: str, t: torch.Tensor, dim: int) -> torch.Tensor:
    """A tensor with that axis last."""
    captured(name, [t])  # refuses what is no tensor
    # While a graph is captured, a number may be a symbol, which torch does not find in a range.
    known = not isinstance(dim, bool | float)  # which are equal to whole numbers
    if not known or all(dim != i for i in range(-t.dim(), t.dim())):
        raise InputError(f"{name}: {what} has shape {tuple(t.shape)}; it has no axis dim={dim}")
    return t.movedim(dim, -1)


def _check_loss(name: str, target: Any, ignore_index: int, reduction: str) -> None:
    if getattr(target, "dtype", None) == torch.bool:
        raise InputError(f"{name}: target holds tests; if they are classes, give target.long()")
    if reduction not in ("mean", "sum", "none"):
        raise InputError(f"{name}: reduction={reduction!r}; write 'mean', 'sum' or 'none'")
    ignored = scalar(name, "ignore_index", ignore_index)
    if abs(ignored) > 2**24:
        raise InputError(f"{name}: ignore_index={ignore_index}; it is at most 2^24 either way")
    if ignored % 1 != 0:
        raise InputError(f"{name}: ignore_index={ignore_index} is not a whole number")


def _reduced(loss: torch.Tensor, target: torch.Tensor, ignored: int, how: str) -> torch.Tensor:
    if how == "none":
        return loss
    # In types of few bits -100 is another number.
    return loss.sum() / (target.long() != ignored).sum() if how == "mean" else loss.sum()
