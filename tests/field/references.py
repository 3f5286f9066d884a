"""What the shipped diagrams compute, each as a plain numpy formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def normal(scores: Array) -> Array:
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def scores_of(q: Array, k: Array) -> Array:
    return q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])


def attention(q: Array, k: Array, v: Array) -> Array:
    return normal(scores_of(q, k)) @ v


def triangle_multiplication(
    x: Array, z: Array, g: Array, p: Array, h: Array, r: Array, w: Array, u: Array
) -> Array:
    def sigmoid(t: Array) -> Array:
        return 1 / (1 + np.exp(-t))

    a, b = sigmoid(x @ g) * (x @ p), sigmoid(x @ h) * (x @ r)
    return sigmoid(z @ u) * (np.einsum("ikc,jkc->ijc", a, b) @ w)


def grouped_query_attention(q: Array, k: Array, v: Array) -> Array:
    out = np.empty(q.shape)
    for b, head, r in np.ndindex(*q.shape[:3]):
        out[b, head, r] = attention(q[b, head, r], k[b, head], v[b, head])
    return out


def spherical_attention(q: Array, k: Array, v: Array) -> Array:
    s = scores_of(q, k)
    return s / np.linalg.norm(s, axis=-1, keepdims=True) @ v


def l1_attention(q: Array, k: Array, v: Array) -> Array:
    s = scores_of(q, k)
    return s / np.linalg.norm(s, ord=1, axis=-1, keepdims=True) @ v


def softcapped_attention(q: Array, k: Array, v: Array, cap: float = 30.0) -> Array:
    return normal(cap * np.tanh(scores_of(q, k) / cap)) @ v


def gelu(x: Array) -> Array:
    return x * np.vectorize(lambda u: 0.5 * math.erfc(-u / math.sqrt(2)))(x)


def logsumexp(x: Array) -> Array:
    return np.logaddexp.reduce(x, axis=-1)


def cross_entropy(logits: Array, target: Array) -> Array:
    return logsumexp(logits) - logits[np.arange(len(target)), target]


def top_experts(logits: Array) -> tuple[Array, ...]:
    order = np.argsort(-logits, axis=-1)[:, :2]
    gap = np.take_along_axis(logits, order, -1) @ [1.0, -1.0]
    weight = 1 / (1 + np.exp(-gap))
    return weight, 1 - weight, order[:, 0], order[:, 1]


def random_bits(seed: int, *shape: int) -> Array:
    """The first 23 bits of the hash of a seed and of positions."""

    def mixed(a: Any, b: Any) -> Any:
        h = np.uint32(np.asarray(a ^ b) % 2**32)
        h = (h ^ (h >> np.uint32(16))) * np.uint32(0x21F0AAAD)
        h = (h ^ (h >> np.uint32(15))) * np.uint32(0xD35A2D97)
        return np.int64(h ^ (h >> np.uint32(15)))

    with np.errstate(over="ignore"):
        bits = mixed(seed, 0x9E3779B9)
        for n in shape:
            bits = mixed(bits[..., None], mixed(np.arange(n), 0x3C6EF372))
    return bits >> 9


def sample_token(logits: Array, seed: Array) -> Array:
    draws = (random_bits(int(seed), *logits.shape) + 0.5) / 2**23
    return (logits - np.log(-np.log(draws))).argmax(-1)


def dropout_attention(q: Array, k: Array, v: Array, seed: Array) -> Array:
    dropped = round(0.1 * 2**23)
    kept = random_bits(int(seed), len(q), len(k)) >= dropped
    return (normal(scores_of(q, k)) * kept / (1 - dropped / 2**23)) @ v


def gated_delta_rule(q: Array, k: Array, v: Array, a: Array, b: Array) -> Array:
    k = k / np.sqrt((k * k).sum(-1, keepdims=True) + 1e-6)
    S, out = np.zeros((*k.shape[:2], k.shape[3], v.shape[3])), np.empty(v.shape)
    for t in range(k.shape[2]):
        S = S / (1 + np.exp(-a[:, :, t, None, None]))
        share = 1 / (1 + np.exp(-b[:, :, t, None]))
        moved = share * (v[:, :, t] - np.einsum("bhkv,bhk->bhv", S, k[:, :, t]))
        S = S + k[:, :, t, :, None] * moved[:, :, None]
        out[:, :, t] = np.einsum("bhk,bhkv->bhv", q[:, :, t], S)
    return out * k.shape[3] ** -0.5


def gated_linear_attention(q: Array, k: Array, v: Array, g: Array) -> Array:
    h, out = np.zeros((len(q), k.shape[2], v.shape[2])), np.empty(v.shape)
    for t in range(q.shape[1]):
        h = h / (1 + np.exp(-g[:, t, :, None])) + k[:, t, :, None] * v[:, t, None]
        out[:, t] = np.einsum("hk,hkv->hv", q[:, t], h)
    return out


def state_space_dual(x: Array, d: Array, a: Array, b: Array, c: Array) -> Array:
    d, h, out = (
        np.log(1 + np.exp(d)),
        np.zeros((len(x), *x.shape[2:], b.shape[2])),
        np.empty(x.shape),
    )
    for t in range(x.shape[1]):
        fed = (d[:, t, :, None] * x[:, t])[..., None] * b[:, t, None, None]
        h = np.exp(-d[:, t] * np.exp(a))[..., None, None] * h + fed
        out[:, t] = np.einsum("bn,bhpn->bhp", c[:, t], h)
    return out


def elman_network(x: Array, w: Array) -> Array:
    h, out = np.zeros((len(x), x.shape[2])), np.empty(x.shape)
    for t in range(x.shape[1]):
        out[:, t] = h = np.tanh(h @ w / math.sqrt(len(w)) + x[:, t])
    return out


def selective_scan(d: Array, a: Array, b: Array, c: Array, x: Array) -> Array:
    d, h, out = np.log(1 + np.exp(d)), np.zeros((len(d), *a.shape)), np.empty(d.shape)
    for t in range(d.shape[1]):
        decay = np.exp(-d[:, t, :, None] * np.exp(a))
        h = decay * h + (d * x)[:, t, :, None] * b[:, t, None, :]
        out[:, t] = np.einsum("bn,bdn->bd", c[:, t], h)
    return out


def rmsnorm(x: Array, g: Array, eps: float = 1e-6) -> Array:
    return np.stack([row * g / math.sqrt(row @ row / len(row) + eps) for row in x])


def layernorm(x: Array, g: Array, b: Array, eps: float = 1e-5) -> Array:
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + eps) * g + b


def unfused_neighborhood_attention_2d(q: Array, k: Array, v: Array) -> tuple[Array, Array]:
    out, weights = np.empty(q.shape), np.empty((*q.shape[:2], 7, 7))
    for i, j in np.ndindex(*q.shape[:2]):
        a, b = (max(0, min(at - 3, n - 7)) for at, n in zip((i, j), q.shape, strict=False))
        near = np.s_[a : a + 7, b : b + 7]
        scores = scores_of(q[i, j][None], k[near].reshape(49, -1))
        weights[i, j] = normal(scores).reshape(7, 7)
        out[i, j] = weights[i, j].reshape(49) @ v[near].reshape(49, -1)
    return out, weights


def seen_attention(q: Array, k: Array, v: Array, seen: Array) -> Array:
    return normal(np.where(seen, scores_of(q, k), -np.inf)) @ v


def sliding(q: Array, k: Array, v: Array) -> Array:
    back = np.subtract.outer(np.arange(len(q)), np.arange(len(k)))
    return seen_attention(q, k, v, (back >= 0) & (back < 512))


def near(size: int, window: int) -> Array:
    """Which keys of one axis lie in the shifted window of each query."""
    first = np.clip(np.arange(size) - window // 2, 0, size - window)[:, None]
    keys = np.arange(size)
    return (keys >= first) & (keys < first + window)


def neighborhood(q: Array, k: Array, v: Array, windows: tuple[int, ...]) -> Array:
    """Over several axes: near along each (Hassani et al., 2024)."""
    seen = np.ones((1, 1), dtype=bool)
    for size, window in zip(q.shape, windows, strict=False):
        seen = np.kron(seen, near(size, window))
    flat = [x.reshape(-1, x.shape[-1]) for x in (q, k, v)]
    return seen_attention(*flat, seen).reshape(q.shape)


def longformer(q: Array, k: Array, v: Array) -> Array:
    """A band of 256 to each side, 64 full rows and columns (arXiv 2004.05150, 3.1)."""
    i, j = np.indices((len(q), len(k)))
    return seen_attention(q, k, v, (abs(i - j) <= 256) | (i < 64) | (j < 64))


def bigbird(q: Array, k: Array, v: Array, *lists: Array) -> Array:
    """Key blocks that each block of queries attends to (arXiv 2007.14062, appendix D)."""
    count = -(-len(q) // 64)
    seen = np.zeros((count, count), dtype=bool)
    for row in range(count):
        attended = {0, 1, row - 1, row, row + 1, *(int(numbers[row]) for numbers in lists)}
        seen[row, [b for b in attended if 0 <= b < count]] = True
    seen[:2] = True
    tokens = np.kron(seen, np.ones((64, 64), dtype=bool))[: len(q), : len(k)]
    return seen_attention(q, k, v, tokens)


def sparse_transformer_strided(q: Array, k: Array, v: Array) -> Array:
    """The union of A1 = {t..i}, t = max(0, i - 64), and A2 = {j: (i - j) mod 64 = 0}
    (arXiv 1904.10509, section 4.3)."""
    seen = np.zeros((len(q), len(k)), dtype=bool)
    for i in range(len(q)):
        seen[i, max(0, i - 64) : i + 1] = True
        seen[i, [j for j in range(i + 1) if (i - j) % 64 == 0]] = True
    return seen_attention(q, k, v, seen)


def streaming_llm(q: Array, k: Array, v: Array) -> Array:
    """4 sinks and the last 512 tokens, token by token (arXiv 2309.17453, section 3.2)."""
    out = np.empty(q.shape)
    for i in range(len(q)):
        cache = [j for j in range(i + 1) if j < 4 or j > i - 512]
        out[i] = attention(q[i][None], k[cache], v[cache])[0]
    return out


def block_local(q: Array, k: Array, v: Array) -> Array:
    """Attention of each block alone."""
    parts = [np.s_[i : i + 128] for i in range(0, len(q), 128)]
    return np.concatenate([attention(q[p], k[p], v[p]) for p in parts])


def document_attention(q: Array, k: Array, v: Array, lengths: Array) -> Array:
    """Attention of each document alone; what lies behind the last is one more."""
    cuts = np.cumsum(lengths)
    documents = zip(*(np.split(x, cuts) for x in (q, k, v)), strict=True)
    return np.concatenate([attention(*d) for d in documents if len(d[0])])


def convolution(x: Array, w: Array) -> Array:
    """Windows of every axis of `w` but its last two, padded by a tap; channels last."""
    taps = w.shape[:-2]
    batch = x.ndim - 1 - len(taps)
    padded = np.pad(x, [(0, 0)] * batch + [(1, 1)] * len(taps) + [(0, 0)])
    out = 0.0
    for at in np.ndindex(*taps):
        part = tuple(slice(t, t + n) for t, n in zip(at, x.shape[batch:-1], strict=True))
        out = out + padded[(*[slice(None)] * batch, *part)] @ w[at]
    return np.asarray(out)


def latent_attention(q: Array, p: Array, c: Array, r: Array, u: Array, w: Array) -> Array:
    out = np.empty((*q.shape[:-1], w.shape[-1]))
    for b, h in np.ndindex(*q.shape[:2]):
        keys = np.concatenate([c[b] @ u[h], r[b]], -1)
        out[b, h] = attention(np.concatenate([q[b, h], p[b, h]], -1), keys, c[b] @ w[h])
    return out


def latent_attention_absorbed(q: Array, p: Array, c: Array, r: Array) -> Array:
    s = (q @ np.swapaxes(c, -1, -2) + p @ np.swapaxes(r, -1, -2)) / math.sqrt(192)
    return normal(s) @ c


def decode_attention(q: Array, k: Array, v: Array) -> Array:
    return np.stack(
        [[attention(*x) for x in zip(*b, strict=True)] for b in zip(q, k, v, strict=True)]
    )


def mixture_of_experts(*arrays: Array) -> Array:
    x, tokens, u, w, g, experts, places = arrays
    out = np.zeros((len(x), w.shape[-1]))
    for t, k in np.ndindex(*g.shape):
        e, s = experts[t, k], places[t, k]
        out[t] += g[t, k] * (gelu(x[tokens[e, s]] @ u[e]) @ w[e])
    return out


def grouped_experts(*arrays: Array) -> Array:
    x, tokens, serving, u, w, g, blocks, rows = arrays
    out = np.zeros((len(x), w.shape[-1]))
    for t, k in np.ndindex(*g.shape):
        b, r = blocks[t, k], rows[t, k]
        e = serving[b]
        out[t] += g[t, k] * (gelu(x[tokens[b, r]] @ u[e]) @ w[e])
    return out


def adamw(w: Array, g: Array, m: Array, v: Array) -> tuple[Array, ...]:
    """A step with decoupled weight decay of 0.01 at a rate of 0.001."""
    m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
    with np.errstate(invalid="ignore"):  # of moments that are drawn below 0
        step = 10 * m / (np.sqrt(1000 * v) + 1e-8)
    return w - 1e-3 * (step + 0.01 * w), m, v


def rotated(x: Array, c: Array, e: Array) -> Array:
    """Pairs of numbers half a head apart, each turned by its angle."""
    left, right = np.split(x, 2, -1)
    return x * c + np.concatenate([-right, left], -1) * e


def rotary_attention(q: Array, k: Array, v: Array, *angles: Array) -> Array:
    return attention(rotated(q, *angles[:2]), rotated(k, *angles[2:]), v)


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def swiglu_gradient(g: Array, u: Array, dy: Array) -> tuple[Array, Array]:
    gate = sigmoid(g)
    return dy * u * (gate + g * gate * (1 - gate)), dy * g * gate


def rmsnorm_gradient(x: Array, g: Array, dy: Array) -> tuple[Array, Array]:
    r = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-6)
    scaled = dy * g
    return r * scaled - x * r**3 * (scaled * x).mean(-1, keepdims=True), (dy * x * r).sum(0)


def layernorm_gradient(x: Array, g: Array, dy: Array) -> tuple[Array, Array, Array]:
    r = 1 / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    h, scaled = (x - x.mean(-1, keepdims=True)) * r, dy * g
    level, slope = scaled.mean(-1, keepdims=True), (scaled * h).mean(-1, keepdims=True)
    return r * (scaled - level - h * slope), (dy * h).sum(0), dy.sum(0)


def bias_gelu_gradient(x: Array, b: Array, dy: Array) -> tuple[Array, Array]:
    h = x + b
    below = np.vectorize(lambda t: 0.5 * math.erfc(-t / math.sqrt(2)))(h)
    dx = dy * (below + h * np.exp(-h * h / 2) / math.sqrt(2 * math.pi))
    return dx, dx.sum(0)


REFERENCES: dict[str, Callable[..., Array | tuple[Array, ...]]] = {
    "adamw": adamw,
    "attention": attention,
    "attention_fp8_kv": attention,
    "attention_output": lambda q, k, v, w: np.einsum("hqd,hdm->qm", attention(q, k, v), w),
    "bigbird": bigbird,
    "bilinear_form": lambda x, w, y: ((x @ w) * y).sum(-1),
    "block_local": block_local,
    "blockwise_fp8_linear": lambda x, w, sx, sw: np.einsum("agb,cgb,ga,gc->ac", x, w, sx, sw),
    "causal_attention": lambda q, k, v: seen_attention(q, k, v, np.tri(len(q)) > 0),
    "conv1d": convolution,
    "conv2d": convolution,
    "cross_entropy": cross_entropy,
    "decode_attention": decode_attention,
    "document_attention": document_attention,
    "elman_network": elman_network,
    "gelu_matmul": lambda a, b: gelu(a) @ b,
    "grouped_query_attention": grouped_query_attention,
    "l1_attention": l1_attention,
    "latent_attention": latent_attention,
    "latent_attention_absorbed": latent_attention_absorbed,
    "layernorm": layernorm,
    "layernorm_linear": lambda x, g, b, w: layernorm(x, g, b) @ w,
    "linear_cross_entropy": lambda x, w, t: cross_entropy(x @ w.T, t),
    "linear_attention": lambda q, k, v: q @ (k.T @ v),
    "cumsum": lambda x: x.cumsum(-1),
    "dropout_attention": dropout_attention,
    "greedy_token": lambda logits: logits.argmax(-1),
    "logsumexp": logsumexp,
    "longformer": longformer,
    "matmul": lambda a, b: a @ b,
    "matmul_dense_and_sparse": lambda x, w, r, v, i: (
        (x @ w.T) * r + np.einsum("cs,acs->ac", v, x.take(i.astype(int), 1, mode="clip"))
    ),
    "matmul_w4a16": lambda x, w, s: np.einsum("agb,cgb,gc->ac", x, w, s),
    "matmul_w8a8": lambda x, w, r, s: (x @ w.T) * r[:, None] * s,
    "matmul_bias_gelu": lambda x, w, b: gelu(x @ w + b),
    "grouped_experts": grouped_experts,
    "mixture_of_experts": mixture_of_experts,
    "mttkrp": lambda x, b, c: np.einsum("ijk,jr,kr->ir", x, b, c),
    "mlp": lambda x, u, w: gelu(x @ u) @ w,
    "multi_head_attention": attention,
    "neighborhood_attention_1d": lambda q, k, v: seen_attention(q, k, v, near(len(q), 256)),
    "neighborhood_attention_2d": lambda q, k, v: neighborhood(q, k, v, (20, 20)),
    "neighborhood_attention_3d": lambda q, k, v: neighborhood(q, k, v, (6, 12, 12)),
    "rmsnorm": rmsnorm,
    "rmsnorm_linear": lambda x, g, w: rmsnorm(x, g) @ w,
    "sample_token": sample_token,
    "gated_delta_rule": gated_delta_rule,
    "selective_scan": selective_scan,
    "gated_linear_attention": gated_linear_attention,
    "state_space_dual": state_space_dual,
    "rmsnorm_residual": lambda x, r, g: (x + r, rmsnorm(x + r, g)),
    "rotary_attention": rotary_attention,
    "sliding_attention": sliding,
    "softcapped_attention": softcapped_attention,
    "softmax": normal,
    "sparse_transformer_strided": sparse_transformer_strided,
    "spherical_attention": spherical_attention,
    "squared_distances": lambda x, y: ((x[:, None] - y) ** 2).sum(-1),
    "streaming_llm": streaming_llm,
    "tensor_train": lambda x, y, z, a, b, c: np.einsum(
        "ni,ia,nj,ajb,nk,bk->n", x, a, y, b, z, c, optimize=True
    ),
    "top_experts": top_experts,
    "swiglu_gradient": swiglu_gradient,
    "rmsnorm_gradient": rmsnorm_gradient,
    "layernorm_gradient": layernorm_gradient,
    "bias_gelu_gradient": bias_gelu_gradient,
    "triangle_multiplication": triangle_multiplication,
    "unfused_neighborhood_attention_2d": unfused_neighborhood_attention_2d,
    "variance": lambda x: x.var(-1),
}
