"""Results that are stored along an axis which they do not carry: a weave into other inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import napkin as nk
from napkin.derive.label import label
from napkin.derive.prepare import prepare
from napkin.errors import Refusal


@nk.diagram("k c, n d -> k, n")
def sums(Y: Any, A: Any) -> Any:
    return nk.reduce(Y, "sum", over="c"), nk.reduce(A, "sum", over="d")


WOVEN = sums.weave("w", into="Y")


def test_such_an_axis_is_streamed() -> None:
    """Each chunk stores its positions."""
    ready = prepare(WOVEN)
    kernel = label("sums", ready.outputs, ready.names, streamed="w")
    assert not kernel.stream.tails
    assert [e.output for e in kernel.stream.passes[0].emits] == [o.name for o in ready.outputs]


def test_a_term_without_such_an_axis_is_not_streamed_along_it() -> None:
    """The result would be stored after the loop, for the last chunk alone."""
    ready = prepare(WOVEN)
    bare = prepare(sums).outputs
    outputs = [replace(o, node=b.node) for o, b in zip(ready.outputs, bare, strict=True)]
    with pytest.raises(Refusal, match="it is stored along w and is the same everywhere along it"):
        label("sums", outputs[1:], ready.names, streamed="w")


def test_such_an_axis_is_held_whole_where_it_is_not_grouped() -> None:
    ready = prepare(WOVEN)
    second = ready.outputs[1:]
    kernel = label("second", second, ready.names, streamed="d", group=())
    assert "w" in kernel.whole
    assert "w" in label("second", second, ready.names, streamed="d").group
