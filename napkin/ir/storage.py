"""In which type an array lies in memory: the plan's, or one of its own.

An input has the type that the signature gives it: `x d:fp8`, `c g b:int4`. A cast at the top of an
array says how that is stored, wherever it is: `nk.cast(L, "fp32")` as an output of a plan in bf16,
or between two of its kernels. A maximum that keeps exponentials in range is stored in fp32: it is
the lowest float32 where a query sees no key, which 16 bits round to -inf, and -inf - (-inf) is NaN.
The type belongs to the term, and a kernel that reads the array reads a leaf that names it. Here is
the one place that decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from napkin.ir.infer import pointwise, rebuilt
from napkin.ir.node import Kind, Node, node, stabilises
from napkin.ir.taking import read_axes
from napkin.ir.types import PACKED, STORAGE, stored_bytes

_MOVED = frozenset({"rename", "compress", "scatter", "spread"})
"""Operators that say where values lie, and not what they are."""


@dataclass(frozen=True)
class Tensor:
    """The name of a tensor whose storage type is its own: the first parameter of its leaves."""

    name: str
    dtype: str

    def __str__(self) -> str:
        return self.name


def leaf(name: str, axes: Iterable[str], kind: Kind, dtype: str = "") -> Node:
    """An input of a diagram, stored as `dtype` where it has a type of its own."""
    own = dtype if dtype not in {"", "int32", "bool"} else ""
    kind = STORAGE[own].kind if own else kind
    return node("input", params=(Tensor(name, own) if own else name,), axes=axes, kind=kind)


def own_type(n: Node) -> str:
    """The storage type that an array asks for: of a cast of reals, or of a tensor that is given or
    was stored in one, or of a maximum that keeps exponentials in range; "" where it has the plan's.

    Kernels compute in float32, so what is cast to fp64 on the way is stored in fp32.
    """
    if n.op in _MOVED:
        return own_type(n.args[0])
    if n.op == "cast" and n.kind == "real":
        return "fp32" if n.params[0] == "fp64" else str(n.params[0])
    if stabilises(n):
        return "fp32"
    name = n.params[0] if n.op == "input" else None
    return name.dtype if isinstance(name, Tensor) else ""


def storage_type(n: Node, dtype: str) -> str:
    """The storage type of the tensor that holds `n`, in a plan that stores reals as `dtype`."""
    return own_type(n) or {"real": dtype, "int": "int32", "bool": "bool"}[n.kind]


def array_bytes(n: Node, axes: Iterable[str], sizes: Mapping[str, int], dtype: str) -> int:
    """Bytes of the tensor that holds `n` with these axes, in a plan that stores reals so."""
    return stored_bytes(math.prod(sizes[a] for a in axes), storage_type(n, dtype))


def packed_axis(n: Node) -> str:
    """The axis along which two values of a reading share a byte, or ""."""
    return read_axes(n)[-1] if n.op == "input" and own_type(n) in PACKED else ""


def unstored(n: Node) -> Node:
    """The array that a kernel computes to store `n`: storing itself rounds as the cast asks."""
    if n.op == "compress":
        return rebuilt(n, (unstored(n.args[0]), *n.args[1:]))
    return n.args[0] if _rounds(n) else n


def stored_as(n: Node, other: Node) -> Node:
    """Another array, stored in the type that `n` asks for."""
    return rebuilt(n, (other,)) if _rounds(n) else other


def widens(n: Node) -> bool:
    """Whether a cast does nothing in a kernel, which computes in float32."""
    return _rounds(n) and n.params[0] in {"fp32", "fp64"}


def unstorable(n: Node) -> str:
    """The type that an output asks for and kernels do not store; "" where they do."""
    while n.op in _MOVED:
        n = n.args[0]
    return str(n.params[0]) if n.op == "cast" and n.params[0] in {"fp64", "int64"} else ""


def beside_memory(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: a cast behind a move in memory brought before it, where the array is stored:
    otherwise the stored array would be rounded before it is cast."""
    if not _rounds(old) or args[0].op not in {"rename", "compress"}:
        return None
    move = args[0]
    inner = beside_memory(old, move.args[:1]) or pointwise("cast", move.args[:1], old.params)
    return rebuilt(move, (inner, *move.args[1:]))


def _rounds(n: Node) -> bool:
    return n.op == "cast" and n.kind == n.args[0].kind == "real"
