"""Laws of pipelined algorithms for random bodies between two products."""

from __future__ import annotations

import random

import pytest
from random_diagrams import Drawing

import napkin as nk
from napkin import Array, Diagram
from napkin.derive.label import weaved
from napkin.derive.prepare import prepare
from napkin.errors import Refusal
from napkin.machine.machines import machine
from napkin.show.pipeline import drawn_body, pipeline_json
from napkin.show.pipeline_view import pipeline_view
from napkin.studies.pipeline.model import pipeline

H100 = machine("h100")


def drawn(seed: int) -> Diagram:
    """Scores, up to three random steps on them, a weight for each key, and another product."""
    rng = random.Random(seed)
    steps = Drawing(rng)
    begin = rng.getstate()

    def program(Q: Array, K: Array, V: Array, W: Array) -> Array:
        rng.setstate(begin)
        x = nk.contract(Q, K, over="d")
        for _ in range(rng.randint(0, 3)):
            y = steps._map(x) if rng.random() < 0.5 else steps._reduce(x)
            x = x if y is None or not {"q", "x"} <= set(y.axes) else y
        x = x * W if rng.random() < 0.5 else x + W
        out = nk.contract(x, V, over="x")
        out = steps._map(out) if rng.random() < 0.3 else out
        if rng.random() < 0.3:
            out = out / nk.sqrt(nk.reduce(x * x, "sum", over="x") + 1.0)
        return out

    # Keys are held whole where no one pass streams them: few enough for registers.
    sizes = {"q": 512, "x": 256, "d": 64, "e": 64}
    return nk.diagram("q d, x d, x e, x -> q e", sizes=sizes, name="drawn")(program)


@pytest.mark.parametrize("seed", range(24))
def test_random_bodies(seed: int) -> None:
    rng = random.Random(seed)
    computed, dtype = rng.choice(["fp16", "fp32"]), rng.choice(["fp16", "fp8"])
    diagram = drawn(seed)
    if "q" not in weaved(prepare(diagram).outputs):  # a softmax over the queries mixes the rows
        with pytest.raises(Refusal, match="not cut into groups"):
            pipeline(diagram, H100, computed=computed, dtype=dtype)
        return
    p = pipeline(diagram, H100, computed=computed, dtype=dtype)
    data = pipeline_json(p, overhead=0.5)
    pipeline_view(data)
    assert drawn_body(p).startswith("<svg")
    # Every product of the kernel is in some block, once.
    found = [s.product for b in p.colouring.blocks for s in b.steps if s.product]
    assert len(found) == len({x.node for x in found})
    assert len(found) >= len(p.kernel.products)
    # What products compute is handed over exactly where something else computes on with it.
    for b in p.colouring.bodies:
        for v in b.variables.values():
            taken = [s for s in b.steps if v.node in s.stage.args]
            if "to registers" in v.crossing:
                assert any(s.stage.node is v.node and s.level == "tensor" for s in b.steps)
            if "to tensor" in v.crossing:
                assert any(s.level == "tensor" for s in taken)
    fit = p.fit
    for h in fit.held:
        assert h.block_bytes + fit.teams * h.team_bytes <= h.capacity
    for c in p.clocks:
        assert c.ideal <= H100.peak(dtype) * 1.001
    for o in data["overlap"]:
        assert 0 < o["utilisation"] <= 1
