"""Costs over several levels where no formula is at hand: columns, asymmetric pipes, whole tiles."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import pytest

import napkin as nk
from napkin.bound.geometric import Layer, Sum, solve
from napkin.bound.multilevel import Program
from napkin.bound.whole_tiles import levels, rounded
from napkin.count.alignment import Alignment, alignments, at_level, combined
from napkin.count.traffic import transfers
from napkin.derive.kernel import Kernel
from napkin.diagram.library import load
from napkin.errors import InputError
from napkin.machine.chain import Chain, Stage, chains, default
from napkin.machine.machines import machine


def bytes_of(kernel: Kernel, size: int | Fraction = 2) -> dict[str, Fraction]:
    return {t.tensor: Fraction(size) for t in transfers(kernel)}


def chain(*stages: Stage) -> Chain:
    m = machine("h100")
    return Chain(m, m.level("dram"), stages)


def stage(name: str, memory: float, read: float = 1.0, write: float = 1.0) -> Stage:
    return Stage(name, 1, memory, memory, 0, read, write, 1, (name,))


def test_without_a_stream_every_column_fits() -> None:
    """The largest of the inputs and of the result, against every tile there is."""
    kernel = load("matmul").group("a", "c").kernel
    sizes = {"a": 96, "b": 8, "c": 120}
    program = Program(kernel, sizes, bytes_of(kernel))
    assert len(program.columns) == 2
    for memory in (600, 2_000, 12_000, 60_000):
        found = program.solve(chain(stage("one", memory)))
        tile = found.tiles[0]
        assert program.held(tile) <= memory * (1 + 1e-6)
        grid = ({"a": i, "c": j} for i, j in itertools.product(range(1, 97), range(1, 121)))
        every = [sum(program.moved(t)) for t in grid if program.held(t) <= memory]
        assert min(every) * 0.93 <= found.total <= min(every) * (1 + 1e-9)  # of whole tiles


def test_reading_and_writing_may_cost_apart() -> None:
    kernel = load("matmul").stream("b").group("a", "c").kernel
    program = Program(kernel, {"a": 512, "b": 512, "c": 512}, bytes_of(kernel))
    one = program.solve(chain(stage("one", 10_000, read=1.0, write=0.0)))
    both = program.solve(chain(stage("one", 10_000, read=1.0, write=3.0)))
    assert both.total - one.total == pytest.approx(3 * 2 * 512 * 512)
    (through,) = chains(machine("h100"), ("nvme", "host", "dram"))
    host, dram = through.stages
    assert (1 / host.read, 1 / host.write) == (pytest.approx(7e9), pytest.approx(4e9))
    assert dram.read == dram.write


def test_levels_that_are_passed_through_leave_their_pipes() -> None:
    (found,) = chains(machine("h100"), ("nvme", "shared"))
    (only,) = found.stages
    assert only.via == ("nvme-host", "host-dram", "dram-l2", "l2-shared")
    assert 1 / only.read == pytest.approx(7e9)
    assert 1 / only.write == pytest.approx(4e9)
    assert default(machine("mi300x")) == ("dram", "infinity", "l2", "shared", "registers")


def test_whole_tiles_against_every_whole_tile() -> None:
    """Two levels, small sizes: the search loses little to trying every tile."""
    kernel = load("matmul").stream("b").group("a", "c").kernel
    sizes = {"a": 768, "b": 256, "c": 640}
    program = Program(kernel, sizes, bytes_of(kernel))
    through = chain(stage("outer", 300_000), stage("inner", 60_000))
    found = rounded(program, through)
    wanted = combined(found.alignments)
    step = {"a": wanted["a"], "c": wanted["c"]}
    chunk = {"b": wanted["b"]}

    tiles = [
        {"a": i, "c": j}
        for i in range(step["a"], 769, step["a"])
        for j in range(step["c"], 641, step["c"])
    ]
    priced = [
        (t, sum(2 * p.values(sizes, {**t, **chunk}) for p in transfers(kernel))) for t in tiles
    ]
    inner = [(t, n) for t, n in priced if program.held({**t, **chunk}) <= 60_000]
    outer = [(t, n) for t, n in priced if program.held({**t, **chunk}) <= 300_000]
    best = min(
        m + n for o, m in outer for i, n in inner if o["a"] % i["a"] == 0 and o["c"] % i["c"] == 0
    )
    assert best * (1 - 1e-9) <= found.total <= 1.05 * best


def test_tiles_that_cannot_keep_their_marks() -> None:
    kernel = load("attention").stream("x").group("q").kernel
    sizes = {"q": 4096, "x": 4096, "d": 128}
    program = Program(kernel, sizes, bytes_of(kernel))
    small = chain(stage("tiny", 8_000))
    assert program.solve(small).total > 0
    with pytest.raises(InputError) as caught:
        rounded(program, small)
    said = str(caught.value)
    assert "no whole tile of 'tiny' fits 8,000 bytes" in said
    assert "q by 64: matrix instructions take rows by 64" in said
    with pytest.raises(InputError, match="the smallest tiles need 512 bytes of 'tiny'"):
        program.solve(chain(stage("tiny", 500)))


def test_marks_nest_outwards() -> None:
    kernel = load("attention").stream("x").group("q").kernel
    (through,) = chains(machine("h100"), ("dram", "l2", "shared", "registers"))
    found = alignments(kernel, through, bytes_of(kernel))
    inside = combined(at_level(found, through, "registers"))
    around = combined(at_level(found, through, "l2"))
    assert inside == {"d": 16, "q": 64, "x": 16}
    assert around == {"d": 64, "q": 64, "x": 16}
    assert all(isinstance(m, Alignment) and m.reason for m in found)


def test_values_of_half_a_byte() -> None:
    kernel = load("matmul").stream("b").group("a", "c").kernel
    (through,) = chains(machine("h100"), ("dram", "l2", "shared"))
    item = {**bytes_of(kernel), "B": Fraction(1, 2)}
    found = alignments(kernel, through, item)
    assert combined(m for m in found if "of B, 0.5 B" in m.reason)["c"] == 256
    sizes = {"a": 4096, "b": 4096, "c": 4096}
    half, whole = (Program(kernel, sizes, i) for i in (item, bytes_of(kernel)))
    assert (
        levels(half, machine("h100")).optimum.total < levels(whole, machine("h100")).optimum.total
    )


def test_the_depth_of_a_convolution_is_no_axis_of_taps() -> None:
    (planned,) = nk.derive(load("conv2d"), on="h100").kernels
    kernel = planned.choice.kernel
    assert kernel.taps == {"u", "v"}
    found = alignments(
        kernel, next(chains(machine("h100"), default(machine("h100")))), bytes_of(kernel)
    )
    assert ("c", 16, "registers") in {(m.axis, m.multiple, m.level) for m in found}
    assert not {m.axis for m in found} & kernel.taps


def test_every_kernel_of_a_cluster_is_tried_and_the_best_taken() -> None:
    kernel = load("matmul").stream("b").group("a", "c").kernel
    program = Program(kernel, {"a": 2**14, "b": 2**14, "c": 2**14}, bytes_of(kernel))
    on = machine("h100_pcie")
    each = {c.names[1]: program.solve(c).total for c in chains(on, ("dram", "cluster", "shared"))}
    assert set(each) == {"cluster:2", "cluster:4"}
    chosen = levels(program, on, ("dram", "cluster", "shared")).chain.names[1]
    assert chosen == min(each, key=lambda n: each[n])


def test_the_solver_on_a_program_with_a_known_answer() -> None:
    """min 1/x + 1/y under x y <= 100, y <= 4: x = 25."""
    import numpy as np

    cost = Sum(np.array([[-1.0, 0.0], [0.0, -1.0]]), np.array([1.0, 1.0]))
    use = Sum(np.array([[1.0, 1.0]]), np.array([1.0]))
    ((x, y),) = solve([Layer("one", cost, (use,), (100.0,))], [1000.0, 4.0])
    assert (x, y) == (pytest.approx(25, rel=1e-5), pytest.approx(4, rel=1e-9))
    ((x, y),) = solve([Layer("one", cost, (use,), (100.0,), tiles=100)], [100.0, 100.0])
    assert x * y == pytest.approx(100, rel=1e-5)
    ((x, y),) = solve([Layer("one", cost, (use,), (100.0,), tiles=400)], [100.0, 100.0])
    assert x * y == pytest.approx(25, rel=1e-5)


def test_a_price_and_calibration_are_listed() -> None:
    assert machine("a100").calibration == {}
    assert all(f.source for f in machine("h100").calibration.values())
    assert math.isfinite(machine("h100").per_clock("tensor_fp8"))
    assert machine("h100").per_clock("tensor_fp8") == 8192
    with pytest.raises(InputError, match="has no compute pipe 'tensor_fp6'"):
        machine("h100").per_clock("tensor_fp6")


def test_a_tile_that_saves_nothing_is_one() -> None:
    kernel = load("multi_head_attention").stream("x").group("b", "h", "q").kernel
    sizes = {"b": 4, "h": 16, "q": 4096, "x": 4096, "d": 128}
    found = Program(kernel, sizes, bytes_of(kernel)).solve(
        next(chains(machine("h100"), ("dram", "l2", "shared")))
    )
    assert [(t["b"], t["h"]) for t in found.tiles] == [(1.0, 1.0), (1.0, 1.0)]
    assert found.tiles[0]["q"] == pytest.approx(4096)
    assert "all of q" in found.binds[0]
