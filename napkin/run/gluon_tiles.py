"""Gluon's tiles in numpy: numbers, tiles, shared memory, products under way, and the functions of
the language that need nothing but their arguments."""

from __future__ import annotations

import ast
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from napkin.run.formats import CODED, decode, encode
from napkin.run.worker import KernelError


class Type:
    """A number format.

    Attributes:
        name: as in Triton's signatures.
        holds: what numpy computes it in.
    """

    def __init__(self, name: str, holds: Any) -> None:
        self.name, self.holds = name, holds
        self.element_ty = self

    def rounded(self, x: Any) -> Any:
        """Values in this format, as numpy computes with them."""
        if self.name in CODED:
            return decode(encode(np.asarray(x), self.name), self.name).astype(np.float32)
        if self.name == "fp16":
            return np.asarray(x).astype(np.float16).astype(np.float32)
        return np.asarray(x).astype(self.holds)


TYPES = {
    "float16": Type("fp16", np.float32),
    "bfloat16": Type("bf16", np.float32),
    "float32": Type("fp32", np.float32),
    "float64": Type("fp64", np.float64),
    "float8e4nv": Type("fp8e4nv", np.float32),
    "float8e5": Type("fp8e5", np.float32),
    "int1": Type("i1", np.bool_),
    "int8": Type("i8", np.int8),
    "int32": Type("i32", np.int32),
    "int64": Type("i64", np.int64),
}
BY_NAME = {t.name: t for t in TYPES.values()}


class Tile(np.ndarray):
    """A tile: an array with a method that numpy has not."""

    def to(self, dtype: Type) -> Tile:
        """The values in another format."""
        return tile(dtype.rounded(self))


def tile(x: Any) -> Any:
    """An array as a tile."""
    return np.asarray(x).view(Tile)


Stored = dict[int, list[np.ndarray]]
"""Parts of shared memory, by the thread that has stored there."""


class Memory:
    """A part of shared memory.

    Attributes:
        unfenced: what each thread has stored to all of it since its last fence.
    """

    def __init__(self, values: np.ndarray, dtype: Type, unfenced: Stored | None = None) -> None:
        self.values, self.dtype = values, dtype
        self.unfenced: Stored = {} if unfenced is None else unfenced

    def _part(self, values: np.ndarray) -> Memory:
        return Memory(values, self.dtype, self.unfenced)

    def index(self, at: int) -> Memory:
        return self._part(self.values[int(at)])

    def reshape(self, shape: Sequence[int]) -> Memory:
        return self._part(self.values.reshape(shape))

    def permute(self, order: Sequence[int]) -> Memory:
        return self._part(self.values.transpose(order))

    def slice(self, start: int, length: int, dim: int = 0) -> Memory:
        own = [slice(None)] * self.values.ndim
        own[dim] = slice(start, start + length)
        return self._part(self.values[tuple(own)])

    def load(self, layout: Any) -> Tile:
        return tile(self.values.copy())

    def store(self, value: Any) -> None:
        self.values[...] = value
        self.unfenced.setdefault(threading.get_ident(), []).append(self.values)
        _flight.stored.append(self.unfenced)

    def fenced(self) -> None:
        """Check that copies and products see what threads have stored here.

        Raises:
            KernelError: some thread has made no fence since.
        """
        stored = [values for each in tuple(self.unfenced.values()) for values in tuple(each)]
        if any(np.shares_memory(self.values, values) for values in stored):
            raise KernelError("a copy or a product reads what was stored before a fence")


def fence() -> None:
    """What this thread has stored, seen by copies and products."""
    for unfenced in _flight.stored:
        unfenced.pop(threading.get_ident(), None)
    _flight.stored.clear()


class Pending:
    """A product that is under way, or done."""

    def __init__(self, left: Any, right: Memory, start: Any) -> None:
        self.left, self.right, self.start = left, right, start
        self.made: Tile | None = None

    def finish(self) -> None:
        """Make it, from what shared memory holds now; those before it are done."""
        left = self.left.values if isinstance(self.left, Memory) else self.left
        start = self.start.made if isinstance(self.start, Pending) else self.start
        made = np.matmul(np.asarray(left, np.float32), np.asarray(self.right.values, np.float32))
        self.made, self.start = tile(made if start is None else start + made), None


class _Flight(threading.local):
    """The products of one warpgroup that are under way, in order, and where it has stored."""

    def __init__(self) -> None:
        self.products: list[Pending] = []
        self.stored: list[Stored] = []


_flight = _Flight()


