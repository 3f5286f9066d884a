"""Plain attention for one head, streamed over the keys with a running maximum."""

import triton
import triton.language as tl


@triton.jit
def attention(
    Q,
    K,
    V,
    Out,
    scale,
    q,
    x,
    d,
    stride_qq,
    stride_qd,
    stride_kx,
    stride_kd,
    stride_vx,
    stride_vd,
    stride_oq,
    stride_od,
    BLOCK_Q: tl.constexpr,
    BLOCK_X: tl.constexpr,
    BLOCK_D: tl.constexpr,
):
    rows = tl.program_id(0) * BLOCK_Q + tl.arange(0, BLOCK_Q)
    dims = tl.arange(0, BLOCK_D)
    q_mask = (rows[:, None] < q) & (dims[None, :] < d)
    queries = tl.load(Q + rows[:, None] * stride_qq + dims[None, :] * stride_qd, q_mask, other=0.0)
    peak = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_Q,), tl.float32)
    acc = tl.zeros((BLOCK_Q, BLOCK_D), tl.float32)
    for start in tl.range(0, x, BLOCK_X):
        keys = start + tl.arange(0, BLOCK_X)
        mask = (keys[:, None] < x) & (dims[None, :] < d)
        k = tl.load(K + keys[:, None] * stride_kx + dims[None, :] * stride_kd, mask, other=0.0)
        v = tl.load(V + keys[:, None] * stride_vx + dims[None, :] * stride_vd, mask, other=0.0)
        score = tl.dot(queries, tl.trans(k), input_precision="ieee") * (scale * 1.4426950408889634)
        score = tl.where(keys[None, :] < x, score, float("-inf"))
        higher = tl.maximum(peak, tl.max(score, 1))
        weight = tl.exp2(score - higher[:, None])
        rescale = tl.exp2(peak - higher)
        total = total * rescale + tl.sum(weight, 1)
        acc = tl.dot(weight.to(v.dtype), v, acc * rescale[:, None], input_precision="ieee")
        peak = higher
    acc = acc / total[:, None]
    out = Out + rows[:, None] * stride_oq + dims[None, :] * stride_od
    tl.store(out, acc.to(Out.dtype.element_ty), q_mask)
