"""Sums over the rows of all warpgroups that a loop adds to in memory: values and bytes of generated
kernels on the CPU, and what goes wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.count.traffic import Traffic as Prediction
from napkin.derive.kernel import Kernel
from napkin.derive.prepare import prepare
from napkin.derive.rules.accumulate import ACCUMULATED
from napkin.diagram.diagram import Diagram
from napkin.lower.build import build
from napkin.lower.launch import launch
from napkin.lower.warpgroups.cta import SpecialisedCta
from napkin.lower.warpgroups.gluon import imports
from napkin.lower.warpgroups.resources import registers_of, shared_of
from napkin.lower.warpgroups.whether import why_not
from napkin.lower.warpgroups.write_gluon import write_cta
from napkin.machine.machines import machine
from napkin.run import warpgroups
from napkin.run.arrays import Descriptor, DeviceArray, empty, to_device
from napkin.run.interpret import Traffic
from napkin.run.warpgroups import run_cta
from napkin.run.worker import KernelError
from napkin.schedule import specialised
from napkin.settings.climb import best_tiles
from napkin.settings.specialised import launched


def gradient(keys: Any = None) -> Diagram:
    @nk.diagram("h q d, h x d, h x e -> h q e")
    def gated(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * 0.2
        return nk.contract(nk.sigmoid(S), V, over="x", keys=keys)

    return nk.gradient(gated)


@nk.diagram("h q d, h x d, h x e, h q e, h q -> h q d, h x d, h x e")
def weighed(Q: Any, K: Any, V: Any, dO: Any, L: Any) -> Any:
    """Weights of the first scores alone: one result waits for one product, the others for two."""
    P = nk.exp(nk.contract(Q, K, over="d") * 0.2 - L)
    dS = P * nk.contract(dO, V, over="e")
    to_keys, to_values = nk.contract(dS, Q, over="q"), nk.contract(P, dO, over="q")
    return nk.contract(dS, K, over="x") * 0.2, to_keys, to_values


def grouped(queries: str, keys: str, how: Any) -> Diagram:
    """Heads of queries that share one of keys."""

    @nk.diagram(f"h r {queries} d, h {keys} d, h {keys} e -> h r {queries} e")
    def gated(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * 0.2
        return nk.contract(nk.sigmoid(S), V, over=keys, keys=how)

    return nk.gradient(gated)


FULL, CAUSAL = gradient(), gradient(nk.causal("q", "x"))
WINDOW = gradient(nk.sliding(3, 0, queries="q", keys="x"))
"""Of the last chunk of queries few see a group's keys: its box is added whole."""

GROUPED = grouped("q", "x", nk.causal("q", "x"))
PLANE = grouped("q y", "x z", nk.neighborhood((5, 7), queries="q y", keys="x z"))
"""Of queries streamed beside their heads, the causal ones are visited, and those of a window."""

CASES = [
    (FULL, {"h": 2, "q": 200, "x": 264, "d": 128, "e": 128}, {"q": 64, "x": 64}),
    (FULL, {"h": 1, "q": 200, "x": 264, "d": 64, "e": 64}, {"q": 128, "x": 64}),
    (FULL, {"h": 1, "q": 40, "x": 40, "d": 64, "e": 32}, {"q": 128, "x": 64}),
    (weighed, {"h": 1, "q": 200, "x": 264, "d": 128, "e": 128}, {"q": 64, "x": 64}),
    (CAUSAL, {"h": 1, "q": 328, "x": 328, "d": 128, "e": 128}, {"q": 64, "x": 64}),
    (WINDOW, {"h": 1, "q": 328, "x": 328, "d": 128, "e": 128}, {"q": 64, "x": 64}),
    (GROUPED, {"h": 1, "r": 3, "q": 200, "x": 200, "d": 128, "e": 128}, {"q": 64, "x": 64, "r": 1}),
    (PLANE, {"h": 1, "r": 2, "q": 20, "y": 13, "x": 20, "z": 13, "d": 128, "e": 128},
     {"r": 1, "q": 8, "y": 8, "x": 4, "z": 16}),
]  # fmt: skip


@cache
def adding(diagram: Diagram) -> Kernel:
    """The kernel that gives dK and dV, and adds to dQ."""
    ready = prepare(diagram)
    axes = [[a for a in diagram.axes if a in names] for names in ("x z", "r q y")]
    axis, stream = map(" ".join, axes)
    (found,) = ACCUMULATED.matches("k", ready.outputs, ready.names, axis, stream)
    return ACCUMULATED.apply(found)[0]


def cta_of(
    diagram: Diagram, sizes: Mapping[str, int], tiles: Mapping[str, int], groups: int = 2
) -> SpecialisedCta:
    whole = {"h": 1, "d": sizes["d"], "e": sizes["e"]}
    schedule = specialised({**whole, **tiles}, groups, "x", described=2)
    return SpecialisedCta(build(adding(diagram), schedule, 2))


