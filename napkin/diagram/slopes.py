"""The derivatives that a user's operator says, executed: beside differences of its values."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from napkin.errors import InputError
from napkin.ir.array import Array, lifted
from napkin.ir.derivatives import Functions
from napkin.ir.evaluate import aligned_to, evaluate
from napkin.ir.node import Node, node
from napkin.ir.operators.record import Operator, Reduction

_STEP = 1e-5
"""How far an argument is moved, beside its size."""

_SLACK = 1e-3
"""How far a derivative may be from the difference, relative to both."""

_AXIS = "n"


def check_operator(record: Operator) -> None:
    """Execute the derivatives of an operator.

    Raises:
        InputError: they are not of its arguments, or not the slopes of its values.
    """
    if record.derivative is None:
        return
    rng = np.random.default_rng(4)
    given = [rng.normal(size=200) * 10.0 ** rng.integers(-1, 2, size=200)
             for _ in range(record.arity)]  # fmt: skip
    y, *leaves = (_leaf(name, (_AXIS,)) for name in "yabc"[: record.arity + 1])
    what = f"operator {record.name}"
    found = _called(what, record.derivative, y, leaves)
    if len(found) != record.arity:
        raise InputError(
            f"{what}: derivative gave {len(found)} of {record.arity} derivatives; it gives one for "
            "each argument, 0 where there is none"
        )

    def value(arrays: Sequence[Any]) -> Any:
        return np.asarray(record.evaluate(np, *arrays), float)

    with np.errstate(all="ignore"):
        values = dict(zip(leaves, given, strict=True)) | {y: value(given)}
        for i, d in enumerate(found):
            _compare(what, value, given, i, _evaluated(d, values))


def check_reduction(record: Reduction) -> None:
    """Execute the derivative of a reduction.

    Raises:
        InputError: it is not the slope of its values.
    """
    if record.derivative is None:
        return
    what = f"reduction {record.name}"
    x, y = _leaf("x", (_AXIS,)), _leaf("y", ())
    found = _called(what, record.derivative, y, [x], (_AXIS,))
    given = np.random.default_rng(5).normal(size=(20, 6))
    with np.errstate(all="ignore"):
        for row in given:
            for i in range(len(row)):

                def value(entry: Sequence[Any], row: Any = row, i: int = i) -> Any:
                    moved = np.repeat(row[None], len(entry[0]), 0)
                    moved[:, i] = entry[0]
                    return np.asarray(record.evaluate(np, moved, (1,), None), float)

                entry = row[i : i + 1]
                values = {x: row, y: value([entry])[0]}
                slope = _evaluated(found[0], values, len(row))[i : i + 1]
                _compare(what, value, [entry], 0, slope)


def _leaf(name: str, axes: tuple[str, ...]) -> Node:
    return node("input", params=(name,), axes=axes)


def _called(
    what: str, derivative: Callable[..., Any], y: Node, leaves: Sequence[Node],
    axes: tuple[str, ...] = (),
) -> list[Node | None]:  # fmt: skip
    """The derivatives as terms."""
    try:
        found = derivative(Functions(axes), Array(y), *map(Array, leaves))
        each = found if isinstance(found, tuple) else (found,)
        return [None if d is None else lifted(d) for d in each]
    except Exception as error:
        raise InputError(
            f"{what}: derivative raised {type(error).__name__}: {error}; it takes arrays of a "
            "diagram, and is written with napkin's operators"
        ) from error


def _evaluated(d: Node | None, values: dict[Node, Any], size: int = 200) -> Any:
    if d is None:
        return np.zeros(size)
    bind = {n: np.asarray(v) for n, v in values.items()}
    found = evaluate([d], bind, {_AXIS: size})[0]
    return aligned_to(found, d.axes, (_AXIS,), {_AXIS: range(size)}).astype(float)


def _compare(
    what: str, value: Callable[[Sequence[Any]], Any], given: Sequence[Any], i: int, slope: Any
) -> None:
    """Check that a derivative is the difference of two near values, where those on both sides
    agree."""
    step = _STEP * np.maximum(np.abs(given[i]), 1.0)
    low, high = ([a if j != i else a + s for j, a in enumerate(given)] for s in (-step, step))
    here, before, after = value(given), value(low), value(high)
    left, right = (here - before) / step, (after - here) / step
    middle = (left + right) / 2
    slack = _SLACK * np.maximum(np.abs(middle), np.abs(slope)) + 1e-9 * np.abs(here) / step
    sure = np.isfinite(middle) & (np.abs(left - right) <= 10 * slack + _SLACK)
    wrong = np.flatnonzero(sure & ~(np.abs(slope - middle) <= slack + _SLACK))
    if wrong.size:
        at = ", ".join(f"{float(a[wrong[0]]):.6g}" for a in given)
        raise InputError(
            f"{what}: its derivative by argument {i + 1} at {at} is {slope[wrong[0]]:.6g}, but its "
            f"values change by {middle[wrong[0]]:.6g}"
        )
