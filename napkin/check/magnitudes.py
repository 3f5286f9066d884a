"""Numbers of the reference that pass what kernels compute in, of which no kernel is right or wrong;
and what results are computed of that are 0 but for rounding."""

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

_MOST = float(np.finfo(np.float32).max)
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
    opened, roots = _opened(diagram)
    values = _values(diagram, roots, arrays, sizes, scalars)
    names = {opened[n]: name for n, name in diagram.names.items() if n in opened}
    names |= {n: o.name for n, o in zip(roots, diagram.outputs, strict=True)}
    for n, value in values.items():
        if n.kind == "int" if whole else n.kind != "bool":
            type_ = _passed(n, values)
            if type_:
                size = f"{_largest(value):.1e}"
                return f"{names.get(n) or text(n, names)} reaches {size}, past {type_}"
    return ""


def largest_under(
    diagram: Diagram,
    output: int,
    arrays: Sequence[np.ndarray[Any, Any]],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
) -> float:
    """The largest real number, without its sign, that an output of the reference is computed of."""
    root = _opened(diagram)[1][output]
    values = _values(diagram, [root], arrays, sizes, scalars)
    real = (x for n, x in values.items() if n.kind == "real" and n.op != "number")
    return max((_largest(x[np.isfinite(x)]) for x in real), default=0.0)


def _opened(diagram: Diagram) -> tuple[Mapping[Node, Node], list[Node]]:
    """The terms of a diagram without composites, and those of its outputs."""
    opened = expanded(diagram.roots)
    return opened, [opened[n] for n in diagram.roots]


def _values(
    diagram: Diagram,
    roots: Sequence[Node],
    arrays: Sequence[np.ndarray[Any, Any]],
    sizes: Mapping[str, int],
    scalars: Mapping[str, float],
) -> dict[Node, np.ndarray[Any, Any]]:
    """The values of all terms under `roots`."""
    numbers = zip(diagram.inputs, diagram.read(arrays), strict=True)
    leaves = {str(n.params[0]): x for n, x in numbers}
    bind = {n: leaves[str(n.params[0])] for n in postorder(roots) if n.op == "input"}
    order = ordered(roots)
    return dict(zip(order, evaluate(order, bind, sizes, scalars), strict=True))


def _largest(value: np.ndarray[Any, Any]) -> float:
    return float(np.fmax.reduce(np.abs(value.astype(float)), axis=None, initial=0.0))


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
    if (np.abs(values[n][finite]) > _MOST).any():
        return True
    return not finite.all() and all(np.isfinite(values[a]).all() for a in needs(n))
