"""Additions at places, in the order of these (`napkin.rewrite.sorted_places`)."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.cut.points import points_of
from napkin.derive.prepare import prepare
from napkin.diagram.diagram import Diagram
from napkin.ir.names import with_named
from napkin.keys.typical import Needed, needed, typical
from napkin.rewrite.sorted_places import SORTED


def gradient(signature: str, body: Any, wrt: str = "T") -> Diagram:
    """The gradient of a function of a table."""
    return nk.gradient(nk.diagram(signature, name="rows")(body), wrt=wrt)


def looked_up(T: Any, at: Any) -> Any:
    return nk.take(T, v=at)


def at_two_places(T: Any, at: Any, to: Any) -> Any:
    return nk.take(T, v=at, w=to)


def weighted(T: Any, at: Any, W: Any) -> Any:
    return nk.contract(nk.take(T, v=at), W, over="k")


def at_the_largest(T: Any, L: Any) -> Any:
    return nk.take(T, v=nk.argmax(L, over="e"))


def in_blocks(T: Any, at: Any, X: Any) -> Any:
    return nk.contract(nk.take(T, v=at), X, over="m")


def at_rows_of_rows(T: Any, at: Any, to: Any) -> Any:
    return nk.take(T, v=nk.take(at, p=to))


LARGE = dict(v=32768, d=512, t=4096)
CASES: dict[str, tuple[Diagram, dict[str, int]]] = {
    "one axis": (gradient("v d, t:int -> t d", looked_up), LARGE),
    "two axes": (gradient("v d, b t:int -> b t d", looked_up), {**LARGE, "t": 1024, "b": 4}),
    "heads": (gradient("h v d, h t:int -> h t d", looked_up), {**LARGE, "h": 4}),
    "two places": (
        gradient("v w d, t:int, t:int -> t d", at_two_places),
        {**LARGE, "v": 256, "w": 128},
    ),
    "weights": (
        gradient("v d, t k:int, t k -> t d", weighted),
        {**LARGE, "t": 2048, "k": 2},
    ),
    "a computed place": (
        gradient("v d, t e -> t d", at_the_largest),
        {**LARGE, "e": 32},
    ),
    "blocks": (
        gradient("v m d, t:int, t s m -> t s d", in_blocks),
        {"v": 256, "m": 256, "d": 256, "t": 1024, "s": 8},
    ),
    "rows of rows": (
        gradient("v d, p:int, t:int -> t d", at_rows_of_rows),
        {**LARGE, "p": 512},
    ),
}


def small(d: Diagram, rng: np.random.Generator) -> dict[str, int]:
    """Sizes of a few positions, of axes of one size the same."""
    drawn = {a: int(rng.integers(1, 12)) for a in d.axes}
    return {a: drawn[d.same_size.get(a, a)] for a in d.axes}


def inputs(d: Diagram, sizes: dict[str, int], rng: np.random.Generator, most: int) -> list[Any]:
    """Arrays for a diagram; places reach past both ends of the table."""
    shapes = [[sizes[a] for a in n.axes] for n in d.inputs]
    return [
        rng.normal(size=s).astype("f4")
        if n.kind == "real"
        else rng.integers(-1, most + 1, size=s, dtype="i4")
        for n, s in zip(d.inputs, shapes, strict=True)
    ]


@pytest.mark.parametrize("name", CASES)
def test_a_plan_for_many_positions_has_the_values_of_few(name: str) -> None:
    d, sizes = CASES[name]
    plan = nk.derive(d, on="h200", sizes=sizes, dtype="fp32")
    assert "in_order" in str(plan)
    rng = np.random.default_rng(0)
    for most in (12, 2, 0):  # many places, few, and one that all positions share
        own = small(d, rng)
        arrays = inputs(d, own, rng, most)
        found = plan(*arrays)
        wanted = d.evaluate(*arrays)
        assert np.linalg.norm(found - wanted) <= 1e-6 * np.linalg.norm(wanted)


@pytest.mark.parametrize("name", CASES)
def test_of_no_positions_nothing_is_read(name: str) -> None:
    """There is no last place to clamp to: the search read what lies before an empty array."""
    d, sizes = CASES[name]
    plan = nk.derive(d, on="h200", sizes=sizes, dtype="fp32")
    rng = np.random.default_rng(0)
    arrays = inputs(d, {**small(d, rng), "t": 0}, rng, 5)
    assert np.array_equal(plan(*arrays), d.evaluate(*arrays))


@pytest.mark.parametrize("name", CASES)
def test_searches_are_loops(name: str) -> None:
    """Written out, those of two places took the compiler 100 seconds."""
    d, sizes = CASES[name]
    source = nk.derive(d, on="h200", sizes=sizes, dtype="fp32").source
    assert source.count(">> turn") == 2


@pytest.mark.parametrize("name", ["two axes", "two places"])
def test_bytes_are_as_predicted(name: str) -> None:
    d, sizes = CASES[name]
    plan = nk.derive(d, on="h200", sizes=sizes, dtype="bf16")
    assert "in_order" in str(plan)
    verdict = plan.check(
        sizes={**sizes, "v": 37, "d": 16, "t": 29, **({"w": 3} if "w" in sizes else {})}
    )
    assert verdict.ok, str(verdict)


def test_each_row_is_read_once() -> None:
    d, sizes = CASES["one axis"]
    plan = nk.derive(d, on="h200", sizes=sizes, dtype="bf16")
    rows = plan.kernels[-1].bytes["dO", "read"]
    assert rows < 4 * 2 * sizes["t"] * sizes["d"]  # tiles of places share some
    assert sum(k.choice.time.seconds for k in plan.kernels) < 100e-6


@pytest.mark.parametrize(
    ("signature", "body"),
    [
        pytest.param(
            "x d, t x:int -> t d",
            lambda T, at: nk.reduce(nk.where(nk.index("x") == at, T, 0.0), "sum", over="x"),
            id="the place that is compared is summed over",
        ),
        pytest.param(
            "v t, t:int -> v",
            lambda X, at: nk.reduce(nk.where(nk.index("v") == at, X, 0.0), "sum", over="t"),
            id="what is added carries the place",
        ),
        pytest.param(
            "t, v -> v",
            lambda X, Y: (
                nk.reduce(nk.where(nk.index("t") // 2 == nk.index("v"), X, 0.0), "sum", over="t")
                + Y
            ),
            id="places are positions, and no input",
        ),
        pytest.param(
            "t, t:int, v -> v",
            lambda X, at, Y: nk.reduce(nk.where(nk.index("v") == at, X, 1.0), "sum", over="t") + Y,
            id="something is added elsewhere",
        ),
    ],
)
def test_what_is_no_addition_at_places(signature: str, body: Any) -> None:
    terms = [o.node for o in prepare(nk.diagram(signature, name="other")(body)).outputs]
    assert not list(SORTED.matches(terms, {}))


def test_bounds_that_are_computed_of_what_is_stored_are_stored() -> None:
    d, sizes = CASES["one axis"]
    ready = prepare(d)
    (found,) = SORTED.matches([o.node for o in ready.outputs], sizes)
    outputs = [type(o)(o.name, found.made, o.axes) for o in ready.outputs]
    (keys,) = (n for n in found.made.args[0].args if n.op == "keys")
    assert set(keys.args) <= points_of(outputs, with_named(sizes, found.same_size))


def test_typical_bounds_that_are_read_cut_the_keys_into_equal_pieces() -> None:
    from napkin.ir.node import node

    first, end = (node("input", params=(t,), axes=("v",), kind="int") for t in ("F", "E"))
    assert needed((first, end)) == {first: Needed("starts"), end: Needed("ends")}
    found = typical((first, end), {"v": 4}, keys=10)
    assert found[first].tolist() == [0, 2, 5, 7]
    assert found[end].tolist() == [2, 5, 7, 10]


def test_sizes_of_axes_that_rewrites_name() -> None:
    sizes = {"b": 2, "t": 3}
    named = with_named(sizes, {"u": "t", "b_t_in_order": "b t", "w": "u b"})
    assert named == {"b": 2, "t": 3, "u": 3, "b_t_in_order": 6, "w": 6}
