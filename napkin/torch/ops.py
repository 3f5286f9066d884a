"""The operator that graphs call: `torch.compile` captures it whole, and infers its outputs.

Eager calls do not go through it, because torch's dispatcher costs more than a launch is worth.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd import forward_ad

from napkin.errors import InputError, NapkinError
from napkin.run.prepared import Prepared, facts
from napkin.torch.function import Function, Reads
from napkin.torch.given import (
    beside_tensors,
    captured,
    check_tangents,
    cotangents_as_read,
    transformed,
)
from napkin.torch.keys import called, is_gradient, key_of, places_of
from napkin.torch.ready_tables import MOST, remember

_LIBRARY = torch.library.Library("napkin", "FRAGMENT")
_LIBRARY.define(
    "run(Tensor[] arrays, str key, float[] scalars) -> Tensor[]",
    tags=(torch.Tag.pt2_compliant_tag,),
)


# `torch.library.custom_op` would look at every call for gradients and for outputs that are inputs:
# 17 us a call, and 5 as it is (torch 2.13, CPU).
def _run(arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]) -> list[torch.Tensor]:
    """The outputs of a diagram."""
    return warm(called(key), arrays, tuple(scalars))(arrays)


def _results(
    arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]
) -> list[torch.Tensor]:
    """Empty tensors like them."""
    return called(key).results(arrays)


class Call:
    """A call of the operator of which derivatives are recorded.

    Attributes:
        key: of the function that gives what its backward reads, too.
        count: the outputs of the function that is called, which come first.
        scalars: in the diagram's order.
    """

    def __init__(self, key: str, needed: tuple[bool, ...], scalars: tuple[float, ...]) -> None:
        self.key, self.count = trained(key, needed), len(called(key).diagram.outputs)
        self.scalars = scalars

    def outputs(self, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """All outputs, each a tensor of its own, in a place where nothing is recorded."""
        with _below_autograd():
            if not transformed():
                return _executed(arrays, self.key, self.scalars)
            # `Function.forward` turns derivatives off, but outer levels of torch.func take theirs.
            with torch.enable_grad(), _tangents(True):
                return _executed(arrays, self.key, self.scalars)

    def gradients(
        self, made: Gradient, arrays: list[torch.Tensor], places: tuple[int, ...]
    ) -> list[torch.Tensor]:
        """The gradients by the inputs that are asked for.

        Args:
            arrays: the inputs that it reads, cotangents, and the outputs that it reads.
            places: of the outputs that the cotangents are of, and of those that are read.
        """
        found = _executed(arrays, made.function.key, self.scalars)
        return [found[i] for i in made.reads.held]


class Gradient(NamedTuple):
    """The gradient of a function by some of its inputs.

    Attributes:
        wanted: the places of these.
        reads: those of `function`.
    """

    function: Function
    wanted: Sequence[int]
    reads: Reads


def _executed(arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]) -> Any:
    """The outputs, through torch's dispatcher where something listens to it."""
    seen = captured(called(key).diagram.name, arrays)
    return (run if seen else _run)(arrays, key, scalars)


class _Recorded(torch.autograd.Function):
    """A call where derivatives are recorded: its backward runs the gradient of its diagram, on the
    same arrays and the cotangents that arrive."""

    @staticmethod
    def forward(ctx: Any, call: Call, *arrays: torch.Tensor) -> Any:
        out = tuple(call.outputs(arrays))
        saved = _saved(call.key, call.count, ctx.needs_input_grad[1:])
        ctx.set_materialize_grads(False)
        ctx.call = call, saved
        inputs, outputs = saved
        ctx.save_for_backward(*(arrays[i] for i in inputs), *(out[i] for i in outputs))
        return out

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> Any:
        call, (inputs, outputs) = ctx.call
        needed = ctx.needs_input_grad[1:]
        found: list[Any] = [None] * (1 + len(needed))
        given = tuple(i for i, g in enumerate(cotangents) if g is not None)
        if given:
            made, saved = _gradient(call.key, needed, given, outputs), ctx.saved_tensors
            reads, name = made.reads.outputs, made.function.diagram.name
            counted = cotangents_as_read(name, [g for g in cotangents if g is not None])
            arrays = [
                *(saved[inputs.index(i)] for i in made.reads.inputs),
                *counted,
                *(saved[len(inputs) + outputs.index(i)] for i in reads),
            ]
            for i, t in zip(
                made.wanted, call.gradients(made, arrays, (*given, *reads)), strict=True
            ):
                found[1 + i] = t
        return tuple(found)


