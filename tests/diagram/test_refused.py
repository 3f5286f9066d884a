"""What a user gives by mistake is refused by name: flags that are texts, numpy's whole numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.errors import InputError


@nk.diagram("q x -> q", sizes={"q": 16, "x": 32})
def f(X: Any) -> Any:
    return nk.reduce(X, "sum", over="x")


@nk.diagram("q -> q", sizes={"q": 99})
def g(X: Any) -> Any:
    return X * 2.0


def unknown_size() -> object:
    @nk.diagram("t d, d k -> t d", sizes={"t": 4, "d": 3, "k": 3})
    def step(X: Any, W: Any) -> Any:
        def next_of(h: Any) -> Any:
            return nk.tanh(nk.contract(h, W, over="d").rename(k="d") * nk.size("zz") + X)

        return nk.scan(next_of, 0.0, along="t", axes="d")

    return step


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: nk.derive(f, deterministic="no"), "deterministic='no' is not True or False"),
        (lambda: nk.derive(f, tuned="False"), "tuned='False' is not True or False"),
        (lambda: nk.derive(f, parts=0), "parts=0 is no dictionary; write parts={'x': 4}"),
        (lambda: nk.derive(f, parts={"x": True}), "parts: x=True is not a whole number from 1"),
        (lambda: nk.training(f, deterministic="no"), "deterministic='no' is not True or False"),
        (lambda: nk.derive(f).check(resources="no"), "check: resources='no' is not True or False"),
        (
            lambda: nk.derive(f).check(scalars=3),
            "scalars=3 is no dictionary from names to numbers; write scalars={'scale': 0.125}",
        ),
        (
            lambda: nk.derive(f).check(gradient_of=3),
            "gradient_of=3 is no diagram; give the one that nk.gradient was of",
        ),
        (lambda: nk.pack("ab"), "pack: int4 holds whole numbers, not <U2"),
        (lambda: nk.derive(f).ranked(0), "ranked: most=0 is not a whole number from 1"),
        (lambda: nk.neighborhood(3, clip="no"), "neighborhood: clip='no' is not True or False"),
        (lambda: nk.strided(3, local="no"), "strided: local='no' is not True or False"),
        (
            lambda: f >> g,
            "f >> g: q is 16 in the one and 99 in the other; write f.with_sizes(q=99), or the "
            "other way round",
        ),
        (
            lambda: nk.uniform(7, along={"q"}),
            "along={'q'} has no order, and the numbers depend on it; write along='q x'",
        ),
        (
            lambda: nk.diagram("q -> q")(lambda X: X.rename(q="a b")),
            "rename q='a b': write one name, such as q='q2'",
        ),
        (
            unknown_size,
            "step: size names axis 'zz', which no input of 't d, d k -> t d' has; known: d, k, t",
        ),
    ],
)
def test_what_is_refused(make: Callable[[], object], said: str) -> None:
    with pytest.raises(InputError) as caught:
        make()
    assert str(caught.value) == said


def test_whole_numbers_of_numpy() -> None:
    """They wrap at their own width, so they are taken as Python's."""
    assert nk.Routing(np.int32(2000000), np.int32(4096), np.int32(2048)).mean == 1_000_000
    assert nk.derive(f, parts={"x": np.int64(2)}).parts == {"x_part2": 2}
