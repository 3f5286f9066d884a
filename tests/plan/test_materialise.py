"""What `materialise=` names is stored, or refused."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.plan.samples import small

SIZES = {"q": 64, "x": 96, "d": 16}


@nk.diagram("q d, x d, x d -> q d", sizes=SIZES)
def attention(Q: Any, K: Any, V: Any) -> Any:
    keys = nk.exp(K * 0.5) * 0.125
    S = nk.contract(Q, keys, over="d")
    return nk.contract(nk.softmax(S, over="x"), V, over="x")


def test_a_pointwise_array_is_stored_where_it_is_named() -> None:
    plan = nk.derive(attention, materialise=["keys"])
    assert list(plan.materialised) == ["keys"]
    assert len(plan.kernels) == 2
    plan.check(resources=False).raise_if_wrong()


def test_what_no_kernel_computes_is_refused() -> None:
    @nk.diagram("q d, x d -> q x", sizes=SIZES)
    def scaled(Q: Any, K: Any) -> Any:
        scale = nk.size("d") ** -0.5
        return nk.contract(Q, K * scale, over="d")

    with pytest.raises(nk.Refusal, match=r"at K: each kernel reads it where its values lie.*\(O\)"):
        nk.derive(scaled, materialise=["K"])
    with pytest.raises(nk.Refusal, match="at scale: it is known before any array is read"):
        nk.derive(scaled, materialise=["scale"])

    @nk.diagram("q x -> q", sizes={"q": 64, "x": 96})
    def counted(X: Any) -> Any:
        near = nk.index("x") - nk.index("q") * 2
        return nk.reduce(nk.where(near > 3, X, 0.0), "sum", over="x")

    with pytest.raises(nk.Refusal, match="at near: positions and tests are computed where they"):
        nk.derive(counted, materialise=["near"])
    with pytest.raises(nk.InputError, match="materialise 'scores': no such array"):
        nk.derive(attention, materialise=["scores"])

    @nk.diagram("b t -> b t", sizes={"b": 4, "t": 32})
    def backwards(X: Any) -> Any:
        R = nk.take(X, t=nk.size("t") - 1 - nk.index("t"))
        return nk.cumsum(R, along="t")

    with pytest.raises(nk.Refusal, match=r"at R: kernels read it where its values lie.*\(O\)"):
        nk.derive(backwards, materialise=["R"])


def test_what_a_reduction_computes_is_stored() -> None:
    assert list(nk.derive(attention, materialise=["S"]).materialised) == ["S"]
    assert not nk.derive(attention, materialise=[]).materialised


def test_one_name_for_several() -> None:
    with pytest.raises(nk.InputError, match=r"materialise='S' is one text; write a list, \['S'\]"):
        nk.derive(attention, materialise="S")
    with pytest.raises(nk.InputError, match=r"materialise=5 is no list of names; write one, as in"):
        nk.derive(attention, materialise=5)


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_a_stored_maximum_of_no_keys_keeps_exponentials_in_range(dtype: str) -> None:
    """In 16 bits it was -inf, and a query that sees no key had NaN in the place of 0."""

    @nk.diagram("q k, k h -> q h", sizes={"q": 40, "k": 33, "h": 16})
    def late(S, V):
        keys = nk.causal(queries="q", keys="k", at=nk.index("q") - 8)
        return nk.contract(nk.softmax(S, over="k", keys=keys), V, over="k")

    plan = nk.derive(late, "h100", dtype=dtype, materialise="every")
    (first, *_) = plan.kernels
    assert first.dtypes["m"] == "fp32"
    plan.check(resources=False).raise_if_wrong()
    S, V = (np.random.default_rng(0).normal(size=s) for s in ((40, 33), (33, 16)))
    assert not np.asarray(plan(S, V))[:8].any()


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("mixture_of_experts", ["H"]),
        ("grouped_experts", []),
        ("triangle_multiplication", ["O"]),
        ("unfused_neighborhood_attention_2d", ["S"]),
    ],
)
def test_what_is_read_moved_has_to_be_stored(name: str, given: list[str]) -> None:
    """The refusal says so, and not that the sizes do not fit; what it says to store does."""
    diagram, stored = load(name), given
    sizes = small(diagram, np.random.default_rng(0))
    said = "so from memory, and no kernel stores that; instead, materialise (.*), too"
    for _ in range(3):
        with pytest.raises(nk.Refusal, match=said) as refused:
            nk.derive(diagram, sizes=sizes, materialise=stored)
        more = refused.value.nearest.removeprefix("materialise ").removesuffix(", too")
        stored = [*stored, *more.split(", ")]
        with contextlib.suppress(nk.Refusal):
            nk.derive(diagram, sizes=sizes, materialise=stored)
            return
    raise AssertionError(stored)


@nk.diagram("n x -> n, ()", sizes={"n": 3, "x": 5})
def found_rows(X: Any) -> Any:
    """A position that another reading takes, beside a sum that another point ends with."""
    S = nk.cumsum(X, along="x")
    p = nk.argmin(S, over="x")
    v = nk.take(X, x=p)
    return nk.take(v, n=p), nk.reduce(v, "sum", over="n")


def test_what_a_result_reads_moved_is_named_wherever_the_plan_ends() -> None:
    said = "so from memory, and no kernel stores that; instead, materialise p, too"
    with pytest.raises(nk.Refusal, match=said):
        nk.derive(found_rows, dtype="fp32", materialise=["S"])
    assert "p" in nk.derive(found_rows, dtype="fp32", materialise=["S", "p"]).materialised


@nk.diagram("a d -> ax", sizes={"a": 64, "d": 1})
def most_of_a_product(A: Any) -> Any:
    """No kernel computes the product and its maximum under two key sets together."""
    S = nk.contract(A, nk.rename(A, a="ax"), over="d")
    m = nk.reduce(S, "max", over="ax", keys=nk.blocked(6, 1, 0, "a", "ax") | nk.sliding(0, 3))
    return nk.rename(m, a="ax")


def test_what_does_not_fit_beside_what_is_not_stored_is_named() -> None:
    """The refusal does not ask for what is asked for already, nor for other sizes."""
    said = r"beside the arrays before it that are not stored; instead, materialise more \(S\), or"
    with pytest.raises(nk.Refusal, match=said):
        nk.derive(most_of_a_product, materialise=["m"])
    nk.derive(most_of_a_product, materialise=["S", "m"])


@nk.diagram("a:int, a:int -> a", sizes={"a": 37})
def positions_alone(A: Any, B: Any) -> Any:
    t = nk.take(A**2, a=B)
    return t**2


def test_no_other_array_is_named_where_none_is_stored() -> None:
    with pytest.raises(nk.Refusal, match="computed where they are used; instead, leave it out"):
        nk.derive(positions_alone, materialise=["t"])


def test_as_many_reductions_as_are_asked_for_are_one_kernel() -> None:
    @nk.diagram("a b -> a b", sizes={"a": 4096, "b": 1024})
    def repeated(X: nk.Array) -> nk.Array:
        for _ in range(16):
            X = X - nk.reduce(nk.exp(X), "sum", over="b") * 0.001
        return X

    plan = nk.derive(repeated, materialise=())
    assert len(plan.kernels) == 1
    plan.check(sizes={"a": 5, "b": 37}, resources=False).raise_if_wrong()
