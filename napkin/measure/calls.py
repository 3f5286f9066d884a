"""Functions of `napkin.torch`, each with the diagram of what it computes, to be called over shapes.

The diagrams here are written from what the functions say of themselves, in axes of their own: a
function arranges its arguments otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from napkin.diagram.diagram import Diagram
from napkin.diagram.language import cast, index, size, where
from napkin.diagram.reductions import contract, reduce, softmax
from napkin.diagram.trace import diagram
from napkin.keys.neighbors import neighborhood
from napkin.keys.patterns import causal


@dataclass(frozen=True)
class Scaled:
    """A call of `attention`.

    Attributes:
        mask: "" for none, "bool", or "bias" for one that is added.
        scale: of the scores; d ** -0.5 where there is none.
    """

    causal: bool = False
    mask: str = ""
    scale: float | None = None

    def diagram(self) -> Diagram:
        """Grouped-query attention, with r query heads for each of g heads of keys."""
        extra = {"": "", "bool": ", q x:bool", "bias": ", b q x"}[self.mask]

        @diagram(f"b g r q d, b g x d, b g x e{extra} -> b g r q e", name="attention")
        def attend(Q: Any, K: Any, V: Any, *masks: Any) -> Any:
            scale = size("d") ** -0.5 if self.scale is None else self.scale
            scores = contract(Q, K, over="d") * scale
            for mask in masks:
                added = self.mask == "bias"
                scores = scores + mask if added else where(mask, scores, -math.inf)
            keys = causal("q", "x", at=index("q")) if self.causal else None
            return contract(softmax(scores, over="x", keys=keys), V, over="x")

        return attend

    def __call__(self, query: Any, key: Any, value: Any, *masks: Any) -> Any:
        """`napkin.torch.attention`, which takes the heads as one axis."""
        from napkin.torch import attention

        mask = masks[0] if masks else None
        if mask is not None and self.mask == "bias":
            mask = mask[:, None]
        heads = tuple(query.shape[1:3])
        out = attention(
            query.flatten(1, 2), key, value, mask,
            is_causal=self.causal, scale=self.scale, enable_gqa=heads[1] > 1,
        )  # fmt: skip
        return out.unflatten(1, heads)


@dataclass(frozen=True)
class Windowed:
    """A call of `na1d`, `na2d` or `na3d`.

    Attributes:
        window: kernel_size, stride, dilation and is_causal, each for every axis of tokens.
        extra: whether there are additional keys, which every query sees.
        lse: whether the log-sum-exp is asked for.
    """

    window: Mapping[str, Any]
    extra: bool = False
    lse: bool = False

    @property
    def dims(self) -> int:
        """Axes of tokens."""
        return len(self.window["kernel_size"])

    def diagram(self) -> Diagram:
        """Neighborhood attention of tokens with their heads before their values."""
        q, x = (" ".join(f"{a}{i}" for i in range(self.dims)) for a in "qx")
        keys = neighborhood(**self.window, queries=q, keys=x)
        signature = f"b {q} h d, b {x} h d, b {x} h d"
        signature += ", b a h d, b a h d" if self.extra else ""
        signature += f" -> b {q} h d" + (f", b {q} h" if self.lse else "")

        @diagram(signature, name=f"na{self.dims}d")
        def attend(Q: Any, K: Any, V: Any, *more: Any) -> Any:
            S = [contract(Q, k, over="d") * size("d") ** -0.5 for k in (K, *more[:1])]
            axes, sets = [x, "a"][: len(S)], [keys, None][: len(S)]
            weights = softmax(S, over=axes, keys=sets)
            values = (V, *more[1:])
            parts = [contract(*p, over=a) for *p, a in zip(weights, values, axes, strict=True)]
            out = parts[0] + parts[1] if self.extra else parts[0]
            if not self.lse:
                return out
            return out, cast(reduce(S, "logsumexp", over=axes, keys=sets), "fp32")

        return attend

    def __call__(self, query: Any, key: Any, value: Any, *extra: Any) -> Any:
        """The function of `napkin.torch` for as many axes."""
        import napkin.torch as functions

        function = (functions.na1d, functions.na2d, functions.na3d)[self.dims - 1]
        more = dict(zip(("additional_keys", "additional_values"), extra, strict=False))
        return function(query, key, value, **self.window, **more, return_lse=self.lse)


def compiled(diagram: Callable[[], Diagram], *arrays: Any) -> Any:
    """`napkin.torch.compile` of a diagram, called."""
    from napkin.torch import compile

    return compile(diagram())(*arrays)
