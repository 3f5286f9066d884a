"""Kernels that the driver launches with parameters packed once, on a driver that is played."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from triton.backends.nvidia.driver import TMA_DTYPE_DEVICE_TO_HOST
from triton.tools.tensor_descriptor import TensorDescriptor

from napkin.run import direct as direct_launches
from napkin.run.direct import Direct, direct
from napkin.run.launching import Launch

STREAM = 7
BOX = {
    "swizzle": 3, "elem_size": 2, "elem_type": 9, "block_size": [16, 64], "fp4_padded": False,
}  # fmt: skip


class Driver:
    """Notes launches; a tensor map is the address and then the numbers it is made of.

    Attributes:
        sizes: of the parameters of every function, in bytes.
        refuses: whether launches fail.
        launches: of each launch the grid, the threads, the bytes of shared memory, the stream and
            the parameters.
        moved: the addresses that tensor maps were given later.
    """

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes, self.refuses = sizes, False
        self.launches: list[tuple[Any, ...]] = []
        self.moved: list[int] = []

    def cuFuncGetParamInfo(self, function: Any, i: Any, offset: Any, size: Any) -> int:
        assert function.value == 42
        if i.value < len(self.sizes):
            size._obj.value = self.sizes[i.value]
            return 0
        return 1

    def cuTensorMapEncodeTiled(self, at: Any, kind: int, rank: int, base: Any, *rest: Any) -> int:
        shape, strides, box, steps, *numbers = rest
        assert at.value % 64 == 0
        assert [*steps] == [1] * rank
        facts = [kind, *shape, *strides[: rank - 1], *box, *numbers]
        packed = struct.pack(f"P{len(facts)}q", base.value, *facts)
        ctypes.memmove(at.value, packed, len(packed))
        return 0

    def cuTensorMapReplaceAddress(self, at: Any, address: int) -> int:
        self.moved.append(address)
        ctypes.memmove(at.value, struct.pack("P", address), 8)
        return 0

    def cuLaunchKernelEx(self, config: Any, function: Any, pointers: Any, extra: Any) -> int:
        *fixed, stream, attributes, count = (
            getattr(config._obj, n) for n, _ in config._obj._fields_
        )
        assert function.value == 42
        assert (extra, attributes, count) == (None, None, 0)
        packed = [ctypes.string_at(p, n) for p, n in zip(pointers, self.sizes, strict=True)]
        if not self.refuses:
            self.launches.append((*fixed, stream, packed))
        return int(self.refuses)


def kernel(signature: Mapping[str, str], boxes: Sequence[Any] = (), **other: Any) -> Any:
    """A kernel that Triton compiled."""
    target = SimpleNamespace(arch=90)
    usual = {
        "num_ctas": 1, "global_scratch_size": 0, "tensordesc_meta": [*boxes], "target": target,
    }  # fmt: skip
    return SimpleNamespace(
        metadata=SimpleNamespace(**(usual | other)),
        src=SimpleNamespace(signature=dict(signature)),
        function=42,
        packed_metadata=(4, 1, 1000),
    )


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Plays a driver that tells of parameters of these sizes."""

    def play(*sizes: int) -> Driver:
        found = Driver(sizes)
        monkeypatch.setattr(direct_launches, "driver", lambda: found)
        return found

    return play


SIGNATURE = {"X": "*bf16", "n": "i32", "one": "constexpr", "step": "i64", "s": "fp32", "Y": "*fp32"}
ARGUMENTS = [None, 5, 1, 1 << 40, 0.5, None]


def made(cuda: Driver, **other: Any) -> Direct | None:
    return direct(kernel(SIGNATURE | {"TILE": "constexpr"}, **other), 12, ARGUMENTS, {0: 1, 5: 0})


def test_parameters_are_packed_as_the_machine_code_takes_them(played: Any) -> None:
    cuda = played(8, 4, 8, 4, 8, 8, 8)
    launch = made(cuda)
    assert launch is not None
    for _ in range(2):
        y, x = torch.zeros(3), torch.zeros(3)
        assert launch([y, x], STREAM)
        *fixed, packed = cuda.launches[-1]
        assert fixed == [12, 1, 1, 128, 1, 1, 1000, STREAM]
        x_at, n, step, s, y_at, *scratch = packed
        assert struct.unpack("PiqfP", x_at + n + bytes(4) + step + s + bytes(4) + y_at) == (
            x.data_ptr(), 5, 1 << 40, 0.5, y.data_ptr(),
        )  # fmt: skip
        assert scratch == [bytes(8)] * 2


