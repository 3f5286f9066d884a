"""Names of users' diagrams and arrays that mean something else in a kernel's file."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

import napkin as nk
from napkin.plan.standalone import standalone

SIZES = {"n": 5, "x": 70}


def most(name: str, array: str = "X") -> nk.Diagram:
    """The largest value of each row, whose kernel has a loop and an infinity."""

    def body(*arrays: Any) -> Any:
        return nk.reduce(arrays[0] * 2.0, "max", over="x")

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    body.__signature__ = inspect.Signature([inspect.Parameter(array, kind)])  # type: ignore
    return nk.diagram("n x -> n", name=name, sizes=SIZES)(body)


NAMES = [
    "float", "int", "range", "max", "print", "tl", "triton", "erf", "largest", "gl", "X", "n",
    "_", "__init__", "__name__", "__builtins__", "self", "\ufb01", "\u2160", "é", "a" * 128,
]  # fmt: skip


@pytest.mark.parametrize("name", NAMES, ids=lambda n: ascii(n[:20]))
def test_a_diagram_of_any_name_runs(name: str) -> None:
    plan = nk.derive(most(name), dtype="fp32")
    X = np.arange(350.0).reshape(5, 70)
    np.testing.assert_allclose(plan(X), 2 * X.max(1))


def test_names_that_python_reads_alike_are_one() -> None:
    assert most("\ufb01").name == "fi"
    assert most("f").named("\ufb01x").name == "fix"
    assert "\ufb01" not in nk.derive(most("f", "\ufb01")).source
    X = np.arange(350.0).reshape(5, 70)
    np.testing.assert_allclose(nk.derive(most("f", "\ufb01"), dtype="fp32")(X), 2 * X.max(1))


RESERVED = """
def function(X, sum):
    \U0001d427\U0001d428\U0001d42d = nk.contract(nk.softmax(X, over="x"), sum, over="x")
    return nk.softmax(\U0001d427\U0001d428\U0001d42d, over="n")
"""


def test_a_reserved_word_in_other_letters_names_no_array() -> None:
    """A variable that is written in bold letters, `not`, was one of the file that runs alone."""
    space: dict[str, Any] = {"nk": nk}
    exec(RESERVED, space)
    diagram = nk.diagram("n x, x -> n")(space["function"])
    assert not {"not"} & {*diagram.names.values()}
    plan = nk.derive(diagram, "h100", {"n": 100_000, "x": 1000})
    assert len(plan.kernels) > 1
    compile(standalone(plan)["kernel.py"], "kernel.py", "exec")
    with pytest.raises(nk.InputError, match="'if' is not a valid parameter name"):
        most("f", "\uff49f")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("lambda", "is a reserved word of Python"),
        ("\uff4cambda", "name='lambda' is a reserved word of Python"),
        ("a b", "is no name for the kernel's function"),
        ('a"""', "is no name for the kernel's function"),
        ("a\nb", "is no name for the kernel's function"),
        ("{a}", "is no name for the kernel's function"),
        ("a" * 129, r"name='aaaaaaaaaaaaaaaaaaaa'\.\.\. has 129 characters; write at most 128"),
    ],
    ids=lambda x: ascii(x[:12]),
)
def test_names_that_no_kernel_can_have(name: str, said: str) -> None:
    with pytest.raises(nk.InputError, match=said):
        most(name)
    with pytest.raises(nk.InputError, match=said):
        most("f").named(name)


@pytest.mark.parametrize(
    ("name", "function"), [("gr\u00f6\u00dfe", "groudfe"), ("\u00eff", "if_kernel")], ids=ascii
)
def test_the_compiler_takes_a_name_beyond_ascii(name: str, function: str) -> None:
    """Triton's compiler refuses a function of that name, which the interpreter runs."""
    plan = nk.derive(most(name), dtype="fp32")
    assert plan.name == name
    assert f"def {function}(" in plan.source
    plan.check(sizes={"n": 3, "x": 5}).raise_if_wrong()


def test_a_function_whose_name_is_none() -> None:
    def body(X: Any) -> Any:
        return X * 2.0

    for given, wanted in (("a b", "diagram"), ("\uff4cambda", "diagram"), ("\ufb01", "fi")):
        body.__name__ = given
        assert nk.diagram("n -> n")(body).name == wanted
