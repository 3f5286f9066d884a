"""How each language of kernels spells what statements use."""

import ast
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from napkin.errors import Refusal
from napkin.ir.operators import FUNCTIONS, POINTWISE
from napkin.lower import syntax as sx
from napkin.lower.spelling import GLUON, TRITON, Language

BOTH = pytest.mark.parametrize("lang", [TRITON, GLUON], ids=lambda x: x.name)


def test_a_word_is_one_of_the_module() -> None:
    assert [lang.spelt("exp2") for lang in (TRITON, GLUON)] == ["tl.exp2", "gl.exp2"]
    assert ast.unparse(GLUON("where", "test", 1, -2.5)) == "gl.where(test, 1, -2.5)"


def test_what_gluon_spells_otherwise() -> None:
    assert GLUON.spelt("sigmoid") == "sigmoid"
    assert GLUON.spelt("PropagateNan") == "tl.PropagateNan"
    assert TRITON.spelt("sigmoid") == "tl.sigmoid"


def test_what_gluon_lacks_is_refused() -> None:
    with pytest.raises(Refusal, match="Gluon has no dot") as refused:
        GLUON("dot", "a", "b")
    assert "leave the groups by themselves" in str(refused.value)
    assert TRITON.spelt("dot") == "tl.dot"


@BOTH
@pytest.mark.parametrize("name", sorted(POINTWISE))
def test_a_template_has_no_word_of_another_language(lang: Language, name: str) -> None:
    """Each operator is spelt in a language, or refused for a word that it lacks."""
    record = POINTWISE[name]
    other = GLUON.module if lang is TRITON else TRITON.module
    for text in (record.triton, *record.variants.values()):
        try:
            made = lang.filled(text, [sx.name(f"x{i}") for i in range(record.arity)])
        except Refusal:
            assert lang is GLUON
            continue
        shown = ast.unparse(made).replace("tl.PropagateNan", "")
        assert f"{other}." not in shown
        assert all(f"x{i}" in shown for i in range(record.arity))


@BOTH
def test_a_function_comes_with_those_that_it_calls(lang: Language) -> None:
    """And in alphabetical order, each once, whatever else is named."""
    FUNCTIONS["doubled"] = type(FUNCTIONS["power"])(
        "@triton.jit\ndef doubled(a, b):\n    return power(a, b) + tl.sigmoid(a)\n"
    )
    try:
        found = lang.functions(["doubled", "power", "x"])
    finally:
        del FUNCTIONS["doubled"]
    names = [text.split("def ")[1].split("(")[0] for text in found]
    lent = ["sigmoid"] if lang is GLUON else []
    assert names == ["doubled", "power", *lent]
    assert all(text.startswith(f"@{lang.name}.jit\n") for text in found)


def test_a_function_that_gluon_cannot_have_is_refused() -> None:
    with pytest.raises(Refusal, match="Gluon has no join"):
        GLUON.functions(["halves"])


@BOTH
def test_minus_zero_is_written_by_its_bits(lang: Language) -> None:
    shown = ast.unparse(lang.literal(-0.0))
    assert shown == f"{lang.module}.cast(-2147483648, {lang.module}.float32, bitcast=True)"
    assert ast.unparse(lang.literal(0.0)) == "0.0"


@given(st.lists(st.sampled_from(["+", "-", "*", "//", "%"]), min_size=1, max_size=5), st.data())
def test_what_follows_an_operator_is_done_from_the_left(
    ops: list[str], data: st.DataObject
) -> None:
    numbers = data.draw(st.lists(st.integers(1, 9), min_size=len(ops) + 1, max_size=len(ops) + 1))
    parts: list[Any] = [x for pair in zip(ops, numbers[1:], strict=True) for x in pair]
    shown = ast.unparse(sx.binary(numbers[0], *parts))
    wanted = numbers[0]
    for op, n in zip(ops, numbers[1:], strict=True):
        wanted = {"+": wanted + n, "-": wanted - n, "*": wanted * n, "//": wanted // n,
                  "%": wanted % n}[op]  # fmt: skip
    assert _value(ast.parse(shown, mode="eval").body) == wanted


def _value(tree: ast.expr) -> int:
    if isinstance(tree, ast.Constant):
        assert isinstance(tree.value, int)
        return tree.value
    if isinstance(tree, ast.UnaryOp):
        return -_value(tree.operand)
    assert isinstance(tree, ast.BinOp)
    a, b = _value(tree.left), _value(tree.right)
    made = {"Add": a + b, "Sub": a - b, "Mult": a * b, "FloorDiv": b and a // b, "Mod": b and a % b}
    return made[type(tree.op).__name__]