def ran(
    diagram: Diagram,
    sizes: Mapping[str, int],
    cta: SpecialisedCta,
    changed: Callable[[str], str] = lambda text: text,
) -> tuple[list[float], Traffic]:
    """How far the results are off, and what moved."""
    rng, tensors = np.random.default_rng(3), dict[str, DeviceArray]()
    for n in diagram.inputs:
        values = rng.normal(size=[sizes[a] for a in n.axes])
        tensors[str(n.params[0])] = to_device(values, "bf16")
    wanted = diagram.evaluate(*(a.to_float64() for a in tensors.values()))
    for o in cta.program.kernel.outputs:
        form = "fp32" if o.name in cta.program.kernel.added else "bf16"
        tensors[o.name] = empty([sizes[a] for a in o.axes], form)
        tensors[o.name].data[...] = 0
    written = write_cta(cta)
    strides = {t: tensors[t].strides for t in written.entry.axes_of}
    call = launch(written.entry, sizes, {}, strides)
    args: list[Any] = []
    for a in call.order:
        array = tensors.get(call.tensors.get(a, ""))
        if array is not None and (box := call.boxes.get(a)):
            turned = DeviceArray(array.data.transpose(box.order), array.dtype)
            args.append(Descriptor(turned, box.sizes))
        else:
            args.append(call.scalars[a] if array is None else array)
    text = changed(f"{imports(written.source)}\n\n{written.source}")
    moved = run_cta(text, written.entry.name, call.grid, args, call.constexprs)
    (added,) = cta.program.kernel.added
    others = [o.name for o in cta.program.kernel.outputs if o.name != added]
    found = [tensors[added].to_float64() * 0.2, *(tensors[t].to_float64() for t in others)]
    off = [np.linalg.norm(f - w) / np.linalg.norm(w) for f, w in zip(found, wanted, strict=True)]
    return [float(x) for x in off], moved


@pytest.mark.parametrize(("diagram", "sizes", "tiles"), CASES)
def test_values_and_bytes(diagram: Diagram, sizes: dict[str, int], tiles: dict[str, int]) -> None:
    cta = cta_of(diagram, sizes, tiles)
    assert why_not(cta.program) == ""
    off, moved = ran(diagram, sizes, cta)
    assert max(off) < 1e-2
    kernel = cta.program.kernel
    (added,) = kernel.added
    dtypes = {t: "fp32" if t == added else "bf16" for t in kernel.tensors}
    boxed = cta.program.in_boxes
    predicted = Prediction(kernel).bytes(sizes, cta.program.schedule, dtypes, boxed=boxed)
    assert predicted[added, "add"] == moved[added, "add"]
    if diagram is FULL:  # once for the keys of all warpgroups
        times = -(-sizes["x"] // (2 * tiles["x"]))
        assert moved[added, "add"] == 4 * times * sizes["h"] * sizes["q"] * sizes["d"]


@pytest.mark.parametrize(
    "line",
    [
        "        mbarrier.wait(total_sum_rows_full.index(slot * 2 + (warpgroup + 1) % 2), phase)\n",
        "        mbarrier.wait(total_sum_full.index(0), iterations % 2)\n",
        "        mbarrier.arrive(total_sum_free.index(0))\n",
        "        mbarrier.arrive(total_sum_rows_free.index(slot * 2 + (warpgroup + 1) % 2))\n",
    ],
)
def test_what_is_not_waited_for_shows(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warpgroups, "PATIENCE", 0.3)
    diagram, sizes, tiles = CASES[0]

    def changed(text: str) -> str:
        assert line in text
        return text.replace(line, "")

    try:
        off, _ = ran(diagram, sizes, cta_of(diagram, sizes, tiles), changed)
    except KernelError:
        return
    assert not max(off) < 1e-2


def test_a_sum_has_a_part_of_whole_instructions_for_each_warpgroup() -> None:
    sizes, narrow = {"d": 64, "e": 64}, {"q": 64, "x": 64}
    assert why_not(cta_of(FULL, sizes, narrow).program) == "it writes as it streams"
    (wide,) = cta_of(FULL, sizes, {"q": 128, "x": 64}).crossing
    assert (wide.cut, wide.part) == (0, (64, 64))
    (cut,) = cta_of(FULL, {"d": 128, "e": 128}, narrow).crossing
    assert (cut.cut, cut.part) == (1, (64, 64))
    assert not cta_of(FULL, sizes, {"q": 128, "x": 64}, 3).crossing


def test_what_it_takes_of_a_multiprocessor() -> None:
    """Beside the boxes of Q, K, V and dO: two stages of the rows of both, and a chunk's sums."""
    _, sizes, tiles = CASES[0]
    cta = cta_of(FULL, sizes, tiles)
    boxes = 2 * (4 * 64 * 128 + 4 * 64 * 128)
    rows, sums, barriers = 2 * 2 * 64 * 64 * 2, 64 * 128 * 4, (4 + 8 + 2 * 2 * 2 + 3) * 8
    assert shared_of(cta) == boxes + rows + sums + barriers + 256
    assert registers_of(cta) == (2 * 64 * 128 + 2 * 64 * 64) // 128 + 30


def test_the_search_asks_for_warpgroups() -> None:
    kernel, sizes = adding(FULL), {"h": 64, "q": 4096, "x": 4096, "d": 128, "e": 128}
    alone = best_tiles(kernel, sizes, "bf16", machine("h100"))
    assert alone is not None
    taken = launched(alone, "bf16", machine("h100"))
    assert taken.schedule.warpgroups == 2
    assert taken.time.seconds < alone.time.seconds / 2
