"""Results that are stored along an axis which they do not carry: a weave into other inputs."""

from __future__ import annotations

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


def test_such_an_axis_is_not_streamed() -> None:
    """The result would be stored after the loop, for the last chunk alone."""
    ready = prepare(WOVEN)
    with pytest.raises(Refusal, match="it is stored along w and is the same everywhere along it"):
        label("sums", ready.outputs, ready.names, streamed="w")


def test_such_an_axis_is_held_whole_where_it_is_not_grouped() -> None:
    ready = prepare(WOVEN)
    second = [o for o in ready.outputs if "w" not in o.node.axes]
    kernel = label("second", second, ready.names, streamed="d", group=())
    assert "w" in kernel.whole
    assert "w" in label("second", second, ready.names, streamed="d").group
