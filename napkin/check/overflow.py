"""Numbers that pass what kernels compute in: no kernel can be right about them, or wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from napkin.diagram.diagram import Diagram
from napkin.ir.evaluate import evaluate
from napkin.ir.expansion import expanded
from napkin.ir.listing import text
from napkin.ir.node import REDUCTIONS, Node, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.walk import needs, ordered

_LARGEST = float(np.finfo(np.float32).max)
"""The largest number of float32, in which kernels compute."""


def overflow(
    diagram: Diagram,
    arrays: Sequence[np.ndarray[Any, Any]],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
    whole: bool = False,
) -> str:
    """The first array of the reference that passes float32 or int32, and how far, in words; ""
    where none does.

    Args:
        whole: whether only whole numbers are asked about, which wrap to finite values.
    """
    opened = expanded(diagram.roots)
    roots = [opened[n] for n in diagram.roots]
    numbers = zip(diagram.inputs, diagram.read(arrays), strict=True)
    leaves = {str(n.params[0]): x for n, x in numbers}
    bind = {n: leaves[str(n.params[0])] for n in postorder(roots) if n.op == "input"}
    order = ordered(roots)
    values = dict(zip(order, evaluate(order, bind, sizes, scalars), strict=True))
    names = {opened[n]: name for n, name in diagram.names.items() if n in opened}
    names |= {n: o.name for n, o in zip(roots, diagram.outputs, strict=True)}
    for n in order:
        if n.kind == "int" if whole else n.kind != "bool":
            type_ = _passed(n, values)
            largest = np.fmax.reduce(np.abs(values[n].astype(float)), axis=None, initial=0.0)
            if type_:
                return f"{names.get(n) or text(n, names)} reaches {largest:.1e}, past {type_}"
    return ""


def _passed(n: Node, values: Mapping[Node, np.ndarray[Any, Any]]) -> str:
    """The type whose largest number a term passes; "" where it passes none."""
    if n.kind == "int":
        return "int32" if ((values[n] < -(2**31)) | (values[n] >= 2**31)).any() else ""
    return "float32" if _passes(n, values) else ""


def _passes(n: Node, values: Mapping[Node, np.ndarray[Any, Any]]) -> bool:
    """Whether real numbers of a term pass float32, though those that it is computed from do not."""
    record = REDUCTIONS.get(n.op) or POINTWISE.get(n.op)
    if n.op in {"number", "input"} or (record is not None and record.pole):
        return False
    finite = np.isfinite(values[n])
    if (np.abs(values[n][finite]) > _LARGEST).any():
        return True
    return not finite.all() and all(np.isfinite(values[a]).all() for a in needs(n))