def _pointwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tiles; of whole numbers alone, a whole number."""

    def made(*args: Any) -> Any:
        if all(isinstance(a, int | np.integer) for a in args):
            return int(function(*map(int, args)))
        return tile(function(*args))

    return made


def _extreme(name: str) -> Callable[..., Any]:
    """The larger, or the smaller; a NaN is kept where that is asked for, and else lost."""
    kept, lost = (_pointwise(getattr(np, n)) for n in (name, f"f{name[:3]}"))
    return lambda a, b, propagate_nan=False: (kept if propagate_nan else lost)(a, b)


def _where(test: Any, yes: Any, no: Any) -> Any:
    if isinstance(test, bool | np.bool_ | int) and not isinstance(yes, Tile):
        return yes if test else no
    return tile(np.where(test, yes, no))


def _reduced(x: Any, axis: int, function: Callable[..., Any]) -> Tile:
    parts = [tile(p) for p in np.moveaxis(np.asarray(x), axis, 0)]
    out = parts[0]
    for part in parts[1:]:
        out = function(out, part)
    return tile(out)


def _quotient(a: Any, b: Any) -> Any:
    return (a - _rest(a, b)) // b


def _rest(a: Any, b: Any) -> Any:
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    return tile(np.fmod(a, b))


def _converted(x: Any, dtype: Type, bitcast: bool = False) -> Any:
    if bitcast:
        return tile(np.asarray(x, np.int32 if isinstance(x, int) else None).view(dtype.holds))
    return tile(x).to(dtype).item() if isinstance(x, int | float) else x.to(dtype)


SPELLED = {"__quotient__": _quotient, "__rest__": _rest, "__converted__": _converted}
"""Whole quotients, which a GPU rounds to zero, what they leave, and conversions."""


class Spelled(ast.NodeTransformer):
    """Writes `//`, `%` and `.to` as calls of `SPELLED`: Python and numpy round a quotient down, and
    numbers of Python have no method that converts them."""

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """A call, or the conversion that stands for it."""
        self.generic_visit(node)
        if not isinstance(node.func, ast.Attribute) or node.func.attr != "to":
            return node
        name = ast.Name("__converted__", ast.Load())
        return ast.Call(name, [node.func.value, *node.args], node.keywords)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        """An operation, or the call that stands for it."""
        self.generic_visit(node)
        if not isinstance(node.op, ast.FloorDiv | ast.Mod):
            return node
        name = "__quotient__" if isinstance(node.op, ast.FloorDiv) else "__rest__"
        return ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])


def multiply(left: Any, right: Memory, start: Any, use_acc: bool = True, **_: Any) -> Pending:
    """A product, begun."""
    for side in (left, right):
        if isinstance(side, Memory):
            side.fenced()
    made = Pending(left, right, start if use_acc else None)
    _flight.products.append(made)
    return made


def waited(outstanding: int, values: Sequence[Any]) -> Any:
    """The values, where they are done: all but the last `outstanding` products of this
    warpgroup."""
    count = max(0, len(_flight.products) - outstanding)
    for p in _flight.products[:count]:
        p.finish()
    del _flight.products[:count]
    done = tuple(v if v.made is None else v.made for v in values)
    return done[0] if len(done) == 1 else done


_SAME = {
    name: _pointwise(getattr(np, numpy))
    for name, numpy in {
        "abs": "abs", "ceil": "ceil", "cos": "cos", "exp": "exp", "exp2": "exp2",
        "floor": "floor", "log": "log", "log2": "log2", "sin": "sin", "sqrt": "sqrt",
        "sqrt_rn": "sqrt",
    }.items()
}  # fmt: skip
"""What numpy has under these names."""

LANGUAGE: dict[str, Any] = {
    **TYPES,
    **_SAME,
    **{name: _extreme(name) for name in ("maximum", "minimum")},
    "constexpr": object,
    "arange": lambda a, b, layout=None: tile(np.arange(a, b, dtype=np.int32)),
    "zeros": lambda shape, dtype, layout=None: tile(np.zeros(shape, dtype.holds)),
    "full": lambda shape, x, dtype, layout=None: tile(np.full(shape, x, dtype.holds)),
    "cast": _converted,
    "cdiv": lambda a, b: -(-int(a) // int(b)),
    "where": _where,
    "max": lambda x, axis: tile(np.fmax.reduce(x, axis)),
    "min": lambda x, axis: tile(np.fmin.reduce(x, axis)),
    "sum": lambda x, axis: tile(np.sum(x, axis, dtype=x.dtype)),
    "reduce": _reduced,
    "rsqrt": _pointwise(lambda x: 1 / np.sqrt(x)),
    "fma": lambda a, b, c: tile(a * b + c),
    "multiple_of": lambda x, values: x,
    "static_range": range,
    "convert_layout": lambda x, layout: x,
    "to_tensor": lambda x: tile(np.int32(x)),
    "SliceLayout": lambda dim, parent: None,
    "NVMMADistributedLayout": lambda *how: None,
    "NVMMASharedLayout": lambda *how: None,
    "DotOperandLayout": lambda *how: None,
    "BlockedLayout": lambda *how: None,
    "SwizzledSharedLayout": lambda *how: None,
}
"""What `gl` has, by name."""
