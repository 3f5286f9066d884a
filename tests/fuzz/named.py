"""Arrays in numpy with names of their axes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from programs import Axes


@dataclass(frozen=True)
class Value:
    """An array and the names of its axes."""

    axes: Axes
    data: np.ndarray

    def on(self, target: Axes) -> np.ndarray:
        """The data with an axis for each of `target`, of length 1 where it has none."""
        order = sorted(range(len(self.axes)), key=lambda i: target.index(self.axes[i]))
        shape = [self.data.shape[self.axes.index(a)] if a in self.axes else 1 for a in target]
        return self.data.transpose(order).reshape(shape)

    def filled(self, target: Axes, sizes: Mapping[str, int]) -> np.ndarray:
        """The data with every axis of `target` at its whole length."""
        return np.broadcast_to(self.on(target), [sizes[a] for a in target])
