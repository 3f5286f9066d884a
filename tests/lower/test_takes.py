"""Kernels that read at computed positions: values against float64, bytes against the prediction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
from fold_law import assert_law
from hypothesis import given, settings
from hypothesis import strategies as st
from in_numpy import execute

import napkin as nk
from napkin.check.inputs import whole_numbers
from napkin.check.verdict import compiled
from napkin.count.traffic import Traffic
from napkin.ir.taking import table_of
from napkin.plan.plan import Plan

LONG = {"q": 4096, "x": 4096, "d": 64}
SHORT = {"q": 150, "x": 150, "d": 16}


def attention(Q: Any, K: Any, V: Any, bias: Any = 0.0, keys: Any = None, over: str = "x") -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    return nk.contract(nk.softmax(S + bias, over=over, keys=keys), V, over=over)


def between(B: Any, query: str = "q", key: str = "x", p: str = "p") -> Any:
    """A table of biases by relative position, with position 0 in its middle."""
    return nk.take(B, **{p: nk.index(key) - nk.index(query) + nk.size(p) // 2})


@nk.diagram("h q d, h x d, h x d, h p -> h q d", sizes=LONG | {"h": 2, "p": 8191})
def relative(Q, K, V, B):
    """Relative position biases of all pairs."""
    return attention(Q, K, V, between(B))


@nk.diagram("h q d, h x d, h x d, p -> h q d", sizes=LONG | {"h": 2, "p": 65})
def shared(Q, K, V, B):
    """Biases that the heads share, inside a window; the table is shorter than the window."""
    return attention(Q, K, V, between(B), nk.sliding(40, 40, "q", "x"))


@nk.diagram("h q d, h x d, h x d, h p -> h q d", sizes=LONG | {"h": 2, "p": 65})
def sliding(Q, K, V, B):
    """Biases inside a causal window."""
    return attention(Q, K, V, between(B), nk.sliding(32, 0, "q", "x"))


@nk.diagram("h q d, h x d, h x d, h p -> h q d", sizes=LONG | {"h": 2, "p": 129})
def neighborhood(Q, K, V, B):
    """Biases inside neighborhoods with strides."""
    return attention(Q, K, V, between(B), nk.neighborhood(33, stride=3, queries="q", keys="x"))


@nk.diagram("g r q d, g x d, g x d, g r p -> g r q d", sizes=LONG | {"g": 2, "r": 4, "p": 129})
def grouped(Q, K, V, B):
    """Grouped queries, each head with its own biases."""
    return attention(Q, K, V, between(B), nk.sliding(40, 0, "q", "x"))


PLANE = {"i": 64, "j": 64, "k": 64, "l": 64, "d": 64, "p": 15, "r": 15, "h": 2}


@nk.diagram("h i j d, h k l d, h k l d, h p r -> h i j d", sizes=PLANE)
def plane(Q, K, V, B):
    """Biases over a plane, by both relative positions."""
    at = {
        "p": nk.index("k") - nk.index("i") + nk.size("p") // 2,
        "r": nk.index("l") - nk.index("j") + nk.size("r") // 2,
    }
    seen = nk.neighborhood((5, 7), queries="i j", keys="k l")
    return attention(Q, K, V, nk.take(B, **at), seen, "k l")


@nk.diagram("h t d, h p -> h t d", sizes={"h": 2, "t": 2048, "d": 64, "p": 65})
def oneself(X, B):
    """Self-attention: the input is read under two names, the table under one."""
    K = nk.rename(X, t="x")
    return attention(X, K, K, between(B, "t"), nk.sliding(31, 16, "t", "x"))


@nk.diagram("q d, x d, x d, x:int -> q d", sizes=LONG)
def shuffled(Q, K, V, I):  # noqa: E741
    """Keys and values in an order that is an input."""
    return attention(Q, nk.take(K, x=I), nk.take(V, x=I))


@nk.diagram("t:int, v d, d e -> t e", sizes={"t": 512, "v": 2048, "d": 64, "e": 64})
def embedded(I, T, W):  # noqa: E741
    """Rows of a table by their numbers, times a matrix."""
    return nk.contract(nk.take(T, v=I), W, over="d")


@nk.diagram("n x, n p, p -> n x", sizes={"n": 512, "x": 512, "p": 4})
def scaled(X, T, U):
    """One entry of a table for each row, and one for all."""
    return nk.softmax(X * nk.take(T, p=1) + nk.take(U, p=2), over="x")


CASES: list[tuple[nk.Diagram, Mapping[str, int]]] = [
    (relative, SHORT | {"p": 299}),
    (relative, SHORT | {"q": 70, "p": 101, "h": 3}),
    (shared, SHORT),
    (sliding, SHORT),
    (neighborhood, SHORT),
    (grouped, SHORT | {"q": 71, "x": 71}),
    (plane, {"i": 9, "j": 21, "k": 9, "l": 21, "d": 16}),
    (oneself, {"t": 150, "x": 150, "d": 16}),
    (shuffled, SHORT | {"q": 70}),
    (embedded, {"t": 100, "v": 77, "d": 16, "e": 19}),
    (scaled, {"n": 100, "x": 77, "p": 3}),
]


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize(("diagram", "sizes"), CASES, ids=lambda c: getattr(c, "name", "at"))
def test_values_and_bytes(diagram: nk.Diagram, sizes: Mapping[str, int], dtype: str) -> None:
    plan = nk.derive(diagram, dtype=dtype)
    plan.check(sizes=sizes, resources=False).raise_if_wrong()


@pytest.mark.parametrize("on", ["a100", "h100"])
@pytest.mark.parametrize("diagram", [relative, sliding, shuffled], ids=lambda d: d.name)
def test_shared_memory(diagram: nk.Diagram, on: str) -> None:
    rows = compiled(nk.derive(diagram, on=on, dtype="bf16"))
    assert all(row.ok for row in rows), rows


@pytest.mark.parametrize("diagram", [sliding, embedded, scaled], ids=lambda d: d.name)
def test_the_sizes_of_a_check(diagram: nk.Diagram) -> None:
    """Sizes that divide the tiles, primes, an input transposed in memory and a batch axis."""
    plan = nk.derive(diagram, dtype="bf16")
    plan.check(resources=False).raise_if_wrong()


def test_a_table_by_itself() -> None:
    """One reading of a table, and another of the same table at its own positions."""

    @nk.diagram("n p -> n p", sizes={"n": 64, "p": 64})
    def steps(T):
        return T - nk.take(T, p=nk.index("p") - 1)

    nk.derive(steps, dtype="fp32").check(resources=False).raise_if_wrong()


@pytest.mark.parametrize("diagram", [relative, neighborhood, plane, shuffled], ids=lambda d: d.name)
def test_the_law_of_the_fold(diagram: nk.Diagram) -> None:
    (k,) = nk.derive(diagram, dtype="fp32", materialise=[]).kernels
    assert k.choice.kernel.stream.axes
    assert_law(k.choice.kernel, trials=5)


@settings(max_examples=8)
@given(st.sampled_from(CASES), st.data())
def test_traffic_of_any_tiles(case: tuple[nk.Diagram, Mapping[str, int]], data: Any) -> None:
    """The loop program in numpy counts what is predicted, for ragged tiles of any size."""
    diagram, sizes = case
    plan = nk.derive(diagram, dtype="fp32", materialise=[])
    sizes = diagram.check_sizes({**plan.sizes, **sizes})
    (k,) = plan.kernels
    kernel, rng = k.choice.kernel, np.random.default_rng(0)
    tiles = {a: data.draw(st.integers(5, 60), a) for a in kernel.axes}
    tiles |= {a: sizes[a] for a in kernel.whole}
    arrays = {
        str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes])
        if n.kind == "real"
        else whole_numbers(diagram, n, [sizes[a] for a in n.axes], sizes, rng)
        for n in diagram.inputs
    }
    run = execute(kernel, arrays, sizes, tiles)
    wanted = diagram.evaluate(*arrays.values())
    np.testing.assert_allclose(run.outputs[diagram.outputs[0].name], wanted, rtol=1e-9, atol=1e-12)
    bind = {table_of(a.leaf): arrays[a.tensor] for a in kernel.reads}
    predicted: dict[Any, int] = {}
    for t in Traffic(kernel).parts:
        key = t.tensor, t.direction
        predicted[key] = predicted.get(key, 0) + t.values(sizes, tiles, bind)
    assert predicted == run.moved


def test_what_is_moved_in_symbols() -> None:
    """A table is read once for every pair, but it is small: only its own size is compulsory."""
    (k,) = nk.derive(relative, dtype="bf16").kernels
    moved = k.H.per_tensor["B"]
    assert str(moved) == "h*q*x"
    (table,) = [t for t in k.H.parts if t.tensor == "B"]
    assert str(table.size) == "h*p"


def test_heads_that_share_a_table_keep_their_products() -> None:
    """An axis that both sides of a product carry is not cut into tiles to share another reading."""
    (k,) = nk.derive(shared, sizes={"h": 16}, dtype="bf16").kernels
    assert k.tiles["h"] == 1
    assert "tl.dot" in k.written.source


def test_the_source_says_where_it_reads() -> None:
    (k,) = nk.derive(relative, dtype="bf16").kernels
    assert "B_p = tl.minimum(" in k.written.source
    assert "B_base + B_p * B_stride_p" in k.written.source
    assert "size_p" in [a.name for a in k.written.entry.arguments]


@nk.diagram("h q d, h x d, h x d, c:int -> h q d")
def same_document(Q: Any, K: Any, V: Any, C: Any) -> Any:
    S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
    seen = nk.take(C, c=nk.index("q")) == nk.take(C, c=nk.index("x"))
    return nk.contract(nk.softmax(nk.where(seen, S, -np.inf), over="x"), V, over="x")


def test_one_table_read_before_the_loop_and_in_it() -> None:
    """Two readings have two places; one name for both would change its shape in the loop."""
    sizes = {"h": 4, "q": 1024, "x": 1024, "c": 1024, "d": 64}
    plan = nk.derive(same_document, sizes=sizes, dtype="fp32")
    verdict = plan.check(sizes={"h": 2, "q": 40, "x": 37, "c": 39, "d": 24})
    verdict.raise_if_wrong()
    assert all(r.allocated for r in verdict.resources)


def test_warpgroups_that_read_one_table_along_their_rows_and_along_keys() -> None:
    """Each warpgroup reads the keys' places for itself, and the queries' once."""
    sizes = {"h": 16, "q": 4096, "x": 4096, "c": 4096, "d": 128}
    plan = nk.derive(same_document, sizes=sizes)
    assert plan.warpgroups
    verdict = plan.check(sizes={"h": 2, "q": 264, "x": 160, "c": 160, "d": 128}, resources=False)
    verdict.raise_if_wrong()
    assert "same_document, warpgroups" in str(verdict)
    assert not [r.note for r in compiled(plan) if r.arch == "sm_90" and not r.allocated]


@nk.diagram("x, x h -> x h, h")
def at_the_second(Y: Any, T: Any) -> Any:
    """Rows that one pass finds, and the next one computes with."""
    _, (_, second) = nk.topk(Y, 2, over="x")
    found = nk.take(T, x=second)
    return found * Y, found


def test_a_row_that_a_pass_found_is_read_once(forced: Callable[..., Plan]) -> None:
    """It was read in every chunk of the next pass, and once more behind it."""
    plan = forced(at_the_second, {"x": 11, "h": 3}, "x", passes=2)
    verdict = plan.check(sizes={"x": 11, "h": 3}, resources=False)
    assert verdict.ok, str(verdict)


@nk.diagram("b p, b p -> p", sizes={"b": 40, "p": 7})
def found_twice(X, Y):
    """A position of X where it is largest beside what Y has where X is least."""
    t = nk.take(Y, b=nk.argmin(X, over="b"))
    return nk.take(X, b=nk.argmax(X * t, over="b")) * t


def test_a_row_that_is_read_in_a_masked_tile_and_beside_it_is_read_once() -> None:
    nk.derive(found_twice, dtype="fp32").check().raise_if_wrong()
