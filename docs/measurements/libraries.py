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

    @torch.compile
    def first() -> Any:
        step = functional.softplus(D.float())
        return (X * step[..., None]).to(X), -step * A.float().exp()

    def run() -> Any:
        return chunk_simple_gla(q, k, *first(), scale=1.0)[0]

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
    net.weight_hh_l0.data.copy_(W.t() * n**-0.5)
    torch.nn.init.eye_(net.weight_ih_l0)
    net.flatten_parameters()
    return lambda: net(X)[0].detach()


def lstm(Z: Any, U: Any) -> Any:
    """cuDNN's network, with a product of the inputs as `elman` has. It returns no cells of every
    step: states are in their place, and the error is without meaning."""
    gates, d = Z.shape[1], U.shape[1]
    net = torch.nn.LSTM(gates * d, d, bias=False, batch_first=True).to(Z)
    net.weight_hh_l0.data.copy_(U.transpose(1, 2).flatten(0, 1))
    torch.nn.init.eye_(net.weight_ih_l0)
    net.flatten_parameters()
    inputs = Z.transpose(1, 2).flatten(2)
    return lambda: [net(inputs)[0].detach()] * 2


def hgrn(X: Any, Z: Any) -> Any:
    """Gates come from a kernel of torch.compile, in the call."""
    from fla.ops.hgrn import chunk_hgrn

    def first() -> Any:
        z = Z.float()
        return (z.sigmoid() * X).to(X), functional.logsigmoid(-z).to(X)

    compiled = torch.compile(first)
    return lambda: chunk_hgrn(*compiled())[0]


def swiglu_backward(G: Any, U: Any, dY: Any) -> Any:
    """Liger's gradient, which overwrites: its first call alone gives the values."""
    from liger_kernel.ops.swiglu import swiglu_backward as backward

    gate, up = G.clone(), U.clone()
    return lambda: backward(gate, up, dY)[:2]


def layer_norm_backward(X: Any, G: Any, dY: Any) -> Any:
    """torch's gradient, which reads mean and 1 / deviation of its forward pass."""
    shape = list(X.shape[1:])
    bias = torch.zeros_like(G)
    _, mean, rstd = torch.native_layer_norm(X, shape, G, bias, 1e-5)
    every = [True, True, True]
    call = torch.ops.aten.native_layer_norm_backward
    return lambda: call(dY, X, shape, mean, rstd, G, bias, every)


def dropped_sdpa(Q: Any, K: Any, V: Any, seed: Any) -> Any:
    """Other weights are dropped, so its values are others."""
    heads = Q[None, None], K[None, None], V[None, None]
    return lambda: functional.scaled_dot_product_attention(*heads, dropout_p=0.1)[0, 0]


def compiled(function: Callable[..., Any]) -> Made:
    """A function as a user of torch writes it, under torch.compile."""
    return lambda *tensors: partial(torch.compile(function, dynamic=False), *tensors)


def eager(function: Callable[..., Any]) -> Made:
    return lambda *tensors: partial(function, *tensors)


def _gelu_product(A: Any, B: Any) -> Any:
    return functional.gelu(A) @ B


def _triangle(X: Any, Z: Any, G: Any, P: Any, H: Any, R: Any, W: Any, U: Any) -> Any:
    a, b = (X @ G).sigmoid() * (X @ P), (X @ H).sigmoid() * (X @ R)
    pairs = torch.einsum("ikc,jkc->ijc", a, b)
    return (Z @ U).sigmoid() * (pairs @ W)


def _siglip(X: Any, Y: Any, T: Any, B: Any) -> Any:
    scores = (X @ Y.T).float() * T + B
    signs = 2 * torch.eye(len(X), device=X.device) - 1
    return -functional.logsigmoid(signs * scores).sum() / len(X)


def _jensen_shannon(X: Any, W: Any, Y: Any, U: Any) -> Any:
    p, q = (X @ W.T).float().softmax(-1), (Y @ U.T).float().softmax(-1)
    m = (p + q) / 2
    return (p * (p / m).log() + q * (q / m).log()).sum(-1) / 2


def _distances(X: Any, Y: Any) -> Any:
    squares = X.float().square().sum(-1)[:, None] + Y.float().square().sum(-1)
    return (squares - 2 * (X @ Y.T)).to(X)


def _nearest(X: Any, C: Any) -> Any:
    return (C.float().square().sum(-1) - 2 * (X @ C.T)).argmin(1)


def _bilinear(x: Any, W: Any, y: Any) -> Any:
    return ((x @ W) * y).sum(-1)


def _mttkrp(X: Any, B: Any, C: Any) -> Any:
    return torch.einsum("ijk,jr,kr->ir", X, B, C)


def _train(X: Any, Y: Any, Z: Any, A: Any, B: Any, C: Any) -> Any:
    first = (X @ A).unsqueeze(2) * Y.unsqueeze(1)
    second = first.flatten(1) @ B.flatten(0, 1)
    return (second * (Z @ C.T)).sum(-1)


def _tucker(G: Any, A: Any, B: Any, C: Any) -> Any:
    rows = torch.einsum("ip,pqr->iqr", A, G)
    return torch.einsum("jq,iqr->ijr", B, rows) @ C.T


def _sampled(L: Any, seed: Any) -> Any:
    return (L - (-torch.rand_like(L).log()).log()).argmax(-1)


BESIDE: dict[str, dict[str, Made]] = {
    "sample_token": {"compiled by hand": compiled(_sampled)},
    "gelu_matmul": {"gelu and product": eager(_gelu_product)},
    "triangle_multiplication": {"compiled by hand": compiled(_triangle)},
    "siglip_loss": {"compiled by hand": compiled(_siglip)},
    "layernorm_gradient": {"torch backward": layer_norm_backward},
    "swiglu_gradient": {"Liger": swiglu_backward},
    "linear_jensen_shannon": {"stored logits": compiled(_jensen_shannon)},
    "nearest_centre": {"compiled by hand": compiled(_nearest)},
    "bilinear_form": {"compiled by hand": compiled(_bilinear)},
    "mttkrp": {"torch.einsum": eager(_mttkrp)},
    "tensor_train": {"compiled by hand": compiled(_train)},
    "tucker_reconstruction": {"torch.einsum": eager(_tucker)},
    "minimal_gru": {"fla hgrn": hgrn},
    "lstm_layer": {"cuDNN": lstm},
    "dropout_attention": {"SDPA": dropped_sdpa},
    "rotary_attention": {"FlexAttention of rotated heads": rotated_flex},
    "rmsnorm_residual": {"Liger": add_rms_norm},
    "adamw": {"torch fused": fused_adamw},
    "linear_cross_entropy": {"Liger": liger_cross_entropy},
    "attention_output": {"SDPA and product": projected_sdpa},
    "blockwise_fp8_linear": {"torch._scaled_mm": scaled_mm},
    "squared_distances": {"torch.cdist": cdist, "compiled by hand": compiled(_distances)},
    "prefix_sums": {"torch.cumsum": lambda X: lambda: X.cumsum(0)},
    "state_space_dual": {"fla simple_gla": mamba2},
    "multiscale_retention": {"fla simple_gla": retention},
    "gated_linear_attention": {"fla gla": gated_linear_attention},
    "gated_delta_rule": {"fla gated_delta_rule": gated_delta_rule},
    "elman_network": {"cuDNN": elman},
}
