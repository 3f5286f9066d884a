"""Composite operators by their definitions, for the law of their expansion."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from napkin.ir.evaluate import Array, aligned
from napkin.ir.infer import Parts, part_of
from napkin.ir.node import FLOOR, Node, union_axes


def value(n: Node, parts: Parts, values: Sequence[Array]) -> Array:
    """The softmax, logsumexp or mean `n` of arrays with these values."""
    if n.op == "mean":
        ((x, axes),) = parts
        where = tuple(x.axes.index(a) for a in axes)
        count = np.prod([values[0].shape[i] for i in where])
        total = np.sum(values[0] + (0 if values[0].dtype != bool else np.int64(0)), axis=where)
        return np.asarray(total / count if count else np.full(np.shape(total), np.nan))
    target = union_axes(x for x, _ in parts)
    gone = [tuple(target.index(a) for a in axes) for _, axes in parts]
    with np.errstate(all="ignore"):
        pairs = zip(values, parts, strict=True)
        real = [aligned(np.asarray(v, float), x.axes, target) for v, (x, _) in pairs]
        tops = (np.max(v, g, keepdims=True, initial=FLOOR) for v, g in zip(real, gone, strict=True))
        top = reduce(np.maximum, tops)
        weights = [np.exp(v - top) for v in real]
        sums = (np.sum(w, g, keepdims=True) for w, g in zip(weights, gone, strict=True))
        total = reduce(np.add, sums)
        if n.op == "logsumexp":
            found = top + np.log(total)
        else:
            found = weights[part_of(n)] / np.where(total == 0, 1.0, total)
    lacking = tuple(i for i, a in enumerate(target) if a not in n.axes)
    found = np.squeeze(found, axis=lacking)
    return aligned(found, [a for a in target if a in n.axes], n.axes)
