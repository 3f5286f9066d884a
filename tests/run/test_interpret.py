"""Kernels in the interpreter: the bytes they move, and the bounds of their arguments."""

import math
import textwrap
from pathlib import Path

import numpy as np
import pytest

from napkin.errors import InputError
from napkin.run.arrays import Descriptor, DeviceArray, empty, to_device
from napkin.run.interpret import Traffic, run
from napkin.run.worker import OutOfBounds

KERNELS = Path(__file__).parent / "kernels"
HEADER = "import triton\nimport triton.language as tl\n\n\n"


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def run_text(body: str, args: list, grid: tuple[int, ...] = (1,), **constexprs: object) -> Traffic:
    return run(HEADER + textwrap.dedent(body), "k", grid, args, constexprs)


def run_matmul(
    A: DeviceArray, B: DeviceArray, C: DeviceArray, tiles: tuple[int, int, int]
) -> Traffic:
    (m, k), n = A.shape, B.shape[1]
    block = dict(zip(("BLOCK_M", "BLOCK_N", "BLOCK_K"), tiles, strict=True))
    grid = (math.ceil(m / tiles[0]), math.ceil(n / tiles[1]))
    args = [A, B, C, m, n, k, *A.strides, *B.strides, *C.strides]
    return run(KERNELS / "matmul.py", "matmul", grid, args, block)


def run_attention(
    Q: DeviceArray, K: DeviceArray, V: DeviceArray, out: DeviceArray, tiles: tuple[int, int, int]
) -> Traffic:
    (q, d), x = Q.shape, K.shape[0]
    block = dict(zip(("BLOCK_Q", "BLOCK_X", "BLOCK_D"), tiles, strict=True))
    args = [Q, K, V, out, d**-0.5, q, x, d, *Q.strides, *K.strides, *V.strides, *out.strides]
    return run(KERNELS / "attention.py", "attention", (math.ceil(q / tiles[0]),), args, block)


def attention_float64(Q: DeviceArray, K: DeviceArray, V: DeviceArray) -> np.ndarray:
    score = Q.to_float64() @ K.to_float64().T * Q.shape[1] ** -0.5
    weight = np.exp(score - score.max(1, keepdims=True))
    return weight / weight.sum(1, keepdims=True) @ V.to_float64()


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("sizes", [(64, 48, 80), (61, 45, 77)])
@pytest.mark.parametrize("tiles", [(16, 16, 16), (32, 16, 32)])
def test_matmul_moves_what_the_closed_form_says(
    dtype: str, sizes: tuple[int, int, int], tiles: tuple[int, int, int]
) -> None:
    m, n, k = sizes
    A, B = to_device(normal(m, k), dtype), to_device(normal(k, n, seed=1), dtype)
    C = empty((m, n), "fp32")
    traffic = run_matmul(A, B, C, tiles)
    assert traffic == {
        ("A", "read"): A.itemsize * m * k * math.ceil(n / tiles[1]),
        ("B", "read"): B.itemsize * k * n * math.ceil(m / tiles[0]),
        ("C", "write"): 4 * m * n,
    }
    assert np.allclose(C.to_float64(), A.to_float64() @ B.to_float64(), atol=1e-4)


@pytest.mark.parametrize(("dtype", "tolerance"), [("fp32", 1e-6), ("fp16", 1e-3), ("bf16", 8e-3)])
def test_attention_moves_what_the_closed_form_says(dtype: str, tolerance: float) -> None:
    q, x, d = 97, 131, 40
    Q, K, V = (to_device(normal(n, d, seed=n), dtype) for n in (q, x, x + 1))
    V = DeviceArray(V.data[:x], dtype)
    out = empty((q, d), dtype)
    traffic = run_attention(Q, K, V, out, (32, 32, 64))
    blocks = math.ceil(q / 32)
    assert traffic["Q", "read"] == Q.itemsize * q * d
    assert traffic["K", "read"] == traffic["V", "read"] == Q.itemsize * x * d * blocks
    assert traffic["Out", "write"] == Q.itemsize * q * d
    assert {name for name, _ in traffic} == {"Q", "K", "V", "Out"}
    assert traffic["Q", "write"] == traffic["Out", "read"] == 0
    assert np.allclose(out.to_float64(), attention_float64(Q, K, V), atol=tolerance)


def test_strides_of_every_kind() -> None:
    A = to_device(normal(20, 24), "bf16", order=(1, 0))
    B = DeviceArray(to_device(normal(24, 40, seed=1), "bf16").data[:, :36:2], "bf16")
    C = DeviceArray(empty((18, 64), "fp32").data[:, :20].T, "fp32")
    traffic = run_matmul(A, B, C, (16, 16, 16))
    assert (A.strides, B.strides, C.strides) == ((1, 20), (40, 2), (1, 64))
    assert traffic["A", "read"] == 2 * 20 * 24 * 2
    assert np.allclose(C.to_float64(), A.to_float64() @ B.to_float64(), atol=1e-4)


def test_views_of_one_array_are_told_apart() -> None:
    packed = normal(32, 3, 16).astype(np.float32)
    Q, K, V = (DeviceArray(packed[:, i], "fp32") for i in range(3))
    out = empty((32, 16), "fp32")
    traffic = run_attention(Q, K, V, out, (16, 16, 16))
    assert (
        traffic["K", "read"] == traffic["V", "read"] == 2 * traffic["Q", "read"] == 2 * 4 * 32 * 16
    )
    assert np.allclose(out.to_float64(), attention_float64(Q, K, V), atol=1e-6)


