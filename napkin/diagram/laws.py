"""What is said of a user's operator, executed: at random values, and at values that are hard.

Each check ends at the first values where what was said fails, and names them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from napkin.errors import InputError
from napkin.ir.node import in_kind
from napkin.ir.operators.record import POINTWISE, Operator, Reduction, Sign

_HARD = (0.0, 1.0, -1.0, 0.5, -3.25, 1e-3, 7.0, -60.0, 88.0, 1e4, -1e4)
"""Values at which laws fail that hold elsewhere."""

_CLOSE = 1e-9
"""Relative difference of two float64 values that rounding explains."""

_DIGITS = 60
"""Digits in which a meaning is evaluated."""

_SIGNS: tuple[Sign, ...] = ("", "nonnegative", "positive")


def _values(seed: int, count: int) -> list[Any]:
    """Arrays of values, one for each argument: all pairs of hard ones, and random ones."""
    rng = np.random.default_rng(seed)
    hard = list(itertools.product(_HARD, repeat=count)) if count < 3 else []
    drawn = rng.normal(size=(200, count)) * 10.0 ** rng.integers(-2, 3, size=(200, 1))
    return list(np.concatenate([np.reshape(hard, (-1, count)), drawn]).T)


def _of_kind(array: Any, record: Operator) -> Any:
    """Values of the item type that an operator takes."""
    if record.operands == "bool":
        return array > 0
    return array.astype(int) if record.operands == "int" else array


def _computed(record: Operator, *arrays: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            found = np.asarray(record.evaluate(np, *arrays))
    except Exception as error:
        raise InputError(
            f"operator {record.name}: evaluate(numpy, ...) raised {type(error).__name__}: {error}; "
            "it takes numpy (or what has its functions for torch) and an array for each argument"
        ) from error
    if found.shape != arrays[0].shape or found.dtype.kind not in "fib":
        raise InputError(
            f"operator {record.name}: evaluate of arrays of shape {arrays[0].shape} gave "
            f"{found.dtype} of shape {found.shape}; it gives a number for each position"
        )
    return found


def _differ(a: Any, b: Any) -> Any:
    """Where two arrays are not the same number."""
    a, b = np.asarray(a, float), np.asarray(b, float)
    with np.errstate(all="ignore"):
        gap = np.abs(a - b) > _CLOSE * np.maximum(np.maximum(np.abs(a), np.abs(b)), 1.0)
    same = (a == b) | (np.isnan(a) & np.isnan(b))
    return ~same & (gap | ~np.isfinite(a) | ~np.isfinite(b))


def _at(name: str, args: Sequence[Any], i: int) -> str:
    return f"{name}({', '.join(f'{float(a[i]):.6g}' for a in args)})"


def check_operator(record: Operator) -> None:
    """Execute what an operator's record says of its values.

    Raises:
        InputError: its sign, its order or its meaning is not that of its values.
    """
    arrays = [_of_kind(a, record) for a in _values(0, record.arity)]
    found = _computed(record, *arrays)
    _computed(record, *(a[:1].reshape(()) for a in arrays))  # of single values, too
    for signs in itertools.product(_SIGNS, repeat=record.arity):
        _check_sign(record, arrays, found, signs)
    if record.increasing:
        order = np.argsort(arrays[0])
        kept = order[np.isfinite(found[order])]
        falls = np.flatnonzero(np.diff(found[kept]) < 0)
        if falls.size:
            i, j = (int(kept[falls[0] + k]) for k in (0, 1))
            raise InputError(
                f"operator {record.name} is said to increase, but {_at(record.name, arrays, i)} is "
                f"{found[i]:.6g} and {_at(record.name, arrays, j)} is {found[j]:.6g}"
            )
    if record.meaning is not None:
        _check_meaning(record, arrays, found)


def _check_sign(record: Operator, arrays: Sequence[Any], found: Any, signs: Sequence[Sign]) -> None:
    said = record.sign(None, *signs)
    if said not in _SIGNS:
        raise InputError(
            f"operator {record.name}: sign gave {said!r}; it is 'positive', 'nonnegative' or ''"
        )
    if not said:
        return
    here = np.isfinite(found)
    for a, s in zip(arrays, signs, strict=True):
        here = here & ((a > 0) if s == "positive" else (a >= 0) if s else True)
    wrong = np.flatnonzero(here & ((found <= 0) if said == "positive" else (found < 0)))
    if wrong.size:
        i = wrong[0]
        raise InputError(
            f"operator {record.name} is said to be {said}, but {_at(record.name, arrays, i)} is "
            f"{found[i]:.6g}; what may underflow to 0 is 'nonnegative'"
        )


def _check_meaning(record: Operator, arrays: Sequence[Any], found: Any) -> None:
    """Its meaning in sympy is what it evaluates to."""
    import mpmath
    import sympy

    assert record.meaning is not None
    symbols = [sympy.Symbol(f"x{i}", real=True) for i in range(record.arity)]
    try:
        meant = sympy.sympify(record.meaning(sympy, *symbols), strict=True)
    except Exception as error:
        raise InputError(
            f"operator {record.name}: meaning(sympy, ...) raised {type(error).__name__}: {error}; "
            "it takes sympy and an expression for each argument, and gives an expression"
        ) from error
    exactly = sympy.lambdify(symbols, meant, "mpmath")
    for i in range(0, len(found), 7):
        value: Any = None
        with mpmath.workdps(_DIGITS):
            with suppress(ArithmeticError, ValueError):  # it has no value there
                value = exactly(*(mpmath.mpf(float(a[i])) for a in arrays))
            wanted = float(value) if isinstance(value, mpmath.mpf) else math.nan
        if math.isnan(wanted) or not math.isfinite(found[i]):
            continue
        if abs(wanted - found[i]) > 1e-7 * max(abs(wanted), abs(found[i]), 1e-30):
            raise InputError(
                f"operator {record.name}: evaluate gives {_at(record.name, arrays, i)} = "
                f"{found[i]:.9g}, its meaning {meant} is {wanted:.9g} there"
            )


def check_reduction(record: Reduction) -> None:
    """Execute the laws of a monoid.

    Raises:
        InputError: it is not commutative or associative, its identity changes a value, something
            does not distribute over it, or its evaluation is another.
    """
    for law, left, right, args in _laws(record):
        wrong = _differ(left, right).nonzero()[0]
        if wrong.size:
            i = wrong[0]
            at = ", ".join(f"{n} = {float(a[i]):.6g}" for n, a in zip("abc", args, strict=False))
            raise InputError(
                f"reduction {record.name}: {law} fails at {at}: {float(left[i]):.9g} is not "
                f"{float(right[i]):.9g}; a reduction takes values in any order and any grouping, "
                "beside its identity"
            )
    _check_evaluation(record)


def _laws(record: Reduction) -> Iterator[tuple[str, Any, Any, Sequence[Any]]]:
    """Equations with the values of both sides."""
    join = POINTWISE[record.combine]

    def joined(a: Any, b: Any) -> Any:
        return _computed(join, a, b)

    a, b, c = (_of_kind(x, join) for x in (*_values(1, 2), _values(2, 2)[1]))
    nothing = np.full_like(a, in_kind(record.identity, join.operands or "real"))
    yield f"combine(a, {record.identity}) = a", joined(a, nothing), a, (a,)
    yield "combine(identity, identity) = identity", joined(nothing, nothing), nothing, ()
    yield "combine(a, b) = combine(b, a)", joined(a, b), joined(b, a), (a, b)
    yield (
        "combine(combine(a, b), c) = combine(a, combine(b, c))",
        joined(joined(a, b), c), joined(a, joined(b, c)), (a, b, c),
    )  # fmt: skip
    if record.over:
        over = POINTWISE[record.over]
        left, right = _computed(over, joined(a, b), c), [_computed(over, x, c) for x in (a, b)]
        law = f"{record.over}(combine(a, b), c) = combine({record.over}(a, c), {record.over}(b, c))"
        yield law, left, joined(*right), (a, b, c)
        moved = _computed(over, nothing, c)
        yield f"{record.over}(identity, c) = identity", moved, nothing, (a, b, c)


def _check_evaluation(record: Reduction) -> None:
    join = POINTWISE[record.combine]
    for shape, axes in (((4, 5), (1,)), ((3, 2, 5), (0, 2)), ((2, 0), (1,))):
        x = _of_kind(np.random.default_rng(3).normal(scale=9.0, size=shape), join)
        try:
            with np.errstate(all="ignore"):
                found = np.asarray(record.evaluate(np, x, axes, None), float)
        except Exception as error:
            raise InputError(
                f"reduction {record.name}: evaluate of an array of shape {shape} along {axes} "
                f"raised {type(error).__name__}: {error}; of no value it is the identity"
            ) from error
        wanted = folded(join, record.identity)(np, x, axes, None)
        if found.shape != wanted.shape or _differ(found, wanted).any():
            raise InputError(
                f"reduction {record.name}: evaluate of an array of shape {shape} along {axes} is "
                f"not its values combined: {found.tolist()} is not {wanted.tolist()}"
            )


def folded(join: Operator, identity: float) -> Any:
    """The evaluation of a reduction by its combining operator: pairs, and pairs of these."""

    def evaluate(xp: Any, x: Any, axes: Sequence[int], start: None = None) -> Any:
        kept = [n for i, n in enumerate(x.shape) if i not in axes]
        last = tuple(range(len(kept), len(x.shape)))
        count = math.prod(x.shape[i] for i in axes)
        flat = xp.moveaxis(x, tuple(axes), last).reshape((*kept, count))
        while flat.shape[-1] > 1:
            half = flat.shape[-1] // 2
            pairs = join.evaluate(xp, flat[..., :half], flat[..., half : 2 * half])
            if flat.shape[-1] % 2:
                odd = join.evaluate(xp, pairs[..., :1], flat[..., -1:])
                pairs = xp.concatenate((odd, pairs[..., 1:]), -1)
            flat = pairs
        return flat[..., 0] if flat.shape[-1] else flat.sum(-1) + identity

    return evaluate
