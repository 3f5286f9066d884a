"""What a call is given, held against what kernels can take: tangents, subclasses of tensors, what
records or maps over a call, autocast, and scalars.

Kernels see numbers in memory alone. What a tensor carries beside them would be lost without a word,
so it is refused, or the call goes through the operator of `napkin.torch.ops`, which knows of it.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import torch
from torch.autograd import forward_ad

from napkin.errors import InputError
from napkin.ir.whole_numbers import flag

_PLAIN = frozenset({torch.Tensor, torch.nn.Parameter})
"""Types of tensors that hold numbers."""

_SYMBOLIC = frozenset({"FakeTensor", "FunctionalTensor"})
"""Types of tensors that stand for others while torch captures a graph."""

_DEVICES = ("cpu", "cuda")
"""Types of devices that kernels run on. Both have autocast; others, as "meta", may have none, which
cannot be asked while torch 2.11 captures a graph."""

_C: Any = torch._C  # pyright: ignore[reportPrivateUsage]
_modes, _transforms = _C._len_torch_dispatch_stack, _C._functorch.peek_interpreter_stack
_any_autocast, _traced = _C._is_any_autocast_enabled, _C._get_tracing_state


Captured = Literal["", "recorded", "graph"]


def captured(name: str, arrays: Sequence[Any]) -> Captured:
    """What sees a call on these tensors beside its launches: "recorded" where derivatives are
    recorded and that is all; "graph" where the call goes through the operator, as it is captured in
    a graph, mapped by `torch.vmap`, seen by a dispatch mode, or on the device "meta"; or nothing.

    Raises:
        InputError: one is no tensor, is one that kernels cannot read, or has a forward tangent.
    """
    plain, recorded = True, False
    for t in arrays:
        if type(t) not in _PLAIN:
            plain = False
            _check_type(name, t)
        if t.is_nested or t.is_meta:
            _check_nested(name, t)
            plain = False
        recorded = recorded or t.requires_grad
    if torch.compiler.is_compiling():
        return "graph"
    check_tangents(name, arrays)
    if _traced() is not None:  # by torch.jit
        raise InputError(
            f"{name}: torch.jit.trace would keep this call's result for every other input; use "
            "torch.export or torch.compile"
        )
    if not plain or _modes() > 0 or _transforms() is not None:
        return "graph"
    return "recorded" if recorded and torch.is_grad_enabled() else ""


def transformed() -> bool:
    """Whether a transform of torch.func or `torch.vmap` is in progress."""
    return _transforms() is not None


def check_run(name: str, arrays: Sequence[Any], scalars: Mapping[str, Any]) -> dict[str, float]:
    """The scalars of a plan that runs at once, as numbers.

    Raises:
        InputError: the call is recorded, for derivatives or in a graph, or mapped.
    """
    # Of a tensor on "meta" the reading says that it has no numbers.
    seen = captured(name, [a for a in arrays if isinstance(a, torch.Tensor) and not a.is_meta])
    if seen and not torch.compiler.is_compiling():  # which breaks its graph before the run
        raise InputError(
            f"{name}: a plan runs at once, on numbers, so nothing can record or map its call; "
            "call napkin.torch.compile(diagram) in its place"
        )
    return {k: scalar(name, k, v) for k, v in scalars.items()}


def check_tangents(name: str, arrays: Sequence[torch.Tensor]) -> None:
    """Check that no tensor carries a tangent of forward-mode differentiation.

    Raises:
        InputError: one does.
    """
    if forward_ad._current_level < 0:  # pyright: ignore[reportPrivateUsage]
        return
    for t in arrays:
        if t.is_floating_point() and _has_tangent(t):
            raise InputError(
                f"{name}: a tensor carries a forward-mode tangent, and there are no derivatives in "
                "forward mode; differentiate backwards, or give the tensor's primal, "
                "torch.autograd.forward_ad.unpack_dual(t).primal"
            )


def cotangents_as_read(name: str, cotangents: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Cotangents as kernels read them: autograd gives some negated when they are read, or sparse,
    and no caller is there to change them.

    Raises:
        InputError: one is a batch in the guise of one tensor, without memory of its own.
    """
    if any(map(_C._functorch.is_legacy_batchedtensor, cotangents)):
        raise InputError(
            f"{name}: a batch of cotangents is given, as is_grads_batched=True and vectorize=True "
            "make one, which no operator of torch's users can read; write torch.func.jacrev(f)(x), "
            "or torch.vmap(torch.func.vjp(f, x)[1])(cotangents)"
        )
    dense = (t if t.layout is torch.strided else t.to_dense() for t in cotangents)
    return [t.resolve_neg() if t.is_neg() else t for t in dense]


def _has_tangent(t: torch.Tensor) -> bool:
    """Whether it has a tangent at the innermost level of torch.func. The operator asks at each."""
    try:
        return forward_ad.unpack_dual(t).tangent is not None
    except RuntimeError:  # torch.vmap does not map the question over an outer level
        if transformed():
            return False
        raise


