"""Sorting along any dimension of a tile."""

from __future__ import annotations

import pytest

import napkin as nk
from napkin.count.work import COMPARED, work
from napkin.ir.symbols import size_symbol


@pytest.mark.parametrize(("x", "rounds"), [(1, 0), (2, 1), (8, 6), (1000, 55), (1024, 55)])
def test_a_sort_compares_as_the_network_that_is_emitted(x: int, rounds: int) -> None:
    ordered = nk.diagram("n x -> n x")(lambda X: nk.sort(X, along="x"))
    (kernel,) = nk.derive(ordered, sizes={"n": 16, "x": x}).kernels
    sizes = kernel.choice.sizes
    done = 16 * x * rounds * COMPARED
    assert work(kernel.choice.kernel, sizes, {"n": 1, "x": x})["arithmetic"] == done
    assert kernel.flops.subs({size_symbol(a): n for a, n in sizes.items()}) == done


@pytest.mark.parametrize("over", ["b", "c", "d"])
def test_a_sort_along_any_axis_of_a_tile(over: str) -> None:
    """The values below and beside the sorted axis stay where they are; shared memory, too, is that
    of the compiler."""

    @nk.diagram("b c d -> b c d, ()", sizes={"b": 7, "c": 6, "d": 5})
    def ranked(X):
        ordered = nk.sort(X, along=over)
        return ordered * 2.0, nk.reduce(ordered * nk.index(over), "sum", over="b c d")

    nk.derive(ranked, dtype="fp32").check().raise_if_wrong()
