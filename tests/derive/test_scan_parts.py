"""Scans in parts: what three kernels compute, what they move, and where they are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.algebra.rule import LawError
from napkin.algebra.tracer import tracing
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.derive.rules import scan_parts as rules
from napkin.derive.rules.scan_parts import SCANNED, why_not_scanned
from napkin.errors import Refusal
from napkin.lower.build import build
from napkin.plan.explained import explained, explanation
from napkin.schedule import Schedule


def labelled(d: nk.Diagram, **how: Any) -> Kernel:
    ready = prepare(d)
    return label("k", ready.outputs, ready.names, streamed="t", **how)


@nk.diagram("q t -> q t")
def running(X: Any) -> Any:
    return nk.exp(nk.cumsum(X, along="t"))


@nk.diagram("q t, q t -> q t")
def decaying(A: Any, X: Any) -> Any:
    return nk.scan(lambda h: nk.tanh(A) * h + X, 0.5, along="t")


@nk.diagram("q t, q t, q t -> q t, q t")
def two_scans(A: Any, X: Any, Y: Any) -> Any:
    h = nk.scan(lambda h: A * h + X, 0.0, along="t")
    return h * nk.cumsum(Y, along="t"), h + Y


@nk.diagram("h t k, h t k, h t v, h t k -> h t v")
def gated(Q: Any, K: Any, V: Any, G: Any) -> Any:
    state = nk.scan(lambda h: nk.sigmoid(G) * h + K * V, 0.0, along="t")
    return nk.contract(Q, state, over="k")


@nk.diagram("h t k, h t k, h t v -> h t v")
def linear(Q: Any, K: Any, V: Any) -> Any:
    """Linear attention, whose sums of products have no decay."""
    return nk.contract(Q, nk.cumsum(K * V, along="t"), over="k")


@nk.diagram("t p -> t p")
def of_seen_keys(S: Any) -> Any:
    """A scan of what is 0 where no key is seen: what a part adds up is, where its scan is not."""
    seen = nk.sliding(1, queries="t", keys="p", at=nk.index("t") // 64)
    return nk.cumsum(S * nk.tanh(nk.reduce(S, "sum", over="p", keys=seen)), along="t")


@nk.diagram("q t, q t k, t k -> q t")
def three_states(A: Any, X: Any, Y: Any) -> Any:
    """States of other axes, of which one lacks what groups are along."""
    h = nk.scan(lambda h: A * h + X, 0.0, along="t")
    products = nk.cumsum(X * Y, along="t")
    return nk.contract(h * nk.cumsum(Y, along="t"), products, over="k")


@nk.diagram("q t, q t:bool -> q t")
def chosen(X: Any, M: Any) -> Any:
    return nk.scan(lambda h: nk.where(M, h, 0.0) + X, 1.0, along="t")


@nk.diagram("t -> t")
def one_row(X: Any) -> Any:
    return nk.cumsum(X, along="t")


@nk.diagram("q t:int -> q t:int")
def whole(X: Any) -> Any:
    return nk.cumsum(X, along="t") - X


SCANS = [
    (running, {"q": 2}),
    (decaying, {"q": 2}),
    (two_scans, {"q": 3}),
    (gated, {"h": 2, "k": 16, "v": 18}),
    (linear, {"h": 1, "k": 17, "v": 16}),
    (three_states, {"q": 3, "k": 5}),
    (chosen, {"q": 3}),
    (one_row, {}),
    (whole, {"q": 2}),
    (of_seen_keys, {"p": 5}),
]


@pytest.mark.parametrize("diagram", [d for d, _ in SCANS])
@pytest.mark.parametrize("number", [1, 2, 5])
def test_scans_in_parts_keep_their_law(diagram: nk.Diagram, number: int) -> None:
    """The rule is verified wherever it is applied here, on parts of any lengths, 0 among them."""
    (found,) = SCANNED.matches(labelled(diagram), number)
    first, second, third = SCANNED.apply(found)
    assert first.part == second.merges == third.part == f"t_part{number}"
    assert not first.stream.emits
    assert not third.stream.tails


@pytest.mark.parametrize("diagram", [gated, linear])
def test_positions_that_are_paired_are_scanned_in_parts(diagram: nk.Diagram) -> None:
    (found,) = SCANNED.matches(labelled(diagram, pair=16), 3)
    first, _, third = SCANNED.apply(found)
    assert third.stream.twin is not None
    assert first.unit == third.unit == 64


def test_a_part_that_begins_with_its_own_end_breaks_the_law(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = rules._second

    def late(*given: Any) -> Kernel:
        made = second(*given)
        (step,) = made.stream.passes
        ends = {x.leaf("old"): x.leaf("new") for x in step.states}
        emits = tuple(replace(e, node=ends[e.node]) for e in step.emits)
        return replace(made, stream=replace(made.stream, passes=(replace(step, emits=emits),)))

    monkeypatch.setattr(rules, "_second", late)
    (found,) = SCANNED.matches(labelled(running), 2)
    with pytest.raises(LawError, match="rule 'scan_parts' broke its law"):
        SCANNED.apply(found)


@pytest.mark.parametrize(("diagram", "sizes"), SCANS)
@pytest.mark.parametrize("length", [1, 63, 64, 65, 130, 257])
def test_values_and_bytes_of_scans_in_parts(
    diagram: nk.Diagram, sizes: Mapping[str, int], length: int
) -> None:
    """Parts past the end of a short axis have no positions."""
    plan = nk.derive(diagram, "h100", {**sizes, "t": 400}, "fp32", parts={"t": 3})
    assert [k.name.rsplit("_", 1)[1] for k in plan.kernels] == ["parts", "begins", "scans"]
    plan.check(sizes={**sizes, "t": length}).raise_if_wrong()


def test_parts_of_no_positions() -> None:
    plan = nk.derive(running, "h100", {"q": 2, "t": 400}, "fp32", parts={"t": 3})
    assert plan(np.zeros((2, 0))).shape == (2, 0)


def test_few_heads_scan_a_long_axis_in_parts() -> None:
    sizes = {"h": 4, "t": 8192, "k": 64, "v": 64}
    plan = nk.derive(gated, sizes=sizes)
    alone = nk.derive(gated, sizes=sizes, parts={"t": 1})
    assert len(plan.kernels) == 3
    assert plan.seconds < alone.seconds / 2
    assert "scan_parts t = " in str(plan)


@pytest.mark.parametrize("size", [32, 64])
def test_many_heads_scan_in_no_parts(size: int) -> None:
    """One kernel took 1,375 us, chunks that are computed ahead 1,386 (H200, 64)."""
    plan = nk.derive(gated, sizes={"h": 512, "t": 16 * size, "k": size, "v": size})
    assert len(plan.kernels) <= 2
    assert "scan_parts" not in str(plan)


def test_chunks_divide_what_parts_are_made_of() -> None:
    (found,) = SCANNED.matches(labelled(running), 2)
    third = SCANNED.apply(found)[2]
    build(third, Schedule({"t_part2": 1, "q": 1, "t": 64}))
    with pytest.raises(Refusal, match="take chunks that divide 64"):
        build(third, Schedule({"t_part2": 1, "q": 1, "t": 128}))


def test_explain_says_how_each_kernel_streams() -> None:
    """The kernel of parts stores what they are folded to, and the last begins with what it reads:
    both were shown as the scan that is not in parts."""
    with tracing() as tracer:
        plan = nk.derive(one_row, sizes={"t": 400}, parts={"t": 3})
    items = explained(one_row, tracer, plan)
    first, last = (x for x in items if x.kind == "step" and x.rule == "stream")
    fold = "  O_before = O_before_old + sum(X, over t) [()] from"
    assert first.after[1:] == (f"{fold} 0", "at the end:", "  O_before_part = O_before [()]")
    assert last.after[1:] == (
        f"{fold} O_before_begin",
        "  store O = O_before_old + cumsum(X, over t)",
    )
    assert "from O_before_begin" in explanation(items)


def test_parts_of_a_scan_are_refused_for_what_it_lacks() -> None:
    """Not since an output needs what is folded before it, as that of every scan does."""

    @nk.diagram("q t, q s -> q t, q s")
    def of_two_axes(X: Any, Y: Any) -> Any:
        return nk.cumsum(X, along="t"), nk.cumsum(Y, along="s")

    with pytest.raises(Refusal, match="output O2 is what t is folded to, and no scan along it"):
        nk.derive(of_two_axes, "h100", {"q": 2, "t": 100000, "s": 300}, "fp32", parts={"t": 5})


def elman(X: Any, W: Any) -> Any:
    return nk.scan(
        lambda h: nk.tanh(nk.contract(h, W, over="d").rename(e="d") + X), 0.0, "t", axes="q d"
    )


REFUSED: list[tuple[str, Callable[..., Any], str]] = [
    ("q t -> q", lambda X: nk.reduce(X, "sum", over="t"), "output O is what t is folded to"),
    ("q t -> q t", lambda X: X * 2.0, "nothing is streamed"),
    ("q t d, d e -> q t d", elman, "a step takes the state along t"),
]


@pytest.mark.parametrize(("signature", "body", "reason"), REFUSED)
def test_what_is_not_scanned_in_parts(signature: str, body: Any, reason: str) -> None:
    diagram = nk.diagram(signature)(body)
    ready = prepare(diagram)
    streamed = "" if reason == "nothing is streamed" else "t"
    kernel = label("k", ready.outputs, ready.names, streamed=streamed)
    assert why_not_scanned(kernel).startswith(reason)
    assert not list(SCANNED.matches(kernel, 2))