def _check_type(name: str, t: Any) -> None:
    if not isinstance(t, torch.Tensor):
        raise InputError(f"{name} takes torch tensors, not a {type(t).__name__}")
    _check_nested(name, t)
    module = type(t).__module__
    if not (type(t).__name__ in _SYMBOLIC and module.startswith("torch._subclasses.")):
        raise InputError(
            f"{name} takes plain tensors, not a {type(t).__name__}, of which kernels would read "
            "the memory alone; give the numbers, as with t.as_subclass(torch.Tensor) where it "
            "holds them itself"
        )


def _check_nested(name: str, t: torch.Tensor) -> None:
    if t.is_nested:
        raise InputError(
            f"{name} takes no nested tensors; pad with torch.nested.to_padded_tensor(t, 0.0) and "
            "mask what is padded, or lay sequences end to end and compile a diagram with the key "
            "set nk.documents"
        )


def in_autocast(arrays: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    """The tensors as `torch.autocast` casts them for `scaled_dot_product_attention`: those of real
    numbers to its type; as they are where it is off."""
    dtype, device = autocast_type(arrays[0]), arrays[0].device.type
    if dtype is None:
        return arrays
    return [t.to(dtype) if _cast(t, device) else t for t in arrays]


def autocast_type(t: torch.Tensor) -> torch.dtype | None:
    """The type that `torch.autocast` casts to on the device of a tensor; None where it is off."""
    if not torch.compiler.is_compiling() and not _any_autocast():
        return None
    device = t.device.type
    on = device in _DEVICES and torch.is_autocast_enabled(device)
    return torch.get_autocast_dtype(device) if on else None


def _cast(t: torch.Tensor, device: str) -> bool:
    return t.is_floating_point() and t.dtype != torch.float64 and t.device.type == device


def scalar(name: str, what: str, value: Any) -> float:
    """A scalar as a number. Of a tensor it is the number that it holds at this call.

    Raises:
        InputError: it is no number, asks for derivatives, or is not known while a graph is
            captured.
    """
    if isinstance(value, torch.Tensor):
        _check_scalar(name, what, value)
    elif isinstance(value, str | bytes):
        raise InputError(f"{name}: {what}={value!r} is no number")
    try:
        return float(value.detach() if isinstance(value, torch.Tensor) else value)
    except (TypeError, ValueError, OverflowError):
        raise InputError(f"{name}: {what}={value!r} is no number") from None


def truth(name: str, what: str, value: Any) -> bool:
    """A flag; a comparison of sizes, while a graph is captured, is one too.

    Raises:
        InputError: it is neither True nor False.
    """
    return flag(bool(value) if isinstance(value, torch.SymBool) else value, f"{name}: {what}")


def _check_scalar(name: str, what: str, value: torch.Tensor) -> None:
    if value.numel() != 1 or value.is_complex():
        raise InputError(
            f"{name}: {what} is a tensor of shape {tuple(value.shape)} and {value.dtype}; it must "
            "be one real number"
        )
    if torch.is_grad_enabled() and value.requires_grad:
        raise InputError(
            f"{name}: {what} requires gradients, and a scalar of the call has none; multiply a "
            f"tensor by it before the call, make it an input without axes, or give {what}.item()"
        )
    if captured(name, [value]):
        raise InputError(
            f"{name}: {what} is a tensor, whose number is not known while a graph is captured or "
            f"a call is mapped; give a number, or multiply a tensor by it before the call"
        )


def beside_tensors(scalars: tuple[float, ...]) -> tuple[Any, ...]:
    """What the launches of a call depend on beside its tensors, as a key: its scalars, of which
    -0.0 is another number than 0.0, though the two are equal, and NaN the same, though it is not
    equal to itself; and whether torch asks for deterministic algorithms."""
    apart = tuple(map(str, scalars)) if 0.0 in scalars or math.isnan(sum(scalars)) else scalars
    return torch.are_deterministic_algorithms_enabled(), apart


def causal_bias(mask: Any) -> str:
    """Where queries are among the keys by a `CausalBias` of torch, whose memory holds nothing:
    counted from the "first" key or from the "last"; "" where the mask is something else."""
    if mask is None or type(mask) in _PLAIN or type(mask).__name__ != "CausalBias":
        return ""
    # Whoever made one has imported its module, which is slow to import.
    variants = sys.modules["torch.nn.attention.bias"].CausalVariant
    return "first" if mask.variant == variants.UPPER_LEFT else "last"


def same(a: int, b: int) -> bool:
    """Whether two sizes are equal; of symbols, whether that is known of any sizes, so that a graph
    is not held to those that it is captured with."""
    if type(a) is int and type(b) is int and not torch.compiler.is_compiling():
        return a == b
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return statically_known_true(a == b)
