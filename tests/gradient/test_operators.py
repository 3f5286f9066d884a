"""The derivative in each operator's record, beside central differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.ir.array import applied
from napkin.ir.node import postorder
from napkin.ir.operators import POINTWISE

NAPKINS = [n for n, r in POINTWISE.items() if not r.definition and r.kind in {None, "real"}]
KNOWN = sorted(n for n in NAPKINS if POINTWISE[n].derivative is not None)
POSITIVE = {"log", "sqrt", "rsqrt", "pow", "div"}
RNG = np.random.default_rng(0)


def arrays(count: int, positive: bool) -> list[Any]:
    found = [RNG.normal(size=(3, 4)) for _ in range(count)]
    return [np.abs(x) + 0.3 for x in found] if positive else found


def test_every_operator_of_reals_has_a_derivative() -> None:
    assert set(NAPKINS) == set(KNOWN)


@pytest.mark.parametrize("name", [n for n in KNOWN if n not in {"cast", "where"}])
def test_a_derivative_is_the_slope_of_the_values(name: str, gradients_agree: Any) -> None:
    arity = POINTWISE[name].arity
    signature = f"{', '.join(['m n'] * arity)} -> m n"
    f = nk.diagram(signature, name=f"d_{name}")(lambda *given: applied(name, *given))
    gradients_agree(f, *arrays(arity, name in POSITIVE))


def test_casts_of_reals_pass_through_and_choices_go_where_they_came_from(
    gradients_agree: Any,
) -> None:
    f = nk.diagram("n, n -> n")(lambda a, b: nk.where(a > b, nk.cast(a, "bf16") * a, b * b * b))
    gradients_agree(f, *RNG.normal(size=(2, 9)))


@pytest.mark.parametrize("how", ["sum", "max", "min", "prod", "mean", "logsumexp"])
def test_reductions_have_derivatives(how: str, gradients_agree: Any) -> None:
    f = nk.diagram("m n k -> m")(lambda x: nk.reduce(x * x, how, over="n k"))
    gradients_agree(f, RNG.normal(size=(2, 3, 4)))


def test_equal_values_share_a_maximum_evenly() -> None:
    f = nk.diagram("n -> ()")(lambda x: nk.reduce(x, "max", over="n"))
    found = nk.gradient(f).evaluate(np.array([1.0, 3.0, 3.0, 3.0]), np.array(6.0))
    assert found.tolist() == [0.0, 2.0, 2.0, 2.0]
    f = nk.diagram("n, n -> n")(nk.minimum)
    a, b = nk.gradient(f).evaluate([1.0, 2.0, 3.0], [2.0, 2.0, 2.0], [1.0, 1.0, 1.0])
    assert (a.tolist(), b.tolist()) == ([1.0, 0.5, 0.0], [0.0, 0.5, 1.0])


def test_equal_values_share_their_ranks_evenly(gradients_agree: Any) -> None:
    """The sum of the two largest of two values is smooth, also where they are equal."""
    both = nk.diagram("m n -> m")(lambda x: sum(nk.topk(x, 2, over="n")[0]))
    gradients_agree(both, [[2.0, 2.0], [1.0, 3.0]])
    seen = nk.diagram("q x -> q, q")(
        lambda s: nk.topk(s * s, 2, over="x", keys=nk.neighborhood(3, queries="q", keys="x"))[0]
    )
    gradients_agree(seen, RNG.normal(size=(4, 4)))
    step = nk.diagram("t n -> t n")(
        lambda x: nk.scan(
            lambda h: nk.tanh(h) + sum(nk.topk(h + x, 2, over="n")[0]), 0.0, along="t", axes="n"
        )
    )
    gradients_agree(step, [[2.0, 2.0], [1.0, 1.0]])
    third = nk.diagram("n -> ()")(lambda x: nk.topk(x, 3, over="n")[0][2])
    found = nk.gradient(third).evaluate(np.array([1.0, 2.0, 1.0, 3.0, 0.0]), np.array(6.0))
    assert found.tolist() == [3.0, 0.0, 3.0, 0.0, 0.0]


def test_a_rank_past_the_last_value_has_no_slope() -> None:
    """Nor one that is infinite before it is left out: a kernel takes it out of the sum."""
    keys = nk.causal(queries="q", keys="x")
    third = nk.diagram("q x -> q")(lambda s: nk.topk(s, 3, over="x", keys=keys)[0][2])
    slope = nk.gradient(third)
    assert slope.evaluate(np.arange(9.0).reshape(3, 3), np.ones(3)).tolist() == [
        [0.0] * 3, [0.0] * 3, [1.0, 0.0, 0.0],
    ]  # fmt: skip
    shares = [n.args[1] for n in postorder(o.node for o in slope.outputs) if n.op == "div"]
    assert [n.op for n in shares] == ["maximum"]  # at least 1


def test_what_leaves_out_another_position_is_no_rank() -> None:
    f = nk.diagram("n, n -> ()")(
        lambda x, y: nk.reduce(
            nk.where(nk.index("n") != nk.argmax(y, over="n"), x, -np.inf), "max", over="n"
        )
    )
    dx, _ = nk.gradient(f).evaluate([2.0, 2.0, 1.0], [5.0, 0.0, 0.0], np.array(1.0))
    assert dx.tolist() == [0.0, 1.0, 0.0]


def test_what_a_test_of_inequality_leaves_out_is_no_rank(gradients_agree: Any) -> None:
    """Also where what it chooses lacks the axis, or the test is of real numbers."""
    f = nk.diagram("m, n, n -> m, ()")(
        lambda x, y, z: (
            nk.reduce(nk.where(y != 0, x, -np.inf), "max", over="n"),
            nk.reduce(nk.where((y != 0) & (z != y), z, -np.inf), "max", over="n"),
        )
    )
    gradients_agree(f, [1.0, 2.0], [0.0, 3.0, 3.0], [4.0, 2.0, 1.0], tolerance=1e-5)


def test_a_power_of_zero_that_is_infinite_has_infinite_slopes() -> None:
    f = nk.diagram("n, n -> n")(lambda a, b: a**b)
    _, found = nk.gradient(f).evaluate([0.0, 0.0, 0.0], [-1.0, 0.0, 2.0], [1.0, 1.0, 1.0])
    assert found.tolist() == [-np.inf, 0.0, 0.0]  # as torch's


def test_powers_of_zero_and_by_zero_have_the_slopes_of_those_beside_them(
    gradients_agree: Any,
) -> None:
    f = nk.diagram("n, n -> n")(lambda a, b: a**b)
    powers, slopes = [0.0, 1.0, 2.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0, 1.0]
    found, _ = nk.gradient(f).evaluate([0.0, 0.0, 0.0, 2.0, 2.0], powers, np.ones(5))
    assert found.tolist() == slopes
    gradients_agree(nk.gradient(f), [2.0, 3.0], [0.0, 1.0], [1.0, 1.0])
    plan = nk.derive(nk.gradient(f, wrt="a"), sizes={"n": 3}, dtype="fp32")
    found = plan(np.zeros(3), np.array([0.0, 1.0, 2.0]), np.ones(3))
    assert found.tolist() == slopes[:3]


def test_a_product_with_zeros_has_the_product_of_the_others() -> None:
    f = nk.diagram("m n -> m")(lambda x: nk.reduce(x, "prod", over="n"))
    found = nk.gradient(f).evaluate([[2.0, 0.0, 3.0], [0.0, 5.0, 0.0], [2.0, 3.0, 4.0]], np.ones(3))
    assert found.tolist() == [[0.0, 6.0, 0.0], [0.0, 0.0, 0.0], [12.0, 8.0, 6.0]]


def test_what_a_test_leaves_out_is_no_nan() -> None:
    f = nk.diagram("n -> n")(lambda x: nk.where(x > 0, nk.log(x) * nk.sqrt(x), 0.0))
    found = nk.gradient(f).evaluate([-1.0, 1.0], [1.0, 1.0])
    assert found.tolist() == [0.0, 1.0]  # the slope of a logarithm of -1 would be no number


@pytest.mark.parametrize("of", [nk.log, nk.sqrt, nk.rsqrt, lambda x: 1 / x, lambda x: x**-0.5])
def test_what_a_softmax_masks_is_no_nan(of: Any) -> None:
    """The weight is 0 there, and 0 times a slope that is no number would be one."""
    x = [[-1.0, 0.0, 1.0, 2.0]]
    weights = nk.diagram("m n -> m n")(
        lambda x: nk.softmax(nk.where(x > 0, of(x), -np.inf), over="n")
    )
    level = nk.diagram("m n -> m")(
        lambda x: nk.reduce(nk.where(x > 0, of(x), -np.inf), "logsumexp", over="n")
    )
    for f, g in ((weights, [[1.0, 2.0, 3.0, 4.0]]), (level, [1.0])):
        found = nk.gradient(f).evaluate(x, g)
        assert found[0, :2].tolist() == [0.0, 0.0]
        assert np.isfinite(found).all()


def test_scores_that_are_masked_otherwise_need_no_second_mask() -> None:
    f = nk.diagram("q d, x d -> q x")(
        lambda a, b: nk.softmax(
            nk.tanh(nk.contract(a, b, over="d") / 4.0), over="x", keys=nk.causal("q", "x")
        )
    )
    listed = str(nk.gradient(f))
    assert listed.count("where(causal") == 1, listed


def test_users_operators_have_the_derivatives_that_they_say(gradients_agree: Any) -> None:
    swish = nk.operator(
        "swish_with_slope", 2,
        evaluate=lambda xp, a, b: a / (1 + xp.exp(-a * b)),
        triton="a / (1 + tl.exp(-a * b))",
        derivative=lambda a, b: (
            nk.sigmoid(a * b) * (1 + a * b * (1 - nk.sigmoid(a * b))),
            a * a * nk.sigmoid(a * b) * (1 - nk.sigmoid(a * b)),
        ),
    )  # fmt: skip
    f = nk.diagram("n k, k -> n")(lambda a, b: nk.reduce(swish(a, b), "sum", over="k"))
    gradients_agree(f, RNG.normal(size=(2, 3)), RNG.normal(size=3))


def test_users_reductions_have_the_derivatives_that_they_say(gradients_agree: Any) -> None:
    def both(a: Any, b: Any) -> Any:
        top = nk.maximum(nk.maximum(a, b), -3.4e38)
        return top + nk.log(nk.exp(a - top) + nk.exp(b - top))

    joint = nk.reduction(
        "log_sum_with_slope", combine=both, identity=-np.inf, derivative=lambda y, x: nk.exp(x - y)
    )
    f = nk.diagram("n k -> n")(lambda a: joint(a * a, over="k"))
    gradients_agree(f, RNG.normal(size=(2, 3)))


def test_a_sum_under_another_name_has_the_derivative_of_a_sum(gradients_agree: Any) -> None:
    plain = nk.reduction("plain_sum_without_slope", combine=lambda a, b: a + b, identity=0.0)
    f = nk.diagram("n k -> n")(lambda a: plain(a * a, over="k"))
    gradients_agree(f, RNG.normal(size=(2, 3)))


WRONG = {
    "of another sign": (lambda x: -nk.sigmoid(x), "derivative by argument 1 at"),
    "of two arguments": (lambda x: (x, x), "derivative gave 2 of 1 derivatives"),
    "no term": (lambda x: np.exp(x), "derivative raised InputError"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_derivative_that_is_wrong_is_refused_where_it_is_said(case: str) -> None:
    derivative, said = WRONG[case]
    with pytest.raises(nk.InputError, match=said):
        nk.operator(
            "softplus_with_a_wrong_slope", 1, derivative=derivative,
            evaluate=lambda xp, x: xp.logaddexp(x, xp.zeros_like(x)),
            triton="tl.log(1.0 + tl.exp(x))",
        )  # fmt: skip


def test_a_wrong_derivative_of_a_reduction_is_refused() -> None:
    with pytest.raises(nk.InputError, match="its derivative by argument 1 at"):
        nk.reduction(
            "sum_with_a_wrong_slope", combine=lambda a, b: a + b, identity=0.0,
            derivative=lambda y, x: 2.0 * nk.exp(0.0 * x),
        )  # fmt: skip


def test_a_power_of_zero_has_no_slope_at_zero() -> None:
    @nk.diagram("n, n:int -> n, n", sizes={"n": 4})
    def powers(X: Any, k: Any) -> Any:
        return X**k, X**0

    x, k, ones = [0.0, 0.0, 0.0, 2.0], [0, 1, 2, 3], np.ones(4)
    made = nk.gradient(powers)
    for found in (made.evaluate(x, k, ones, ones), nk.derive(made, dtype="fp32")(x, k, ones, ones)):
        np.testing.assert_allclose(found, [0.0, 1.0, 0.0, 12.0], rtol=1e-6)
