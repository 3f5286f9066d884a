"""Arrays that a cast stores in a type of their own: values, bytes, shared memory, what is given
back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from launches import outputs_of

import napkin as nk
from napkin.check.rounding import roundings
from napkin.check.verdict import TOLERANCE
from napkin.errors import InputError
from napkin.ir.storage import own_type, storage_type
from napkin.plan.plan import Plan
from napkin.run.arrays import to_device

SCORES = {"q": 256, "x": 256, "d": 64}
SIZES = {**SCORES, "e": 64}
SQUARE = {"m": 256, "k": 256, "n": 256}


def scores(Q: Any, K: Any) -> Any:
    return nk.contract(Q, K, over="d") * nk.size("d") ** -0.5


@nk.diagram("q d, x d, x e -> q, q e", sizes=SIZES)
def attention(Q: Any, K: Any, V: Any) -> Any:
    """The log-sum-exp comes first: products take the plan's type all the same."""
    S = scores(Q, K)
    return nk.cast(nk.reduce(S, "logsumexp", over="x"), "fp32"), nk.contract(
        nk.softmax(S, over="x"), V, over="x"
    )


@nk.diagram("q d, x d -> q", sizes=SCORES)
def in_plan_type(Q: Any, K: Any) -> Any:
    return nk.reduce(scores(Q, K), "logsumexp", over="x")


@nk.diagram("m k, k n -> m n, m n, m n", sizes=SQUARE)
def three_types(A: Any, B: Any) -> Any:
    C = nk.contract(A, B, over="k")
    return C, nk.cast(C, "fp32"), nk.cast(C, "fp16")


@nk.diagram("m k, k n, n p -> m p", sizes={**SQUARE, "p": 256})
def between(A: Any, B: Any, C: Any) -> Any:
    T = nk.cast(nk.contract(A, B, over="k"), "fp32")
    return nk.contract(T, C, over="n")


@nk.diagram("m k, k n, p m -> p n", sizes={**SQUARE, "p": 256})
def between_on_the_right(A: Any, B: Any, C: Any) -> Any:
    T = nk.cast(nk.contract(A, B, over="k"), "fp32")
    return nk.contract(C, T, over="m")


@nk.diagram("m k, k n -> m n", sizes=SQUARE)
def summed_after(A: Any, B: Any) -> Any:
    """The sum of a row's squares cancels against its largest: only an exact T gives it."""
    T = nk.cast(nk.contract(A, B, over="k"), "fp32")
    return nk.cast(T - nk.reduce(T, "mean", over="n"), "fp32")


def planned(diagram: Any, on: str = "h100", **settings: Any) -> Plan:
    found: Plan = nk.derive(diagram, on=on, **settings)
    return found


def stored(plan: Plan) -> dict[str, str]:
    return {name: dtype for name, _, dtype in outputs_of(plan)}


# --- a check of everything ----------------------------------------------------------------------


@pytest.mark.parametrize("on", ["a100", "h100"])
def test_a_log_sum_exp_in_fp32_beside_attention_in_bf16(on: str) -> None:
    """Values, bytes of every tensor, and that kernels compile for every architecture."""
    plan = planned(attention, on)
    assert stored(plan) == {"O1": "fp32", "O2": "bf16"}
    verdict = plan.check()
    verdict.raise_if_wrong()
    errors = {o: [r for r in verdict.values if r.output == o] for o in ("O1", "O2")}
    assert all(r.tolerance == 1e-5 and r.relative_error < 1e-6 for r in errors["O1"])
    assert all(r.tolerance == 1e-2 and r.relative_error > 1e-4 for r in errors["O2"])
    (k,) = plan.kernels
    assert k.bytes["O1", "write"] == 4 * 256
    assert k.bytes["O2", "write"] == 2 * 256 * 64
    assert {r.arch for r in verdict.resources if r.allocated} >= {"sm_80", "sm_90"}


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "fp32"])
def test_one_product_stored_in_three_types(dtype: str) -> None:
    plan = planned(three_types, dtype=dtype)
    assert stored(plan) == {"C": dtype, "O2": "fp32", "O3": "fp16"}
    verdict = plan.check(sizes={"m": 64, "n": 96, "k": 80} if len(plan.kernels) > 1 else None)
    verdict.raise_if_wrong()
    limits = {r.output: r.tolerance for r in verdict.values}
    assert limits == {"C": TOLERANCE[dtype], "O2": TOLERANCE["fp32"], "O3": TOLERANCE["fp16"]}
    (k,) = plan.kernels
    area = SQUARE["m"] * SQUARE["n"]
    assert k.bytes["O2", "write"] == 4 * area
    assert k.bytes["O3", "write"] == 2 * area


