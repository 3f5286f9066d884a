"""The operator that graphs call: `torch.compile` captures it whole, and infers its outputs.

Eager calls do not go through it, because torch's dispatcher costs more than a launch is worth.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.run.prepared import Prepared, facts
from napkin.torch.diagrams import attention_diagram, neighborhood_diagram
from napkin.torch.function import Function
from napkin.torch.given import check_gradients, told_apart

BUILDERS: dict[str, Callable[..., Diagram]] = {
    "attention": attention_diagram,
    "neighborhood": neighborhood_diagram,
}
"""What builds the diagrams of a family from plain arguments, which then are in the key."""

_FUNCTIONS: dict[str, Function] = {}

MOST = 4096
"""Launches that are remembered for one kind of call; then it starts again."""


def built(family: str, *arguments: Any) -> Function:
    """The function of a family for these arguments: strings, numbers, and tuples of them."""
    key = f"{family}{arguments!r}"
    if key not in _FUNCTIONS:
        _FUNCTIONS[key] = Function(BUILDERS[family](*arguments), key)
    return _FUNCTIONS[key]


def registered(function: Function) -> Function:
    """The function, known to graphs by its key."""
    return _FUNCTIONS.setdefault(function.key, function)


def called(key: str) -> Function:
    """The function of a key: a registered one, or one of a family, built anew in a process that
    runs a graph that was captured in another.

    Raises:
        InputError: it is neither.
    """
    if key not in _FUNCTIONS:
        try:
            _FUNCTIONS[key] = _mapped(key) if key.startswith(_MAPPED) else _anew(key)
        except (SyntaxError, TypeError, ValueError, IndexError, RecursionError, MemoryError) as why:
            if isinstance(why, InputError):
                raise
            raise InputError(
                f"the graph calls {key[:60]!r}, which is no call of this version of napkin; "
                "capture it anew"
            ) from None
    return _FUNCTIONS[key]


def _anew(key: str) -> Function:
    """The function of a family that a key names."""
    family, bracket, rest = key.partition("(")
    if family not in BUILDERS or not bracket:
        raise InputError(
            f"the graph calls the diagram {key[:60]!r}, which this process has not seen; pass it "
            "to napkin.torch.compile before the graph runs"
        )
    return built(family, *ast.literal_eval(bracket + rest))


_MAPPED = "mapped "
"""How the key of a function begins that `torch.vmap` maps: the inputs that it maps over follow, and
then the key of the function."""


def _mapped(key: str) -> Function:
    """The function of a key, mapped over some of its inputs: weaved, in the words of diagrams."""
    places, _, inner = key.removeprefix(_MAPPED).partition(" ")
    diagram = called(inner).diagram
    names = [str(n.params[0]) for n in diagram.inputs]
    axis = next(a for a in map("v{}".format, itertools.count()) if a not in diagram.axes)
    return Function(diagram.weave(axis, " ".join(names[int(i)] for i in places.split(","))), key)


_LIBRARY = torch.library.Library("napkin", "FRAGMENT")
_LIBRARY.define(
    "run(Tensor[] arrays, str key, float[] scalars) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)


# `torch.library.custom_op` would look at every call for gradients and for outputs that are inputs:
# 17 us a call, and 5 as it is (torch 2.13, CPU).
def _run(arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]) -> list[torch.Tensor]:
    """The outputs of a diagram."""
    out = warm(called(key), arrays, tuple(scalars))(arrays)
    # Equal outputs are one tensor, but a graph's operator has to give each its own.
    first = {id(t): i for i, t in reversed(list(enumerate(out)))}
    return [t if first[id(t)] == i else t.clone() for i, t in enumerate(out)]


def _results(
    arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]
) -> list[torch.Tensor]:
    """Empty tensors like them."""
    return called(key).results(arrays)


def _below_autograd(
    arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]
) -> list[torch.Tensor]:
    """The outputs, where no derivative is asked for: without a kernel for autograd, torch would
    give none and say nothing."""
    check_gradients(called(key).diagram.name, arrays)
    with torch._C._AutoDispatchBelowAutograd():  # pyright: ignore
        return run(arrays, key, scalars)


def _each(
    info: Any, dims: Any, arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]
) -> tuple[list[torch.Tensor], list[int]]:
    """The outputs for each position of what `torch.vmap` maps over."""
    over = [(i, at) for i, at in enumerate(dims[0]) if at is not None]
    moved = list(arrays)
    for i, at in over:
        moved[i] = arrays[i].movedim(at, 0)
    out = run(moved, f"{_MAPPED}{','.join(str(i) for i, _ in over)} {key}", scalars)
    return out, [0] * len(out)


_LIBRARY.impl("run", _run, "CompositeExplicitAutograd")
_LIBRARY.impl("run", _below_autograd, "Autograd")
torch.library.register_fake("napkin::run", _results, lib=_LIBRARY)
torch.library.register_vmap("napkin::run", _each, lib=_LIBRARY)
run: Callable[..., list[torch.Tensor]] = torch.ops.napkin.run.default


def graph_call(
    family: str,
    arguments: tuple[Any, ...],
    arrays: Sequence[torch.Tensor],
    scalars: Sequence[float],
) -> list[torch.Tensor]:
    """A family's function as a node of the graph that is being captured."""
    return run(arrays, f"{family}{arguments!r}", scalars)


_WARM: dict[tuple[Any, ...], Prepared] = {}


def warm(
    function: Function, arrays: Sequence[torch.Tensor], scalars: tuple[float, ...]
) -> Prepared:
    """What runs a function on tensors like these; worked out once for each kind of them."""
    key = (function, told_apart(scalars), *map(facts, arrays))
    found = _WARM.get(key)
    if found is None:
        named = dict(zip(function.diagram.scalars, scalars, strict=True))
        found = remember(_WARM, key, function.prepare(arrays, named))
    return found


def remember(table: dict[Any, Prepared], key: Any, prepared: Prepared) -> Prepared:
    """Keep `prepared`, among not too many."""
    if len(table) >= MOST:
        table.clear()
    table[key] = prepared
    return prepared
