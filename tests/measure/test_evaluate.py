"""The torch evaluation agrees with numpy's, whole and in chunks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from napkin.check.inputs import whole_numbers
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load, names
from napkin.ir.evaluate import close_to
from napkin.measure.calls import Scaled
from napkin.measure.matrix import CALLED

torch = pytest.importorskip("torch")

FEW = 12
"""Positions of an axis, where no window needs more."""


def sizes_of(diagram: Diagram, most: int) -> dict[str, int]:
    """Small sizes that every key set of the diagram allows."""
    from napkin.ir.key_sets import spec_of

    out = {a: min(n, most) for a, n in diagram.check_sizes({}).items()}
    same = diagram.same_size
    for keys in diagram.key_sets:
        for need in spec_of(keys).needs:
            out[need.axis] = max(out[need.axis], need.least)
    for axis, (count, _) in diagram.counted.items():
        out[axis] = count
    root = {a: max(out[b] for b in out if same.get(b, b) == same.get(a, a)) for a in out}
    return diagram.check_sizes(root)


def drawn(diagram: Diagram, sizes: dict[str, int]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [
        rng.normal(size=shape) if n.kind == "real" else whole_numbers(diagram, n, shape, sizes, rng)
        for n in diagram.inputs
        for shape in [[sizes[a] for a in n.axes]]
    ]


def compare(diagram: Diagram, arrays: list[Any], sizes: dict[str, int], **settings: Any) -> int:
    """Both evaluations agree; how many chunks there were."""
    from napkin.torch.reference import evaluation

    wanted = diagram.evaluate(*arrays)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    made = evaluation(diagram, sizes)
    count = 0
    for box, found in made.chunks(*map(torch.tensor, arrays), **settings):
        count += 1
        for f, w, o in zip(found, wanted, diagram.outputs, strict=True):
            part = w[
                tuple(slice(r.start, r.stop) if (r := box.get(a)) else slice(None) for a in o.axes)
            ]
            assert close_to(f.numpy(), part) < 1e-9
    return count


@pytest.mark.parametrize("name", names())
def test_shipped_diagrams(name: str) -> None:
    diagram = load(name)
    sizes = sizes_of(diagram, FEW)
    arrays = drawn(diagram, sizes)
    assert compare(diagram, arrays, sizes) == 1
    from napkin.torch.reference import evaluation

    made = evaluation(diagram, sizes)
    parts = compare(diagram, arrays, sizes, budget=made.peak({}) // 5)
    assert parts >= 5 or not made.cut


@pytest.mark.parametrize("how", CALLED["how"], ids=repr)
def test_what_calls_are_compared_with(how: Scaled) -> None:
    """Masks too, which are inputs of booleans."""
    diagram = how.diagram()
    sizes = {"b": 2, "g": 2, "r": 3, "q": 5, "x": 7, "d": 4, "e": 6}
    from napkin.measure.tensors import drawn as tensors_of

    tensors = tensors_of(diagram, sizes, "fp32", 0, device="cpu")
    arrays = [(t.double() if t.is_floating_point() else t).numpy() for t in tensors]
    assert compare(diagram, arrays, sizes) == 1


def test_operators_and_reductions_of_a_user() -> None:
    import napkin as nk

    larger = nk.operator(
        "larger_by_far", 2, evaluate=lambda xp, a, b: xp.where(a > 2 * b, a, b),
        triton="tl.where(a > 2 * b, a, b)",
    )  # fmt: skip
    root = nk.operator(
        "root_of_squares", 2, evaluate=lambda xp, a, b: xp.sqrt(a * a + b * b),
        triton="tl.sqrt_rn(a * a + b * b)",
    )  # fmt: skip
    with pytest.raises(nk.InputError, match=r"combine\(a, 0.0\) = a fails at a = -1"):
        nk.reduction("norm_of", combine=root, identity=0.0)
    product = nk.reduction("with_one", combine=lambda a, b: a + b + a * b, identity=0.0)

    @nk.diagram("m x, m x -> m")
    def both(A: Any, T: Any) -> Any:
        return product(larger(A, T) * 0.1, over="x")

    sizes = {"m": 7, "x": 5}
    assert compare(both, drawn(both, sizes), sizes) == 1
