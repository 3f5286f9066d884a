"""Gradients as torch's autograd has them: of the evaluation of a diagram, term by term."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from napkin.diagram.diagram import Diagram
from napkin.torch.reference import evaluation


def autograd(f: Diagram, arrays: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
    """The gradients of a diagram by its inputs of real numbers, in float64; zeros by one that
    changes nothing.

    Args:
        arrays: the inputs, in order.
        cotangents: of the outputs of real numbers, in order.

    Raises:
        InputError: the arrays do not fit the diagram, or a scalar has no value.
    """
    sizes = f.sizes_of([np.shape(a) for a in arrays])
    leaves = [torch.from_numpy(np.array(a)).requires_grad_(n.kind == "real")
              for a, n in zip(arrays, f.inputs, strict=True)]  # fmt: skip
    results = [v for v, o in zip(evaluation(f, sizes)(*leaves), f.outputs, strict=True)
               if o.node.kind == "real"]  # fmt: skip
    given = [torch.from_numpy(np.array(c)) for c in cotangents]
    smooth = [(v, c) for v, c in zip(results, given, strict=True) if v.requires_grad]
    wanted = [t for t in leaves if t.requires_grad]
    if not smooth:
        return [np.zeros(t.shape) for t in wanted]
    values, weights = zip(*smooth, strict=True)
    found = torch.autograd.grad(values, wanted, weights, allow_unused=True, materialize_grads=True)
    return [t.numpy() for t in found]
