"""Where equal terms of two kernels are compared, both round them alike. Multiply and add are not
contracted: on a GPU max_x (x w + b) would else be of one rounding less than the x w + b that it is
compared with. Exponentials keep base e."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.fitting import job_of
from napkin.plan.plan import Plan
from napkin.run.recipe import recipe_of


@nk.diagram("b x, b x, b -> b x", sizes={"b": 64, "x": 100_000})
def largest(X: Any, W: Any, B: Any) -> Any:
    t = X * W + B
    return nk.where(t == nk.reduce(t, "max", over="b x"), 1.0, 0.0)


@nk.diagram("b x, b x, b -> b", sizes={"b": 64, "x": 100_000})
def maximum(X: Any, W: Any, B: Any) -> Any:
    return nk.reduce(X * W + B, "max", over="x")


def contracts(plan: Plan) -> set[bool]:
    return {k.written.entry.contracts for k in plan.kernels}


def test_no_kernel_of_a_compared_maximum_contracts() -> None:
    plan = nk.derive(largest, on="h100", dtype="fp32")
    assert len(plan.kernels) > 1
    assert contracts(plan) == {False}
    for k in plan.kernels:
        assert job_of(k, k.choice.sizes, "sm_90").options == {"enable_fp_fusion": False}


@nk.diagram("q x, q, q x:bool -> q")
def place(X: Any, M: Any, K: Any) -> Any:
    w = nk.exp(X - M)
    kept = nk.where(K, w, float("-inf"))
    found = K & (w == nk.reduce(kept, "max", over="x"))
    return nk.reduce(nk.where(found, nk.index("x"), 1000), "min", over="x")


def test_a_stored_term_is_rounded_as_the_same_term_in_another_kernel() -> None:
    """One kernel stores exponentials, and compares nothing; the next finds their maximum, and looks
    for it in exponentials of its own."""
    plan = nk.derive(place, on="h100", dtype="fp32", sizes={"q": 37, "x": 45}, materialise=["kept"])
    assert len(plan.kernels) == 2
    assert contracts(plan) == {False}
    assert "exp2" not in plan.source
    rng = np.random.default_rng(0)
    x, m = rng.standard_normal((37, 45)).astype("f"), rng.standard_normal(37).astype("f")
    k = rng.random((37, 45)) < 0.5
    wanted = np.where(k, x, -np.inf).argmax(axis=1)
    np.testing.assert_array_equal(plan(x, m, k), wanted)


@pytest.mark.parametrize("name", ["causal_attention", "softmax", "cross_entropy", "mlp"])
def test_other_kernels_do(name: str) -> None:
    """Positions are compared as whole numbers, and a maximum that nothing is compared with may be
    rounded as it comes."""
    assert contracts(nk.derive(load(name), on="h100")) == {True}
    assert contracts(nk.derive(maximum, on="h100", dtype="fp32")) == {True}


def test_parts_of_a_compared_maximum_do_not_contract() -> None:
    assert contracts(nk.derive(largest, on="h100", dtype="fp32", parts={"x": 4})) == {False}


def test_a_recipe_says_so() -> None:
    recipe = nk.derive(largest, on="h100", dtype="fp32").recipe
    again = recipe_of(json.loads(json.dumps(recipe.to_json())))
    assert [step.entry.options for step in again.steps] == [{"enable_fp_fusion": False}] * 3


COMPILED = """
import sys
import triton
from triton.backends.compiler import GPUTarget
import napkin as nk
from napkin.plan.fitting import job_of
from napkin.run import _compiler
from napkin.run.compile import _read
sys.path.insert(0, {folder!r})
import test_contraction as own

for d in (own.largest, own.maximum):
    for k in nk.derive(d, on="h100", dtype="fp32").kernels:
        job = _read(job_of(k, k.choice.sizes, "sm_90"))
        module = _compiler.load(str(job.source), job.path)
        kernel = _compiler.find(module, job.kernel, triton.JITFunction)
        options = {{"enable_fp_fusion": True, **job.options}}
        source, target = _compiler._source(kernel, job), GPUTarget("cuda", 90, 32)
        text = triton.compile(source, target=target, options=options).asm["ptx"]
        print(k.name, "fma.rn.f32" in text, "mul.rn.f32" in text or "mul.f32" in text)
"""


def test_what_is_compiled() -> None:
    folder = __file__.rpartition("/")[0]
    ran = subprocess.run(
        [sys.executable, "-c", COMPILED.format(folder=folder)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    found = {name: said for name, *said in map(str.split, ran.stdout.splitlines())}
    for name in ("largest_m_parts", "largest_kernel"):
        assert found[name] == ["False", "True"], found
    assert found["maximum_parts"] == ["True", "False"], found
