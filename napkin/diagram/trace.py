"""Tracing: a Python function on named-axis arrays, run once to see the diagram that it writes."""

from __future__ import annotations

import contextlib
import inspect
import keyword
import sys
import unicodedata
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, cast

from napkin.diagram.columns import validate
from napkin.diagram.diagram import INNER_NAMES, Diagram, function_name
from napkin.diagram.interface import Output, of_one_size
from napkin.diagram.miscalled import miscalled
from napkin.diagram.signature import Signature, parse
from napkin.diagram.sizes import by_axis, check_sizes
from napkin.errors import InputError, did_you_mean
from napkin.ir.array import Array
from napkin.ir.node import MOVES, Node, node, over, postorder, within
from napkin.ir.sliding import windowed
from napkin.ir.slots import slots_of
from napkin.ir.storage import leaf


def diagram(
    signature: str, *, sizes: Mapping[str, int] | None = None, name: str | None = None
) -> Callable[[Callable[..., Any]], Diagram]:
    """Trace a function on named-axis arrays into a `Diagram`.

    `signature` gives the axes of each array parameter and of each result, and after a colon what an
    array holds (`n:int`, `n:bool`) or how an input is stored where that is not the plan's type:
    `x d:fp8`, `c b:int8`, `c g b:int4` (see `napkin.ir.types`). Parameters beyond the arrays
    are user scalars; their defaults are kept.

    Raises:
        InputError: the signature does not parse, or does not fit the function.
    """
    if callable(signature):
        raise InputError(
            "@nk.diagram stands without a signature; write @nk.diagram('q d, x d -> q x'), with "
            "your own, above the function"
        )
    shapes, given = parse(signature), {} if sizes is None else by_axis(sizes)

    def trace(function: Callable[..., Any]) -> Diagram:
        if not callable(function):  # pyright: ignore[reportUnnecessaryComparison]
            raise InputError(f"@nk.diagram stands above {function!r}, which is no function")
        return _trace(function, shapes, signature, given, name)

    return trace


def _trace(
    function: Callable[..., Any],
    shapes: Signature,
    signature: str,
    sizes: dict[str, int],
    name: str | None,
) -> Diagram:
    title = _title(function, name)
    array_names, extra = _parameters(function, len(shapes.inputs), signature, title)
    scalars = {p.name: _default(p, title) for p in extra}
    inputs = tuple(
        leaf(n, s.axes, s.kind, s.storage) for n, s in zip(array_names, shapes.inputs, strict=True)
    )
    result, own, inner = _call(function, [Array(n) for n in inputs], extra)
    results = cast("tuple[Any, ...]", result if isinstance(result, tuple | list) else (result,))
    if len(results) != len(shapes.outputs):
        raise InputError(
            f"{title}: signature '{signature}' has {len(shapes.outputs)} outputs but the function "
            f"returns {len(results)}"
        )
    known = _sized(shapes, [x.node for x in results if isinstance(x, Array)])
    outputs: list[Output] = []
    for i, (value, shape) in enumerate(zip(results, shapes.outputs, strict=True)):
        if not isinstance(value, Array):
            number = isinstance(value, int | float)
            filled = f"; write 0.0 * X + {value!r} for an array full of it" if number else ""
            raise InputError(f"{title}: output {i + 1} is {value!r}, not an array{filled}")
        for axis in shape.axes:
            if axis not in known:
                raise InputError(
                    f"signature '{signature}': output axis {axis!r} is on no input, "
                    "so its size would be unknown; give an array with it, such as a table of what "
                    f"the function makes of nk.index({axis!r})"
                )
        if shape.kind not in {"real", value.node.kind}:
            stored = "int32" if shape.kind == "int" else shape.kind
            raise InputError(
                f"{title}: output {i + 1} holds values of kind {value.node.kind!r}, but signature "
                f"'{signature}' says {shape.kind!r}; write nk.cast(..., {stored!r}), or leave out "
                f"':{shape.kind}'"
            )
        if set(value.axes) != set(shape.axes):
            raise InputError(
                f"{title}: output {i + 1} has axes '{' '.join(value.axes)}', but signature "
                f"'{signature}' says '{' '.join(shape.axes)}'"
            )
        given = own.pop(value.node, "")
        fallback = "O" if len(results) == 1 else f"O{i + 1}"
        taken = {*array_names, *scalars, *(o.name for o in outputs)}
        chosen = given if given and given not in taken else fallback
        while chosen in taken:
            chosen += "_out"
        outputs.append(Output(chosen, value.node, shape.axes))
    results_of = {o.node for o in outputs}
    names = {n: text for n, text in (inner | own).items() if n not in results_of}
    doc = inspect.getdoc(function) or ""
    made = Diagram(title, inputs, tuple(outputs), scalars, names, sizes, doc)
    _check_axes(made, known, signature)
    validate(made)
    return made


def _title(function: Callable[..., Any], name: str | None) -> str:
    """What the diagram is called, and its kernel's function."""
    own = str(getattr(function, "__name__", ""))
    if not name:
        # That of a lambda would be no name for a kernel.
        good = own.isidentifier() and not keyword.iskeyword(unicodedata.normalize("NFKC", own))
        return function_name(own) if good else "diagram"
    return function_name(name)


