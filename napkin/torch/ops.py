"""The operator that graphs call: `torch.compile` captures it whole, and infers its outputs.

Eager calls do not go through it, because torch's dispatcher costs more than a launch is worth.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any

import torch

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.torch.diagrams import attention_diagram, neighborhood_diagram
from napkin.torch.function import Function
from napkin.torch.prepared import Prepared, facts

BUILDERS: dict[str, Callable[..., Diagram]] = {
    "attention": attention_diagram,
    "neighborhood": neighborhood_diagram,
}
"""What builds the diagrams of a family from plain arguments, which then are in the key."""

_FUNCTIONS: dict[str, Function] = {}

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""Types of tensors that hold numbers: others stand for tensors, as in a graph."""

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
        family, bracket, rest = key.partition("(")
        if family not in BUILDERS or not bracket:
            raise InputError(
                f"the graph calls the diagram {key}, which this process has not seen; pass it to "
                "napkin.torch.compile before the graph runs"
            )
        try:
            built(family, *ast.literal_eval(bracket + rest))
        except (SyntaxError, TypeError, ValueError):
            raise InputError(
                f"the graph calls {key}, which is no call of {family}; capture it anew with this "
                "version of napkin"
            ) from None
    return _FUNCTIONS[key]


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


_LIBRARY.impl("run", _run, "CompositeExplicitAutograd")
torch.library.register_fake("napkin::run", _results, lib=_LIBRARY)
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
    key = (function, scalars, *map(facts, arrays))
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


def captured(name: str, arrays: Sequence[Any]) -> bool:
    """Whether a call on these tensors is captured in a graph, rather than run.

    Raises:
        InputError: one is no tensor, or requires gradients while these are being recorded.
    """
    recorded, plain = torch.is_grad_enabled(), True
    for t in arrays:
        if type(t) not in _PLAIN:
            plain = False
            if not isinstance(t, torch.Tensor):
                raise InputError(f"{name} takes torch tensors, not a {type(t).__name__}")
        if recorded and t.requires_grad:
            raise InputError(
                f"{name}: a tensor requires gradients, and there is no backward pass yet; call it "
                "under torch.no_grad(), or on tensors that are detached with .detach()"
            )
    return not plain or torch.compiler.is_compiling()
