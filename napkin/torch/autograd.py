"""Gradients as torch's autograd has them: of the evaluation of a diagram, term by term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from napkin.diagram.diagram import Diagram
from napkin.torch.reference import evaluation


def autograd(f: Diagram, arrays: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The gradients of a diagram by its inputs of real numbers, in float64.

    Args:
        arrays: the inputs, in order.
        cotangents: of the outputs of real numbers, in order.

    Raises:
        InputError: the arrays do not fit the diagram, or a scalar has no value.
    """
    sizes = f.sizes_of([np.shape(a) for a in arrays])
    tensors = [torch.as_tensor(np.array(a)) for a in arrays]
    found = differentiated(f, sizes, tensors, [torch.as_tensor(np.array(c)) for c in cotangents])
    return [t.numpy() for t in found]


def differentiated(
    f: Diagram,
    sizes: dict[str, int],
    tensors: Sequence[torch.Tensor],
    cotangents: Sequence[torch.Tensor],
    real: torch.dtype = torch.float64,
) -> list[torch.Tensor]:
    """A forward pass in `real` and its backward pass: a gradient for each input of real numbers,
    and zeros for one that changes nothing."""
    leaves = [t.detach().requires_grad_(n.kind == "real")
              for t, n in zip(tensors, f.inputs, strict=True)]  # fmt: skip
    results = [v for v, o in zip(evaluation(f, sizes, real=real)(*leaves), f.outputs, strict=True)
               if o.node.kind == "real"]  # fmt: skip
    smooth = [(v, c) for v, c in zip(results, cotangents, strict=True) if v.requires_grad]
    wanted = [t for t in leaves if t.requires_grad]
    if not smooth:
        return [torch.zeros_like(t) for t in wanted]
    values, weights = zip(*smooth, strict=True)
    return list(torch.autograd.grad(
        values, wanted, weights, allow_unused=True, materialize_grads=True
    ))  # fmt: skip
