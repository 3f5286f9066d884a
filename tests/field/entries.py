"""What every family's file says of its diagrams, and numpy functions of their references."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from napkin.diagram.diagram import Diagram

Numbers = np.ndarray[Any, Any]


@dataclass(frozen=True, eq=False)
class Entry:
    """A diagram of the literature.

    Attributes:
        make: gives the diagram; where napkin refuses it, this call or `nk.derive` says so.
        reference: the same in numpy, from the inputs in order.
        small: sizes at which values are compared.
        ranges: from where to where inputs are drawn, by name; reals are else normal.
        refused: a part of the refusal's text, where napkin refuses it.
        slow: whether its plan takes long, so that only a full run derives it.
    """

    name: str
    make: Callable[[], Diagram]
    reference: Callable[..., Any] | None = None
    small: Mapping[str, int] = field(default_factory=dict[str, int])
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict[str, Any])
    refused: str = ""
    slow: bool = False


FOUND: dict[str, list[Entry]] = {}
"""The entries of each file, in the order of the file."""


def compared(
    reference: Callable[..., Any],
    *,
    ranges: Mapping[str, tuple[float, float]] | None = None,
    refused: str = "",
    slow: bool = False,
    **small: int,
) -> Callable[[Diagram], Diagram]:
    """A diagram, with what it is compared with."""

    def said(diagram: Diagram) -> Diagram:
        family = reference.__module__.removeprefix("napkin_page_")
        entry = Entry(diagram.name, lambda: diagram, reference, small, ranges or {}, refused, slow)
        FOUND.setdefault(family, []).append(entry)
        return diagram

    return said


def soft(x: Numbers, axis: int = -1) -> Numbers:
    """Softmax."""
    weights = np.exp(x - x.max(axis, keepdims=True))
    return weights / weights.sum(axis, keepdims=True)


def lse(x: Numbers, axis: int = -1) -> Numbers:
    """The logarithm of the sum of exponentials."""
    return np.logaddexp.reduce(x, axis=axis)


def sigmoid(x: Numbers) -> Numbers:
    """The logistic function."""
    return 1 / (1 + np.exp(-x))


def ndtr(x: Numbers) -> Numbers:
    """The normal distribution function."""
    return np.vectorize(lambda u: 0.5 * math.erfc(-u / math.sqrt(2)))(x)


def gelu(x: Numbers) -> Numbers:
    """x * Phi(x)."""
    return x * ndtr(x)


def unit(x: Numbers, axis: int = -1) -> Numbers:
    """Divided by its length."""
    return x / np.linalg.norm(x, axis=axis, keepdims=True)


def rows(x: Numbers, eps: float = 1e-5, axis: int | tuple[int, ...] = -1) -> Numbers:
    """Shifted to mean 0 and scaled to variance 1."""
    return (x - x.mean(axis, keepdims=True)) / np.sqrt(x.var(axis, keepdims=True) + eps)


def taken(table: Numbers, at: Numbers, axis: int = 0) -> Numbers:
    """Entries at positions, clamped into the axis."""
    return np.take(table, at.astype(int), axis=axis, mode="clip")


def windows(x: Numbers, taps: int, stride: int = 1, dilation: int = 1, padding: int = 0) -> Numbers:
    """Windows along the last axis: [..., windows, taps]."""
    x = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(padding, padding)])
    count = (x.shape[-1] - dilation * (taps - 1) - 1) // stride + 1
    at = stride * np.arange(count)[:, None] + dilation * np.arange(taps)
    return x[..., at]