def _parameters(
    function: Callable[..., Any], count: int, signature: str, title: str
) -> tuple[list[str], list[inspect.Parameter]]:
    """The names of `count` arrays, and the parameters beyond them, which are scalars."""
    try:
        given = inspect.signature(function).parameters.values()
        params = [p.replace(name=unicodedata.normalize("NFKC", p.name)) for p in given]
    except ValueError as error:  # it has none, or a reserved word in other letters is a name
        raise InputError(f"{title}: {error}") from None
    spread = [p.name for p in params if p.kind is p.VAR_POSITIONAL]
    named = [p for p in params if p.kind is p.KEYWORD_ONLY]
    fixed = [p for p in params if p.kind in {p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD}]
    for p in params:
        if p.kind is p.VAR_KEYWORD and not spread:  # a diagram takes *arrays and **scalars
            raise InputError(
                f"{title}: **{p.name} does not say which scalars there are; write each as a "
                "parameter of its own, as in scale=1.0"
            )
    if len(fixed) < count and not spread:
        behind = f"; {named[0].name} stands behind *, where scalars stand" if named else ""
        raise InputError(
            f"{title}: signature '{signature}' has {count} arrays but the function takes "
            f"{len(fixed)}{behind}"
        )
    arrays = [p.name for p in fixed[:count]]
    arrays += [f"{spread[0]}{i}" for i in range(count - len(arrays))]
    return arrays, [*fixed[count:], *named]


def _default(p: inspect.Parameter, title: str) -> float:
    """The value of a scalar that is not given, NaN where it has to be."""
    if p.default is p.empty:
        return float("nan")
    if not isinstance(p.default, str):
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            return float(p.default)
    raise InputError(
        f"{title}: the parameter {p.name}={p.default!r} is a scalar, since the signature has no "
        f"array for it, and its default is no number; write one, as in {p.name}=1.0"
    )


def _sized(shapes: Signature, results: list[Node]) -> set[str]:
    """The axes whose sizes are known: those of inputs, of slots, and of windows, also under other
    names."""
    order = list(within(results))
    known = {a for shape in shapes.inputs for a in shape.axes} | windowed(order)
    known |= {a for n in order if n.op in MOVES for a in slots_of(n).slots}
    pairs = set(of_one_size(order))
    while new := {a for pair in pairs if known & set(pair) for a in pair} - known:
        known |= new
    return known


def _check_axes(made: Diagram, known: set[str], signature: str) -> None:
    """Check that every axis that the function or its sizes name is one whose size is known."""
    for s in made.slides:
        if s.tap not in known:
            raise InputError(
                f"{made.name}: slide reads {s}, but no input has an axis {s.tap!r}, so how long "
                "a window is would be unknown; write slide(..., window=3)"
            )
    counts: dict[str, int] = {}
    for n in postorder(made.roots):
        s = slots_of(n) if n.op in MOVES else None
        for axis, count in zip(s.slots, s.counts, strict=True) if s else ():
            if counts.setdefault(axis, count) != count:
                raise InputError(
                    f"{made.name}: axis {axis!r} stands for {counts[axis]} slots and for {count}; "
                    "name the slots of each window"
                )
    for n in within(made.roots):
        axes = (str(n.params[0]),) if n.op in {"size", "index"} else over(n)
        for axis in axes:
            if axis not in known:
                raise InputError(
                    f"{made.name}: {n.op} names axis {axis!r}, which no input of "
                    f"'{signature}' has; {did_you_mean(axis, sorted(known))}"
                )
    check_sizes(made, made.sizes, partial=True)


def _call(
    function: Callable[..., Any], arrays: list[Array], scalars: list[inspect.Parameter]
) -> tuple[Any, dict[Node, str], dict[Node, str]]:
    """The result of `function`, what its local variables call arrays, and what the diagrams that it
    calls do."""
    values = {p.name: Array(node("scalar", params=(p.name,))) for p in scalars}
    placed = [values.pop(p.name) for p in scalars if p.kind is p.POSITIONAL_ONLY]
    seen: dict[str, Array] = {}
    code = getattr(function, "__code__", None)

    def watch(frame: FrameType, event: str, _: Any) -> None:
        if event == "return" and frame.f_code is code:
            seen.update({k: v for k, v in frame.f_locals.items() if isinstance(v, Array)})

    inner: dict[Node, str] = {}
    token, before = INNER_NAMES.set(inner), sys.getprofile()
    sys.setprofile(watch)
    try:
        result = function(*arrays, *placed, **values)
    except TypeError as error:
        said = miscalled(error)
        if not said:
            raise
        raise InputError(said).with_traceback(error.__traceback__) from None
    finally:
        if before is None or callable(before):
            sys.setprofile(before)
        else:  # cProfile's is no function, and starts itself
            before.enable()
        INNER_NAMES.reset(token)
    # In letters that Python reads as plain ones, such as bold ones, `if` can be a variable.
    named = {k: a.node for k, a in seen.items() if not keyword.iskeyword(k)}
    own = {n: k for k, n in named.items() if n.op != "input"}
    return result, own, inner
