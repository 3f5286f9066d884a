"""Two networks with random weights in which attention is a switch: a vision transformer, and a
hierarchical one with neighborhood attention of alternating dilation (DiNAT, arXiv 2209.15001).

Everything but attention is plain torch, and the same in every variant but one, which has napkin's
norms and activations too; so are the names of the weights, and one variant loads the state of
another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial

import torch
import torch.nn.functional as F  # noqa: N812
from torch import nn
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import napkin as nk
import napkin.torch as nkt

Tensor = torch.Tensor

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Queries, keys and values [b, h, n, d] to the same shape."""

Near = Callable[[Tensor, Tensor, Tensor, int, int], Tensor]
"""Queries, keys and values [b, x, y, h, d], a window's side and its dilation, to the same shape."""


# --- attention in torch -------------------------------------------------------------------------


def window_starts(tokens: int, window: int) -> Tensor:
    """The first key of each query: windows are shifted inside at the ends."""
    return (torch.arange(tokens) - window // 2).clamp(0, tokens - window)


def gathered(q: Tensor, k: Tensor, v: Tensor, window: int, dilation: int) -> Tensor:
    """Neighborhood attention by its definition: the keys of every query are gathered."""

    def seen(tokens: int) -> Tensor:
        """[tokens, window]: of each residue of the dilation, a line of its own."""
        out = torch.empty(tokens, window, dtype=torch.long)
        for r in range(dilation):
            line = torch.arange(r, tokens, dilation)
            first = window_starts(len(line), window)
            out[line] = r + dilation * (first[:, None] + torch.arange(window))
        return out.to(q.device)

    rows, columns = (seen(n) for n in q.shape[1:3])
    where = (slice(None), rows[:, None, :, None], columns[None, :, None, :])
    keys, values = (t[where].flatten(3, 4) for t in (k, v))  # [b, x, y, w * w, h, d]
    scores = torch.einsum("bxyhd,bxywhd->bxyhw", q * q.shape[-1] ** -0.5, keys)
    return torch.einsum("bxyhw,bxywhd->bxyhd", scores.softmax(-1), values)


@cache
def block_mask(x: int, y: int, window: int, device: torch.device) -> BlockMask:
    """FlexAttention's mask of a window without dilation over x * y tokens in rows."""

    def within(at: Tensor, key: Tensor, tokens: int) -> Tensor:
        first = (at - window // 2).clamp(0, tokens - window)
        return (key >= first) & (key < first + window)

    def seen(b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return within(q // y, k // y, x) & within(q % y, k % y, y)

    return create_block_mask(seen, None, None, x * y, x * y, device=str(device))


def flex(
    q: Tensor, k: Tensor, v: Tensor, window: int, dilation: int, mask: BlockMask | None = None
) -> Tensor:
    """Neighborhood attention by FlexAttention. Tokens of one residue of the dilation become an
    image of their own, so that its blocks hold neighbors; the dilation divides the layout."""
    b, x, y, h, d = q.shape
    n, m = x // dilation, y // dilation
    mask = mask or block_mask(n, m, window, q.device)

    def apart(t: Tensor) -> Tensor:
        if dilation == 1:
            return t.flatten(1, 2).transpose(1, 2)
        split = t.reshape(b, n, dilation, m, dilation, h, d).permute(0, 2, 4, 5, 1, 3, 6)
        return split.reshape(b * dilation**2, h, n * m, d)

    fused = q.is_cuda and not torch.compiler.is_compiling()
    attend = torch.compile(flex_attention, dynamic=False) if fused else flex_attention
    out = attend(*map(apart, (q, k, v)), block_mask=mask)
    assert isinstance(out, Tensor)
    if dilation == 1:
        return out.transpose(1, 2).unflatten(1, (x, y))
    out = out.reshape(b, dilation, dilation, h, n, m, d).permute(0, 4, 1, 5, 2, 3, 6)
    return out.reshape(b, x, y, h, d)


class Neighborhood(nn.Module):
    """Neighborhood attention between projections, with the names of NATTEN's module and ours."""

    def __init__(self, near: Near, width: int, heads: int, window: int, dilation: int) -> None:
        super().__init__()
        self.near, self.heads, self.window, self.dilation = near, heads, window, dilation
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(-3)
        return self.proj(self.near(q, k, v, self.window, self.dilation).flatten(-2))


class Full(nn.Module):
    """Attention over all tokens between projections."""

    def __init__(self, attend: Attend, width: int, heads: int) -> None:
        super().__init__()
        self.attend, self.heads = attend, heads
        self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.proj(self.attend(q, k, v).transpose(1, 2).flatten(-2))


@dataclass(frozen=True)
class Switch:
    """What attends in a network.

    Attributes:
        attend: over all tokens.
        near: makes neighborhood attention of (width, heads, window, dilation), and the side of the
            layout.
        norm: makes a norm of a width.
        gelu: of [..., d].
    """

    attend: Attend
    near: Callable[[int, int, int, int, int], nn.Module]
    norm: Callable[[int], nn.Module] = nn.LayerNorm
    gelu: Callable[[Tensor], Tensor] = F.gelu


def _gathered(width: int, heads: int, window: int, dilation: int, side: int) -> nn.Module:
    return Neighborhood(gathered, width, heads, window, dilation)


def _flex(width: int, heads: int, window: int, dilation: int, side: int) -> nn.Module:
    n = side // dilation  # the mask is made before any graph is captured
    near = partial(flex, mask=block_mask(n, n, window, torch.get_default_device()))
    return Neighborhood(near, width, heads, window, dilation)


def _napkin(width: int, heads: int, window: int, dilation: int, side: int) -> nn.Module:
    return nkt.NeighborhoodAttention2D(width, heads, kernel_size=window, dilation=dilation)


def _none(width: int, heads: int, window: int, dilation: int, side: int) -> nn.Module:
    return Neighborhood(lambda q, k, v, window, dilation: v, width, heads, window, dilation)


class _Norm(nn.LayerNorm):
    """torch's module with napkin's function."""

    def forward(self, input: Tensor) -> Tensor:
        return nkt.layer_norm(input, self.weight, self.bias, self.eps)


@nkt.compile
@nk.diagram("n d -> n d")
def _gelu(X: nk.Array) -> nk.Array:
    return nk.gelu(X)


def _napkin_gelu(x: Tensor) -> Tensor:
    return _gelu(x.flatten(0, -2)).view(x.shape)


SWITCHES = {
    "exact": Switch(F.scaled_dot_product_attention, _gathered),
    "torch": Switch(F.scaled_dot_product_attention, _flex),
    "napkin": Switch(nkt.attention, _napkin),
    "all": Switch(nkt.attention, _napkin, _Norm, _napkin_gelu),
    "none": Switch(lambda q, k, v: v, _none),
}
"""By name: what the others are held to, torch's own, napkin's attention, all of napkin's; and
values passed on, which tells what a network takes without attention."""


# --- networks -----------------------------------------------------------------------------------


class Block(nn.Module):
    """Attention and a perceptron, each behind a norm and beside what it is added to."""

    def __init__(self, width: int, attention: nn.Module, switch: Switch, wider: int = 4) -> None:
        super().__init__()
        self.attention, self.gelu = attention, switch.gelu
        self.norms = nn.ModuleList(switch.norm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, wider * width), nn.Linear(wider * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norms[0](x))
        return x + self.down(self.gelu(self.up(self.norms[1](x))))


@dataclass(frozen=True)
class ViT:
    """A vision transformer of square images and patches, with the mean of its tokens classified."""

    image: int
    patch: int = 16
    width: int = 384
    heads: int = 6
    depth: int = 12

    def made(self, switch: Switch) -> nn.Module:
        """It with random weights."""
        return _ViT(self, switch)

    def __str__(self) -> str:
        tokens = (self.image // self.patch) ** 2
        return f"ViT {self.depth} x {self.width}, {self.heads} heads, {tokens} tokens"


class _ViT(nn.Module):
    def __init__(self, how: ViT, switch: Switch) -> None:
        super().__init__()
        tokens = (how.image // how.patch) ** 2
        self.patches = nn.Conv2d(3, how.width, how.patch, how.patch)
        self.places = nn.Parameter(0.02 * torch.randn(tokens, how.width))
        made = [Full(switch.attend, how.width, how.heads) for _ in range(how.depth)]
        self.blocks = nn.Sequential(*(Block(how.width, attention, switch) for attention in made))
        self.norm, self.head = switch.norm(how.width), nn.Linear(how.width, 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patches(images).flatten(2).transpose(1, 2) + self.places
        return self.head(self.norm(self.blocks(x)).mean(1))


@dataclass(frozen=True)
class DiNAT:
    """Stages of neighborhood attention over square images, at a quarter of their side and then
    half of it at each stage; every second block has the largest dilation that divides the layout.
    """

    image: int
    widths: tuple[int, ...] = (64, 128, 256, 512)
    depths: tuple[int, ...] = (3, 4, 6, 5)
    head: int = 32
    window: int = 7

    def layouts(self) -> list[int]:
        """Tokens along a side, by stage."""
        return [self.image // 4 // 2**i for i in range(len(self.widths))]

    def dilations(self) -> list[int]:
        """The dilation of every second block, by stage."""
        return [
            max(d for d in range(1, n // self.window + 1) if n % d == 0) for n in self.layouts()
        ]

    def made(self, switch: Switch) -> nn.Module:
        """It with random weights."""
        return _DiNAT(self, switch)

    def __str__(self) -> str:
        sides = ", ".join(
            f"{n}^2 dilated 1 and {d}"
            for n, d in zip(self.layouts(), self.dilations(), strict=True)
        )
        return f"DiNAT {self.widths[0]} to {self.widths[-1]}, window {self.window}^2 over {sides}"


class _DiNAT(nn.Module):
    def __init__(self, how: DiNAT, switch: Switch) -> None:
        super().__init__()
        first = how.widths[0]
        self.stem = nn.Sequential(
            nn.Conv2d(3, first // 2, 3, 2, 1), nn.Conv2d(first // 2, first, 3, 2, 1)
        )
        self.stages, self.smaller = nn.ModuleList(), nn.ModuleList()
        stages = zip(how.widths, how.depths, how.dilations(), how.layouts(), strict=True)
        for width, depth, dilation, side in stages:
            if self.stages:
                self.smaller.append(nn.Conv2d(width // 2, width, 3, 2, 1, bias=False))
            near = partial(switch.near, width, width // how.head, how.window)
            made = [near((1, dilation)[i % 2], side) for i in range(depth)]
            self.stages.append(nn.Sequential(*(Block(width, each, switch, 3) for each in made)))
        self.norm, self.head = switch.norm(how.widths[-1]), nn.Linear(how.widths[-1], 1000)

    def forward(self, images: Tensor) -> Tensor:
        x = self.stem(images).permute(0, 2, 3, 1)
        for i, stage in enumerate(self.stages):
            if i:
                x = self.smaller[i - 1](x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
            x = stage(x)
        return self.head(self.norm(x).mean((1, 2)))


Network = ViT | DiNAT


def variants(
    network: Network, names: list[str], device: str, dtype: torch.dtype
) -> dict[str, nn.Module]:
    """The network with each attention of `SWITCHES`, all with the weights of the first."""
    torch.manual_seed(0)
    with torch.device(device):
        out = {name: network.made(SWITCHES[name]).to(dtype).eval() for name in names}
    first = next(iter(out.values()))
    for made in out.values():
        made.load_state_dict(first.state_dict())
    return out
