"""`nk.gradient`: the diagram of a gradient, which is a diagram as any other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from napkin.diagram.columns import validate
from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.errors import InputError, Refusal, check_known
from napkin.gradient.products import ZERO, filled
from napkin.gradient.reached import Reached
from napkin.gradient.rules import pulled
from napkin.ir.expansion import opened, softmax_by_rows
from napkin.ir.infer import part_of, parts_of, pointwise
from napkin.ir.names import numbered
from napkin.ir.node import Node, postorder
from napkin.ir.rewrite import rewrite
from napkin.ir.storage import leaf, own_type
from napkin.ir.types import STORED


def gradient(f: Diagram, wrt: str | Iterable[str] | None = None) -> Diagram:
    """The gradient of a diagram by its inputs, as a diagram.

    It takes the inputs of `f` in their order and then a cotangent for each output of real numbers,
    named `d` and the output's name; it returns the sums of cotangents times derivatives by the
    inputs in `wrt`, named `d` and the input's name (`dX2` where an input `dX` is). The term of `f`
    is transposed: each node hands its cotangent to its arguments, by the derivative in the record
    of its operator.

    Args:
        f: the diagram.
        wrt: names of inputs; all of real numbers where it is left out.

    Raises:
        InputError: `f` is no diagram, or has no such input.
        Refusal: an input or every output is of whole numbers, or an operator has no derivative.
    """
    return backward(f, wrt).diagram


@dataclass(frozen=True, eq=False)
class Backward:
    """The gradient of a diagram, and what it computes as the diagram does.

    Attributes:
        diagram: the gradient.
        images: terms of the diagram, to those of the gradient that have the same value.
    """

    diagram: Diagram
    images: Mapping[Node, Node]


def backward(f: Diagram, wrt: str | Iterable[str] | None = None) -> Backward:
    """The gradient of a diagram, with where its terms come from; see `gradient`."""
    if not isinstance(f, Diagram):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise InputError(f"gradient of {f!r}, which is no diagram; put @nk.diagram above it")
    wanted = _wanted(f, wrt)
    given = _cotangents(f)
    found = transposed(f, given, wanted)
    results = [_stored_as(n, filled(found.get(n, ZERO), n.axes)) for n in wanted.values()]
    levelled = rewrite(results, by_rows)
    _, called = gradient_names(f)
    outputs = tuple(
        Output(called[name], levelled[g], n.axes)
        for g, (name, n) in zip(results, wanted.items(), strict=True)
    )
    names = {**f.names, **{o.node: o.name for o in f.outputs if o.node.op != "input"}}
    names = {levelled.get(n, n): text for n, text in names.items()}
    used = set(postorder(levelled[g] for g in results)) - {o.node for o in outputs}
    made = replace(
        f,
        name=f"{f.name}_gradient",
        inputs=(*f.inputs, *given.values()),
        outputs=outputs,
        names={n: text for n, text in names.items() if n in used},
        windows=f.slides,
        doc=f"The gradient of {f.name}.",
    )
    said = {a: c for a, c in f.counted.items() if a in made.axes}
    firsts = dict[str, str]()
    pairs = ((firsts.setdefault(f.sized_as(a), a), a) for a in made.axes)
    alike = tuple((first, a) for first, a in pairs if first != a)
    sizes = {a: n for a, n in f.sizes.items() if a in made.axes}
    made = replace(made, sizes=sizes, said=said, alike=alike)
    validate(made, unused=True)
    computed = set(postorder(made.roots))
    own = rewrite(f.roots, by_rows).items()
    return Backward(made, {n: image for n, image in own if image in computed})


def _stored_as(n: Node, g: Node) -> Node:
    """The gradient by an input in the type in which that is stored, if it has one of its own; of
    8 bits, which are too few for a sum, the plan's."""
    own = own_type(n)
    return pointwise("cast", (g,), (own,)) if own in STORED else g


def by_rows(old: Node, args: tuple[Node, ...]) -> Node | None:
    """For `rewrite`: softmax and log-sum-exp over the maximum and the sum of each row, two numbers
    that pass from one kernel to another, or from a forward to its backward."""
    if old.op == "softmax":
        return softmax_by_rows(parts_of(old, args), part_of(old))
    return opened(old, args) if old.op in {"logsumexp", "sub"} else None


def transposed(
    f: Diagram, given: Mapping[str, Node], wanted: Mapping[str, Node]
) -> dict[Node, Node]:
    """The cotangents of nodes, from those of the outputs."""
    at = Reached.of(f, wanted.values())
    arrived: dict[Node, list[Node]] = {}
    for o in f.outputs:
        if o.node in at.needed and o.name in given:
            g = at.sums.onto(given[o.name], o.node.axes, o.axes)
            assert g is not None
            arrived.setdefault(o.node, []).append(g)
    return pulled(at, arrived)


def _wanted(f: Diagram, wrt: str | Iterable[str] | None) -> dict[str, Node]:
    """The inputs that are asked for, by name."""
    known = dict(zip(f.input_names, f.inputs, strict=True))
    real = [name for name, n in known.items() if n.kind == "real"]
    if wrt is None:
        names = real
    elif isinstance(wrt, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        names = wrt.replace(",", " ").split() if isinstance(wrt, str) else list(wrt)
    else:
        raise InputError(f"gradient: wrt={wrt!r} names no input; write wrt='{' '.join(real)}'")
    for name in names:
        if name in list(f.scalars):
            raise Refusal(
                "gradient", f"{f.name}, by {name}", "a scalar of the call has no gradient",
                f"make {name} an input without axes, '()' in the signature",
            )  # fmt: skip
        check_known(name, known, f"gradient: {f.name} has no input {name!r}")
        if known[name].kind != "real":
            raise Refusal(
                "gradient", f"{f.name}, by {name}",
                f"{name} holds values of kind {known[name].kind!r}, which no small step changes",
                f"ask for {' '.join(real)}" if real else "",
            )  # fmt: skip
    if not real:
        raise Refusal("gradient", f.name, "no input holds real numbers")
    if not names:
        raise InputError(
            f"gradient: {f.name} is asked for the gradient by no input; write wrt='{real[0]}'"
        )
    if len(set(names)) < len(names):
        raise InputError(f"gradient: wrt='{' '.join(names)}' names an input twice")
    return {name: known[name] for name in names}


def gradient_names(f: Diagram) -> tuple[dict[str, str], dict[str, str]]:
    """What the cotangents of outputs and the gradients by inputs are called in the gradient of a
    diagram, by the names of these: as in a gradient of a gradient, one may be taken already."""
    taken = {*f.input_names, *f.scalars}
    found = dict[str, str](), dict[str, str]()
    ends = ([(o.name, o.node) for o in f.outputs], zip(f.input_names, f.inputs, strict=True))
    for names, each in zip(found, ends, strict=True):
        for name in (name for name, n in each if n.kind == "real"):
            names[name] = numbered(f"d{name}", taken)
            taken.add(names[name])
    return found


def _cotangents(f: Diagram) -> dict[str, Node]:
    """An input for the cotangent of each output of real numbers, by the output's name."""
    called, _ = gradient_names(f)
    found = {o.name: leaf(called[o.name], o.axes, "real", own_type(o.node))
             for o in f.outputs if o.name in called}  # fmt: skip
    if not found:
        raise Refusal("gradient", f.name, "no output holds real numbers")
    return found