def test_a_tensor_map_is_moved_where_its_tensor_is_another(played: Any) -> None:
    cuda = played(128, 4, 4, 8, 8, 8, 8)
    first = torch.zeros(32, 64).bfloat16()
    described = TensorDescriptor(first, [32, 64], [64, 1], [16, 64])
    found = direct(kernel({"X": "tensordesc<bf16[16, 64]>"}, [BOX]), 1, [described], {0: 0})
    assert found is not None
    other = torch.zeros(32, 64).bfloat16()
    for given in (first, first, other, other, first):
        assert found([given], STREAM)
        tensor_map, *shape_and_strides = cuda.launches[-1][-1][:5]
        address, *facts = struct.unpack("P11q", tensor_map[:96])
        assert address == given.data_ptr()
        # the type, the shape, the stride in bytes and the box from the last axis on, no interleave,
        # the swizzle, 128 bytes of L2 at once, zeros outside
        assert facts[:10] == [TMA_DTYPE_DEVICE_TO_HOST[9], 64, 32, 128, 64, 16, 0, 3, 2, 0]
        assert struct.unpack("iiqq", b"".join(shape_and_strides)) == (32, 64, 64, 1)
    assert cuda.moved == [first.data_ptr(), other.data_ptr(), first.data_ptr()]


@pytest.mark.parametrize("sizes", [(8, 4, 8, 4, 8, 8), (8, 8, 8, 4, 8, 8, 8), ()])
def test_parameters_of_other_sizes_are_left_to_triton(played: Any, sizes: tuple[int, ...]) -> None:
    assert made(played(*sizes)) is None


@pytest.mark.parametrize(
    "other", [{"num_ctas": 2}, {"launch_pdl": True}, {"global_scratch_size": 128}]
)
def test_launches_with_more_than_parameters_are_left_to_triton(
    played: Any, other: dict[str, Any]
) -> None:
    assert made(played(8, 4, 8, 4, 8, 8, 8), **other) is None


def test_parameters_that_are_not_known_are_left_to_triton(played: Any) -> None:
    played(2, 8, 8)
    assert direct(kernel({"s": "fp8e4nv"}), 1, [1.0], {}) is None
    played(128, 4, 4, 8, 8, 8, 8)
    described = TensorDescriptor(torch.zeros(32, 64).bfloat16(), [32, 64], [64, 1], [16, 64])
    signature = {"X": "tensordesc<bf16[16, 64]>"}
    for boxes in ([], [BOX | {"fp4_padded": True}], [BOX | {"is_im2col": True}]):
        assert direct(kernel(signature, boxes), 1, [described], {0: 0}) is None
    blackwell = kernel(signature, [BOX], target=SimpleNamespace(arch=100))
    assert direct(blackwell, 1, [described], {0: 0}) is None
    assert direct(kernel(signature, [BOX]), 1, [described], {0: 0}) is not None


def test_without_a_driver_triton_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(direct_launches, "driver", lambda: None)
    assert direct(kernel(SIGNATURE), 12, ARGUMENTS, {0: 1, 5: 0}) is None


def test_what_the_driver_refuses_triton_launches(played: Any) -> None:
    """Its launcher says what is wrong, or makes the context that is missing."""
    cuda = played(8, 8, 8)
    launch = Launch(None, 3, [None], [(0, 0, None)], {}, {})
    launch._direct = direct(kernel({"X": "*fp32"}), 3, [None], {0: 0})
    seen: list[Any] = []
    launch._run = lambda arguments, stream: seen.append((arguments, stream))
    x = torch.zeros(4)
    launch([x], STREAM)
    assert len(cuda.launches) == 1
    assert not seen
    cuda.refuses = True
    launch([x], STREAM)
    assert len(cuda.launches) == 1
    ((arguments, stream),) = seen
    assert arguments[0] is x
    assert stream == STREAM
