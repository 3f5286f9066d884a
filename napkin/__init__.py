"""napkin turns a diagram into a checked kernel.

An algorithm is written once over named axes; napkin derives how to stream and tile it, says in
symbols what that costs, writes the Triton kernel, and checks the kernel against the prediction
("FlashAttention on a Napkin", arXiv 2412.03317).
"""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from napkin import face as face  # says how moves of other rooms are made
from napkin.diagram.diagram import Diagram
from napkin.diagram.extending import operator, reduction
from napkin.diagram.language import (
    abs,
    cast,
    cos,
    erf,
    exp,
    gelu,
    index,
    log,
    maximum,
    minimum,
    ndtr,
    rsqrt,
    sigmoid,
    silu,
    sin,
    size,
    slide,
    sqrt,
    take,
    tanh,
    where,
)
from napkin.diagram.random import dropout, uniform
from napkin.diagram.reductions import argmax, argmin, contract, cumsum, reduce, softmax, sort, topk
from napkin.diagram.scan import scan
from napkin.diagram.trace import diagram
from napkin.errors import InputError, NapkinError, NoSuchName, Refusal, meant
from napkin.ir.array import Array, rename
from napkin.ir.packing import pack, unpack
from napkin.keys.compressed import compress, spread
from napkin.keys.keyset import KeySet
from napkin.keys.neighbors import neighborhood
from napkin.keys.patterns import (
    bigbird,
    blocked,
    causal,
    dilated,
    documents,
    fixed,
    global_tokens,
    key_set,
    sinks,
    sliding,
    strided,
)
from napkin.version import __version__ as __version__

if TYPE_CHECKING:
    from napkin.gradient.gradient import gradient
    from napkin.machine.machines import Machine, machine
    from napkin.moves.door import rule
    from napkin.plan.derive import derive
    from napkin.plan.plan import Plan
    from napkin.plan.training import training
    from napkin.studies.compare import comparison
    from napkin.studies.routing import Routing
    from napkin.studies.simulator import simulate

_LAZY = {
    "comparison": "napkin.studies.compare",
    "derive": "napkin.plan.derive",
    "gradient": "napkin.gradient.gradient",
    "rule": "napkin.moves.door",
    "Plan": "napkin.plan.plan",
    "machine": "napkin.machine.machines",
    "Machine": "napkin.machine.machines",
    "Routing": "napkin.studies.routing",
    "simulate": "napkin.studies.simulator",
    "training": "napkin.plan.training",
}
"""Names whose rooms import sympy and the like: loaded when they are first used."""

__all__ = [
    "Array", "Diagram", "InputError", "KeySet", "Machine", "NapkinError", "Plan", "Refusal",
    "Routing", "abs", "argmax", "argmin", "bigbird", "blocked", "cast", "causal", "comparison",
    "compress", "contract", "cos", "cumsum", "derive", "diagram", "dilated", "documents", "dropout",
    "erf", "exp", "fixed", "gelu", "global_tokens", "gradient", "index", "key_set", "log",
    "machine", "maximum", "minimum", "ndtr", "neighborhood", "operator", "pack", "reduce",
    "reduction", "rename", "rsqrt", "rule", "scan", "sigmoid", "silu", "simulate", "sin", "sinks",
    "size", "slide", "sliding", "softmax", "sort", "spread", "sqrt", "strided", "take", "tanh",
    "topk", "training", "uniform", "unpack", "where",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    what = f"module 'napkin' has no attribute {name!r}"
    raise NoSuchName(what if name.startswith("_") else f"{what}; {meant(name, __all__)}")


class _Package(ModuleType):
    """`napkin.derive` is the function, though a room of the house has the same name: importing
    the room must not put the module in the function's place."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _LAZY and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
