"""What the interpreter computes: number formats, rounding, operators, special values."""

import math
import textwrap

import numpy as np
import pytest

from napkin.run.arrays import empty, to_device
from napkin.run.formats import decode, encode
from napkin.run.interpret import Traffic, run
from napkin.run.worker import KernelError

HEADER = "import triton\nimport triton.language as tl\n\n\n"


def run_text(body: str, args: list, grid: tuple[int, ...] = (1,), **constexprs: object) -> Traffic:
    return run(HEADER + textwrap.dedent(body), "k", grid, args, constexprs)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def test_scalars_keep_their_types() -> None:
    body = """
        @triton.jit
        def k(Out, small, big, real, flag):
            tl.static_assert(small.dtype == tl.int32)
            tl.static_assert(big.dtype == tl.int64)
            tl.static_assert(real.dtype == tl.float32)
            if flag:
                tl.store(Out, big + small)
                tl.store(Out + 1, (real * 2).to(tl.int64))
    """
    out = empty((2,), "i64")
    run_text(body, [out, np.int32(7), 2**40, 1.5, True])
    assert out.data.tolist() == [2**40 + 7, 3]


def test_32_bit_overflow_is_an_error() -> None:
    body = """
        @triton.jit
        def k(X, step, n: tl.constexpr):
            i = tl.arange(0, n)
            tl.store(X + i * step, 0.0, mask=i < 1)
    """
    with pytest.raises(KernelError, match="int32 overflows in mul"):
        run_text(body, [np.ones(4, np.float32), 2**30], n=4)


@pytest.mark.parametrize("rows", [1, 2])
def test_sums_of_32_bits_wrap(rows: int) -> None:
    body = """
        @triton.jit
        def k(Out, rows: tl.constexpr):
            x = tl.full([rows, 4], 1 << 30, tl.int32)
            tl.store(Out + tl.arange(0, rows), tl.sum(x + 1, axis=1))
            if rows == 1:
                tl.store(Out, tl.sum(tl.sum(x + 1, axis=1), axis=0))
    """
    out = empty((rows,), "i32")
    run_text(body, [out], rows=rows)
    assert out.data.tolist() == [4] * rows


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp8e4nv"])
def test_one_number_is_an_array(dtype: str) -> None:
    found = to_device(np.array(1.5), dtype).to_float64()
    assert isinstance(found, np.ndarray)
    assert found == 1.5


def test_rounding_to_bf16_is_to_nearest_even() -> None:
    every = np.arange(2**16, dtype=np.uint16)
    values = decode(every, "bf16")
    finite = every[np.isfinite(values)]
    assert (encode(decode(finite, "bf16"), "bf16") == finite).all()
    low, high = finite[:-1], finite[1:]
    neighbours = low & 0x8000 == high & 0x8000
    middle = (decode(low, "bf16").astype(np.float64) + decode(high, "bf16")) / 2
    even = np.where(low & 1, high, low)
    assert (encode(middle, "bf16") == even)[neighbours].all()
    above = np.nextafter(middle, np.where(low < 0x8000, np.inf, -np.inf))
    assert (encode(above, "bf16") == high)[neighbours].all()
    assert np.isnan(decode(encode(np.array([np.nan, -np.nan]), "bf16"), "bf16")).all()
    assert decode(encode(np.array([np.inf, 3.4e38, -1e300]), "bf16"), "bf16").tolist() == [
        np.inf,
        np.inf,
        -np.inf,
    ]


def test_8_bit_floats_saturate_and_round_to_even() -> None:
    values = np.array([1.97, 1.0625, 1.1875, 500, -1e9, 2.0**-10, 1.1 * 2.0**-10, np.nan])
    rounded = to_device(values, "fp8e4nv").to_float64()
    assert rounded[:-1].tolist() == [2, 1, 1.25, 448, -448, 0, 2.0**-9]
    assert np.isnan(rounded[-1])
    assert to_device(values[:5], "fp8e5").to_float64().tolist() == [2, 1, 1.25, 512, -57344]


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp8e4nv", "fp8e5"])
def test_a_kernel_rounds_as_the_host_does(dtype: str) -> None:
    body = """
        @triton.jit
        def k(X, Out, Back, n: tl.constexpr):
            i = tl.arange(0, n)
            short = tl.load(X + i).to(Out.dtype.element_ty)
            tl.store(Out + i, short)
            tl.store(Back + i, short.to(tl.float32))
    """
    x = (normal(4096) * np.exp(3 * normal(4096, seed=1))).astype(np.float32)
    out, back = empty((4096,), dtype), empty((4096,), "fp32")
    run_text(body, [x, out, back], n=4096)
    assert (out.data == to_device(x, dtype).data).all()
    assert (back.to_float64() == out.to_float64()).all()


