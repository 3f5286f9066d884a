"""A small language model whose functions are a switch: grouped causal attention with rotary
embedding, RMSNorm and SwiGLU, and the cross-entropy of a last linear map.

Linear maps and the embedding are torch's in every variant; so are the names of the weights.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn

import napkin.torch as nkt

Tensor = torch.Tensor

EPS = 1e-6
BASE = 10_000.0


@dataclass(frozen=True)
class Functions:
    """What a language model is made of beside linear maps.

    Attributes:
        add_norm: (x, stream, weight) to the norm of x + stream, and that sum.
        rotary: (x, cos, sin), of [b, n, h, d] and [n, 1, d / 2].
        attend: grouped causal attention of [b, h, n, d].
        swiglu: of gate and up in one tensor.
        loss: the mean cross-entropy of (x, weight, target).
    """

    add_norm: Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor]]
    rotary: Callable[[Tensor, Tensor, Tensor], Tensor]
    attend: Callable[..., Tensor]
    swiglu: Callable[[Tensor], Tensor]
    loss: Callable[[Tensor, Tensor, Tensor], Tensor]


def _add_norm(x: Tensor, stream: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    stream = x + stream
    return F.rms_norm(stream, weight.shape, weight, EPS), stream


def _rotary(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def _swiglu(x: Tensor) -> Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def _loss(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
    return F.cross_entropy((x @ weight.mT).flatten(0, -2).float(), target.flatten())


def _napkin_add_norm(x: Tensor, stream: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    return nkt.rms_norm(x, weight, EPS, residual=stream)


TORCH = Functions(_add_norm, _rotary, F.scaled_dot_product_attention, _swiglu, _loss)
NAPKIN = Functions(
    _napkin_add_norm, nkt.rotary, nkt.attention, nkt.swiglu, nkt.linear_cross_entropy
)


def liger() -> Functions | None:
    """Those of Liger, where it is installed; attention is torch's."""
    try:
        from liger_kernel.ops.fused_add_rms_norm import LigerFusedAddRMSNormFunction as Norm
        from liger_kernel.ops.fused_linear_cross_entropy import (
            LigerFusedLinearCrossEntropyFunction as Loss,
        )
        from liger_kernel.ops.swiglu import LigerSiLUMulFunction as Gated
    except ImportError:
        return None

    def loss(x: Tensor, weight: Tensor, target: Tensor) -> Tensor:
        return Loss.apply(x.flatten(0, -2), weight, target.flatten())[0]

    return Functions(
        lambda x, stream, weight: Norm.apply(x, stream, weight, EPS),
        _rotary, F.scaled_dot_product_attention, lambda x: Gated.apply(*x.chunk(2, -1)), loss,
    )  # fmt: skip


@dataclass(frozen=True)
class GPT:
    """A language model of words, in blocks of attention and of a gated perceptron."""

    words: int = 32_768
    width: int = 1024
    heads: int = 16
    shared: int = 4
    depth: int = 8
    hidden: int = 2816
    length: int = 1024

    def made(self, functions: Functions) -> nn.Module:
        """It with random weights."""
        return _GPT(self, functions)

    def __str__(self) -> str:
        heads = f"{self.heads} heads on {self.heads // self.shared} of keys"
        return f"GPT {self.depth} x {self.width}, {heads}, {self.length} of {self.words:,} words"


class _Layer(nn.Module):
    def __init__(self, how: GPT, f: Functions) -> None:
        super().__init__()
        self.f, self.head = f, how.width // how.heads
        self.kinds = [how.heads, how.heads // how.shared, how.heads // how.shared]
        self.qkv = nn.Linear(how.width, sum(self.kinds) * self.head, bias=False)
        self.out = nn.Linear(how.width, how.width, bias=False)
        self.gate_up = nn.Linear(how.width, 2 * how.hidden, bias=False)
        self.down = nn.Linear(how.hidden, how.width, bias=False)
        self.norms = nn.ParameterList(torch.ones(how.width) for _ in range(2))

    def forward(self, x: Tensor, stream: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor]:
        f = self.f
        x, stream = f.add_norm(x, stream, self.norms[0])
        q, k, v = self.qkv(x).unflatten(-1, (-1, self.head)).split(self.kinds, -2)
        q, k = f.rotary(q, cos, sin), f.rotary(k, cos, sin)
        q, k, v = (t.transpose(1, 2) for t in (q, k, v))
        x = self.out(f.attend(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).flatten(-2))
        x, stream = f.add_norm(x, stream, self.norms[1])
        return self.down(f.swiglu(self.gate_up(x))), stream


class _GPT(nn.Module):
    def __init__(self, how: GPT, f: Functions) -> None:
        super().__init__()
        self.f = f
        pairs = torch.arange(how.width // how.heads // 2) * (2 * how.heads / how.width)
        angles = torch.arange(how.length)[:, None, None] * BASE**-pairs
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())
        self.embedding = nn.Embedding(how.words, how.width)
        self.layers = nn.ModuleList(_Layer(how, f) for _ in range(how.depth))
        self.norm = nn.Parameter(torch.ones(how.width))
        self.last = nn.Parameter(torch.empty(how.words, how.width))
        for weight in (self.embedding.weight, self.last):
            nn.init.normal_(weight, std=0.02)

    def forward(self, words: Tensor, target: Tensor) -> Tensor:
        x = self.embedding(words)
        stream = torch.zeros_like(x)
        for layer in self.layers:
            x, stream = layer(x, stream, self.cos, self.sin)
        return self.f.loss(self.f.add_norm(x, stream, self.norm)[0], self.last, target)


def text(words: int) -> Tensor:
    """The project's own prose and sources: for every word, run of spaces and other sign a number
    below `words`."""
    root = Path(__file__).resolve().parents[2]
    folders = [root / name for name in ("docs", "diagrams", "napkin")]
    files = sorted(p for f in folders for kind in ("*.md", "*.py") for p in f.rglob(kind))
    pieces = re.findall(r"\w+| +|[^\w ]", "\n".join(p.read_text() for p in files))
    return torch.tensor([zlib.crc32(piece.encode()) % words for piece in pieces])
