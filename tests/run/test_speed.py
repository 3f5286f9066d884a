"""Shortcuts through the interpreter give what it gives, in fewer steps."""

from types import SimpleNamespace

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter

from napkin.run._speed import shorten


def reduced(data: np.ndarray, axis: int, keep_dims: bool, short: bool) -> tuple[np.ndarray, int]:
    """A reduction by xor, and how often it called the function of two blocks."""
    own = SimpleNamespace(
        TritonSemantic=type("Semantic", (interpreter.TritonSemantic,), {}),
        ReduceOps=type("Reduce", (interpreter.ReduceOps,), {}),
        _get_np_dtype=interpreter._get_np_dtype,
    )
    if short:
        shorten(own)
    calls = []

    def xor(a: tl.tensor, b: tl.tensor) -> tl.tensor:
        calls.append(1)
        return reduction.to_tensor(a.handle.data ^ b.handle.data, tl.int32)

    reduction = own.ReduceOps(axis, SimpleNamespace(fn=xor), keep_dims)
    given = reduction.to_tensor(data, tl.int32)
    return reduction.generic_reduce((given,))[0].handle.data, len(calls)


@pytest.mark.parametrize("keep_dims", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_reduction_that_keeps_its_axis_runs_on_halves(axis: int, keep_dims: bool) -> None:
    data = np.random.default_rng(0).integers(0, 99, (2, 8, 4)).astype(np.int32)
    wanted, _ = reduced(data, axis, keep_dims, short=False)
    found, calls = reduced(data, axis, keep_dims, short=True)
    assert found.shape == wanted.shape
    assert np.array_equal(found, wanted)
    assert calls <= 3