OPERATIONS = {
    "x + y": np.add,
    "x * y": np.multiply,
    "-x": lambda x, y: -x,
    "x / y": np.divide,
    "tl.exp(x.to(tl.float32))": lambda x, y: np.exp(x),
    "tl.exp2(x.to(tl.float32))": lambda x, y: np.exp2(x),
    "tl.log(tl.abs(x).to(tl.float32))": lambda x, y: np.log(abs(x)),
    "tl.log2(tl.abs(x).to(tl.float32))": lambda x, y: np.log2(abs(x)),
    "tl.sqrt(tl.abs(x).to(tl.float32))": lambda x, y: np.sqrt(abs(x)),
    "tl.rsqrt(tl.abs(x).to(tl.float32))": lambda x, y: 1 / np.sqrt(abs(x)),
    "tl.erf(x.to(tl.float32))": lambda x, y: np.vectorize(math.erf)(x),
    "tl.sigmoid(x.to(tl.float32))": lambda x, y: 1 / (1 + np.exp(-x)),
    "tl.maximum(x, y)": np.maximum,
    "tl.minimum(x, y)": np.minimum,
    "tl.where((x > y) & (x > 0), x, y)": lambda x, y: np.where((x > y) & (x > 0), x, y),
    "tl.sum(x, 1)[:, None] + 0 * x": lambda x, y: x.sum(1, keepdims=True) + 0 * x,
    "tl.max(x, 0, keep_dims=True) + 0 * x": lambda x, y: x.max(0, keepdims=True) + 0 * x,
    "tl.argmax(x, 1)[:, None] + 0 * x": lambda x, y: x.argmax(1)[:, None] + 0 * x,
    "tl.cumsum(x, 1)": lambda x, y: x.cumsum(1),
    "tl.sort(x, 1)": lambda x, y: np.sort(x, 1),
    "tl.trans(x)": lambda x, y: x.T,
    "tl.reshape(tl.reshape(x, (n * n,)), (n, n))": lambda x, y: x,
    "tl.dot(x, y, input_precision='ieee')": np.matmul,
}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("expression", OPERATIONS)
def test_operations(expression: str, dtype: str) -> None:
    body = f"""
        @triton.jit
        def k(X, Y, Out, n: tl.constexpr):
            i = tl.arange(0, n)
            here = i[:, None] * n + i[None, :]
            x = tl.load(X + here)
            y = tl.load(Y + here)
            tl.store(Out + here, {expression})
    """
    X, Y = to_device(normal(16, 16), dtype), to_device(normal(16, 16, seed=1), dtype)
    out = empty((16, 16), "fp32")
    run_text(body, [X, Y, out], n=16)
    expected = OPERATIONS[expression](X.to_float64(), Y.to_float64())
    tolerance = 1e-5 if dtype == "fp32" else 2**-6
    assert np.allclose(out.to_float64(), expected, rtol=tolerance, atol=tolerance)


def test_not_a_number_and_infinity() -> None:
    body = """
        @triton.jit
        def k(X, Out, n: tl.constexpr):
            i = tl.arange(0, n)
            x = tl.load(X + i)
            tl.store(Out + i, tl.maximum(x, 0.0))
            tl.store(Out + n + i, tl.exp2(x))
            tl.store(Out + 2 * n + i, tl.max(x, 0) + 0 * i)
    """
    x = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    out = empty((3, 4), "fp32")
    run_text(body, [x, out], n=4)
    expected = [[0, np.inf, 0, 1], [np.nan, np.inf, 0, 2], [np.inf] * 4]
    assert np.array_equal(out.to_float64(), expected, equal_nan=True)


def test_a_product_too_thin_for_a_gpu_is_refused() -> None:
    body = """
        @triton.jit
        def k(Out, n: tl.constexpr):
            x = tl.zeros((n, n), tl.float16)
            tl.store(Out, tl.sum(tl.dot(x, x)))
    """
    with pytest.raises(KernelError, match="K >= 16"):
        run_text(body, [empty((1,), "fp32")], n=8)
