"""Errors are also those that Python's users expect."""

from __future__ import annotations

from typing import Any

import pytest

import napkin as nk
from napkin.diagram.library import load
from napkin.errors import NapkinError, NoSuchName, Refusal


def test_wrong_input_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="is not an axis name") as error:
        nk.diagram("Q d -> q")
    assert isinstance(error.value, nk.InputError)
    assert issubclass(NoSuchName, AttributeError)
    assert issubclass(NoSuchName, ValueError)


def test_a_type_that_is_no_name() -> None:
    with pytest.raises(nk.InputError, match=r"dtype \['bf16'\]: kernels store bf16, fp16, fp32"):
        nk.derive(load("softmax"), dtype=["bf16"])  # pyright: ignore

    with pytest.raises(nk.InputError, match=r"softmax: X as \[\]: no such storage type; known: "):
        load("softmax").stored(X=[])  # pyright: ignore
    with pytest.raises(nk.InputError, match=r"gradient: softmax has no input \[\]; known: X"):
        nk.gradient(load("softmax"), [[]])  # pyright: ignore


@pytest.mark.parametrize(("plans", "what"), [((), "needs a plan"), ((3,), "takes plans, not int")])
def test_what_is_no_plan(plans: Any, what: str) -> None:
    with pytest.raises(nk.InputError, match=f"comparison {what}; write one, as in nk.comparison"):
        nk.comparison(*plans)


def test_a_refusal_is_a_runtime_error() -> None:
    refusal = Refusal("stream x", "S", "it is sorted", "group q")
    assert isinstance(refusal, RuntimeError)
    assert isinstance(refusal, NapkinError)
    assert str(refusal) == "stream x is refused at S: it is sorted; instead, group q"


def test_a_file_that_is_wrong_is_told_as_itself(tmp_path: object) -> None:
    """Whatever catches errors of files does not catch what napkin says of them."""
    with pytest.raises(nk.InputError, match="is a folder; name a file in it"):
        load(f"{tmp_path}/")
    with pytest.raises(nk.InputError, match="is not a Python file"):
        load(f"{tmp_path}/a.txt:f")