@pytest.mark.parametrize("on", ["a100", "h100"])
@pytest.mark.parametrize("diagram", [between, between_on_the_right])
def test_an_array_in_fp32_between_two_kernels_in_bf16(diagram: Any, on: str) -> None:
    """The second kernel's product still has operands in bf16: it rounds what it reads."""
    plan = planned(diagram, on, materialise=["T"])
    first, second = plan.kernels
    assert first.dtypes["T"] == second.dtypes["T"] == "fp32"
    assert first.dtypes["A"] == second.dtypes["C"] == second.dtypes["O"] == "bf16"
    assert not any(str(leaf.params[0]) == "T" for leaf in second.program.boxes)
    assert plan.workspace == 4 * 256 * 256
    assert any("T [m n] in fp32" in str(move) for move in plan.trail)
    plan.check().raise_if_wrong()


def test_what_an_array_in_fp32_keeps_between_kernels() -> None:
    """T - mean(T) from a T in bf16 would have its rounding; from fp32 it has not."""
    plan = planned(summed_after, materialise=["T"])
    rng = np.random.default_rng(0)
    inputs = [
        to_device(x, "bf16").to_float64()
        for x in (rng.normal(size=(32, 64)) + 2, rng.normal(size=(64, 48)) + 2)
    ]
    found, wanted = plan(*inputs), summed_after.evaluate(*inputs)
    assert np.linalg.norm(found - wanted) < 1e-5 * np.linalg.norm(wanted)
    (name,) = plan.tensor_of.values()
    assert roundings(plan, name) == {"fp32"}


# --- types --------------------------------------------------------------------------------------


def test_a_cast_to_the_plans_type_changes_no_kernel() -> None:
    @nk.diagram("q d, x d -> q", sizes=SCORES, name="in_plan_type")
    def cast(Q: Any, K: Any) -> Any:
        return nk.cast(in_plan_type(Q, K), "fp16")

    plain, asked = planned(in_plan_type, dtype="fp16"), planned(cast, dtype="fp16")
    assert stored(plain) == stored(asked) == {"O": "fp16"}
    bodies = [p.source.split("@triton.jit")[-1] for p in (plain, asked)]
    assert bodies[0] == bodies[1]


def test_a_cast_changes_no_more_than_the_store() -> None:
    """Base-2 exponentials and their folded scale are there as without the cast."""

    @nk.diagram("q d, x d -> q", sizes=SCORES, name="in_plan_type")
    def cast(Q: Any, K: Any) -> Any:
        return nk.cast(nk.reduce(nk.cast(scores(Q, K), "fp32"), "logsumexp", over="x"), "fp32")

    long = {"q": 4096, "x": 4096, "d": 64}
    plans = [planned(d, sizes=long) for d in (in_plan_type, cast)]
    sources = [p.source.split("@triton.jit")[-1] for p in plans]
    assert "tl.exp2" in sources[1]
    assert "tl.exp(" not in sources[1]
    assert sources[0].replace("S_tile", "S") == sources[1].replace("S_tile", "S")


