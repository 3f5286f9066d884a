"""Copies of a matrix through tensor descriptors, made in the kernel and given by the host."""

import triton
import triton.language as tl


@triton.jit
def copy_device(X, Out, rows, cols, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    source = tl.make_tensor_descriptor(X, [rows, cols], [cols, 1], [BLOCK_R, BLOCK_C])
    target = tl.make_tensor_descriptor(Out, [rows, cols], [cols, 1], [BLOCK_R, BLOCK_C])
    row = tl.program_id(0) * BLOCK_R
    col = tl.program_id(1) * BLOCK_C
    target.store([row, col], source.load([row, col]))


@triton.jit
def copy_host(X, Out, BLOCK_R: tl.constexpr, BLOCK_C: tl.constexpr):
    row = tl.program_id(0) * BLOCK_R
    col = tl.program_id(1) * BLOCK_C
    Out.store([row, col], X.load([row, col]) + 1.0)
