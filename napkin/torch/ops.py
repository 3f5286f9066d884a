"""The operator that graphs call: `torch.compile` captures it whole, and infers its outputs.

Eager calls do not go through it, because torch's dispatcher costs more than a launch is worth.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, TypeVar

import torch
from torch._functorch.utils import enable_single_level_autograd_function

from napkin.errors import InputError, NapkinError
from napkin.run.prepared import Prepared, facts
from napkin.torch.function import Function
from napkin.torch.given import beside_tensors, captured, check_tangents
from napkin.torch.keys import called, is_gradient, key_of, places_of

T = TypeVar("T")

MOST = 4096
"""Launches that are remembered for one kind of call; then it starts again."""


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


class _Recorded(torch.autograd.Function):
    """The operator where derivatives are recorded: its backward runs the gradient of its diagram,
    on the same arrays and the cotangents that arrive."""

    @staticmethod
    def forward(ctx: Any, key: str, scalars: Sequence[float], *arrays: torch.Tensor) -> Any:
        with _below_autograd():
            out = tuple(_executed(arrays, key, scalars))
        kept = _kept(key, _places(ctx.needs_input_grad[2:]))
        ctx.set_materialize_grads(False)
        ctx.call = key, scalars, kept
        ctx.save_for_backward(*arrays, *(out[i] for i in kept))
        return out

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        key, scalars, kept = ctx.call
        if is_gradient(key):
            raise InputError(
                f"{called(key).diagram.name}: a gradient of a gradient is asked for, and the "
                "backward pass has none; differentiate once, without create_graph=True"
            )
        wanted = _places(ctx.needs_input_grad[2:])
        given = {i: g for i, g in enumerate(cotangents) if g is not None}
        saved, count = ctx.saved_tensors, len(ctx.needs_input_grad) - 2
        by_place: dict[int, torch.Tensor] = {}
        if given:
            made = _gradient_key(key, wanted, tuple(given), kept)
            outputs = dict(zip(kept, saved[count:], strict=True))
            more = [outputs[i] for i in called(made).kept or ()]
            found = _executed([*saved[:count], *given.values(), *more], made, scalars)
            by_place = dict(zip(wanted, found, strict=True))
        return None, None, *(by_place.get(i) for i in range(count))


def _places(needed: Sequence[bool]) -> tuple[int, ...]:
    return tuple(i for i, yes in enumerate(needed) if yes)


def _executed(arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]) -> Any:
    """The outputs, through torch's dispatcher where something listens to it."""
    seen = captured(called(key).diagram.name, arrays)
    return (run if seen else _run)(arrays, key, scalars)


@lru_cache(maxsize=MOST)
def _gradient_key(
    key: str, wanted: tuple[int, ...], given: tuple[int, ...], kept: tuple[int, ...]
) -> str:
    return key_of("gradient", "/".join(map(places_of, (wanted, given, kept))), key)


@lru_cache(maxsize=MOST)
def _kept(key: str, wanted: tuple[int, ...]) -> tuple[int, ...]:
    """The outputs that the backward of a function reads, where all of them count or one alone; none
    where it has no gradient, which the backward says."""
    outputs = called(key).diagram.outputs
    real = tuple(i for i, o in enumerate(outputs) if o.node.kind == "real")
    counted = () if is_gradient(key) else dict.fromkeys([real, *((i,) for i in real)])
    found = set[int]()
    for given in counted:
        with contextlib.suppress(NapkinError):
            found |= {*(called(_gradient_key(key, wanted, given, real)).kept or ())}
    return tuple(sorted(found))


def _recorded(
    arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]
) -> list[torch.Tensor]:
    """The outputs, with their derivatives where these are asked for."""
    check_tangents(called(key).diagram.name, arrays)
    if torch.is_grad_enabled() and any(t.requires_grad for t in arrays):
        # A transform of torch.func has brought the call here for its level: `Function.apply` would
        # start them all again.
        with enable_single_level_autograd_function():
            return list(_of_this_level(key, tuple(scalars), *arrays))
    with _below_autograd():
        return run(arrays, key, scalars)


_of_this_level: Any = super(torch.autograd.Function, _Recorded).apply  # pyright: ignore
_below_autograd: Any = torch._C._AutoDispatchBelowAutograd  # pyright: ignore


def _each(
    info: Any, dims: Any, arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]
) -> tuple[list[torch.Tensor], list[int]]:
    """The outputs for each position of what `torch.vmap` maps over."""
    over = [(i, at) for i, at in enumerate(dims[0]) if at is not None]
    moved = list(arrays)
    for i, at in over:
        moved[i] = arrays[i].movedim(at, 0)
    out = run(moved, key_of("mapped", places_of(i for i, _ in over), key), scalars)
    return out, [0] * len(out)


_LIBRARY.impl("run", _run, "CompositeExplicitAutograd")
_LIBRARY.impl("run", _recorded, "Autograd")
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


def recorded_call(
    key: str, arrays: Sequence[torch.Tensor], scalars: tuple[float, ...]
) -> Sequence[torch.Tensor]:
    """The outputs of a call of which derivatives are recorded, and nothing else sees it: torch's
    dispatcher is passed by."""
    return _of_this_level(key, scalars, *arrays)


Shape = tuple[int, ...]
Arranged = tuple[tuple[Any, ...], Sequence[torch.Tensor], Any]
"""Arguments of a family's builder, tensors as its diagram takes them, and what else is known of
calls on tensors like these."""

_ARRANGED: dict[Any, tuple[str, list[Shape], Any]] = {}


def arranged_call(
    family: str,
    known: Any,
    tensors: Sequence[torch.Tensor],
    scalars: tuple[float, ...],
    arrange: Callable[[], Arranged],
) -> tuple[Sequence[torch.Tensor], Any]:
    """As `recorded_call`, of a family's function, and what else `arrange` says, which is asked once
    for each kind of call.

    Args:
        known: what the arrangement depends on.
    """
    found = _ARRANGED.get((family, known))
    if found is None:
        arguments, views, more = arrange()
        found = f"{family}{arguments!r}", [tuple(v.shape) for v in views], more
        remember(_ARRANGED, (family, known), found)
    key, shapes, more = found
    views = [t if t.shape == s else t.view(s) for t, s in zip(tensors, shapes, strict=True)]
    return recorded_call(key, views, scalars), more


_WARM: dict[tuple[Any, ...], Prepared] = {}


def warm(
    function: Function, arrays: Sequence[torch.Tensor], scalars: tuple[float, ...]
) -> Prepared:
    """What runs a function on tensors like these; worked out once for each kind of them."""
    key = (function, beside_tensors(scalars), *map(facts, arrays))
    found = _WARM.get(key)
    if found is None:
        named = dict(zip(function.diagram.scalars, scalars, strict=True))
        found = remember(_WARM, key, function.prepare(arrays, named))
    return found


def remember(table: dict[Any, T], key: Any, prepared: T) -> T:
    """Keep `prepared`, among not too many."""
    if len(table) >= MOST:
        table.clear()
    table[key] = prepared
    return prepared