@pytest.mark.parametrize("cast_first", [True, False])
def test_an_array_in_fp32_that_is_read_under_other_names(cast_first: bool) -> None:
    """Self-attention: a rename does not come between a cast and what is stored."""

    @nk.diagram("t d, d n -> t n", sizes={"t": 128, "d": 64, "n": 64}, name="own_keys")
    def own_keys(X: Any, W: Any) -> Any:
        T = nk.contract(X, W, over="d")
        if cast_first:
            T = nk.cast(T, "fp32")
            U = nk.rename(T, t="x")
        else:
            U = nk.cast(nk.rename(T, t="x"), "fp32")
        return nk.contract(nk.softmax(nk.contract(T, U, over="n"), over="x"), U, over="x")

    plan = planned(own_keys)
    assert "fp32" in {stored(plan)[t] for t in plan.materialised}
    second = plan.kernels[-1]
    assert "fp32" in second.dtypes.values()
    # The second plan rounds one tile within a loop and once more behind it, and the model of shared
    # memory is too large there: it has the tile staged for both.
    plan.check(resources=cast_first).raise_if_wrong()


@nk.diagram("q d, x d, x d -> q d, q w", sizes={"q": 256, "d": 64}, name="windowed")
def windowed(Q: Any, K: Any, V: Any) -> Any:
    """Attention in a window whose weights are stored, in slots, and read again."""
    window = nk.neighborhood(17, queries="q", keys="x")
    C = nk.cast(nk.compress(scores(Q, K), window, into="w"), "fp32")
    A = nk.cast(nk.softmax(C, over="w"), "fp32")
    return nk.contract(nk.spread(A, window, over="w"), V, over="x"), A


def test_a_compressed_array_in_fp32() -> None:
    plan = planned(windowed)
    assert stored(plan) == {"C": "fp32", "A": "fp32", "O1": "bf16"}
    verdict = plan.check()
    verdict.raise_if_wrong()
    assert {(r.output, r.tolerance) for r in verdict.values} == {("A", 1e-5), ("O1", 1e-2)}


def test_storage_types() -> None:
    output = attention.outputs[0]
    assert own_type(output.node) == "fp32"
    assert storage_type(output.node, "bf16") == "fp32"
    assert storage_type(output.node.args[0], "bf16") == "bf16"
    assert storage_type(attention.inputs[0], "fp16") == "fp16"


def test_outputs_in_torch() -> None:
    """An output has the type that it is cast to, and the inputs' otherwise."""
    plan = planned(attention)
    generator = torch.Generator().manual_seed(0)
    arrays = [torch.randn(32, 64, generator=generator).to(torch.bfloat16) for _ in range(3)]
    total, out = plan(*arrays)
    assert total.dtype == torch.float32
    assert out.dtype == torch.bfloat16
    wanted = torch.logsumexp(arrays[0].double() @ arrays[1].double().T / 8, dim=1)
    assert torch.allclose(total.double(), wanted, rtol=1e-6)


def test_tensors_on_a_device_have_the_types_of_the_plan() -> None:
    """What `napkin.torch` allocates for outputs, and between kernels."""
    for diagram, at in ((attention, None), (between, ["T"])):
        plan = planned(diagram, materialise=at)
        made = {t.name: t.dtype for t in plan.recipe.stored}
        assert made == dict(stored(plan))
        assert {"fp32", "bf16"} <= set(made.values())


# --- what is refused ----------------------------------------------------------------------------


def summed_as(dtype: str) -> Any:
    def summed(A: Any) -> Any:
        return nk.cast(nk.reduce(A, "sum", over="k"), dtype)

    return nk.diagram("m k -> m", sizes={"m": 64, "k": 64})(summed)


def test_casts_that_kernels_do_not_store() -> None:
    for asked, instead in (("fp64", "fp32"), ("int64", "int32")):
        diagram = nk.diagram("m k -> m", sizes={"m": 64, "k": 64}, name="summed")(summed_as(asked))
        with pytest.raises(InputError) as error:
            planned(diagram)
        text = str(error.value)
        assert f"output O is cast to {asked}" in text
        assert f"nk.cast(..., '{instead}')" in text
        assert diagram.evaluate(np.ones((2, 3))).tolist() == [3, 3]  # evaluation has both


def test_a_cast_to_no_type() -> None:
    with pytest.raises(InputError, match=r"cast to 'fp31'.*did you mean 'fp32'"):
        nk.diagram("m k -> m k", name="no")(lambda A: nk.cast(A, "fp31"))
