"""Training pairs of diagrams: whatever is kept, the gradients are the same."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.gradient.gradient import backward
from napkin.gradient.training_pair import Keepable, backward_with, forward_with, keepable
from napkin.ir.node import postorder
from napkin.ir.storage import own_type
from tests.gradient.test_shipped import arrays_of, sizes_of

NAMES = ["attention", "causal_attention", "cross_entropy", "layernorm", "matmul_bias_gelu",
         "multi_head_attention", "rmsnorm", "rmsnorm_residual", "selective_scan", "softmax",
         "softcapped_attention", "top_experts"]  # fmt: skip


def each(found: Any) -> tuple[Any, ...]:
    return found if isinstance(found, tuple) else (found,)


def subsets(found: list[Keepable]) -> list[tuple[Keepable, ...]]:
    few = [c for n in (1, 2) for c in combinations(found, n)][:12]
    return [tuple(found), *few]


@pytest.mark.parametrize("name", NAMES)
def test_gradients_are_the_same_whatever_is_kept(name: str) -> None:
    f = load(name)
    back = backward(f)
    arrays = arrays_of(f, sizes_of(f))
    rng = np.random.default_rng(5)
    given = [rng.normal(size=v.shape) for v, o in zip(each(f.evaluate(*arrays)), f.outputs,
             strict=True) if o.node.kind == "real"]  # fmt: skip
    wanted = each(back.diagram.evaluate(*arrays, *given))
    found = keepable(f, back)
    assert found
    for kept in subsets(found):
        forward = forward_with(f, back, kept)
        values = each(forward.evaluate(*arrays))
        by_name = {o.name: v for o, v in zip(forward.outputs, values, strict=True)}
        made = backward_with(back, kept)
        assert [str(n.params[0]) for n in made.inputs[-len(kept) :]] == [k.name for k in kept]
        got = each(made.evaluate(*arrays, *given, *(by_name[k.name] for k in kept)))
        for a, b in zip(got, wanted, strict=True):
            assert np.linalg.norm(a - b) <= 1e-9 * (1e-6 + np.linalg.norm(b)), kept


@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16", "fp8"])
def test_what_is_cast_is_read_in_the_type_in_which_it_is_stored(dtype: str) -> None:
    @nk.diagram("w x, x -> w, w x")
    def weighted(X: Any, Y: Any) -> Any:
        mean = nk.cast(nk.reduce(nk.tanh(Y), "mean", over="x"), dtype)
        scaled = nk.cast(X * nk.tanh(Y), dtype)
        return nk.contract(X * mean, over="x"), nk.cast(nk.exp(scaled), dtype)

    back = backward(weighted)
    found = keepable(weighted, back)
    given = {str(n.params[0]): n for n in backward_with(back, found).inputs}
    stored = {o.name: o.node for o in forward_with(weighted, back, found).outputs}
    types = {k.name: (own_type(given[k.name]), own_type(stored[k.name])) for k in found}
    assert all(read == written for read, written in types.values()), types
    assert sum(read == dtype for read, _ in types.values()) >= 2


def test_what_is_kept_lies_in_the_order_of_the_axes() -> None:
    f = load("causal_attention").weave("b h")
    found = {k.name: k.axes for k in keepable(f, backward(f))}
    assert found["m"] == found["z"] == ("b", "h", "q")


def test_what_may_be_kept_of_attention() -> None:
    f = load("attention")
    back = backward(f)
    assert [(k.name, k.axes, k.output) for k in keepable(f, back)] == [
        ("O", ("q", "d"), True),
        ("Q_K", ("q", "x"), False),
        ("m", ("q",), False),
        ("z", ("q",), False),
        ("exp", ("q", "x"), False),
    ]


def test_of_a_sum_whose_logarithm_is_read_the_logarithm_is_kept() -> None:
    """All keys of a row would compute it again."""
    back = backward(load("attention"))
    (z,) = (k for k in keepable(load("attention"), back) if k.name == "z")
    assert z.node.op == "log"
    made = backward_with(back, (z,))
    assert not any(n.op == "log" for n in postorder(made.roots))


def test_what_is_multiplied_by_a_cotangent_is_kept_as_the_diagram_has_it() -> None:
    f = load("matmul_bias_gelu")
    own = set(backward(f).images.values())
    assert {k.node for k in keepable(f, backward(f)) if not k.output} <= own


def test_what_is_stored_in_another_type_is_still_the_output() -> None:
    @nk.diagram("n x -> n x")
    def weights(X: Any) -> Any:
        return nk.cast(nk.softmax(X, over="x"), "fp32")

    (found,) = (k for k in keepable(weights, backward(weights)) if k.axes == ("n", "x"))
    assert (found.name, found.dtype, found.output) == ("O", "fp32", True)


def test_one_side_of_a_comparison_is_not_kept() -> None:
    """x == max(x) holds where both are rounded alike: a maximum that was kept is not."""

    @nk.diagram("n x, x -> n x")
    def largest(X: Any, w: Any) -> Any:
        P = nk.softmax(X * w, over="x")
        return nk.where(nk.reduce(P, "max", over="x") == P, X, 0.0) * P

    found = keepable(largest, backward(largest))
    assert [k.name for k in found if k.node.op == "max"] == ["m"]  # of both sides
    assert any(k.name == "z" for k in found)


def test_an_output_that_is_repeated_along_an_axis_is_not_read() -> None:
    @nk.diagram("x, () -> x, ()")
    def both(X: Any, c: Any) -> Any:
        return nk.softmax(X, over="x"), nk.exp(c)

    woven = both.weave("w", into="c")
    assert all("w" not in k.axes for k in keepable(woven, backward(woven)) if k.node.axes == ("x",))


def test_names_of_what_is_kept_are_those_of_nothing_else() -> None:
    @nk.diagram("k d, k, d -> k")
    def f(X: Any, log: Any, O_exact: Any) -> Any:
        total = nk.reduce(X * log, "sum", over="d")
        return nk.exp(nk.log(total) * nk.exp(log) + nk.reduce(O_exact, "sum", over="d"))

    back = backward(f)
    found = keepable(f, back)
    names = [k.exactly().name for k in found]
    taken = {str(n.params[0]) for n in back.diagram.inputs}
    assert len({*names}) == len(names)
    assert taken.isdisjoint(names)
    assert {"log2", "O_exact2"} <= {*names}
