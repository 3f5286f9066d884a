"""H where several axes are streamed together: boxes load again what carries only some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from in_numpy import Execution, execute

import napkin as nk
from napkin.count.traffic import Traffic
from napkin.count.work import counts
from napkin.derive.kernel import Kernel
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.errors import Refusal
from napkin.ir.symbols import group_symbol, size_symbol, stream_symbol


@nk.diagram("a c, c e z, b e -> a b z", sizes={"a": 9, "b": 3, "z": 5, "c": 7, "e": 8})
def bilinear(A, W, B):
    return nk.contract(A, W, B, over="c e")


@nk.diagram("i j k, j r, k r -> i r", sizes={"i": 9, "j": 11, "k": 7, "r": 5})
def mttkrp(X, B, C):
    return nk.contract(X, B, C, over="j k")


@nk.diagram("t i c, t j e, c e z -> i j z", sizes={"t": 6, "i": 5, "j": 7, "c": 8, "e": 9, "z": 4})
def outer_product_mean(A, B, W):
    return nk.contract(nk.contract(A, B, over="t"), W, over="c e")


@nk.diagram("q d, x d, y d, x v, y v -> q v", sizes={"q": 9, "x": 13, "y": 7, "d": 4, "v": 5})
def trilinear(Q, K, L, V, U):
    P = nk.softmax(nk.contract(Q, K, L, over="d"), over="x y")
    return nk.contract(P, V, U, over="x y")


@nk.diagram("a c d, d e, c -> a", sizes={"a": 5, "c": 7, "d": 6, "e": 9})
def three(A, B, C):
    return nk.contract(nk.exp(A), nk.tanh(B), C, over="c d e")


@nk.diagram("a c, a e -> a", sizes={"a": 5, "c": 7, "e": 9})
def twice(A, B):
    """The sum of squares about the mean, in a second pass."""
    X = A * B
    mean = nk.reduce(X, "mean", over="c e")
    return nk.reduce(nk.abs(X - mean), "max", over="c e")


@nk.diagram(
    "i j d, k l d, k d, l e -> i j e", sizes={"i": 9, "j": 11, "k": 9, "l": 11, "d": 4, "e": 3}
)
def in_boxes(Q, K, N, V):
    """Scores that have a part of the rows' alone, and values that the rows share."""
    S = nk.contract(Q, K, over="d") + nk.contract(Q, N, over="d")
    seen = nk.neighborhood((3, 5), queries="i j", keys="k l")
    return nk.contract(nk.softmax(S, over="k l", keys=seen), V, over="k l")


@nk.diagram("e b, e q -> e, e b", sizes={"b": 7, "e": 5, "q": 3})
def stored_again(V, A):
    """A result that carries one streamed axis, in the loop over both."""
    P = nk.exp(V - nk.reduce(V, "max", over="e b"))
    return nk.contract(A, over="q"), P / nk.reduce(P, "sum", over="e b")


@nk.diagram("q k, k d -> d", sizes={"q": 11, "k": 11, "d": 3})
def queries_folded(S, V):
    """A group holds all queries, each of which sees other keys."""
    seen = nk.neighborhood(3, queries="q", keys="k")
    return nk.reduce(nk.contract(S, V, over="k", keys=seen), "max", over="q")


CASES = [
    (bilinear, "c e", 1),
    (bilinear, "e c", 1),
    (mttkrp, "j k", 1),
    (outer_product_mean, "c e", 1),
    (trilinear, "x y", 1),
    (three, "c d e", 1),
    (three, "e c", 1),
    (twice, "c e", 2),
    (in_boxes, "k l", 1),
    (in_boxes, "l k", 1),
    (queries_folded, "k", 1),
]


def streamed(diagram: nk.Diagram, axes: str, passes: int) -> Kernel:
    ready = prepare(diagram)
    return label(diagram.name, ready.outputs, ready.names, streamed=axes, passes=passes)


def ran(
    kernel: Kernel, diagram: nk.Diagram, sizes: Mapping[str, int], tiles: Mapping[str, int]
) -> Execution:
    rng = np.random.default_rng(0)
    arrays = {str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in diagram.inputs}
    out = execute(kernel, arrays, sizes, tiles)
    wanted = diagram.evaluate(*arrays.values())
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for o, value in zip(diagram.outputs, wanted, strict=True):
        np.testing.assert_allclose(out.outputs[o.name], value, rtol=1e-8, atol=1e-11)
    return out


