"""A training pair: a forward diagram that gives what is kept, too, and a backward that reads it.

Whatever a gradient computes of the inputs alone may be kept. The forward computes it as the diagram
does where that has the same term, so that the two share it; in the backward an input takes its
place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.gradient.gradient import Backward, by_rows
from napkin.ir.infer import pointwise
from napkin.ir.listing import assign_names
from napkin.ir.names import numbered
from napkin.ir.node import COMPOSITES, REDUCTIONS, SCANS, Node, built_on, postorder, readers
from napkin.ir.operators import POINTWISE
from napkin.ir.operators.logic import RELATIONS
from napkin.ir.rewrite import rewrite, substitute
from napkin.ir.storage import leaf, own_type, unstored


@dataclass(frozen=True)
class Keepable:
    """An array that a gradient computes of the inputs alone.

    Attributes:
        name: of the output of the forward, and of the input of the backward; that of a reduction
            where `node` is what is read of one alone.
        node: in the terms of the gradient.
        axes: as it lies in memory.
        dtype: its storage type; "" for the plan's.
        output: whether it is an output of the diagram, which is stored in any case.
        beside: its name where it is kept in float32 beside such an output.
    """

    name: str
    node: Node
    axes: tuple[str, ...]
    dtype: str
    output: bool
    beside: str = ""

    def exactly(self) -> Keepable:
        """It in float32; an output is kept once more."""
        return replace(self, name=self.beside or self.name, dtype="fp32", output=False)


def keepable(f: Diagram, back: Backward) -> list[Keepable]:
    """What may be kept: outputs, reductions and scans, and of other terms of the diagram those that
    meet a cotangent. A term that is computed on the way to one of these takes as much memory. Axes
    lie in the order of the diagram's, so that rows of a result and their numbers do alike."""
    made = back.diagram
    given = set(made.inputs[len(f.inputs) :])
    order = list(postorder(made.roots))
    after = built_on(order, given.__contains__)  # what is computed of a cotangent
    met = {a for n in order if n in after for a in n.args}
    own = {n for n in back.images.values()}
    results = _results(f)
    names = assign_names(made.roots, made.names, {*made.scalars, *(o.name for o in f.outputs)})
    unsure = _one_sided(order)
    found = [
        Keepable(names.get(n, n.op), n, _in_order(n.axes, f.axes), "", False)
        for n in order
        if _is_array(n) and n not in after and n not in results and n not in unsure
        and (n.op in {*REDUCTIONS, *SCANS, *COMPOSITES} or (n in met and n in own))
    ]  # fmt: skip
    kept = [Keepable(o.name, n, o.axes, own_type(o.node), True, f"{o.name}_exact")
            for n, o in results.items() if n in order and n not in unsure]  # fmt: skip
    found = _without_stages(_at_ends(found, order, after | unsure | {*results}), order)
    found = [replace(k, dtype=own_type(k.node)) for k in found]
    return _distinct(kept + found, {*_interface(f), *_interface(made)})


def _interface(f: Diagram) -> list[str]:
    """The names of what a diagram takes and gives."""
    return [*f.input_names, *f.scalars, *(o.name for o in f.outputs)]


def _at_ends(
    found: Sequence[Keepable], order: Sequence[Node], not_kept: Set[Node]
) -> list[Keepable]:
    """Those, but in place of a number of each row what is computed of it alone and read in its
    place: the logarithm of a sum, say, which each value along the row would compute again.
    `not_kept` has terms that are no candidates."""
    read_by = readers(order)

    def end(n: Node) -> Node:
        own = {n}
        for m in order[order.index(n) + 1 :]:
            alike = m.op in POINTWISE and {*m.axes} == {*n.axes} and m not in not_kept
            own |= {m} if alike and not own.isdisjoint(m.args) else set()
        (first, *others) = [m for m in own if not read_by.get(m, set()) <= own] or [n]
        wider = all({*n.axes} < {*m.axes} for m in read_by.get(first, ()) if m not in own)
        return n if others or not wider or first.kind != "real" else first

    return list({k.node: k for k in (replace(k, node=end(k.node)) for k in found)}.values())


