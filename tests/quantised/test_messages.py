"""What is wrong with a storage type is said at once: what, where, and what to write instead."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import napkin as nk
from napkin.cli import app
from napkin.diagram.library import load
from napkin.errors import InputError, Refusal


@nk.diagram("a g b, c g b:int4, g c -> a c", sizes={"a": 16, "g": 2, "b": 32, "c": 16})
def linear(X: Any, W: Any, scale: Any) -> Any:
    return nk.contract(X, W * scale, over="g b")


@nk.diagram("p e:int4, n:int -> n e", sizes={"p": 8, "e": 8, "n": 4})
def looked_up(T: Any, N: Any) -> Any:
    return nk.cast(nk.take(T, p=N), "fp32")


@nk.diagram("e p:int4, n:int -> n e", sizes={"p": 8, "e": 8, "n": 4})
def looked_up_along_bytes(T: Any, N: Any) -> Any:
    return nk.cast(nk.take(T, p=N), "fp32")


@nk.diagram("q d, d x:int4, x d -> q d", sizes={"q": 64, "x": 64, "d": 32})
def keys_packed_along_positions(Q: Any, K: Any, V: Any) -> Any:
    S = nk.contract(Q, K, over="d")
    return nk.contract(nk.softmax(S, over="x", keys=nk.causal("q", "x")), V, over="x")


@nk.diagram("a b:int4 -> a b", sizes={"a": 4, "b": 8})
def as_it_is(X: Any) -> Any:
    return X


X, SCALE = np.ones((16, 2, 32)), np.ones((2, 16))
WRONG = {
    "an odd row": (
        lambda: nk.derive(linear, sizes={"b": 33}),
        "sizes: b=33, but W is int4, two values to a byte along b; it must be even",
    ),
    "numbers out of range": (
        lambda: linear.evaluate(X, np.full((16, 2, 32), 9), SCALE),
        "W holds whole numbers in int4, as ':int4' in the signature says, not 9",
    ),
    "values where bytes are meant": (
        lambda: linear.evaluate(X, np.ones((16, 2, 32), np.int8), SCALE),
        "axis b is 32 in X but 64 in W",
    ),
    "an unknown type": (
        lambda: nk.diagram("a b:int3 -> a b")(lambda A: A),
        "'int3' is neither an item type (real, int, bool) nor a storage type; did you mean 'int",
    ),
    "a type of an output": (
        lambda: nk.diagram("a b -> a b:fp8")(lambda A: A),
        "'fp8' stands behind an output; write nk.cast(..., 'fp8')",
    ),
    "a packed scalar": (
        lambda: nk.diagram("():int4 -> ()")(lambda A: A),
        "int4 lies two to a byte along an axis, and () has none",
    ),
    "an input that is not there": (
        lambda: linear.stored(Y="fp8"),
        "linear has no input 'Y'; known: X, W, scale",
    ),
    "a type that is not there": (
        lambda: linear.stored(X="fp9"),
        "linear: X as 'fp9': no such storage type; did you mean 'fp8'?",
    ),
    "another kind of numbers": (
        lambda: linear.stored(X="int8"),
        "X holds values of kind 'real', and int8 holds 'int'; say so in the signature, as in "
        "'a g b:int8'",
    ),
    "a packed output": (
        lambda: nk.derive(as_it_is),
        "output O would be stored in int4, which kernels only read; write nk.cast(..., 'int32')",
    ),
}
REFUSED = {
    "fp8 before Ada": (
        lambda: nk.derive(load("attention_fp8_kv"), "a100"),
        "storage fp8 is refused at K on a100: Triton compiles float8_e4m3fn from sm_89 on, not for "
        "sm_80; instead, store K in int8",
    ),
    "an output in fp8": (
        lambda: nk.derive(nk.diagram("a b -> a b", sizes={"a": 8, "b": 8})(to_fp8), "a100"),
        "storage fp8 is refused at O on a100: Triton compiles float8_e4m3fn from sm_89 on, not for "
        "sm_80; instead, cast to bf16, or derive for h100",
    ),
    "a cast to fp8 without a name": (
        lambda: nk.derive(nk.diagram("a b -> a", sizes={"a": 8, "b": 8})(summed_fp8), "a100"),
        "storage fp8 is refused at a cast on a100: Triton compiles float8_e4m3fn from sm_89 on, "
        "not for sm_80; instead, cast to bf16, or derive for h100",
    ),
    "bytes at computed positions": (
        lambda: nk.derive(looked_up_along_bytes),
        "storage int4 is refused at T [e p]: two values share a byte along p, along which a "
        "position says where it is read; instead, put another axis of T last, or store it in int8",
    ),
    "bytes at positions of their own": (
        lambda: nk.derive(nk.diagram("d x:int4, d x:int -> d x", sizes={"d": 10, "x": 2})(rows_of)),
        "storage int4 is refused at E [d x]: two values share a byte along x, and the positions "
        "where it is read differ along that; instead, put another axis of E last, or store it in "
        "int8",
    ),
    "bytes of a key set": (
        lambda: nk.derive(keys_packed_along_positions),
        "two values share a byte along x, along which a key set says where it is read",
    ),
}


def to_fp8(A: Any) -> Any:
    return nk.cast(2.0 * A, "fp8")


def rows_of(E: Any, P: Any) -> Any:
    return nk.cast(nk.take(E, d=P), "int32")


def summed_fp8(A: Any) -> Any:
    return nk.reduce(nk.cast(2.0 * A, "fp8"), "sum", over="b")


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name: str) -> None:
    call, said = WRONG[name]
    with pytest.raises(InputError) as found:
        call()
    assert said in str(found.value)


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    call, said = REFUSED[name]
    with pytest.raises(Refusal) as found:
        call()
    assert said in str(found.value)


def test_rows_of_packed_tables_are_looked_up() -> None:
    rng = np.random.default_rng(0)
    table, rows = rng.integers(-8, 8, size=(8, 8)), np.array([3, 0, 7, 3])
    np.testing.assert_array_equal(nk.derive(looked_up)(nk.pack(table), rows), table[rows])


def test_a_signature_says_how_inputs_are_stored() -> None:
    assert str(linear.signature) == "a g b, c g b:int4, g c -> a c"
    assert str(load("attention").stored(K="fp8").signature) == "q d, x d:fp8, x d -> q d"
    assert str(linear.weave("h").signature) == "h a g b, h c g b:int4, h g c -> h a c"
    assert str(linear.stored(W="int8").stored(W="int32").signature.inputs[1]) == "c g b:int"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("K", "'K' has no '='; write --storage Q=fp8,K=fp8,V=fp16"),
        ("K=fp8,K=bf16", "K is given twice"),
        ("K=fp7", "no such storage type"),
    ],
)
def test_the_option(given: str, said: str) -> None:
    found = CliRunner().invoke(app, ["derive", "attention", "--storage", given])
    assert isinstance(found.exception, InputError)
    assert said in str(found.exception)