def test_reversed_and_broadcast_views() -> None:
    x = np.arange(16, dtype=np.float32)
    body = """
        @triton.jit
        def k(X, Y, Out, step_x, step_y, n: tl.constexpr):
            i = tl.arange(0, n)
            tl.store(Out + i, tl.load(X + i * step_x) + tl.load(Y + i * step_y))
    """
    out = np.zeros(16, np.float32)
    broadcast = np.broadcast_to(np.float32(3), (16,))
    traffic = run_text(body, [x[::-1], broadcast, out, -1, 0], n=16)
    assert out.tolist() == [18 - i for i in range(16)]
    assert traffic["Y", "read"] == 64


COPY = """
    @triton.jit
    def k(X, Out, step, live, n: tl.constexpr):
        i = tl.arange(0, n)
        x = tl.load(X + (i - (live < 0)) * step, mask=i < tl.maximum(live, n * (live < 0)))
        tl.store(Out + i, x)
"""


@pytest.mark.parametrize(
    ("live", "where"),
    [
        (13, r"0 bytes past the last element of X \(12 fp32\)"),
        (-1, r"4 bytes before the first element of X \(12 fp32\)"),
    ],
)
def test_out_of_bounds_names_the_argument(live: int, where: str) -> None:
    x, out = np.ones(12, np.float32), np.ones(16, np.float32)
    with pytest.raises(OutOfBounds, match=rf"kernel k, program \(0\): {where}, at line 9: x = "):
        run_text(COPY, [x, out, 1, live], n=16)


def test_out_of_bounds_in_the_gaps_of_a_view() -> None:
    x, out = np.ones((4, 8), np.float32)[:, :5], np.ones(16, np.float32)
    with pytest.raises(OutOfBounds, match=r"20 bytes into X \(4x5 fp32\), where its strides"):
        run_text(COPY, [x, out, 1, 16], n=16)
    assert run_text(COPY, [x[0], out, 1, 5], n=16)["X", "read"] == 20


def test_misaligned_element_is_out_of_bounds() -> None:
    body = """
        @triton.jit
        def k(X, Out):
            tl.store(Out, tl.load((X.to(tl.pointer_type(tl.int8)) + 2).to(X.dtype)))
    """
    with pytest.raises(OutOfBounds, match="2 bytes into X"):
        run_text(body, [np.ones(4, np.float32), np.ones(1, np.float32)])


def test_what_is_masked_off_with_no_other_value_is_undefined() -> None:
    x, out = np.ones(12, np.float32), np.zeros(16, np.float32)
    run_text(COPY, [x, out, 1, 12], n=16)
    assert np.isnan(out[12:]).all()
    assert (out[:12] == 1).all()


def test_what_a_kernel_leaves_unwritten_shows() -> None:
    body = """
        @triton.jit
        def k(Out, Count, n: tl.constexpr):
            i = tl.arange(0, n)
            tl.store(Out + i, i.to(tl.float32), mask=i != 3)
            tl.store(Count + i, i, mask=i != 3)
    """
    out, count = empty((8,), "bf16"), empty((8,), "i32")
    run_text(body, [out, count], n=8)
    assert np.isnan(out.to_float64()).tolist() == [i == 3 for i in range(8)]
    assert count.data[3] == np.iinfo(np.int32).min


def test_atomics_read_and_write_or_add() -> None:
    body = """
        @triton.jit
        def k(Out, n: tl.constexpr):
            i = tl.arange(0, n)
            tl.atomic_add(Out + i % 4, 1, mask=i < 6)
            tl.atomic_max(Out + i, 4, mask=i < 4)
    """
    out = np.zeros(4, np.int32)
    traffic = run_text(body, [out], (1,), n=8)
    assert out.tolist() == [4, 4, 4, 4]
    assert traffic == {("Out", "add"): 24, ("Out", "read"): 16, ("Out", "write"): 16}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_descriptors_move_only_what_is_inside(dtype: str) -> None:
    X = to_device(normal(20, 24), dtype)
    blocks = {"BLOCK_R": 8, "BLOCK_C": 16}
    out = empty((20, 24), dtype)
    kernels = KERNELS / "descriptors.py"
    traffic = run(kernels, "copy_device", (3, 2), [X, out, 20, 24], blocks)
    assert (out.data == X.data).all()
    host = [Descriptor(X, (8, 16)), Descriptor(out, (8, 16))]
    assert run(kernels, "copy_host", (3, 2), host, blocks) == traffic
    assert traffic["X", "read"] == traffic["Out", "write"] == X.itemsize * 20 * 24
    assert np.allclose(out.to_float64(), X.to_float64() + 1, rtol=2**-8)


def test_writing_what_another_argument_shares_is_refused() -> None:
    x = np.ones(8, np.float32)
    with pytest.raises(InputError, match="writes Out, which shares memory with X"):
        run_text(COPY, [x[:5], x[4:], 1, 4], n=4)
    pairs = np.arange(8, dtype=np.float32).reshape(4, 2)
    left, right = DeviceArray(pairs[:, :1], "fp32"), DeviceArray(pairs[:, 1:], "fp32")
    body = """
        @triton.jit
        def k(X, Out, step, n: tl.constexpr):
            i = tl.arange(0, n) * step
            tl.store(Out + i, tl.load(X + i))
    """
    run_text(body, [left, right, 2], n=4)
    assert (pairs[:, 0] == pairs[:, 1]).all()
