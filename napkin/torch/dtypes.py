"""Storage types: those of plans and of torch, and which tensors a plan takes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.diagram.sizes import check_count
from napkin.errors import InputError
from napkin.ir.storage import own_type, packed_axis, storage_type
from napkin.ir.types import PACKED, STORED
from napkin.run.prepared import DTYPES

REAL = {DTYPES[name]: name for name in STORED}
"""Storage types of real tensors."""


def logical_shapes(diagram: Diagram, arrays: Sequence[Any]) -> list[tuple[int, ...]]:
    """The shapes of the inputs in values: of bytes that hold two each, twice as many."""
    shapes = [tuple(a.shape) for a in arrays]
    return [
        (*s[:-1], 2 * s[-1]) if s and packed_axis(n) else s
        for s, n in zip(shapes, diagram.inputs, strict=False)
    ] + shapes[len(diagram.inputs) :]


def output_type(output: Output, dtype: str) -> torch.dtype:
    """The type in which a plan with the storage type `dtype` stores an output."""
    return DTYPES[storage_type(output.node, dtype)]


def plan_type(diagram: Diagram, arrays: Sequence[Any]) -> str:
    """The storage type of the plan for these inputs: that of the real ones.

    Raises:
        InputError: they are no dense tensors on one device, or of types that no plan stores.
    """
    check_count(diagram, arrays)
    found: dict[torch.dtype, str] = {}
    devices: dict[torch.device, str] = {}
    for t, n in zip(arrays, diagram.inputs, strict=True):
        name, own = str(n.params[0]), own_type(n)
        where = f"{diagram.name}: {name}"
        _check_readable(t, where)
        devices.setdefault(t.device, name)
        if own:
            _check_own(t, own, where)
        elif n.kind == "real":
            _check_real(t, where)
            found.setdefault(t.dtype, name)
        elif t.is_complex() or (n.kind == "int" and t.is_floating_point()):
            held = "whole numbers" if n.kind == "int" else "true or false"
            raise InputError(f"{where} holds {held}, but is {t.dtype}")
    if len(found) > 1:
        raise InputError(f"{diagram.name}: {_said(found)}; convert them to one type with .to(...)")
    if len(devices) > 1:
        raise InputError(f"{diagram.name}: {_said(devices, 'on ')}; move them to one device")
    return REAL[next(iter(found))] if found else "fp32"


def _check_readable(t: Any, where: str) -> None:
    """Check that kernels can read the memory of a tensor."""
    if not isinstance(t, torch.Tensor):
        raise InputError(f"{where} is a {type(t).__name__}, not a torch tensor")
    if t.layout != torch.strided:
        raise InputError(f"{where} is {t.layout}; give it as .to_dense()")
    if t.is_neg():
        raise InputError(f"{where} is negated when it is read; give it as .resolve_neg()")
    if t.device.type not in {"cuda", "cpu", "meta"}:
        raise InputError(f"{where} is on {t.device}; kernels run on CUDA devices")


def _check_real(t: torch.Tensor, where: str) -> None:
    if t.dtype not in REAL:
        raise InputError(
            f"{where} is {t.dtype}; kernels take torch.bfloat16, torch.float16 and torch.float32,"
            " so convert it with .to(...)"
        )


def _check_own(t: torch.Tensor, own: str, where: str) -> None:
    """Check that a tensor has the type of its own in which an input is stored."""
    packed = own in PACKED
    if t.dtype == DTYPES[own] or (packed and t.dtype == torch.int8):
        return
    how = "napkin.pack(values)" if packed else f".to({DTYPES[own]})"
    what = f"{DTYPES[own]} with two values to a byte" if packed else str(DTYPES[own])
    raise InputError(f"{where} is stored in {own}: give it as {what}, not {t.dtype}, with {how}")


def _said(table: dict[Any, str], on: str = "") -> str:
    return ", ".join(f"{name} is {on}{value}" for value, name in table.items())
