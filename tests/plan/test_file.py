"""The kernel file: every function has a name of its own."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.plan.file import kernel_file
from napkin.plan.plan import Plan
from napkin.plan.planned import distinct


@nk.diagram("d a, () -> ()")
def maxes(X: Any, C: Any) -> Any:
    m = nk.reduce(X * C, "max", over="d a")
    return nk.reduce(nk.abs(X - m), "sum", over="d a")


@nk.diagram("n d a -> n d a")
def soft(X: Any) -> Any:
    return nk.softmax(X, over="d a")


@nk.diagram("n d a -> n d a")
def norm(X: Any) -> Any:
    off = X - nk.reduce(X, "mean", over="d a")
    return off * nk.rsqrt(nk.reduce(off * off, "mean", over="d a") + 1e-5)


@nk.diagram("n d a -> n")
def logsum(X: Any) -> Any:
    return nk.reduce(X, "logsumexp", over="d a")


MANY = {"d": 600, "a": 400}
"""Sizes at which one kernel for all values takes longer than several of groups."""


def names(plan: Plan) -> list[str]:
    return [k.name for k in distinct(plan.kernels)]


def test_kernels_known_from_another_cut_have_names_of_their_own() -> None:
    plan = nk.derive(maxes, sizes=MANY, dtype="fp32")
    assert len(set(names(plan))) == len(names(plan)) > 2
    X = np.random.default_rng(0).normal(size=(600, 400))
    np.testing.assert_allclose(plan(X, 0.5), maxes.evaluate(X, 0.5), rtol=1e-5)


@pytest.mark.parametrize("diagram", [soft, norm, logsum], ids=lambda d: d.name)
def test_two_axes_of_thousands(diagram: Any) -> None:
    plan = nk.derive(diagram, sizes={"n": 64, "d": 4096, "a": 4096}, dtype="fp32")
    assert len(set(names(plan))) == len(names(plan))
    plan.check(sizes={"n": 2, "d": 20, "a": 31}, resources=False).raise_if_wrong()


def test_two_functions_of_one_name_are_not_written() -> None:
    plan = nk.derive(maxes, sizes=MANY, dtype="fp32")
    same = [replace(k.choice, kernel=replace(k.choice.kernel, name="t")) for k in plan.kernels]
    pairs = zip(plan.kernels, same, strict=True)
    twice = replace(plan, kernels=tuple(replace(k, choice=c) for k, c in pairs))
    with pytest.raises(AssertionError, match="two functions of a kernel file are called t"):
        kernel_file(twice)


@nk.diagram("n d -> n")
def left(X: Any) -> Any:
    out = nk.reduce(X, "max", over="d")
    return nk.reduce(nk.exp(X - out), "sum", over="d")


def test_no_kernel_is_called_as_a_function_that_kernels_call() -> None:
    plan = nk.derive(left, sizes={"n": 64, "d": 64}, dtype="fp32", materialise=["out"])
    assert names(plan) == ["left_out_kernel", "left"]
