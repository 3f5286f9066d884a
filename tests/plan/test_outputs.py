"""What a diagram returns: one array under several layouts, constants, inputs, other item types."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import napkin as nk

X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(3, 5)).astype(np.float32)


def holds(diagram: nk.Diagram, wanted: Any, *arrays: Any) -> nk.Plan:
    """Evaluation, the kernels' values and their bytes."""
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    sizes = diagram.sizes_of([np.shape(a) for a in arrays])
    plan = nk.derive(diagram, sizes=sizes, dtype="fp32")
    for found in (diagram.evaluate(*arrays), plan(*arrays)):
        found = found if isinstance(found, tuple) else (found,)
        for f, w in zip(found, wanted, strict=True):
            assert np.shape(f) == np.shape(w)
            np.testing.assert_allclose(f, w, rtol=1e-5, atol=1e-6)
    plan.check(sizes=sizes, resources=False).raise_if_wrong()
    return plan


def both(x: Any) -> tuple[Any, Any]:
    return x, x


def again(x: Any) -> Any:
    """The same array by way of another name."""
    return nk.rename(nk.rename(x, n="other"), other="n")


def test_one_array_under_two_layouts() -> None:
    holds(nk.diagram("n m -> n m, m n")(both), (X, X.T), X)
    holds(nk.diagram("n m -> m n, n m")(lambda X: both(X * 2)), (X.T * 2, X * 2), X)
    product = nk.diagram("n m, m k -> k n, n k")(lambda X, W: both(nk.contract(X, W, over="m")))
    assert len(holds(product, ((X @ W).T, X @ W), X, W).kernels) == 1


def test_one_array_under_two_layouts_that_a_later_kernel_reads() -> None:
    @nk.diagram("n m, m k -> k n, n k, n")
    def read(X, W):
        Z = nk.contract(X, W, over="m")
        return Z, Z, nk.reduce(Z, "max", over="k")

    Z = X @ W
    holds(read, (Z.T, Z, Z.max(1)), X, W)


def test_a_later_kernel_reads_a_result_as_it_lies_in_memory() -> None:
    @nk.diagram("n m -> m n, n")
    def read(X):
        Z = X - nk.reduce(X, "sum", over="n m")
        return Z, nk.reduce(Z, "max", over="m") + nk.reduce(Z, "max", over="n m")

    plan = nk.derive(read, sizes=dict(n=3000, m=3000), dtype="fp32")
    assert len(plan.kernels) > 1
    plan.check(sizes=dict(n=7, m=2), resources=False).raise_if_wrong()


