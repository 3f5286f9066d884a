"""What the planner weighs is traced, and changes nothing of the plan."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.algebra.tracer import Dropped, Tracer, tracing
from napkin.cut import segments as alike
from napkin.cut import way, ways
from napkin.diagram.library import load
from napkin.plan import explained, fitting
from napkin.plan.plan import Plan
from napkin.run.compile import Job


def traced(name: str, **options: object) -> tuple[Plan, Tracer]:
    with tracing() as tracer:
        plan = nk.derive(load(name), **options)  # pyright: ignore
    return plan, tracer


def dropped(tracer: Tracer, kind: str) -> list[Dropped]:
    return [e for e in tracer.events if isinstance(e, Dropped) and e.kind == kind]


@pytest.mark.parametrize("name", ["attention", "rmsnorm_linear"])
def test_a_plan_is_the_same_whether_or_not_it_is_traced(name: str) -> None:
    plan, tracer = traced(name)
    assert tracer.events
    assert plan.source == nk.derive(load(name)).source


def test_a_cut_that_is_alike_loses_to_fewer_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ways, "SAME", 2.0)
    for alike_within in ("SAME", "CLOSE"):
        monkeypatch.setattr(way, alike_within, 2.0)
    _, tracer = traced("rmsnorm_linear")
    more = next(e for e in dropped(tracer, "cut") if "alike" in e.why)
    assert more.what == "O alone, after the fastest way up to mul"
    assert " us in 2 kernels, and X_X, mul, O fused: " in more.why
    assert more.why.endswith(" us in 1 kernel, which is alike (within 100 %)")


@nk.diagram("q d, x c, c d, c v -> q v", sizes={"q": 64, "d": 16, "x": 64, "c": 32, "v": 16})
def latent(Q, C, U, W):
    S = nk.contract(Q, nk.contract(C, U, over="c"), over="d")
    p = nk.exp(S - nk.reduce(S, "max", over="x"))
    return nk.contract(p, nk.contract(C, W, over="c"), over="x")


def test_an_order_of_reductions_that_is_no_faster_is_dropped() -> None:
    with tracing() as tracer:
        nk.derive(latent, materialise=[])
    (order,) = dropped(tracer, "order")
    assert order.what == "points in the order C_U, C_W, S, m, O"
    assert " us in 1 kernel, and points in the order C_U, S, m, C_W, O: " in order.why


def test_the_bound_of_the_search_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alike, "IN_FULL", 3)
    _, tracer = traced("attention")
    bounded = [d for d in dropped(tracer, "kernel") if "the search is bounded" in d.why]
    assert bounded
    assert all("one kernel that stores" in d.what for d in bounded)


def test_parts_that_do_not_pay_are_dropped() -> None:
    _, tracer = traced("attention", sizes={"q": 4096, "x": 4096, "d": 128})
    parts = [d for d in dropped(tracer, "kernel") if d.what.endswith("; 2 parts of x")]
    assert parts
    assert all("below which they pay" in d.why for d in parts)


def test_parts_show_the_rewrites_of_the_kernel_that_they_are_of() -> None:
    diagram = load("decode_attention")
    with tracing() as tracer:
        plan = nk.derive(diagram, sizes={"b": 1})
    items = explained.explained(diagram, tracer, plan)
    steps = [(i.kernel, i.rule) for i in items if i.kind == "step" and i.kernel]
    assert steps == [("decode_attention_parts", "stream")]
    moves = [i.rule for i in items if i.kind == "move"]
    assert "part" in moves
    assert "merge" in moves


def test_a_setting_that_the_compiler_refuses_has_its_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [300_000]

    def answer(jobs: list[Job]) -> list[int]:
        return [answers.pop() if answers else 1024 for _ in jobs]

    monkeypatch.setattr(fitting, "job_of", lambda k, *_: k)
    monkeypatch.setattr(fitting, "allocations", answer)
    monkeypatch.setattr(fitting, "can_ask", lambda _: True)
    plan, tracer = traced("attention")
    refused = dropped(tracer, "setting")[-1]  # others are warp-specialised CTAs that take longer
    assert refused.what.startswith("attention: q=64,x=128,d=128; 4 warps, 3 stages")
    assert refused.why == "the compiler allocates 300,000 bytes of shared memory, of 232,448"
    assert plan.kernels[0].schedule.stages == 2
