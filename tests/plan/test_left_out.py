"""Kernels none of whose settings a compiler takes are left out, and the term is cut again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import napkin as nk
from napkin.derive.kernel import Kernel
from napkin.diagram.library import load
from napkin.plan import fitting
from napkin.plan.derive import memo_of, searched
from napkin.plan.planned import PlannedKernel
from napkin.run.compile import allocations
from napkin.run.worker import CompileError

SIZES = {"q": 16, "x": 32, "d": 16}


def refusing(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Kernel], bool]) -> list[Kernel]:
    """The kernels that a compiler is asked about, in turn; it refuses those that are `wrong`."""
    asked: list[Kernel] = []

    def answer(jobs: list[PlannedKernel]) -> list[int | CompileError]:
        asked.extend(k.choice.kernel for k in jobs[:1])
        no = CompileError("kernel does not compile for sm_90: no layout")
        return [no if wrong(k.choice.kernel) else 0 for k in jobs]

    monkeypatch.setattr(fitting, "job_of", lambda k, *_: k)
    monkeypatch.setattr(fitting, "allocations", answer)
    return asked


@nk.diagram("q d, x d, x d -> q d", sizes=SIZES)
def attention(Q: nk.Array, K: nk.Array, V: nk.Array):
    return nk.contract(nk.softmax(nk.contract(Q, K, over="d"), over="x"), V, over="x")


def test_labels_that_no_compiler_takes_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    (own,) = nk.derive(attention, dtype="fp32").kernels
    labels = own.choice.kernel.stream.axes
    asked = refusing(monkeypatch, lambda k: k.stream.axes == labels and k.name == own.name)
    plan = nk.derive(attention, dtype="fp32")
    assert asked[0].stream.axes == labels
    assert all(k.choice.kernel.stream.axes != labels or k.name != own.name for k in plan.kernels)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal([SIZES[a] for a in n.axes]) for n in attention.inputs]
    np.testing.assert_allclose(plan(*data), attention.evaluate(*data), rtol=1e-5, atol=1e-6)


def test_a_kernel_that_has_another_name_in_the_plan_is_left_out() -> None:
    """Kernels whose names are taken get others, and refusals of these were forgotten."""
    memo = memo_of("h100", "fp32")
    searched(attention, SIZES, memo, None, multiply_out=False)
    for known in memo.known.values():
        kernel = known.choices[0].kernel
        assert any(k.stream.axes == kernel.stream.axes for k in known.search.kernels)
        memo.leave_out(replace(kernel, name="another"))
        assert not any(k.stream.axes == kernel.stream.axes for k in known.search.kernels)


def test_kernels_of_several_products_are_cut_where_no_compiler_takes_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All labels of the fused kernel are refused: its products are kernels of their own."""
    refusing(monkeypatch, lambda k: "Q" in k.tensors and "V" in k.tensors)
    plan = nk.derive(attention, dtype="fp32")
    assert len(plan.kernels) > 1


def test_a_backward_is_cut_again(monkeypatch: pytest.MonkeyPatch) -> None:
    (own,) = nk.training(attention, dtype="fp32").forward.kernels
    labels = own.choice.kernel.stream.axes
    refusing(monkeypatch, lambda k: k.stream.axes == labels and k.name == own.name)
    found = nk.training(attention, dtype="fp32")
    assert all(k.choice.kernel.stream.axes != labels for k in found.forward.kernels)


def test_why_the_first_was_left_out_is_said_where_nothing_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked = refusing(monkeypatch, lambda _: True)
    with pytest.raises(nk.Refusal) as caught:
        nk.derive(load("matmul"), "h100", {"a": 64, "b": 64, "c": 16})
    assert caught.value.place == asked[0].name
    assert caught.value.reason.startswith("kernel does not compile for sm_90: no layout; no better")


def test_a_product_that_no_tensor_memory_holds_streams_its_axis() -> None:
    """A kernel that holds 1024 values of a row of an operand does not compile for sm_100."""

    @nk.diagram("f n, e n, e c -> f c, e f", sizes={"f": 1025, "n": 1024, "e": 64, "c": 17})
    def shares(K: nk.Array, W: nk.Array, B: nk.Array):
        t = nk.contract(K, W, over="n")
        return nk.contract(nk.softmax(t, over="e"), B, over="e"), t

    plan = nk.derive(shares, "b200")
    jobs = [fitting.job_of(k, k.choice.sizes, k.machine.arch) for k in plan.kernels]
    assert all(isinstance(taken, int) for taken in allocations(jobs))
