"""Orders of contractions: every one has the value of the contraction, and the least ones are found.

`conftest.py` of this folder turns verification on, so every application is held to the law.
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import napkin as nk
from napkin.algebra.rule import Instance
from napkin.derive.kernel import leaves
from napkin.ir.evaluate import aligned, evaluate
from napkin.ir.expansion import expanded
from napkin.ir.infer import along, joined, pointwise
from napkin.ir.listing import text
from napkin.ir.names import with_named
from napkin.ir.node import Node, node, over, postorder
from napkin.ir.rewrite import rewrite
from napkin.ir.selecting import position
from napkin.ir.taking import read_table, take
from napkin.ir.whole_numbers import plus
from napkin.rewrite import order
from napkin.rewrite.order import ORDERED, far

AXES = "abcde"


def leaf(name: str, axes: Sequence[str], kind: Any = "real") -> Node:
    return node("input", params=(name,), axes=axes, kind=kind)


def times(parts: Sequence[Node], by: str = "mul") -> Node:
    return joined(by, parts)


def orders(n: Node, sizes: Mapping[str, int] | None = None) -> list[Instance]:
    axes = {a for m in postorder([n]) for a in m.axes}
    return list(ORDERED.matches([n], sizes or dict.fromkeys(axes, 64)))


def values(n: Node, sizes: Mapping[str, int], arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    bind = {m: arrays[str(m.params[0])] for m in leaves([n])}
    return np.asarray(evaluate([n], bind, sizes)[0])


@st.composite
def contractions(draw: st.DrawFn) -> Node:
    """A sum of products or a maximum of sums, of two to five factors, some of which are equal, and
    some of which are contractions that bind the same axes."""
    how, by = draw(st.sampled_from([("sum", "mul"), ("max", "add")]))
    start = () if how == "sum" else (-math.inf,)
    some = st.lists(st.sampled_from(AXES), min_size=1, max_size=3, unique=True)
    pool = [leaf(name, draw(some)) for name in "PQR"]
    inner = times([draw(st.sampled_from(pool)), draw(st.sampled_from(pool))], by)
    pool.append(along(how, inner, tuple(draw(st.sampled_from(inner.axes))), start))
    body = times(draw(st.lists(st.sampled_from(pool), min_size=2, max_size=5)), by)
    if not body.axes:
        return times([leaf("S", "a"), leaf("T", "a")], by)
    gone = draw(st.lists(st.sampled_from(body.axes), min_size=1, max_size=3, unique=True))
    return along(how, body, tuple(gone), start)


@given(contractions(), st.integers(0, 2**16), st.sampled_from([1, 2, 3]))
@settings(max_examples=60, deadline=None)
def test_every_order_has_the_value(n: Node, seed: int, least: int) -> None:
    rng = np.random.default_rng(seed)
    sizes = {a: least + i % 2 for i, a in enumerate(AXES)}
    arrays = {str(m.params[0]): rng.normal(size=[sizes[a] for a in m.axes]) for m in leaves([n])}
    for found in orders(n):
        made = ORDERED.apply(found)
        assert made is not n
        known = with_named(sizes, found.same_size)
        wanted = values(n, sizes, arrays)
        value = aligned(values(made, known, arrays), made.axes, n.axes)
        np.testing.assert_allclose(value, wanted, rtol=1e-9, atol=1e-9)


@given(contractions(), st.sampled_from([2, 64]))
@settings(max_examples=60, deadline=None)
def test_an_order_that_costs_far_more_than_the_least_gives_way_to_it(n: Node, size: int) -> None:
    """By the law of `ORDERED`, whose first order it is; and none is far from the least after it."""
    sizes = {a: size ** (1 + i % 2) for i, a in enumerate(AXES)}
    before = order.FAR
    order.FAR = 1 if size == 2 else before
    try:
        for found in far([n], sizes):
            assert found.made is next(m.made for m in orders(n, sizes))
            known = with_named(sizes, found.same_size)
            assert not list(far([found.made], known))
    finally:
        order.FAR = before


def test_a_chain_is_put_in_its_least_order_before_it_is_priced() -> None:
    n, sizes = chain(4), {f"a{i}": 512 for i in range(5)}
    (found,) = far([n], sizes)
    assert multiplied(found.made, sizes) == 3 * 512**3
    assert not list(far([n], dict.fromkeys(sizes, 2)))


# --- which orders there are -----------------------------------------------------------------------


def chain(number: int) -> Node:
    """A product of matrices, X0 [a0 a1] X1 [a1 a2] and so on."""
    parts = [leaf(f"X{i}", (f"a{i}", f"a{i + 1}")) for i in range(number)]
    return along("sum", times(parts), tuple(f"a{i}" for i in range(1, number)))


def fewest(lengths: Sequence[int]) -> int:
    """The fewest multiplications for a product of matrices, by trying every last product."""
    if len(lengths) < 3:
        return 0
    return min(
        fewest(lengths[: k + 1]) + fewest(lengths[k:]) + lengths[0] * lengths[k] * lengths[-1]
        for k in range(1, len(lengths) - 1)
    )


def multiplied(n: Node, sizes: Mapping[str, int]) -> int:
    """The multiplications of a tree of products of two."""
    sums = [m for m in postorder([n]) if m.op == "sum"]
    return sum(math.prod(sizes[a] for a in (*m.axes, *over(m))) for m in sums)


@given(st.lists(st.integers(1, 60), min_size=4, max_size=7))
@settings(max_examples=25, deadline=None)
def test_the_first_order_of_a_chain_has_the_fewest_multiplications(lengths: list[int]) -> None:
    n, sizes = chain(len(lengths) - 1), {f"a{i}": x for i, x in enumerate(lengths)}
    before = order.STORED
    order.STORED = 0
    try:
        first = next(iter(ORDERED.matches([n], sizes)))
    finally:
        order.STORED = before
    assert multiplied(first.made, sizes) == fewest(lengths)


def test_values_between_cost_as_well() -> None:
    """Either order of x^T W y multiplies as often; one stores twice as many values."""
    n = along("sum", times([leaf("x", "bi"), leaf("W", "ij"), leaf("y", "bj")]), ("i", "j"))
    for i, j in ((64, 32), (32, 64)):
        first = orders(n, {"b": 1024, "i": i, "j": j})[0].made
        last = over(first)
        assert last == (("j",) if i > j else ("i",))


def test_a_long_product_is_ordered_by_pairs() -> None:
    """Of 30 matrices that narrow to one column, pairs are joined until few are left."""
    n, sizes = chain(30), {f"a{i}": 64 for i in range(30)} | {"a30": 1}
    begin = time.perf_counter()
    found = list(ORDERED.matches([n], sizes))
    assert time.perf_counter() - begin < 20
    assert all(multiplied(i.made, sizes) <= 30 * 64**3 for i in found)
    arrays = {f"X{i}": np.random.default_rng(i).normal(size=(3, 3)) for i in range(30)}
    small = dict.fromkeys(sizes, 3)
    wanted = np.linalg.multi_dot([arrays[f"X{i}"] for i in range(30)])
    for i in found:
        np.testing.assert_allclose(values(i.made, small, arrays), wanted, rtol=1e-9)


def test_two_factors_have_no_other_order() -> None:
    assert not orders(along("sum", times([leaf("A", "ik"), leaf("B", "kj")]), ("k",)))


def test_an_axis_of_one_factor_is_summed_first() -> None:
    n = along("sum", times([leaf("A", "ikl"), leaf("B", "kj")]), ("k", "l"))
    (found,) = orders(n)
    assert text(found.made, {}) == "sum(sum(A, over l) * B, over k)"


def test_orders_of_a_contraction_inside_are_those_of_the_whole() -> None:
    inner = along("sum", times([leaf("A", "ik"), leaf("B", "kl"), leaf("C", "lm")]), ("k", "l"))
    whole = along("sum", times([inner, leaf("D", "mn")]), ("m",))
    assert {i.sides()[0][0] for i in orders(whole)} == {whole}
    also = pointwise("add", (whole, pointwise("exp", (pointwise("neg", (inner,)),))))
    assert {i.sides()[0][0] for i in orders(also)} == {whole, inner}


# --- side conditions ------------------------------------------------------------------------------


def made_of(found: Sequence[Instance]) -> set[Node]:
    return {n for i in found for n in postorder([i.made])}


def test_whole_numbers_are_not_summed_before_a_real_factor() -> None:
    """They would wrap at 2^31, where their product with the real does not."""
    parts = [leaf("A", "ik", "int"), leaf("B", "kl", "int"), leaf("C", "lj")]
    found = orders(along("sum", times(parts), ("k", "l")))
    assert found
    assert all(n.kind == "real" for n in made_of(found) if n.op == "sum")


def test_tests_are_factors_but_are_not_counted_first() -> None:
    parts = [leaf("M", "ik", "bool"), leaf("N", "kl", "bool"), leaf("C", "lj")]
    found = orders(along("sum", times(parts), ("k", "l")))
    assert all(n.kind == "real" for n in made_of(found) if n.op == "sum")


def test_a_maximum_that_starts_elsewhere_keeps_its_order() -> None:
    body = times([leaf("A", "ik"), leaf("B", "kl"), leaf("C", "lj")], "add")
    assert orders(along("max", body, ("k", "l"), (-math.inf,)))
    assert not orders(along("max", body, ("k", "l"), (0.0,)))


def test_a_product_over_products_has_one_order() -> None:
    """The record of `prod` names nothing that distributes over products."""
    body = times([leaf("A", "ik"), leaf("B", "kl"), leaf("C", "lj")])
    assert not orders(along("prod", body, ("k", "l")))


def test_an_axis_bound_twice_is_renamed() -> None:
    """Inside, d is summed; outside, it is an axis of V and of the result."""
    S = along("sum", times([leaf("Q", "qd"), leaf("K", "xd")]), ("d",))
    n = along("sum", times([S, leaf("V", "xd")]), ("x",))
    found, *_ = orders(n, {"q": 64, "x": 64, "d": 4})
    assert found.same_size == {"d2": "d"}
    assert text(found.made, {}) == "sum(Q * sum(K * V, over x), over d2)"


def test_an_axis_bound_twice_is_renamed_in_what_is_read_at_positions() -> None:
    """Each of two equal sums reads T at n - 1, and both are opened."""
    read = take(leaf("T", "nd"), (plus(position("n"), -1),), ("n",))
    S = along("sum", times([read, leaf("W", "nq")]), ("n",))
    n = along("sum", times([S, S]), ("q", "d"))
    opened = rewrite([n], read_table)[n]
    found = orders(opened)
    assert found
    assert {"n": "n2"} in [{old: new for new, old in f.same_size.items()} for f in found]


def test_a_cast_inside_keeps_its_place() -> None:
    """Somebody chose what an array between is rounded to."""
    inner = along("sum", times([leaf("A", "ik"), leaf("B", "kl")]), ("k",))
    n = along("sum", times([pointwise("cast", (inner,), ("bf16",)), leaf("C", "lj")]), ("l",))
    assert not orders(n)


def test_masked_scores_are_one_factor() -> None:
    d = nk.diagram("q d, x d, x v, v w -> q w")(
        lambda Q, K, V, W: nk.contract(
            nk.contract(Q, K, over="d"), V, W, over="x v", keys=nk.causal("q", "x")
        )
    )
    roots = list(expanded(d.roots).values())
    found = list(ORDERED.matches(roots, dict.fromkeys(d.axes, 64)))
    assert found
    for i in found:
        assert sum(n.op == "where" for n in postorder([i.made])) == 1


def test_orders_of_a_subset_are_distinct() -> None:
    """Each instance multiplies other subsets first."""
    found = orders(chain(5))
    assert len({i.made for i in found}) == len(found)
    assert len(found) <= order.ORDERS
    for a, b in itertools.combinations(found, 2):
        assert a.made is not b.made


def test_a_scale_by_the_size_of_an_axis_stays_outside_of_the_sum_along_it() -> None:
    """Of no positions it is infinite, and times the sum of nothing no number."""

    @nk.diagram("n k, i k -> n")
    def scores(T: Any, S: Any) -> Any:
        return nk.reduce(nk.contract(T, S, over="k") * nk.size("k") ** -0.5, "sum", over="i")

    (n,) = scores.roots
    found = [o.made for o in orders(n)]
    assert found
    for k, i in ((0, 3), (4, 0), (4, 3), (0, 0)):  # of nothing on both axes, 0 and not 0 * inf
        sizes = {"n": 2, "k": k, "i": i}
        arrays = {"T": np.ones((2, sizes["k"])), "S": np.ones((sizes["i"], sizes["k"]))}
        wanted = values(n, sizes, arrays)
        for made in found:
            assert np.array_equal(values(made, sizes, arrays), wanted, equal_nan=True)


def test_a_factor_that_is_infinite_of_nothing_may_leave_the_sum_of_nothing() -> None:
    """0 where it is evaluated, and no number in a kernel (docs/semantics.md)."""

    @nk.diagram("x -> ()")
    def smallest(X: Any) -> Any:
        least = nk.reduce(X, "min", over="x")
        return nk.reduce(X * least * nk.reduce(X * least, "sum", over="x"), "sum", over="x")

    (n,) = smallest.roots
    found = [o.made for o in orders(n)]
    assert found
    arrays = {"X": np.ones(0)}
    assert values(n, {"x": 0}, arrays) == 0
    assert any(np.isnan(values(made, {"x": 0}, arrays)) for made in found)