def _in_order(axes: Sequence[str], order: Sequence[str]) -> tuple[str, ...]:
    """The axes in this order, and those that it lacks."""
    return (*(a for a in order if a in axes), *(a for a in axes if a not in order))


def _one_sided(order: Sequence[Node]) -> set[Node]:
    """Arrays that one side of a comparison is computed of, where the other is computed of the same
    inputs without them: x == max(x) holds where both are rounded alike, and what is kept is rounded
    once more."""
    found = set[Node]()
    for test in (n for n in order if n.op in RELATIONS):
        left, right = ({*postorder([a])} for a in test.args)
        if shared := {n for n in left & right if n.op == "input"}:
            found |= {n for n in left ^ right if n not in shared and shared & {*postorder([n])}}
    return found


def _without_stages(found: Sequence[Keepable], order: Sequence[Node]) -> list[Keepable]:
    """Those but for arrays from which pointwise operators alone lead to another one as large."""
    read_by = readers(order)
    each = {k.node for k in found}

    def stage(n: Node) -> bool:
        while len(read_by.get(n, ())) == 1:
            (reader,) = read_by[n]
            if reader.op not in POINTWISE or set(reader.axes) != set(n.axes):
                return False
            if reader in each:
                return True
            n = reader
        return False

    return [k for k in found if not stage(k.node)]


def _results(f: Diagram) -> dict[Node, Output]:
    """The outputs, by the terms with which a gradient computes them. A cast that says how an output
    is stored changes no value; one that is repeated along an axis is no such output."""
    images = rewrite(f.roots, by_rows)
    found: dict[Node, Output] = {}
    for o in f.outputs:
        image = images.get(unstored(o.node))
        if image is not None and _is_array(image) and {*image.axes} == {*o.axes}:
            found.setdefault(image, o)
    return found


def _is_array(n: Node) -> bool:
    """Whether a term is computed of arrays of real numbers."""
    return n.kind == "real" and n.op not in {"input", "rename", "take", "spread"} and not n.constant


def _distinct(found: Sequence[Keepable], taken: set[str]) -> list[Keepable]:
    """The same arrays under names that are their own, but for those that outputs have."""
    out = list[Keepable]()
    for k in found:
        field = "beside" if k.output else "name"
        name = numbered(getattr(k, field), taken)
        taken.add(name)
        out.append(replace(k, **{field: name}))
    return out


def forward_with(f: Diagram, back: Backward, kept: Sequence[Keepable]) -> Diagram:
    """The diagram with what is kept as outputs after its own."""
    more = [k for k in kept if not k.output]
    origin = {image: n for n, image in back.images.items()}
    done = rewrite([k.node for k in more], lambda old, args: origin.get(old))
    extra = [Output(k.name, _cast(done[k.node], k.dtype), k.axes) for k in more]
    names = {n: text for n, text in f.names.items() if n not in {o.node for o in extra}}
    return replace(f, outputs=(*f.outputs, *extra), names=names) if extra else f


def _cast(n: Node, dtype: str) -> Node:
    there = not dtype or (n.op == "cast" and n.params[0] == dtype)
    return n if there else pointwise("cast", (n,), (dtype,))


def kept_leaf(k: Keepable) -> Node:
    """The input of the backward that takes the place of an array."""
    return leaf(k.name, k.axes, "real", k.dtype)


def backward_with(back: Backward, kept: Sequence[Keepable]) -> Diagram:
    """The gradient with what is kept as inputs after its own."""
    made = back.diagram
    by: Mapping[Node, Node] = {k.node: kept_leaf(k) for k in kept}
    done = substitute(made.roots, by)
    outputs = tuple(replace(o, node=done[o.node]) for o in made.outputs)
    names = {done[n]: text for n, text in made.names.items() if n in done and n not in by}
    return replace(made, inputs=(*made.inputs, *by.values()), outputs=outputs, names=names)
