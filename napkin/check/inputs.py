"""Random whole numbers for inputs, such as what reads them can make sense of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from napkin.diagram.diagram import Diagram
from napkin.diagram.keys.terms import spec_of
from napkin.diagram.keys.typical import asked, drawn
from napkin.diagram.node import Node
from napkin.diagram.storage import storage_type
from napkin.diagram.taking import taken_axes
from napkin.diagram.types import RANGES


def whole_numbers(
    diagram: Diagram,
    n: Node,
    shape: Sequence[int],
    sizes: Mapping[str, int],
    rng: np.random.Generator,
) -> np.ndarray[Any, Any]:
    """Values of the input `n`: lengths and places for key sets, positions for takes (one past
    either end among them, which are clamped), else anything that a type of 8 bits or less holds, or
    up to the largest axis."""
    for keys in diagram.key_sets:
        what = asked(keys.args).get(n)
        if what is not None:
            return drawn(what, tuple(shape), sizes[spec_of(keys).keys[0]], rng)
    for t in diagram.takes:
        for axis, at in zip(taken_axes(t), t.args[1:], strict=True):
            if at is n:
                return rng.integers(-1, sizes[axis] + 1, size=shape)
    holds = RANGES[storage_type(n, "")]
    if len(holds) <= 256:
        return rng.integers(holds[0], holds[-1] + 1, size=shape)
    others = [sizes[a] for a in diagram.axes if a not in n.axes] or [2]
    return rng.integers(0, max(others), size=shape)
