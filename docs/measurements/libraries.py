"""Calls of libraries that compute what a diagram says, by the diagram's name: functions from its
tensors to a call without arguments. Tensors are brought into a library's layout before the call."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch.nn import functional

Made = Callable[..., Callable[[], Any]]


def autotuned(plan: Any) -> Made:
    """torch.compile with the settings that it finds by measuring."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from napkin.run.prepared import DTYPES
    from napkin.torch.reference import evaluation

    def made(*tensors: torch.Tensor) -> Callable[[], Any]:
        term = make_fx(evaluation(plan.diagram, plan.sizes, real=DTYPES[plan.dtype]))(*tensors)
        return partial(torch.compile(term, mode="max-autotune-no-cudagraphs"), *tensors)

    return made


def rotated_flex(Q: Any, K: Any, V: Any, C_q: Any, E_q: Any, C_x: Any, E_x: Any) -> Any:
    """FlexAttention of heads that are rotated and stored first."""
    from torch.nn.attention.flex_attention import flex_attention

    def rotated(X: Any, C: Any, E: Any) -> Any:
        low, high = X.chunk(2, -1)
        return X * C + torch.cat([-high, low], -1) * E

    first = torch.compile(lambda: (rotated(Q, C_q, E_q), rotated(K, C_x, E_x)), dynamic=False)
    flex = torch.compile(flex_attention, dynamic=False)
    return lambda: flex(*first(), V)


def add_rms_norm(X: Any, R: Any, G: Any) -> Any:
    from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction

    def run() -> Any:
        norm, stream = LigerFusedAddRMSNormFunction.apply(X, R, G, 1e-6, 0.0, "llama", False)
        return stream, norm

    return run


def fused_adamw(W: Any, G: Any, M: Any, V: Any) -> Any:
    """torch's fused step, which overwrites: its first call alone gives the values of one step."""
    weights, first, second = W.clone(), M.clone(), V.clone()
    steps = torch.ones((), device=W.device)

    def run() -> Any:
        torch._fused_adamw_(
            [weights], [G], [first], [second], [], [steps], lr=1e-3, beta1=0.9, beta2=0.999,
            weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip
        return weights, first, second

    return run


def liger_cross_entropy(X: Any, W: Any, T: Any) -> Any:
    from liger_kernel.ops.fused_linear_cross_entropy import LigerFusedLinearCrossEntropyFunction

    call, classes = LigerFusedLinearCrossEntropyFunction.apply, T.long()
    return lambda: call(X, W, classes, None, None, -100, 0.0, 0.0, "none")[0]


def projected_sdpa(Q: Any, K: Any, V: Any, W: Any) -> Any:
    flat = W.flatten(0, 1)

    def run() -> Any:
        heads = functional.scaled_dot_product_attention(Q[None], K[None], V[None])[0]
        return heads.transpose(0, 1).flatten(1) @ flat

    return run


def scaled_mm(X: Any, W: Any, SX: Any, SW: Any) -> Any:
    """Blocks of 1 x 128 on both sides; scales of a column of blocks lie side by side, as given."""
    left, right = X.flatten(1), W.flatten(1).t()
    return lambda: torch._scaled_mm(left, right, SX.t(), SW, out_dtype=torch.bfloat16)


def cdist(X: Any, Y: Any) -> Any:
    mode = "use_mm_for_euclid_dist"
    return lambda: torch.cdist(X.float(), Y.float(), compute_mode=mode).square().bfloat16()


def _last(*tensors: Any) -> list[Any]:
    """Heads after positions, as fla wants them: b h t d to b t h d."""
    return [t.transpose(1, 2).contiguous() for t in tensors]


def gated_delta_rule(Q: Any, K: Any, V: Any, A: Any, B: Any) -> Any:
    """Keys of length 1 and gates come from a kernel of torch.compile, in the call."""
    from fla.ops.gated_delta_rule import chunk_gated_delta_rule

    q, k, v, a, b = _last(Q, K, V, A, B)

    @torch.compile
    def first() -> Any:
        keys = k.float()
        keys = keys * torch.rsqrt(keys.square().sum(-1, keepdim=True) + 1e-6)
        return keys.to(k), functional.logsigmoid(a.float()), b.sigmoid()

    def run() -> Any:
        keys, decay, share = first()
        return chunk_gated_delta_rule(q, keys, v, decay, share)[0].transpose(1, 2)

    return run


def mamba2(X: Any, D: Any, A: Any, B: Any, C: Any) -> Any:
    """The same keys and queries for all heads are written out before the call."""
    from fla.ops.simple_gla import chunk_simple_gla

    many = (-1, -1, X.shape[2], -1)
    q, k = (t[:, :, None].expand(*many).contiguous() for t in (C, B))

    def run() -> Any:
        return chunk_simple_gla(q, k, X * D[..., None], (D * A).float(), scale=1.0)[0]

    return run


def gated_linear_attention(Q: Any, K: Any, V: Any, G: Any) -> Any:
    from fla.ops.gla import chunk_gla

    q, k, v, g = _last(*(t[None] for t in (Q, K, V, G)))
    return lambda: chunk_gla(q, k, v, functional.logsigmoid(g), scale=1.0)[0][0].transpose(0, 1)


def retention(Q: Any, K: Any, V: Any, G: Any) -> Any:
    from fla.ops.simple_gla import chunk_simple_gla

    q, k, v = _last(*(t[None] for t in (Q, K, V)))
    decay = G.float().log()
    norm = torch.compile(lambda x: functional.layer_norm(x.float(), x.shape[-1:]).bfloat16())

    def run() -> Any:
        return norm(chunk_simple_gla(q, k, v, g_gamma=decay, scale=1.0)[0])[0].transpose(0, 1)

    return run


def elman(X: Any, W: Any) -> Any:
    """cuDNN's network, with the product of the inputs by a unit matrix that it cannot leave out."""
    n = X.shape[-1]
    net = torch.nn.RNN(n, n, bias=False, batch_first=True).to(X)
    net.weight_hh_l0.data.copy_(W.t())
    torch.nn.init.eye_(net.weight_ih_l0)
    net.flatten_parameters()
    return lambda: net(X)[0].detach()


BESIDE: dict[str, dict[str, Made]] = {
    "rotary_attention": {"FlexAttention of rotated heads": rotated_flex},
    "rmsnorm_residual": {"Liger": add_rms_norm},
    "adamw": {"torch fused": fused_adamw},
    "linear_cross_entropy": {"Liger": liger_cross_entropy},
    "attention_output": {"SDPA and product": projected_sdpa},
    "blockwise_fp8_linear": {"torch._scaled_mm": scaled_mm},
    "squared_distances": {"torch.cdist": cdist},
    "prefix_sums": {"torch.cumsum": lambda X: lambda: X.cumsum(0)},
    "state_space_dual": {"fla simple_gla": mamba2},
    "multiscale_retention": {"fla simple_gla": retention},
    "gated_linear_attention": {"fla gla": gated_linear_attention},
    "gated_delta_rule": {"fla gated_delta_rule": gated_delta_rule},
    "elman_network": {"cuDNN": elman},
}
