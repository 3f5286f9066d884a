"""Functions by the keys under which graphs call them, the same in every process.

A key names a diagram that was registered, one of a family with the arguments of its builder, or
one that is made of another: mapped by `torch.vmap`, with what its gradient keeps, or its gradient.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import replace
from typing import Any

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.gradient.gradient import Backward, backward
from napkin.gradient.training_pair import Keepable, backward_with, forward_with, keepable
from napkin.ir.node import REDUCTIONS, Node, postorder
from napkin.ir.storage import own_type
from napkin.rewrite.exact import read_exactly
from napkin.torch.diagrams import attention_diagram, neighborhood_diagram
from napkin.torch.function import Function, Reads
from napkin.torch.row_diagrams import row_diagram

BUILDERS: dict[str, Callable[..., Diagram]] = {
    "attention": attention_diagram,
    "neighborhood": neighborhood_diagram,
    "rows": row_diagram,
}
"""What builds the diagrams of a family from plain arguments, which then are in the key."""

_FUNCTIONS: dict[str, Function] = {}


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
    runs a graph that was captured in another, or one that is made of these.

    Raises:
        InputError: it is none of these.
        Refusal: it is a gradient of what has none.
    """
    if key not in _FUNCTIONS:
        try:
            _FUNCTIONS[key] = _made(key)
        except (SyntaxError, TypeError, ValueError, IndexError, RecursionError, MemoryError) as why:
            if isinstance(why, InputError):
                raise
            raise InputError(
                f"the graph calls {key[:60]!r}, which is no call of this version of napkin; "
                "capture it anew"
            ) from None
    return _FUNCTIONS[key]


def _made(key: str) -> Function:
    """The function that a key says how to make."""
    how, _, rest = key.partition(" ")
    if how not in _MADE:
        return _anew(key)
    places, _, inner = rest.partition(" ")
    return _MADE[how](places, inner)


def _anew(key: str) -> Function:
    """The function of a family that a key names."""
    family, bracket, rest = key.partition("(")
    if family not in BUILDERS or not bracket:
        raise InputError(
            f"the graph calls the diagram {key[:60]!r}, which this process has not seen; pass it "
            "to napkin.torch.compile before the graph runs"
        )
    return built(family, *ast.literal_eval(bracket + rest))


def _mapped(places: str, inner: str) -> Function:
    """A function mapped over some of its inputs: weaved, in the words of diagrams."""
    diagram = called(inner).diagram
    axis = next(a for a in map("v{}".format, itertools.count()) if a not in diagram.axes)
    over = " ".join(diagram.input_names[i] for i in _numbers(places))
    made = diagram.weave(axis, over)
    return Function(made, key_of("mapped", places, inner), called(inner).reads)


def _gradient(places: str, inner: str) -> Function:
    """The gradient of a function by some of its inputs, where some of its outputs count; it reads
    others, or the same, that are kept. Equal gradients are one output."""
    diagram = called(inner).diagram
    wanted, counted, kept = map(_numbers, places.split("/"))
    seen = replace(diagram, outputs=tuple(diagram.outputs[i] for i in counted))
    back = backward(seen, [diagram.input_names[i] for i in wanted])
    outputs = {i: k for i, k in _outputs(diagram, back) if i in kept}
    made = backward_with(back, list(outputs.values()))
    distinct = list(dict.fromkeys((o.node, o.axes) for o in made.outputs))
    held = [distinct.index((o.node, o.axes)) for o in made.outputs]
    made = replace(made, outputs=tuple(made.outputs[held.index(i)] for i in range(len(distinct))))
    inputs = _read(made, len(diagram.inputs))
    made = replace(
        made,
        inputs=(*(made.inputs[i] for i in inputs), *made.inputs[len(diagram.inputs) :]),
    )
    reads = Reads(inputs, list(outputs), held)
    return Function(made, key_of("gradient", places, inner), reads)


def _read(made: Diagram, count: int) -> list[int]:
    """The places of those of the first inputs of a gradient that it reads; and of others that
    alone say how long an axis is, or in which type results are stored."""
    terms = set(postorder(made.roots))
    read = [i for i in range(count) if made.inputs[i] in terms]
    given = [*(made.inputs[i] for i in read), *made.inputs[count:]]
    missing = {a for n in terms for a in n.axes} - {a for n in given for a in n.axes}
    typed = any(n.kind == "real" and not own_type(n) for n in given)
    for i in (i for i in range(count) if i not in read):
        n = made.inputs[i]
        types = not typed and n.kind == "real" and not own_type(n)
        if types or missing & {*n.axes}:
            read.append(i)
            missing -= {*n.axes}
            typed = typed or types
    return sorted(read)


def _outputs(diagram: Diagram, back: Backward) -> Iterator[tuple[int, Keepable]]:
    """The outputs that a gradient can read in place of computing them, with their places: those
    that are stored well enough for what it computes of them. Numbers of rows are in float32."""
    place = {o.name: i for i, o in enumerate(diagram.outputs)}
    exact = read_exactly(back.diagram.roots, "fp16")  # the type with the least range
    for k in keepable(diagram, back):
        rounded = k.node in exact or _of_rows(k, diagram)
        if k.output and (not rounded or k.dtype == "fp32"):
            yield place[k.name], k


def _of_rows(k: Keepable, diagram: Diagram) -> bool:
    """Whether an array has one number for each row of an input."""
    return any({*k.axes} < {*n.axes} for n in diagram.inputs)


def _trained(places: str, inner: str) -> Function:
    """A function that also gives the numbers of rows that the gradient of its first output by some
    of its inputs would compute by products: attention's maxima, say, and the logarithms of its
    sums."""
    diagram = called(inner).diagram
    names = diagram.input_names
    first = tuple(o for o in diagram.outputs if o.node.kind == "real")[:1]
    back = backward(replace(diagram, outputs=first), [names[i] for i in _numbers(places)])
    rows = [{*n.axes} for n in diagram.inputs]
    own = {k.node for _, k in _outputs(diagram, back)}
    kept = [
        k.exactly()
        for k in keepable(diagram, back)
        if k.node not in own and _of_rows(k, diagram) and _multiplies(k.node, rows)
    ]
    return Function(forward_with(diagram, back, kept), key_of("trained", places, inner))


def _multiplies(n: Node, inputs: Sequence[Set[str]]) -> bool:
    """Whether an array is reduced from one along more axes than any input has."""
    bodies = [{*m.args[0].axes} for m in postorder([n]) if m.op in REDUCTIONS]
    return any(not any(body <= own for own in inputs) for body in bodies)


_MADE: dict[str, Callable[[str, str], Function]] = {
    "mapped": _mapped, "trained": _trained, "gradient": _gradient,
}  # fmt: skip
"""How a function is made of another, by the first word of its key."""


def key_of(how: str, places: str, inner: str) -> str:
    """The key of a function that is made of another: "mapped" over the inputs at `places` such as
    "0,2", "trained" by some, or the "gradient" by inputs from outputs, of which some are kept:
    "0,1/0/0"."""
    return f"{how} {places} {inner}"


def places_of(numbers: Iterable[int]) -> str:
    """Places in a key."""
    return ",".join(map(str, numbers))


def _numbers(places: str) -> list[int]:
    return [int(i) for i in places.split(",") if i]


def is_gradient(key: str) -> bool:
    """Whether a function has a gradient in it."""
    how, _, rest = key.partition(" ")
    return how == "gradient" or (how == "mapped" and is_gradient(rest.partition(" ")[2]))
