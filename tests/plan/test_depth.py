"""Deep diagrams: a stack of layers is planned in time that grows with the layers alone."""

from __future__ import annotations

import cProfile
import time
from collections.abc import Iterator

import pytest

import napkin as nk
from napkin.cut.segments import Memo
from napkin.machine.machines import machine
from napkin.plan.plan import Plan
from napkin.plan.planned import distinct

SIZES = {"s": 2048, "x": 2048, "d": 1024, "h": 16, "k": 64, "f": 4096}

SECONDS = 30.0
"""Processor time that a stack of six blocks may take; on a slow machine it takes a quarter."""


def norm(X: nk.Array, G: nk.Array) -> nk.Array:
    """RMSNorm along d."""
    return X * nk.rsqrt(nk.reduce(X * X, "mean", over="d") + 1e-5) * G


def mix(X: nk.Array, *weights: nk.Array) -> nk.Array:
    """Attention on normalised rows, beside the residual."""
    gain, *inward, outward = weights
    N = norm(X, gain)
    Q, K, V = (nk.contract(N, W, over="d") for W in inward)
    S = nk.contract(Q, nk.rename(K, s="x"), over="k") * nk.size("k") ** -0.5
    A = nk.contract(nk.softmax(S, over="x"), nk.rename(V, s="x"), over="x")
    return X + nk.contract(A, outward, over="h k")


def feed(X: nk.Array, G: nk.Array, U: nk.Array, W: nk.Array) -> nk.Array:
    """A feed-forward layer on normalised rows, beside the residual."""
    return X + nk.contract(nk.gelu(nk.contract(norm(X, G), U, over="d")), W, over="f")


def block(X: nk.Array, *weights: nk.Array) -> nk.Array:
    """One block of a transformer."""
    return feed(mix(X, *weights[:5]), *weights[5:])


def stacked(depth: int) -> nk.Diagram:
    """`depth` blocks, one after another."""

    def stack(X: nk.Array, *weights: nk.Array) -> nk.Array:
        out = X
        for i in range(0, len(weights), 8):
            out = block(out, *weights[i : i + 8])
        return out

    each = "d, d h k, d h k, d h k, h k d, d, d f, f d"
    return nk.diagram(", ".join(["s d", *[each] * depth]) + " -> s d")(stack)


def planned(diagram: nk.Diagram) -> Plan:
    """The plan of a stack."""
    return nk.derive(diagram, on="h100", sizes=SIZES)


@pytest.fixture(scope="module")
def known() -> Iterator[tuple[Memo, Plan, float]]:
    """The segments that a stack of six blocks takes, kept from one plan to the next; its plan, and
    the processor time in which it was found with the costs of its kernels."""
    memo = Memo("bf16", machine("h100"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("napkin.plan.derive.Memo", lambda *_: memo)
        diagram, before = stacked(6), time.process_time()
        plan = planned(diagram)
        assert [k.cost.H.total for k in plan.kernels]
        yield memo, plan, time.process_time() - before


def test_six_blocks_are_planned_in_seconds(known: tuple[Memo, Plan, float]) -> None:
    _, plan, seconds = known
    assert seconds < SECONDS
    assert 24 <= len(plan.kernels) <= 42  # of a block seven: statistics of rows by themselves
    assert len(distinct(plan.kernels)) < 10


def test_work_grows_with_the_layers_alone(known: tuple[Memo, Plan, float]) -> None:
    """Layers are alike: however many there are, and in however many ways they are cut, no further
    segment is derived, each takes as many calls as the one before, and runs as long."""
    memo, *_ = known
    seconds: dict[int, float] = {}

    def calls(depth: int) -> int:
        memo._seen.clear()  # or layers that were planned before would take next to none
        diagram, profile = stacked(depth), cProfile.Profile()
        seconds[depth] = profile.runcall(planned, diagram).seconds
        return sum(entry.callcount for entry in profile.getstats())

    depths = 2, 4, 8
    for depth in depths:  # what is left of the bounds of a search is spent
        calls(depth)
    forms = len(memo.known)
    few, more, most = map(calls, depths)
    assert len(memo.known) == forms > 100
    assert most - more < 1.05 * 2 * (more - few)
    assert seconds[8] < 1.01 * 4 * seconds[2]
