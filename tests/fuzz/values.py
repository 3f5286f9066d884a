"""The value of a program in numpy, straight from its steps: it shares nothing with napkin.

Reals are float64, whole numbers int64. Composite operators are computed by their definitions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from masks import seen
from named import Value
from programs import OWN_REDUCE, RANKED, Axes, Keys, Kind, Program, Ref, Step, union
from sequences import SEQUENCES, ranked

DTYPE: dict[Kind, type] = {"real": np.float64, "int": np.int64, "bool": np.bool_}
INT32 = np.iinfo(np.int32)


def run(program: Program, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[Value]:
    """The value of every input and step of a program."""
    found: list[Value] = []
    for given, array in zip(program.inputs, arrays, strict=True):
        found.append(Value(given.axes, np.asarray(array).astype(DTYPE[given.kind])))
    for step in program.steps:
        found.append(value(step, found, sizes))
    return found


def results(program: Program, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]):
    """The outputs of a program, each with its axes in order."""
    found = run(program, arrays, sizes)
    return [np.array(found[r.at].filled(axes, sizes)) for r, axes in program.outputs]


def finite(program: Program, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> bool:
    """Whether every step has numbers. A mean or a maximum of nothing has none: as a factor that
    comes out of a sum of nothing it makes that NaN (docs/semantics.md)."""
    return all(np.isfinite(v.data).all() for v in run(program, arrays, sizes))


def wrapped(program: Program, arrays: Sequence[np.ndarray], sizes: Mapping[str, int]) -> list[bool]:
    """For each output, whether it is computed of whole numbers past int32: these wrap."""
    past: list[bool] = []
    steps = [None] * len(program.inputs) + list(program.steps)
    for found, step in zip(run(program, arrays, sizes), steps, strict=True):
        whole = found.data.dtype.kind == "i" and found.data.size
        own = whole and (found.data.min() < INT32.min or found.data.max() > INT32.max)
        refs = [a for a in step.args if isinstance(a, Ref)] if step else []
        past.append(bool(own) or any(past[r.at] for r in refs))
    return [past[r.at] for r, _ in program.outputs]


def value(step: Step, known: Sequence[Value], sizes: Mapping[str, int]) -> Value:
    """The value of one step."""
    args = [known[a.at] if isinstance(a, Ref) else Value((), np.asarray(a)) for a in step.args]
    with np.errstate(all="ignore"):
        return _value(step, args, known, sizes)


def _value(
    step: Step, args: list[Value], known: Sequence[Value], sizes: Mapping[str, int]
) -> Value:
    op, option = step.op, step.option
    gone = step.over[0] if step.over else ()
    if op == "size":
        return Value((), np.asarray(sizes[gone[0]]))
    if op == "scalar":
        return Value((), np.asarray(float(option["value"])))
    if op == "index":
        return Value(gone, np.arange(sizes[gone[0]]))
    if op == "pow" and step.args[1] in (2, 3):  # products, in the type they have
        return Value(args[0].axes, _plain(args[0].data, op) ** step.args[1])
    if op in POINTWISE:
        axes = union(*(x.axes for x in args))
        return Value(axes, np.asarray(POINTWISE[op](*(_plain(x.on(axes), op) for x in args))))
    if op == "cast":
        return Value(args[0].axes, args[0].data.astype(DTYPE[option["kind"]]))
    if op == "rename":
        return Value(tuple(str(option.get(a, a)) for a in args[0].axes), args[0].data)
    if op == "take":
        return _take(args[0], dict(zip(gone, args[1:], strict=True)))
    if op == "slide":
        return _slide(args[0], gone[0], option, sizes)
    if op in {"cumsum", "sort"}:
        at = args[0].axes.index(gone[0])
        return Value(args[0].axes, (np.cumsum if op == "cumsum" else np.sort)(_whole(args[0]), at))
    if op in SEQUENCES:
        return SEQUENCES[op](step, args, sizes)
    masks = [_mask(k, known, sizes) for k in step.keys] or [None] * len(args)
    if op in RANKED:
        return ranked(step, args[0], masks[0], sizes)
    if op in {"compress", "spread"}:
        return (_compress if op == "compress" else _spread)(args[0], gone, masks[0], option, sizes)
    if op in {"softmax", "logsumexp"}:
        return _jointly(step, args, masks, sizes)
    return _reduced(op, args, gone, masks[0], sizes)


def _plain(data: np.ndarray, op: str) -> np.ndarray:
    """Truth values count as whole numbers in arithmetic."""
    logical = op in {"and", "or", "not", "where", "equal", "not_equal"}
    return data.astype(np.int64) if data.dtype == bool and not logical else data


def _whole(x: Value) -> np.ndarray:
    return x.data.astype(np.int64) if x.data.dtype == bool else x.data


def _erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[float])(x)


def _ndtr(x: np.ndarray) -> np.ndarray:
    return np.vectorize(lambda t: math.erfc(-t / math.sqrt(2)) / 2, otypes=[float])(x)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return np.exp(-np.logaddexp(0.0, -np.asarray(x, float)))


def _power(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.power(np.asarray(x, float), y)


POINTWISE: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.true_divide,
    "floordiv": np.floor_divide, "mod": np.mod, "pow": _power, "maximum": np.maximum,
    "minimum": np.minimum, "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal, "equal": np.equal, "not_equal": np.not_equal,
    "and": np.logical_and, "or": np.logical_or, "not": np.logical_not, "where": np.where,
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "log": np.log, "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x), "tanh": np.tanh, "sin": np.sin, "cos": np.cos,
    "erf": _erf, "ndtr": _ndtr, "sigmoid": _sigmoid, "silu": lambda x: x * _sigmoid(x),
    "gelu": lambda x: x * _ndtr(x), "doubled": lambda x: np.power(2.0, x),
    "softplus": lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x))),
    "saturated": lambda x: np.clip(x, -2, 2), "hypotenuse": np.hypot, "xor": np.bitwise_xor,
    "between": lambda a, b, c: np.logical_and(a <= b, b <= c),
    "blended": lambda a, b, c: a + (b - a) * c,
}  # fmt: skip


# --- reading at other positions -----------------------------------------------------------------


def _take(table: Value, places: Mapping[str, Value]) -> Value:
    axes = union(*((places[a].axes if a in places else (a,)) for a in table.axes))
    lengths = {a: n for v in (*places.values(), table)
               for a, n in zip(v.axes, v.data.shape, strict=True)
               if v is not table or a not in places}  # fmt: skip
    where = []
    for a, n in zip(table.axes, table.data.shape, strict=True):
        at = places[a] if a in places else Value((a,), np.arange(n))
        where.append(np.clip(at.on(axes), 0, n - 1))
    shape = [lengths[a] for a in axes]
    return Value(axes, np.broadcast_to(table.data[tuple(where)], shape))


def _slide(x: Value, over: str, option: Mapping[str, object], sizes: Mapping[str, int]) -> Value:
    p, w = option["into"]
    stride, dilation = option.get("stride", 1), option.get("dilation", 1)
    padding = option.get("padding", 0)
    before = padding[0] if isinstance(padding, tuple) else padding
    at = x.axes.index(over)
    n = x.data.shape[at]
    out = np.zeros((sizes[p], sizes[w], *np.delete(x.data.shape, at)), x.data.dtype)
    rows = np.moveaxis(x.data, at, 0)
    for i in range(sizes[p]):
        for j in range(sizes[w]):
            k = stride * i + dilation * j - before
            if 0 <= k < n:
                out[i, j] = rows[k]
    rest = tuple(a for a in x.axes if a != over)
    axes = tuple(b for a in x.axes for b in ((p, w) if a == over else (a,)))
    return Value(axes, Value((p, w, *rest), out).on(axes))


# --- key sets -----------------------------------------------------------------------------------


def _mask(keys: Keys | None, known: Sequence[Value], sizes: Mapping[str, int]) -> Value | None:
    """A key set as an array; with a batch axis in front for each axis of its tables beyond the
    last."""
    if keys is None:
        return None
    tables = [known[r.at] for k in keys.each() for r in k.tables]
    batch = union(*(t.axes[:-1] for t in tables))
    queries, lengths = ([sizes[a] for a in axes] for axes in (keys.queries, keys.keys))
    shape = [sizes[a] for a in batch]
    out = np.zeros([*shape, *queries, *lengths], dtype=bool)
    for at in np.ndindex(*shape):
        own = [t.filled((*batch, t.axes[-1]), sizes)[at] for t in tables]
        out[at] = seen(keys, queries, lengths, own)
    return Value((*batch, *keys.queries, *keys.keys), out)


def _keys_along(mask: Value, gone: Axes, at: Mapping[str, int]) -> list[np.ndarray]:
    """The keys along each key axis that one query sees, in order."""
    own = mask.data[tuple(at[a] if a in at else slice(None) for a in mask.axes)]
    axes = [a for a in mask.axes if a not in at]
    each = [tuple(i for i, b in enumerate(axes) if b != a) for a in gone]
    return [np.flatnonzero(own.any(axis=others)) for others in each]


def _without(gone: Axes, x: Value, mask: Value | None) -> Axes:
    """The axes of an array beside its key set, of which each key set of a batch has some, but for
    those that go."""
    both = union(x.axes, mask.axes if mask else ())
    return tuple(a for a in both if a not in gone)


def _compress(
    x: Value, gone: Axes, mask: Value, option: Mapping[str, object], sizes: Mapping[str, int]
) -> Value:
    slots = option["into"]
    rest = _without(gone, x, mask)
    fill = option.get("fill")
    least = {"f": -math.inf, "i": INT32.min, "b": False}[x.data.dtype.kind]
    out = np.full(
        [sizes[a] for a in (*rest, *slots)], least if fill is None else fill, x.data.dtype
    )
    full = x.filled((*rest, *gone), sizes)
    for at in np.ndindex(*(sizes[a] for a in rest)):
        along = _keys_along(mask, gone, dict(zip(rest, at, strict=True)))
        cut = tuple(slice(0, len(k)) for k in along)
        out[(*at, *cut)] = full[at][np.ix_(*along)]
    table = dict(zip(gone, slots, strict=True))
    axes = union(tuple(table.get(a, a) for a in x.axes), rest)
    return Value(axes, Value((*rest, *slots), out).on(axes))


def _spread(
    x: Value, slots: Axes, mask: Value, option: Mapping[str, object], sizes: Mapping[str, int]
) -> Value:
    gone = option["into"]
    rest = _without((*slots, *gone), x, mask)
    out = np.zeros([sizes[a] for a in (*rest, *gone)], x.data.dtype)
    full = x.filled((*rest, *slots), sizes)
    for at in np.ndindex(*(sizes[a] for a in rest)):
        along = _keys_along(mask, gone, dict(zip(rest, at, strict=True)))
        cut = tuple(slice(0, len(k)) for k in along)
        out[at][np.ix_(*along)] = full[at][cut]
    table = dict(zip(slots, gone, strict=True))
    axes = union(tuple(table.get(a, a) for a in x.axes), rest)
    return Value(axes, Value((*rest, *gone), out).on(axes))


# --- reductions ---------------------------------------------------------------------------------


def _inside(x: np.ndarray, axes: Axes, mask: Value | None, outside: object) -> np.ndarray:
    return x if mask is None else np.where(mask.on(axes), x, outside)


def _reduced(
    op: str, args: list[Value], gone: Axes, mask: Value | None, sizes: Mapping[str, int]
) -> Value:
    axes = union(*(x.axes for x in args), mask.axes if mask else ())
    where = tuple(axes.index(a) for a in gone)
    kept = tuple(a for a in axes if a not in gone)
    body = _product([_plain(x.filled(axes, sizes), op) for x in args])
    tests = op in {"max", "min"} and args[0].data.dtype == bool
    if op in {"any", "all"} or tests:
        least = op in {"all", "min"}
        truth = _inside(args[0].filled(axes, sizes) != 0, axes, mask, least)
        return Value(kept, (np.all if least else np.any)(truth, axis=where))
    if op in {"sum", "contract", "mean"}:
        total = _inside(body, axes, mask, 0).sum(axis=where)
        if op != "mean":
            return Value(kept, total)
        counted = (
            np.ones(body.shape, bool)
            if mask is None
            else np.broadcast_to(mask.on(axes), body.shape)
        )
        return Value(kept, np.asarray(total / counted.sum(axis=where)))
    if op == "prod":
        return Value(kept, _inside(body, axes, mask, 1).prod(axis=where))
    if op in OWN_REDUCE:
        found = _own_reduced(op, body.astype(float), axes, mask, where)
        if op == "nearest" and body.dtype.kind == "i":
            found = np.minimum(found, INT32.max).astype(np.int64)
        return Value(kept, found)
    whole = body.dtype.kind == "i"
    least, most = (INT32.min, INT32.max) if whole else (-math.inf, math.inf)
    start = least if op == "max" else most
    pick = np.max if op == "max" else np.min
    found = pick(_inside(body, axes, mask, start), axis=where, initial=start)
    return Value(kept, np.asarray(found))


def _own_reduced(
    op: str, body: np.ndarray, axes: Axes, mask: Value | None, where: tuple[int, ...]
) -> np.ndarray:
    """A reduction that a user adds."""
    if op == "added":
        return np.asarray(_inside(body, axes, mask, 0.0).sum(axis=where))
    if op == "either":
        return np.asarray(1 - (1 - _inside(body, axes, mask, 0.0)).prod(axis=where))
    if op == "nearest":  # to zero, and of two as near the positive one
        near = _inside(body, axes, mask, np.inf)
        least = np.abs(near).min(axis=where, initial=np.inf, keepdims=True)
        found = np.where(np.abs(near) == least, near, -np.inf).max(axis=where, initial=-np.inf)
        return np.where(np.isneginf(found), np.inf, found)  # the nearest of nothing
    sign = 1.0 if op == "log_sum" else -1.0
    body = _inside(sign * body, axes, mask, -np.inf)
    top = body.max(axis=where, initial=-np.inf, keepdims=True)
    top = np.where(np.isfinite(top), top, 0.0)
    return sign * (np.log(np.exp(body - top).sum(axis=where)) + top.squeeze(where))


def _product(parts: Sequence[np.ndarray]) -> np.ndarray:
    out = parts[0]
    for p in parts[1:]:
        out = out * p
    return out


def _jointly(
    step: Step, args: list[Value], masks: Sequence[Value | None], sizes: Mapping[str, int]
) -> Value:
    """Softmax or logsumexp, of one array or several side by side."""
    each = zip(step.over, args, masks, strict=True)
    kept = union(*(_without(o, x, mask) for o, x, mask in each))
    rows = int(np.prod([sizes[a] for a in kept]))
    flat: list[np.ndarray] = []
    for x, o, mask in zip(args, step.over, masks, strict=True):
        axes = (*kept, *o)
        body = _inside(x.filled(axes, sizes).astype(float), axes, mask, -math.inf)
        flat.append(body.reshape(rows, int(np.prod([sizes[a] for a in o]))))
    side = np.concatenate(flat, axis=1)
    top = side.max(axis=1, initial=-math.inf)
    top = np.where(np.isneginf(top), 0.0, top)
    weights = np.exp(side - top[:, None])
    total = weights.sum(axis=1)
    if step.op == "logsumexp":
        return Value(kept, (np.log(total) + top).reshape([sizes[a] for a in kept]))
    shares = weights / np.where(total == 0, 1.0, total)[:, None]
    which = int(step.option.get("which", 0))
    begin = sum(f.shape[1] for f in flat[:which])
    axes = (*kept, *step.over[which])
    own = shares[:, begin : begin + flat[which].shape[1]]
    return Value(axes, own.reshape([sizes[a] for a in axes]))
