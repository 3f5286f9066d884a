"""napkin for PyTorch: attention to drop in, and any diagram as a function on tensors.

CUDA tensors run the kernels that are derived for their GPU, on the current stream, where they lie
in memory; CPU tensors run kernels through Triton's interpreter, which is slow. `torch.compile`
captures every function here without a graph break. Gradients run the kernels of the gradient
(`napkin.gradient`) of the same diagram.
"""

from __future__ import annotations

from napkin.torch.compiled import Compiled, compile
from napkin.torch.modules import (
    NeighborhoodAttention1D,
    NeighborhoodAttention2D,
    NeighborhoodAttention3D,
)
from napkin.torch.neighborhood import na1d, na2d, na3d
from napkin.torch.rows import (
    cross_entropy,
    geglu,
    layer_norm,
    linear_cross_entropy,
    rms_norm,
    rotary,
    softmax,
    swiglu,
)
from napkin.torch.scaled_dot_product import attention

__all__ = [
    "Compiled", "NeighborhoodAttention1D", "NeighborhoodAttention2D", "NeighborhoodAttention3D",
    "attention", "compile", "cross_entropy", "geglu", "layer_norm", "linear_cross_entropy", "na1d",
    "na2d", "na3d", "rms_norm", "rotary", "softmax", "swiglu",
]  # fmt: skip