@pytest.mark.parametrize(("diagram", "axes", "passes"), CASES)
def test_values_that_cross_at_any_sizes_and_tiles(
    diagram: nk.Diagram, axes: str, passes: int
) -> None:
    kernel, rng = streamed(diagram, axes, passes), np.random.default_rng(1)
    for trial in range(4):
        sizes = diagram.check_sizes({} if trial == 0 or kernel.visits else some(diagram, rng))
        tiles = {
            a: sizes[a] if a in kernel.whole else int(rng.integers(1, 2 * sizes[a] + 1))
            for a in kernel.axes
        }
        predicted: dict[Any, int] = {}
        for t in Traffic(kernel).parts:
            key = t.tensor, t.direction
            predicted[key] = predicted.get(key, 0) + t.values(sizes, tiles)
        assert predicted == ran(kernel, diagram, sizes, tiles).moved


def some(diagram: nk.Diagram, rng: np.random.Generator) -> dict[str, int]:
    return {a: int(rng.integers(1, 12)) for a in diagram.axes}


@pytest.mark.parametrize(
    ("diagram", "axes", "passes"), [c for c in CASES if c[0] not in (in_boxes, queries_folded)]
)
def test_formulas_at_tiles_that_divide_the_sizes(
    diagram: nk.Diagram, axes: str, passes: int
) -> None:
    kernel, rng = streamed(diagram, axes, passes), np.random.default_rng(2)
    tiles = {a: int(rng.integers(1, 5)) for a in kernel.axes}
    sizes = {a: n if a in kernel.whole else n * int(rng.integers(1, 5)) for a, n in tiles.items()}
    known = {size_symbol(a): n for a, n in sizes.items()}
    known |= {of(a): n for a, n in tiles.items() for of in (group_symbol, stream_symbol)}
    crossed: dict[str, int] = {}
    for (tensor, _), n in ran(kernel, diagram, sizes, tiles).moved.items():
        crossed[tensor] = crossed.get(tensor, 0) + n
    assert {t: int(h.subs(known)) for t, h in Traffic(kernel).per_tensor.items()} == crossed
    assert all(float(c.total.subs(known)) == c.number(sizes, tiles) for c in counts(kernel))


@pytest.mark.parametrize("axes", ["e b", "b e"])
def test_what_would_be_stored_again_for_each_chunk_of_the_other_axis_is_refused(axes: str) -> None:
    with pytest.raises(Refusal, match="output O1 has no b"):
        streamed(stored_again, axes, 2)
    nk.derive(stored_again, on="h100").check(resources=False).raise_if_wrong()


def test_what_carries_one_streamed_axis_is_computed_again_for_each_chunk_of_the_other() -> None:
    kernel = streamed(three, "c e", 1)
    sizes = {"a": 4, "c": 12, "d": 2, "e": 20}
    tiles = {"a": 4, "c": 3, "d": 2, "e": 5}
    special = {c.axes: c.number(sizes, tiles) for c in counts(kernel) if c.pipe == "special"}
    assert special["a", "c", "d"] == 4 * 12 * 2 * (20 // 5)
    assert special["d", "e"] == 4 * 2 * 20 * (12 // 3)


@pytest.mark.parametrize(
    ("diagram", "dtype", "long", "short"),
    [
        (
            mttkrp,
            "bf16",
            {"i": 1024, "j": 1024, "k": 4096, "r": 128},
            {"i": 17, "j": 20, "k": 67, "r": 3},
        ),
        (
            outer_product_mean,
            "fp32",
            {"t": 64, "i": 256, "j": 256, "c": 32, "e": 32, "z": 128},
            {"t": 17, "i": 5, "j": 9, "c": 13, "e": 12, "z": 19},
        ),
    ],
    ids=lambda c: getattr(c, "name", ""),
)
def test_kernels_of_long_axes_move_what_is_predicted(
    diagram: nk.Diagram, dtype: str, long: Mapping[str, int], short: Mapping[str, int]
) -> None:
    plan = nk.derive(diagram, sizes=long, dtype=dtype, materialise=[])  # in its own order
    assert any(len(k.choice.kernel.stream.axes) == 2 for k in plan.kernels)
    plan.check(sizes=short, resources=False).raise_if_wrong()


def test_a_group_comes_back_to_what_it_reads_within_chunks_of_another_axis() -> None:
    """`A` is read again at once, for the next chunk of `e`; all of `B` again, for one of `c`."""
    by_tensor = {t.tensor: t for t in Traffic(streamed(bilinear, "c e", 1)).parts}
    assert by_tensor["A"].left == ()
    assert by_tensor["B"].left == ("c",)
    assert by_tensor["W"].chunked == ()


def test_formulas_of_queries_that_a_group_holds_whole_name_no_group_of_them() -> None:
    (read,) = [
        t
        for t in Traffic(streamed(queries_folded, "k", 1)).parts
        if (t.tensor, t.times) == ("S", 1)
    ]
    assert size_symbol("q") in read.total.free_symbols
    assert group_symbol("q") not in read.total.free_symbols