def test_a_result_that_is_repeated_and_read_by_a_later_kernel() -> None:
    @nk.diagram("n m, m k -> n, m")
    def woven(X, W):
        total = nk.reduce(W, "sum", over="k")
        return nk.contract(X, total, over="m"), total

    woven = woven.weave("b", into="X")
    Xs = np.stack([X, 2 * X])
    plan = nk.derive(woven, sizes=dict(b=2, n=3000, m=3000, k=3000), dtype="fp32")
    assert len(plan.kernels) > 1
    total = W.sum(1)
    for found, wanted in zip(plan(Xs, W), (Xs @ total, np.stack([total] * 2)), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_the_same_layout_twice_is_stored_once() -> None:
    plan = holds(nk.diagram("n m -> n m, n m")(lambda X: both(X * 2)), (X * 2, X * 2), X)
    assert len(plan.kernels[0].choice.kernel.outputs) == 1


def test_outputs_that_become_one_term() -> None:
    @nk.diagram("n m -> n, n")
    def sums(X):
        total = nk.reduce(X, "sum", over="m")
        return total, again(total)

    holds(sums, (X.sum(1), X.sum(1)), X)


CONSTANT: list[tuple[Callable[[], Any], Any]] = [
    (lambda: nk.cast(1.5, "fp32") * 2, 3.0),
    (lambda: nk.size("n") * 0.5, 4.0),
    (lambda: nk.size("n") * 2, 16),
    (lambda: nk.size("n") > 2, True),
    (lambda: nk.reduce(nk.index("n"), "sum", over="n"), 28),
]


@pytest.mark.parametrize(("constant", "value"), CONSTANT)
def test_a_constant_output(constant: Callable[[], Any], value: Any) -> None:
    holds(nk.diagram("n m -> n m, ()")(lambda X: (X + 1, constant())), (X + 1, value), X)


def test_positions_inputs_and_tests_are_outputs() -> None:
    @nk.diagram("n m -> n m, m, n m, k m")
    def several(X):
        return X, nk.index("m") * 2, X > 0, nk.rename(X, n="k")

    holds(several, (X, np.arange(3) * 2, X > 0, X), X)


J = np.array([3, 0, 1, 5, 2, 4, 7, 6])

POWERS: list[tuple[Callable[[Any], Any], Any]] = [
    (lambda J: 2**J, 2.0**J),
    (lambda J: (-2) ** J, (-2.0) ** J),
    (lambda J: nk.size("n") ** J, 8.0**J),
    (lambda J: 2 ** (J > 2), 2.0 ** (J > 2)),
    (lambda J: (nk.size("n") * -0.25) ** J, (-2.0) ** J),
]


@pytest.mark.parametrize(("power", "wanted"), POWERS)
def test_powers_of_a_number_by_whole_numbers(power: Callable[[Any], Any], wanted: Any) -> None:
    holds(nk.diagram("n:int -> n")(power), wanted, J)


def test_whole_numbers_are_stored_in_8_bits() -> None:
    diagram = nk.diagram("n:int -> n")(lambda J: nk.cast(J, "fp8"))
    np.testing.assert_array_equal(nk.derive(diagram, sizes={"n": 8}, dtype="fp32")(J), J)


REFUSED: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda X, J: X // 0.75, "// is of whole numbers"),
    (lambda X, J: X % 2, "% is of whole numbers"),
    (lambda X, J: X + nk.size("n") % 0.75, "% is of whole numbers"),
    (lambda X, J: X + J // 0.5, "// is of whole numbers"),
    (lambda X, J: nk.where(J & 1, X, 0.0), "& joins tests"),
    (lambda X, J: nk.where(~J, X, 0.0), "not joins tests"),
    (lambda X, J: nk.where(X | X, X, 0.0), r"\| joins tests"),
    (lambda X, J: X * (J + 2**31), "2147483648 is beyond int32"),
    (lambda X, J: X * nk.where(X > 0, -(2**31) - 1, 1), "-2147483649 is beyond int32"),
    (lambda X, J: X * nk.take(J, n=2**40), "beyond int32"),
]


@pytest.mark.parametrize(("function", "said"), REFUSED)
def test_what_kernels_do_not_compute_is_refused_when_it_is_written(
    function: Callable[[Any, Any], Any], said: str
) -> None:
    with pytest.raises(nk.InputError, match=said):
        nk.diagram("n, n:int -> n")(lambda X, J: function(X, J) + J * X)


def test_a_number_beyond_int32_is_real_beside_reals() -> None:
    holds(nk.diagram("n m -> n m")(lambda X: X * 2**40 + 1), X * 2.0**40 + 1, X)


@nk.diagram("h x k, b c i -> c h k b, k h")
def read_again(X, K):
    """A result lies in memory under another order of axes than its term has."""
    t = nk.reduce(X, "sum", over="x")
    return nk.contract(K, t, over="h i") * t, t


def test_a_result_in_another_order_is_read_as_it_lies_in_memory() -> None:
    sizes = {"h": 64, "x": 512, "k": 64, "b": 64, "c": 64, "i": 64}
    plan = nk.derive(read_again, "h100", sizes, "fp32")
    assert len(plan.kernels) == 2
    small = {"h": 3, "x": 5, "k": 7, "b": 3, "c": 5, "i": 7}
    plan.check(sizes=small, resources=False).raise_if_wrong()


@nk.diagram("n l, a -> a, n", sizes={"n": 2048, "l": 2048, "a": 2048})
def renamed_beside(X, scale):
    top = nk.reduce(nk.exp(X), "max", over="l")
    return nk.rename(top, n="a") * scale, top


@nk.diagram("e l:int, e l f, e i f -> e l, e i l", sizes=dict.fromkeys("elfi", 2048))
def looked_at(s, A, B):
    t = nk.contract(A, B, over="f")
    keys = nk.dilated(0, 0, 2, queries="l", keys="i", at=s + 0)
    return nk.reduce(t, "max", over="i", keys=keys), t


@pytest.mark.parametrize(
    ("diagram", "into", "small"),
    [(renamed_beside, "scale", {"l": 5, "n": 24, "a": 24}), (looked_at, "s", {"e": 3, "i": 7})],
    ids=["renamed_beside", "looked_at"],
)
def test_a_result_that_is_repeated_is_stored_once_for_its_readers(diagram, into, small) -> None:
    """A result is the same along a woven axis, and another term reads it."""
    woven = diagram.weave("w", into=into)
    plan = nk.derive(woven, sizes={**woven.sizes, "w": 2048}, dtype="fp32")
    assert len(plan.kernels) == 3
    sizes = {a: small.get(a, 16) for a in woven.axes}
    nk.derive(woven, sizes=sizes, dtype="fp32").check(resources=False).raise_if_wrong()


def test_a_scalar_that_a_weave_repeats_is_stored_by_groups() -> None:
    """Its axes are no axis of a term, and a tile of all of them is more than a group holds."""

    @nk.diagram("(), p, () -> (), p")
    def both(Q: Any, Z: Any, W: Any) -> Any:
        return nk.exp(Q), Z + W

    d = both.weave("a b", into="W")
    plan = nk.derive(d, sizes={"a": 1024, "b": 2048, "p": 4}, dtype="fp32")
    Z, W = np.arange(4.0), np.arange(6.0).reshape(2, 3)
    first, second = plan(0.5, Z, W)
    np.testing.assert_allclose(first, np.full((2, 3), np.exp(0.5)), rtol=1e-6)
    np.testing.assert_allclose(second, W[..., None] + Z)
