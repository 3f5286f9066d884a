"""Diagrams of diagrams: names, scalars and item types of what one gives to another."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import napkin as nk


def scaled(X: Any, s: Any = 2.0) -> Any:
    return X * s


def shifted(Y: Any, s: Any = 3.0) -> Any:
    return Y + s


def named(Z: Any) -> Any:
    X = Z + 1
    return X


def two_states(h: Any, c: Any) -> Any:
    return h + c


THREE: Any = 3
WRONG: Any = 1.5
TWO: Any = two_states
halved = nk.diagram("a:int -> a")(lambda N: N // 2)
inverted = nk.diagram("a:bool -> a")(lambda B: ~B)
doubled = nk.diagram("a -> a", sizes={"a": 4})(scaled)


def test_only_diagrams_are_composed() -> None:
    doubled = nk.diagram("a -> a")(scaled)
    with pytest.raises(nk.InputError, match=r"^scaled >> 3: the right side is no diagram; put @nk"):
        _ = doubled >> THREE


def test_a_name_is_one_thing_in_diagrams_in_a_row() -> None:
    row = doubled >> nk.diagram("a -> a")(named)
    assert [o.name for o in row.outputs] == ["X2"]
    assert (nk.derive(row, dtype="fp32")(np.ones(4)) == 3).all()
    with pytest.raises(nk.InputError, match="s is 2 in the one and 3 in the other by default"):
        _ = doubled >> nk.diagram("a -> a")(shifted)
    with pytest.raises(nk.InputError, match="X is an input of the one and a scalar of the other"):
        _ = doubled >> nk.diagram("a -> a")(lambda Y, X=2.0: Y * X)
    assert (doubled >> doubled).evaluate(np.ones(4), s=3.0).tolist() == [9.0] * 4


@nk.diagram("q -> q")
def mixed(X: Any) -> Any:
    Y = nk.rename(X, q="x")
    return nk.contract(nk.softmax(X * Y, over="x"), Y, over="x")


@nk.diagram("q x -> q")
def squares(X: Any) -> Any:
    return nk.reduce(X * X, "sum", over="x")


def blur(signature: str, window: int) -> nk.Diagram:
    axis, made = signature.split(" -> ")

    def blurred(X: Any) -> Any:
        places = nk.slide(X, over=axis, into=f"{made} u", window=window)
        return nk.reduce(places, "sum", over="u")

    return nk.diagram(signature)(blurred)


def test_an_axis_is_one_thing_in_diagrams_in_a_row() -> None:
    x = r"squares >> mixed: x is an axis of its own in the one and q under another name in the"
    with pytest.raises(nk.InputError, match=x):
        _ = squares >> mixed
    u = "u is the 3 places of a window in the one and the 2 places of a window in the other; give"
    with pytest.raises(nk.InputError, match=u):
        _ = blur("i -> p", 3) >> blur("p -> j", 2)
    with pytest.raises(nk.InputError, match="i is an axis of its own in the one and the windows"):
        _ = blur("i -> p", 3) >> blur("p -> i", 3)
    assert (blur("i -> p", 3) >> blur("p -> j", 3)).evaluate(np.ones(9)).tolist() == [9.0] * 5
    row, X = mixed >> mixed, np.linspace(-1, 1, 5)
    assert np.allclose(row.evaluate(X), mixed.evaluate(mixed.evaluate(X)))


def test_scalars_of_a_diagram_within_another_are_known_and_given() -> None:
    with pytest.raises(nk.InputError, match="scaled has no scalar 'z'"):
        nk.diagram("a -> a")(lambda X: doubled(X, z=3.0))
    asked = nk.diagram("a -> a", name="asked")(lambda X, s: X * s)
    with pytest.raises(nk.InputError, match="asked needs a value for the scalar s"):
        nk.diagram("a -> a")(lambda X: asked(X))
    whole = nk.diagram("a:int -> a")(lambda X, s: X * s)
    assert nk.diagram("a:int -> a")(lambda X: whole(X, s=3)).outputs[0].node.kind == "real"


def test_an_input_is_given_its_own_item_type() -> None:
    with pytest.raises(nk.InputError, match=r"N holds values of kind 'int', .* 'real'; write"):
        _ = doubled >> halved
    with pytest.raises(nk.InputError, match=r"B holds values of kind 'bool', .*; write X != 0"):
        nk.diagram("a:int -> a")(lambda X: inverted(X))
    for given in (halved, inverted):
        assert (given >> doubled).outputs[0].node.kind == "real"
    most = nk.diagram("a:int -> ()")(lambda X: nk.reduce(X, "max", over="a"))
    found = (inverted >> most).evaluate([True, False])
    assert (found, found.dtype.kind) == (1, "i")


def test_sizes_are_whole_numbers_of_numpy_too() -> None:
    eight: Any = np.int64(8)
    assert nk.derive(doubled, sizes={"a": eight}).sizes == {"a": 8}


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda X: nk.cumsum(X, along="a b"), "cumsum along 'a b': .* write along='a'"),
        (lambda X: nk.sort(X, along="a b"), "sort along 'a b': .* one axis"),
        (lambda X: X * nk.size("a b"), r"size\('a b'\): write one axis, such as 'a'"),
        (lambda X: X * nk.index(""), r"index\(''\): write one axis"),
        (lambda X: nk.scan(TWO, 0.0, along="b"), "does not take as many states"),
        (lambda X: nk.scan(THREE, 0.0, along="b"), "3, which is no function"),
        (lambda X: X << 2, r"have no <<; write X \* 2\*\*n"),
        (lambda X: divmod(X, 2), "have no divmod; write X // n and X % n"),
        (lambda X: nk.key_set("k", THREE), "k: 3 is no function"),
    ],
)
def test_what_is_wrong_is_refused_where_it_is_written(wrong: Any, says: str) -> None:
    with pytest.raises(nk.InputError, match=says):
        nk.diagram("a b -> a b")(wrong)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: nk.derive(WRONG), "which is no diagram"),
        (lambda: nk.derive(doubled, THREE), "machine 3 is no name"),
        (lambda: nk.derive(doubled, parts=THREE), "parts=3 is no dictionary"),
        (lambda: nk.derive(doubled, parts={"a": WRONG}), "a=1.5"),
        (lambda: nk.gradient(doubled, wrt=THREE), "write wrt='X'"),
    ],
)
def test_what_is_no_diagram_machine_or_number_is_refused(wrong: Any, says: str) -> None:
    with pytest.raises(nk.InputError, match=says):
        wrong()
