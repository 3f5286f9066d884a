"""A result that is read from memory at a position so far is no running result."""

import pytest

import napkin as nk
from napkin.errors import Refusal
from napkin.moves.derivation import Derivation

SIZES = {"b": 5, "p": 3}


@nk.diagram("b p -> p", sizes=SIZES)
def nearest(x: nk.Array) -> nk.Array:
    """Weights by the distance from the least value, which is read where it lies."""
    t = nk.take(x, b=nk.argmin(x, over="b")) - x
    return nk.reduce(nk.softmax(t, over="b") * nk.index("b"), "sum", over="b")


def test_a_sum_is_not_held_by_what_each_chunk_would_read_again() -> None:
    start = Derivation.start(nearest)
    with pytest.raises(Refusal, match="it is by what is read at a position so far"):
        start.stream("b", hold=["z"])
    passes = start.stream("b", passes=2, hold=["z"]).kernel.stream.passes
    assert [[s.name for s in p.states] for p in passes] == [["low", "low2", "m", "z"], ["O"]]
