"""Names in kernels: none that a launch by Triton takes for itself."""

from __future__ import annotations

import inspect
from dataclasses import fields
from typing import Any

import pytest
from triton.backends.nvidia.compiler import CUDAOptions
from triton.runtime.interpreter import GridExecutor, InterpretedFunction
from triton.runtime.jit import JITFunction

import napkin as nk
from napkin.lower.scope import Scope

SIZES = {"a": 64, "b": 64, "c": 64}


def product(first: str, second: str) -> nk.Diagram:
    """A product whose arrays have these names, and a scalar called like an option."""

    def made(X: Any, W: Any, B: Any, debug: Any = 2.0) -> Any:
        return nk.contract(X, W, over="b") * debug + B

    own = inspect.signature(made)
    names = {"X": first, "W": second}
    params = [p.replace(name=names.get(p.name, p.name)) for p in own.parameters.values()]
    made.__signature__ = own.replace(parameters=params)  # type: ignore[attr-defined]
    return nk.diagram("a b, b c, c -> a c", sizes=SIZES, name="product")(made)


@pytest.fixture(scope="module")
def taken() -> set[str]:
    (kernel,) = nk.derive(product("X", "W")).kernels
    return Scope.taken(kernel.program)


def test_options_of_a_launch_are_taken(taken: set[str]) -> None:
    assert {f.name for f in fields(CUDAOptions)} <= taken


@pytest.mark.parametrize(
    "call", [JITFunction.run, JITFunction.warmup, InterpretedFunction.run, GridExecutor.__call__]
)
def test_arguments_of_a_launch_are_taken(taken: set[str], call: Any) -> None:
    params = inspect.signature(call).parameters.values()
    assert {p.name for p in params if p.kind not in {p.VAR_POSITIONAL, p.VAR_KEYWORD}} <= taken


@pytest.mark.parametrize(
    ("first", "second"),
    [("grid", "warmup"), ("self", "num_warps"), ("stream", "options"), ("params", "backend")],
)
def test_tensors_called_like_an_argument_of_a_launch(first: str, second: str) -> None:
    plan = nk.derive(product(first, second), on="h100")
    found = plan.check()
    found.raise_if_wrong()
    assert {first, second} <= {row.tensor for row in found.traffic}
    assert f"    {first}_2, {second}_2, B, O, debug_2, " in plan.source
