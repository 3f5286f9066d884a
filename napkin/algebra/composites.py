"""Composite operators by their definitions, for the law of their expansion."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from napkin.ir.evaluate import Array, aligned
from napkin.ir.infer import Parts, part_of
from napkin.ir.node import FLOOR, Node


def value(n: Node, parts: Parts, values: Sequence[Array]) -> Array:
    """The softmax, logsumexp or mean `n` of arrays with these values."""
    if n.op == "mean":
        ((x, axes),) = parts
        where = tuple(x.axes.index(a) for a in axes)
        count = np.prod([values[0].shape[i] for i in where])
        total = np.sum(values[0] + (0 if values[0].dtype != bool else np.int64(0)), axis=where)
        return np.asarray(total / count if count else np.full(np.shape(total), np.nan))
    every = [a for x, _ in parts for a in x.axes]
    target = list(dict.fromkeys(every))
    with np.errstate(all="ignore"):
        gone = [tuple(target.index(a) for a in axes) for _, axes in parts]
        real = [
            aligned(np.asarray(v, float), x.axes, target)
            for v, (x, _) in zip(values, parts, strict=True)
        ]
        tops = [
            np.max(v, axis=g, keepdims=True, initial=FLOOR) for v, g in zip(real, gone, strict=True)
        ]
        top = tops[0]
        for other in tops[1:]:
            top = np.maximum(top, other)
        weights = [np.exp(v - top) for v in real]
        sums = [np.sum(w, axis=g, keepdims=True) for w, g in zip(weights, gone, strict=True)]
        total = sums[0]
        for other in sums[1:]:
            total = total + other
        if n.op == "logsumexp":
            found = top + np.log(total)
        else:
            found = weights[part_of(n)] / np.where(total == 0, 1.0, total)
    lacking = tuple(i for i, a in enumerate(target) if a not in n.axes)
    found = np.squeeze(found, axis=lacking)
    return aligned(found, [a for a in target if a in n.axes], n.axes)
