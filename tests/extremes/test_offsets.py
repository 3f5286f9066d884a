"""Offsets past 2**31: addresses are computed in 64 bits exactly where they have to be.

The interpreter refuses a 32-bit integer that overflows, so a tensor of a few values with one huge
stride shows what a tensor of 8 GB would: lanes past the end of an axis form the same offsets, and
are masked. (Such a tensor itself is read on a GPU, in tests/gpu.)
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from launches import launch_of
from numpy.lib.stride_tricks import as_strided

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.fitting import contiguous
from napkin.plan.plan import Plan
from napkin.run.arrays import DeviceArray, to_device
from napkin.run.interpret import run
from napkin.run.interpreted import run_recipe
from napkin.run.worker import KernelError

SIZES = {"q": 3, "x": 5, "d": 4}
TENSORS = {"Q": "q d", "K": "x d", "V": "x d", "O": "q d"}


@pytest.fixture(scope="module", params=["held whole", "streamed"])
def plan(request: Any) -> Plan:
    """Attention whose kernel holds the keys whole, or streams them."""
    streamed = request.param == "streamed"
    sizes = {"q": 1024, "x": 1024, "d": 64} if streamed else SIZES
    made = nk.derive(load("attention"), sizes=sizes, dtype="fp16")
    assert made.kernels[0].choice.kernel.stream.axis == ("x" if streamed else "")
    return made


def strides(**of: int) -> dict[str, tuple[int, ...]]:
    """Row-major strides, but `of` a tensor between its rows."""
    out = {t: contiguous([SIZES[a] for a in axes.split()]) for t, axes in TENSORS.items()}
    return out | {t: (step, 1) for t, step in of.items()}


def wide(plan: Plan, sizes: dict[str, int] | None = None, **of: int) -> bool:
    (kernel,) = plan.kernels
    call = launch_of(kernel, sizes or SIZES, {}, strides(**of))
    return bool(call.constexprs["WIDE"])


def test_when_a_launch_is_wide(plan: Plan) -> None:
    (kernel,) = plan.kernels
    rows = kernel.tiles["x"]  # padded lanes form offsets, too
    assert not wide(plan)
    assert not wide(plan, K=(2**31 - 2 * kernel.tiles["d"]) // rows)
    assert wide(plan, K=2**31 // rows)
    assert wide(plan, K=-(2**31) // rows)
    assert wide(plan, O=2**40)
    longest = kernel.choice.kernel.stream.axis or "q"  # no axis that is held whole
    assert wide(plan, {**SIZES, longest: 2**29 + 1})
    assert not wide(plan, {**SIZES, longest: 2**28})
    assert not wide(plan, {"q": 3, "x": 0, "d": 4})


def views(rng: np.random.Generator, step: int, name: str) -> dict[str, DeviceArray]:
    """Inputs with one row each; that of `name` would be `step` values before the next."""
    out = {t: to_device(rng.normal(size=(1, 4)), "fp16") for t in "QKV"}
    data = as_strided(out[name].data, (1, 4), (step * 2, 2))
    return out | {name: DeviceArray(data, "fp16")}


@pytest.mark.parametrize("name", ["Q", "K", "V"])
def test_a_row_stride_that_overflows_32_bits(plan: Plan, rng: Any, name: str) -> None:
    (kernel,) = plan.kernels
    sizes = {"q": 1, "x": 1, "d": 4}
    given = views(rng, 2**31 // (kernel.tiles["q" if name == "Q" else "x"] - 1) + 1, name)
    wanted = load("attention").evaluate(*(a.to_float64() for a in given.values()))
    found = run_recipe(plan.recipe, given, sizes, {}).tensors["O"].to_float64()
    np.testing.assert_allclose(found, wanted, atol=5e-3)

    given["O"] = to_device(np.zeros((1, 4)), "fp16")
    call = launch_of(kernel, sizes, {}, {t: a.strides for t, a in given.items()})
    narrow = replace(call, constexprs={**call.constexprs, "WIDE": False})
    args = [given[narrow.tensors[a]] if a in narrow.tensors else narrow.scalars[a]
            for a in narrow.order]  # fmt: skip
    with pytest.raises(KernelError, match="int32 overflows"):
        run(plan.source, kernel.name, (narrow.grid,), args, narrow.constexprs)


@pytest.mark.parametrize("name", ["attention", "softmax", "layernorm_linear", "cross_entropy"])
def test_a_wide_kernel_computes_the_same(ways: Any, rng: Any, name: str) -> None:
    """Every labelling, each axis streamed one position at a time and two at a time."""
    diagram = load(name)
    sizes = {"q": 3, "x": 5, "d": 4, "n": 3, "v": 5, "m": 3}
    given = [rng.integers(0, 3, size=[sizes[a] for a in n.axes]) for n in diagram.inputs]
    some = ways(diagram, tuple(given))
    for kernel in some.kernels():
        for chunk in (1, 2):
            narrow = some.in_kernel(kernel, chunk)
            for a, b in zip(narrow, some.in_kernel(kernel, chunk, wide=True), strict=True):
                np.testing.assert_array_equal(a, b)


def windowed(dims: int, k: int = 3) -> nk.Diagram:
    """Neighborhood attention over one axis or two, `[..., h, d]` in memory."""
    q, x = (" ".join(f"{a}{i}" for i in range(dims)) for a in "qx")
    sizes = {"h": 2, "d": 64} | dict.fromkeys(f"{q} {x}".split(), 4096 if dims == 1 else 64)

    @nk.diagram(f"{q} h d, {x} h d, {x} h d -> {q} h d", sizes=sizes)
    def windowed(Q, K, V):
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        seen = nk.neighborhood([k] * dims, queries=q, keys=x)
        return nk.contract(nk.softmax(S, over=x, keys=seen), V, over=x)

    return windowed


@pytest.mark.parametrize("dims", [1, 2])
def test_a_layout_of_more_than_2_to_the_31_values(dims: int) -> None:
    """Contiguous tensors of a window: 64 bits where the last value lies past 2**31, not before."""
    plan = nk.derive(windowed(dims), dtype="bf16")
    (kernel,) = plan.kernels
    assert kernel.choice.kernel.visits is not None
    assert "INDEX: tl.constexpr = tl.int64 if WIDE else tl.int32" in plan.source
    assert "tl.program_id(0).to(INDEX)" in plan.source

    def decided(tokens: int) -> bool:
        sizes = {"h": 2, "d": 64}
        for a in kernel.choice.kernel.axes:
            sizes.setdefault(a, tokens)
        shape = [sizes[a] for a in plan.diagram.inputs[0].axes]
        given = {t: contiguous(shape) for t in TENSORS}
        return bool(launch_of(kernel, sizes, {}, given).constexprs["WIDE"])

    least = 2**24 if dims == 1 else 2**12  # 2**24 tokens of 128 values
    assert decided(least + 64)
    assert not decided(least - 512)


@pytest.mark.parametrize("dims", [1, 2])
@pytest.mark.parametrize("name", ["Q", "K", "V"])
def test_tokens_of_a_window_that_overflow_32_bits(dims: int, name: str, rng: Any) -> None:
    """One token, and room for the next so far away that its offset needs 64 bits."""
    diagram = windowed(dims, 1)
    plan = nk.derive(diagram, dtype="fp16")
    (kernel,) = plan.kernels
    shape = (*[1] * dims, 1, 16)
    sizes = dict.fromkeys(kernel.choice.kernel.axes, 1) | {"d": 16}
    given = {t: to_device(rng.normal(size=shape), "fp16") for t in "QKV"}
    lanes = [kernel.tiles[("q" if name == "Q" else "x") + str(i)] for i in range(dims)]
    far = max(range(dims), key=lambda i: lanes[i])
    apart = [16] * dims + [16, 1]
    apart[far] = 2**31 // (lanes[far] - 1) + 1
    data = as_strided(given[name].data, shape, [2 * n for n in apart])
    given[name] = DeviceArray(data, "fp16")
    wanted = diagram.evaluate(*(a.to_float64() for a in given.values()))
    found = run_recipe(plan.recipe, given, sizes, {}).tensors["O"].to_float64()
    np.testing.assert_allclose(found, wanted, atol=5e-3)

    given["O"] = to_device(np.zeros(shape), "fp16")
    call = launch_of(kernel, sizes, {}, {t: a.strides for t, a in given.items()})
    assert call.constexprs["WIDE"]
    narrow = replace(call, constexprs={**call.constexprs, "WIDE": False})
    args = [given[narrow.tensors[a]] if a in narrow.tensors else narrow.scalars[a]
            for a in narrow.order]  # fmt: skip
    with pytest.raises(KernelError, match="int32 overflows"):
        run(plan.source, kernel.name, (narrow.grid,), args, narrow.constexprs)


def test_positions_in_a_state_keep_its_type_beside_wide_offsets() -> None:
    """Triton has one type for each variable of a loop. A kernel for 2**32 values compiles."""

    @nk.diagram("c q, k q -> c")
    def nearest(X, T):
        return nk.argmin(nk.contract(X - T, X - T, over="q"), over="k")

    made = nk.derive(nearest, "a100", {"c": 2**22, "k": 40000, "q": 1024}, "fp32")
    assert made.kernels[0].choice.kernel.stream.axis == "k"
