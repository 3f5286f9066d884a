"""Shortcuts through the interpreter give what it gives, in fewer steps."""

from types import SimpleNamespace

import numpy as np
import pytest
import triton.language as tl
from triton.runtime import interpreter

from napkin.run._speed import shorten


def shortened() -> SimpleNamespace:
    """An interpreter with shortcuts, beside Triton's own."""
    core = SimpleNamespace(
        tensor=type("Tensor", (tl.core.tensor,), {}), block_type=type("Block", (tl.block_type,), {})
    )
    own = SimpleNamespace(
        tl=SimpleNamespace(core=core),
        TritonSemantic=type("Semantic", (interpreter.TritonSemantic,), {}),
        ReduceOps=type("Reduce", (interpreter.ReduceOps,), {}),
        ScanOps=type("Scan", (interpreter.ScanOps,), {}),
        _get_np_dtype=interpreter._get_np_dtype,
    )
    shorten(own)
    return own


@pytest.mark.parametrize("shape", [[64, 128], [1], [tl.constexpr(4), 2]])
@pytest.mark.parametrize("element", [tl.float32, tl.pointer_type(tl.int8), tl.int1])
def test_types_and_tensors_of_a_shape_are_those_of_triton(shape: list, element: tl.dtype) -> None:
    core = shortened().tl.core
    plain = tl.block_type(element, shape)
    kinds = [core.block_type(element, shape) for _ in range(2)]
    assert vars(kinds[0]) == vars(kinds[1]) == vars(plain)
    for kind in (kinds[0], element):
        wanted = tl.tensor("values", kind)
        for handle in ("values", "others", "values"):
            made = core.tensor(handle, kind)
            assert made.handle == handle
            assert vars(made).keys() == vars(wanted).keys()
            assert made.type is kind
            assert made.dtype is wanted.dtype
            assert made.numel.value == wanted.numel.value
            assert [n.value for n in made.shape] == [n.value for n in wanted.shape]


def reduced(data: np.ndarray, axis: int, keep_dims: bool, short: bool) -> tuple[np.ndarray, int]:
    """A reduction by xor, and how often it called the function of two blocks."""
    own = shortened() if short else interpreter
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


def scanned(data: list[np.ndarray], axis: int, reverse: bool, own) -> tuple[list[np.ndarray], int]:
    """A scan of pairs by a function that does not commute, and how often it called that."""
    calls = []

    def composed(a, b, c, d):
        calls.append(1)
        both = c.handle.data * a.handle.data, c.handle.data * b.handle.data + d.handle.data
        return tuple(scan.to_tensor(x, tl.float32) for x in both)

    scan = own.ScanOps(axis, SimpleNamespace(fn=composed), reverse)
    given = [scan.to_tensor(x, tl.float32) for x in data]
    return [x.handle.data for x in scan.apply_impl(given)], len(calls)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_scan_runs_on_all_rows_at_once(axis: int, reverse: bool) -> None:
    rng = np.random.default_rng(0)
    data = [rng.normal(size=(2, 8, 4)).astype(np.float32) for _ in range(2)]
    wanted, _ = scanned(data, axis, reverse, interpreter)
    found, calls = scanned(data, axis, reverse, shortened())
    assert all(map(np.array_equal, found, wanted))
    assert calls == data[0].shape[axis] - 1


def test_a_scan_of_one_dimension_runs_value_by_value() -> None:
    data = [np.arange(1, 9, dtype=np.float32) / 4 for _ in range(2)]
    wanted, _ = scanned(data, 0, False, interpreter)
    found, _ = scanned(data, 0, False, shortened())
    assert all(map(np.array_equal, found, wanted))