@lru_cache(maxsize=MOST)
def _gradient(
    key: str, needed: tuple[bool, ...], given: tuple[int, ...], kept: tuple[int, ...]
) -> Gradient:
    """The gradient of a function by some of its inputs, from cotangents of some of its outputs,
    where others, or the same, are kept."""
    if is_gradient(key):
        raise InputError(
            f"{called(key).diagram.name}: a gradient of a gradient is asked for, and the backward "
            "pass has none; differentiate once, without create_graph=True"
        )
    wanted = tuple(i for i, yes in enumerate(needed) if yes)
    places = "/".join(map(places_of, (wanted, given, kept)))
    function = called(key_of("gradient", places, key))
    assert function.reads is not None
    return Gradient(function, wanted, function.reads)


@lru_cache(maxsize=MOST)
def trained(key: str, needed: tuple[bool, ...]) -> str:
    """The key of the function with the outputs that its gradient by some of its inputs reads; its
    own where that has them."""
    if is_gradient(key):
        return key
    wanted = places_of(i for i, yes in enumerate(needed) if yes)
    try:
        made = called(key_of("trained", wanted, key))
    except NapkinError:  # there is no gradient, which the backward says
        return key
    return made.key if len(made.diagram.outputs) > len(called(key).diagram.outputs) else key


@lru_cache(maxsize=MOST)
def _saved(
    key: str, count: int, needed: tuple[bool, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The inputs and the outputs that the backward of a function reads, where all of the first
    outputs count or one alone; all inputs where some of these have no gradient, which the backward
    says."""
    outputs = called(key).diagram.outputs
    real = tuple(i for i, o in enumerate(outputs) if o.node.kind == "real")
    first = tuple(i for i in real if i < count)
    counted = () if is_gradient(key) else dict.fromkeys([first, *((i,) for i in first)])
    inputs, kept = set[int](), set[int]()
    for given in counted or (first,):
        try:
            reads = _gradient(key, needed, given, real).reads
        except NapkinError:
            inputs |= {*range(len(needed))}
        else:
            inputs |= {*reads.inputs}
            kept |= {*reads.outputs}
    return tuple(sorted(inputs)), tuple(sorted(kept))


def _recorded(
    arrays: Sequence[torch.Tensor], key: str, scalars: Sequence[float]
) -> list[torch.Tensor]:
    """The outputs, with their derivatives where these are asked for."""
    check_tangents(called(key).diagram.name, arrays)
    if torch.is_grad_enabled() and any(t.requires_grad for t in arrays):
        # A transform of torch.func has brought the call here for its level: `Function.apply` would
        # start them all again.
        with enable_single_level_autograd_function():
            return list(recorded(Call(key, asked(arrays), tuple(scalars)), *arrays))
    with _below_autograd():
        return _executed(arrays, key, scalars)


def asked(arrays: Sequence[torch.Tensor]) -> tuple[bool, ...]:
    """By which of the inputs derivatives are asked for."""
    return tuple([t.requires_grad for t in arrays])


_apply: Any = super(torch.autograd.Function, _Recorded).apply  # pyright: ignore


def recorded(call: Call, *arrays: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """The outputs of a call. What is kept beside them is an output for autograd, too: a gradient
    that reads nothing else then depends on the inputs, and who differentiates it is told."""
    return _apply(call, *arrays)[: call.count]


_below_autograd: Any = torch._C._AutoDispatchBelowAutograd  # pyright: ignore
_tangents: Any = forward_ad._set_fwd_grad_enabled  # pyright: ignore


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


_WARM: dict[tuple[Any, ...], Any] = {}


def warm(
    function: Function, arrays: Sequence[torch.Tensor], scalars: tuple[float, ...]
) -> Prepared:
    """What runs a function on tensors like these; worked out once for each kind of them."""
    key = (function, beside_tensors(scalars), *map(facts, arrays))
    found = _WARM.get(key)
    if found is None:
        found = remember(_WARM, key, function.prepare(arrays, function.named(scalars)))
    return found
