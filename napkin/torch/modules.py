"""Neighborhood attention as modules, with NATTEN's constructor and parameter names.

A module loads the state of NATTEN's module of the same name: `qkv` and `proj` are linear maps.
"""

from __future__ import annotations

import torch
from torch import nn

from napkin.errors import InputError
from napkin.ir.whole_numbers import whole
from napkin.keys.neighbors import PerAxis, PerAxisFlag
from napkin.torch.neighborhood import checked, na1d, na2d, na3d


class _NeighborhoodAttention(nn.Module):
    """Projections to queries, keys and values, neighborhood attention, and a projection back.

    Args:
        embed_dim: channels, over all heads.
        num_heads: heads; they divide `embed_dim`.
        kernel_size, stride, dilation, is_causal: as those of `napkin.torch.na1d`.
        qkv_bias: whether `qkv` has a bias.
        qk_scale: of the scores; `(embed_dim / num_heads) ** -0.5` by default.
        proj_drop: the share of outputs that dropout sets to 0 in training.

    Raises:
        InputError: a parameter is out of range, or heads do not divide channels.
    """

    dims = 0

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        kernel_size: PerAxis,
        stride: PerAxis = 1,
        dilation: PerAxis = 1,
        is_causal: PerAxisFlag = False,
        qkv_bias: bool = True,
        qk_scale: float | None = None,
        proj_drop: float = 0.0,
    ) -> None:
        super().__init__()
        num_heads = whole(num_heads, f"{type(self).__name__}: num_heads")
        if num_heads < 1 or embed_dim % num_heads:
            raise InputError(
                f"{type(self).__name__}: {num_heads} heads do not divide embed_dim {embed_dim}"
            )
        window = checked(self.dims, kernel_size, stride, dilation, is_causal)
        self.kernel_size, self.stride, self.dilation, self.is_causal = window
        self.embed_dim, self.num_heads = embed_dim, num_heads
        self.head_dim = embed_dim // num_heads
        self.scale = self.head_dim**-0.5 if qk_scale is None else qk_scale
        self.qkv = nn.Linear(embed_dim, 3 * embed_dim, bias=qkv_bias)
        self.proj = nn.Linear(embed_dim, embed_dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """[B, X[, Y[, Z]], embed_dim] to the same shape.

        Raises:
            InputError: `x` has another number of axes, or of channels.
        """
        if x.dim() != self.dims + 2 or x.shape[-1] != self.embed_dim:
            layout = " ".join("XYZ"[: self.dims])
            raise InputError(
                f"{type(self).__name__}: the input has shape {tuple(x.shape)}; it takes "
                f"[B {layout} {self.embed_dim}]"
            )
        parts = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim))
        q, k, v = parts.unbind(-3)
        attend = (na1d, na2d, na3d)[self.dims - 1]
        out = attend(
            q, k, v, self.kernel_size, self.stride, self.dilation, self.is_causal, self.scale
        )
        return self.proj_drop(self.proj(out.flatten(-2)))

    def extra_repr(self) -> str:
        return (
            f"head_dim={self.head_dim}, num_heads={self.num_heads}, "
            f"kernel_size={self.kernel_size}, stride={self.stride}, dilation={self.dilation}, "
            f"is_causal={self.is_causal}"
        )


class NeighborhoodAttention1D(_NeighborhoodAttention):
    """Neighborhood attention along one axis, [B, X, embed_dim] to the same, with projections."""

    dims = 1


class NeighborhoodAttention2D(_NeighborhoodAttention):
    """Neighborhood attention over a plane, [B, X, Y, embed_dim] to the same, with projections."""

    dims = 2


class NeighborhoodAttention3D(_NeighborhoodAttention):
    """Neighborhood attention over a volume, [B, X, Y, Z, embed_dim] to the same, with
    projections."""

    dims = 3
