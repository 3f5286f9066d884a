"""The emulation of warpgroups: whole numbers of a GPU, and ends where a GPU leaves things open."""

from __future__ import annotations

import numpy as np
import pytest

from napkin.run.arrays import Descriptor, to_device
from napkin.run.warpgroups import run_cta
from napkin.run.worker import KernelError

KERNEL = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(tiles, scalars, N: gl.constexpr):
    at = gl.arange(0, N)
    gl.store(tiles + at, (at - 4) {op} 3)
    place = gl.program_id(0) - 4
    gl.store(scalars + gl.program_id(0), place {op} 3)
"""


@pytest.mark.parametrize(
    ("op", "wanted"),
    [("//", [-1, -1, 0, 0, 0, 0, 0, 1]), ("%", [-1, 0, -2, -1, 0, 1, 2, 0])],
)
def test_quotients_round_to_zero(op: str, wanted: list[int]) -> None:
    tiles, scalars = (to_device(np.zeros(8), "i32") for _ in range(2))
    run_cta(KERNEL.replace("{op}", op), "kernel", 8, [tiles, scalars], {"N": 8})
    assert tiles.data.tolist() == wanted
    assert scalars.data.tolist() == wanted


TESTED = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(scalars):
    place = gl.program_id(0) - 2
    negative = (place + 1 < 0) & (place != 0)
    gl.store(scalars + gl.program_id(0), place - negative.to(gl.int32))
"""


def test_a_test_of_scalars_is_converted() -> None:
    scalars = to_device(np.zeros(4), "i32")
    run_cta(TESTED, "kernel", 4, [scalars], {})
    assert scalars.data.tolist() == [-3, -1, 0, 1]


BITS = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(signs):
    zero = gl.cast(-2147483648, gl.float32, bitcast=True)
    gl.store(signs + gl.program_id(0), 1.0 / zero)
"""


def test_bits_are_read_as_another_type() -> None:
    signs = to_device(np.zeros(1), "fp32")
    run_cta(BITS, "kernel", 1, [signs], {})
    assert signs.data.tolist() == [-np.inf]


OUTSIDE = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def kernel(tiles, FIRST: gl.constexpr, N: gl.constexpr):
    at = FIRST + gl.arange(0, N)
    gl.store(tiles + at, gl.load(tiles + at, mask=at < 7, other=0), mask=at < 7)
"""


@pytest.mark.parametrize(("first", "count"), [(-1, 4), (4, 4)])
def test_an_address_outside_a_tensor_ends_the_run(first: int, count: int) -> None:
    run_cta(OUTSIDE, "kernel", 1, [to_device(np.zeros(7), "i32")], {"FIRST": 0, "N": 8})
    with pytest.raises(KernelError, match="an address lies outside tiles"):
        run_cta(OUTSIDE, "kernel", 1, [to_device(np.zeros(6), "i32")], {"FIRST": first, "N": count})


BOXES = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma


@gluon.jit
def kernel(X, Y, START: gl.constexpr):
    ring = gl.allocate_shared_memory(X.dtype, [2, 8], X.layout)
    full = gl.allocate_shared_memory(gl.int64, [1, 1], mbarrier.MBarrierLayout())
    mbarrier.init(full.index(0), count=1)
    fence_async_shared()
    mbarrier.expect(full.index(0), 16)
    tma.async_load(X, [START], full.index(0), ring.index(0))
    mbarrier.wait(full.index(0), 0)
    ring.index(1).store(ring.index(0).load(None))
    fence_async_shared()
    tma.async_store(Y, [0], ring.index(1))
    tma.store_wait(0)
"""


def copied(text: str, start: int = 0) -> np.ndarray:
    """What the kernel leaves in Y of 16 numbers in X."""
    X, Y = to_device(np.arange(16.0), "bf16"), to_device(np.zeros(8), "bf16")
    run_cta(text, "kernel", 1, [Descriptor(X, (8,)), Descriptor(Y, (8,))], {"START": start})
    return Y.to_float64()


def test_a_box_is_copied() -> None:
    assert copied(BOXES, 8).tolist() == list(range(8, 16))


def test_a_box_begins_at_a_multiple_of_16_bytes() -> None:
    with pytest.raises(KernelError, match="X begins at no multiple of 16 bytes"):
        copied(BOXES, 4)


def test_a_box_that_is_not_waited_for_is_not_there() -> None:
    broken = BOXES.replace("mbarrier.wait(full.index(0), 0)", "pass")
    assert np.isnan(copied(broken)).all()


@pytest.mark.parametrize("which", [0, 1])
def test_a_copy_of_what_is_stored_before_a_fence_ends_the_run(which: int) -> None:
    """Of a barrier that begins, too."""
    parts = BOXES.split("    fence_async_shared()\n")
    assert len(parts) == 3
    joined = parts[: which + 1], parts[which + 1 :]
    with pytest.raises(KernelError, match="before a fence"):
        copied("    fence_async_shared()\n".join(map("".join, joined)))


def test_a_copy_that_is_not_waited_for_leaves_nothing() -> None:
    assert not copied(BOXES.replace("    tma.store_wait(0)\n", "")).any()
