"""H where axes that are split by residue are streamed together: a short residue has fewer chunks,
so what does not carry the axis is loaded again less often."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from in_numpy import execute

import napkin as nk
from napkin.check.verdict import run_case
from napkin.count.traffic import Traffic
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.machine.machines import machine
from napkin.moves.trail import Trail
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.plan.samples import Case
from napkin.rewrite.split import split_terms
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.labelled import Labelled
from napkin.settings.tiled import Tiled
from napkin.timing.execution import Execution, Time

SIZES = {"q": 4, "p": 5, "o": 7, "n": 2, "h": 4, "e": 5, "a": 7}


def scores(bias: str) -> nk.Diagram:
    """A logarithm of sums over three dilated axes, of scores with a bias on the axes `bias`."""

    @nk.diagram(f"q p o n, h e a n, {bias} -> q p o", sizes=SIZES)
    def summed(W, M, B):
        seen = nk.neighborhood(1, dilation=(3, 2, 2), queries="q p o", keys="h e a")
        return nk.reduce(nk.contract(W, M, over="n") + B, "logsumexp", over="h e a", keys=seen)

    return summed


def split(diagram: nk.Diagram, streamed: str) -> Kernel:
    ready = prepare(diagram)
    (way,) = split_terms(ready.outputs, ready.names)
    return label(diagram.name, ready.outputs, ready.names, streamed=streamed, split=way)


def tiling(kernel: Kernel, diagram: nk.Diagram, chunk: int) -> dict[str, int]:
    sizes = kernel.sized(diagram.check_sizes({}))
    tiles = {a: 1 << (sizes[a] - 1).bit_length() for a in kernel.axes}
    return {
        **tiles,
        **dict.fromkeys(kernel.stream.axes, chunk),
        **dict.fromkeys(kernel.residues, 1),
    }


CASES = [
    ("o a", "e_div_2 a_div_2"),  # lacks an axis of chunks, and its residue
    ("o a", "h_div_3 e_div_2"),  # lacks both
    ("p o a", "e_div_2 a_div_2"),  # carries the residue, by the queries
    ("h p", "a_div_2 e_div_2"),
    ("e", "h_div_3 e_div_2"),
]


@pytest.mark.parametrize("chunk", [1, 2, 4])
@pytest.mark.parametrize(("bias", "streamed"), CASES)
def test_seed_8700023_chunks_of_each_residue(bias: str, streamed: str, chunk: int) -> None:
    diagram = scores(bias)
    kernel = split(diagram, streamed)
    assert kernel.visits is None  # an axis of the key set is held whole
    tiles, sizes = tiling(kernel, diagram, chunk), diagram.check_sizes({})
    rng = np.random.default_rng(0)
    arrays = {str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in diagram.inputs}
    ran = execute(kernel, arrays, sizes, tiles)
    np.testing.assert_allclose(ran.outputs["O"], diagram.evaluate(*arrays.values()), rtol=1e-9)
    known = kernel.sized(sizes)
    moved: dict[Any, int] = {}
    for t in Traffic(kernel).parts:
        key = t.tensor, t.direction
        moved[key] = moved.get(key, 0) + t.values(known, tiles)
    assert moved == dict(ran.moved)
    # The search counts as the chosen plan does.
    tiled = Tiled(Labelled(kernel, known, "fp32", machine("h100")), tiles)
    assert sum(n for _, n in tiled.values) == ran.total
    counted_in_the_interpreter(kernel, diagram, tiles)


def counted_in_the_interpreter(
    kernel: Kernel, diagram: nk.Diagram, tiles: Mapping[str, int]
) -> None:
    sizes = kernel.sized(diagram.check_sizes({}))
    schedule = Schedule(tiles, per_thread=True)
    choice = Choice(kernel, schedule, sizes, 0, Time(0.0, "", {}), 0, Execution({}, 1))
    own = {n: n for n in kernel.tensors}
    place = machine("h100")
    made = PlannedKernel(choice, own, "fp32", place)
    plan = Plan(diagram, place, "fp32", diagram.check_sizes({}), (made,), {}, Trail())
    case = Case("as asked", diagram.check_sizes({}))
    values, traffic = run_case(plan, case, np.random.default_rng(0))
    assert all(v.ok for v in values), values
    assert all(t.ok for t in traffic), traffic
