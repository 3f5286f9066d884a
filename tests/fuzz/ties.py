"""Values that are ranked and equal but for rounding: which of these is first, nobody is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from programs import RANKED, Program
from values import run

TIED = 1e-12
"""Differences of values that are ranked, relative to the largest, from which they are equal."""


def tied(program: Program, data: Sequence[np.ndarray], sizes: Mapping[str, int]) -> bool:
    """Whether values are ranked that are computed and as good as equal: rounding chooses among
    these. Equal inputs stay equal."""
    found = run(program, data, sizes)
    for step in program.steps:
        if step.op in RANKED and step.refs[0].at >= len(program.inputs):
            ranked = found[step.refs[0].at]
            along = np.sort(ranked.data, axis=ranked.axes.index(step.over[0][0]))
            gaps = np.diff(along, axis=ranked.axes.index(step.over[0][0]))
            if gaps.size and gaps.min() <= TIED * max(1.0, np.abs(along).max()):
                return True
    return False
