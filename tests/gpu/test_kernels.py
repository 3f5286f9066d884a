"""Every shipped diagram on the GPU, against float64, at even and ragged sizes."""

from __future__ import annotations

import numpy as np
import pytest

import napkin as nk
from napkin.check.verdict import TOLERANCE
from napkin.diagram.evaluate import close_to
from napkin.diagram.library import load, names
from napkin.plan.samples import cases

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

TYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16} if torch else {}


def tensors(diagram, sizes, dtype, seed, flip=False):
    """Random inputs on the GPU; `flip` transposes the first matrix in memory."""
    rng = np.random.default_rng(seed)
    out = []
    for n in diagram.inputs:
        shape = [sizes[a] for a in n.axes]
        if n.kind == "int":
            others = max(sizes[a] for a in diagram.axes if a not in n.axes)
            t = torch.tensor(rng.integers(0, others, shape), dtype=torch.int32, device="cuda")
        else:
            t = torch.tensor(rng.normal(size=shape), dtype=TYPES[dtype], device="cuda")
        if flip and t.ndim > 1:
            t, flip = t.transpose(-1, -2).contiguous().transpose(-1, -2), False
        out.append(t)
    return out


@pytest.mark.parametrize("dtype", ["fp32", "fp16", "bf16"])
@pytest.mark.parametrize("name", names())
def test_values(name, dtype):
    plan = nk.derive(load(name), on="h100", dtype=dtype)
    for i, case in enumerate(cases(plan)[:3]):
        given = tensors(plan.diagram, case.sizes, dtype, i, case.transposed)
        wanted = plan.diagram.evaluate(*given)
        found = plan(*given)
        wanted = wanted if isinstance(wanted, tuple) else (wanted,)
        found = found if isinstance(found, tuple) else (found,)
        for f, w in zip(found, wanted, strict=True):
            error = close_to(f.double().cpu().numpy(), w)
            assert error <= TOLERANCE[dtype], (case.name, error)


def test_results_repeat():
    plan = nk.derive(load("attention"), on="h100", sizes=dict(q=512, x=777, d=64), dtype="bf16")
    given = tensors(plan.diagram, plan.sizes, "bf16", 0)
    first = plan(*given)
    assert all(torch.equal(first, plan(*given)) for _ in range(5))
