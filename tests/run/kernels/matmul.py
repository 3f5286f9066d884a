"""A plain tiled matrix product, ``C[m, n] = sum_k A[m, k] * B[k, n]``."""

import triton
import triton.language as tl


@triton.jit
def matmul(
    A,
    B,
    C,
    M,
    N,
    K,
    stride_am,
    stride_ak,
    stride_bk,
    stride_bn,
    stride_cm,
    stride_cn,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_K: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    keys = tl.arange(0, BLOCK_K)
    a_ptrs = A + rows[:, None] * stride_am + keys[None, :] * stride_ak
    b_ptrs = B + keys[:, None] * stride_bk + cols[None, :] * stride_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        live = start + keys < K
        a = tl.load(a_ptrs, mask=(rows[:, None] < M) & live[None, :], other=0.0)
        b = tl.load(b_ptrs, mask=live[:, None] & (cols[None, :] < N), other=0.0)
        acc = tl.dot(a, b, acc, input_precision="ieee")
        a_ptrs += BLOCK_K * stride_ak
        b_ptrs += BLOCK_K * stride_bk
    c_ptrs = C + rows[:, None] * stride_cm + cols[None, :] * stride_cn
    mask = (rows[:, None] < M) & (cols[None, :] < N)
    tl.store(c_ptrs, acc.to(C.dtype.element_ty), mask=mask)
