"""A diagram as columns: tuples of arrays, and between them operators.

A diagram alternates data columns, the tuple of arrays that exists at a moment, and function columns,
here one operator each: a term of n composed stages has n + 1 data columns (arXiv 2412.03317,
section 2). Copying, deleting and swapping arrays is a rearrangement of wires and no stage.

A stage is a reduction with the product under it (a contraction), a composite such as softmax, a scan,
a renaming, or the pointwise arithmetic between two of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from napkin.diagram.diagram import Diagram
from napkin.diagram.evaluate import factors, is_constant
from napkin.diagram.expand import expanded as opened
from napkin.diagram.infer import rebuilt
from napkin.diagram.listing import assign_names, text
from napkin.diagram.node import LEAVES, Node, over, postorder
from napkin.diagram.operators import POINTWISE
from napkin.errors import InputError

OUTER, INNER = "outer", "inner"
"""The levels of a diagram without labels: its inputs and outputs lie at the outer one."""

Levels = Mapping[Node, Sequence[str]]
"""The level path of an array: its level in each column where it is alive, the last one repeated
where the path is shorter (a value has a path, since it may be moved while it lives)."""


@dataclass(frozen=True, eq=False)
class Entry:
    """One array of a column.

    Attributes:
        name: what it is called.
        axes: its axes, in the order of its memory.
        node: the term that it is the value of.
        level: where it lies in this column.
    """

    name: str
    axes: tuple[str, ...]
    node: Node
    level: str


@dataclass(frozen=True, eq=False)
class Stage:
    """One operator, between two columns.

    Attributes:
        op: "contract", a reduction, composite or scan, "rename", or "pointwise".
        node: the result.
        args: the arrays that go in, each once.
        over: the axes that it works along.
        text: the result as an expression over the names of `args`.
    """

    op: str
    node: Node
    args: tuple[Node, ...]
    over: tuple[str, ...]
    text: str


@dataclass(frozen=True, eq=False)
class Column:
    """The arrays alive at one cut, from top to bottom; `after` is the stage before the cut."""

    entries: tuple[Entry, ...]
    after: Stage | None = None

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __str__(self) -> str:
        return ", ".join(f"{e.name}[{' '.join(e.axes)}]" for e in self.entries)


def columns(
    diagram: Diagram, *, expanded: bool = False, levels: Levels | None = None
) -> tuple[Column, ...]:
    """The data columns: column i is the tuple on the wires cut after stage i.

    Column 0 holds the inputs and the last column the outputs, both in the diagram's order. In between
    a result takes the place of the first argument that ends with it, so that few wires cross.
    Composites stay one stage unless `expanded`; `levels` are level paths, of the nodes that stages
    have (those of the diagram with its composites opened, if `expanded`).
    """
    if expanded:
        diagram = _opened(diagram)
    names, order = _named(diagram), stages(diagram)
    life: dict[Node, int] = {}
    alive = list(dict.fromkeys(diagram.inputs))
    cuts = [tuple(alive)]
    last = {a: i for i, stage in enumerate(order) for a in stage.args}
    last |= dict.fromkeys(diagram.roots, len(order))
    for i, stage in enumerate(order):
        ending = [n for n in alive if last.get(n, -1) <= i]
        used = [n for n in alive if n in stage.args]
        gone = [n for n in used if n in ending]
        at = alive.index(gone[0]) if gone else alive.index(used[-1]) + 1 if used else len(alive)
        alive.insert(at, stage.node)
        alive = [n for n in alive if n not in ending]
        cuts.append(tuple(alive))
    outer = {*diagram.inputs, *diagram.roots}
    made: list[Column] = []
    for i, cut in enumerate(cuts):
        rows: list[Entry] = []
        for n in cut:
            path = (levels or {}).get(n) or ((OUTER,) if n in outer else (INNER,))
            level = path[min(life.get(n, 0), len(path) - 1)]
            life[n] = life.get(n, 0) + 1
            rows.append(Entry(names[n], n.axes, n, level))
        made.append(Column(tuple(rows), order[i - 1] if i else None))
    if order:
        final = {e.node: e for e in made[-1]}
        made[-1] = replace(
            made[-1],
            entries=tuple(
                replace(final[o.node], name=o.name, axes=o.axes) for o in diagram.outputs
            ),
        )
    return tuple(made)


def stages(diagram: Diagram, *, expanded: bool = False) -> tuple[Stage, ...]:
    """The operators, in an order in which they can run."""
    if expanded:
        diagram = _opened(diagram)
    names = _named(diagram)
    shown = {**names, **{n: n.op for n in postorder(diagram.roots) if n.op == "scalar"}}
    shown = {n: t if n.op != "scalar" else str(n.params[0]) for n, t in shown.items()}
    out: list[Stage] = []
    for n in postorder(diagram.roots):
        if n not in names or n.op == "input":
            continue
        args = _arguments(n, names)
        op = "pointwise" if n.op in POINTWISE else n.op
        if n.op == "sum" and len(args) > 1 and n.args[0] not in names:
            op = "contract"
        out.append(Stage(op, n, args, over(n), text(n, shown)))
    return tuple(out)


def validate(diagram: Diagram) -> None:
    """Check that the columns fit together (composition needs equal tuples on both sides).

    Raises:
        InputError: an axis stands twice in an array or comes from nowhere, an operator's result does
            not have the axes that its arguments give it, an operator works along an axis that its
            argument lacks, an input is used but not declared or declared but not used, or an output
            is not in the last column.
    """
    names = _named(diagram)

    def fail(n: Node, what: str) -> None:
        place = names.get(n) or text(n, names)
        raise InputError(f"{diagram.name}, at {place}: {what}")

    used: set[Node] = set()
    for n in postorder(diagram.roots):
        for axis in n.axes:
            if n.axes.count(axis) > 1:
                fail(n, f"axis {axis!r} stands twice in '{' '.join(n.axes)}'; name each axis once")
        if n.op == "input":
            used.add(n)
            if n not in diagram.inputs:
                fail(n, "this array is no input of the diagram; add it to the signature")
        for axis in over(n):
            if axis not in n.args[0].axes:
                fail(
                    n,
                    f"{n.op} over {axis!r}, but its argument has axes "
                    f"'{' '.join(n.args[0].axes)}'; reduce over one of those",
                )
        if n.op not in LEAVES:
            wanted = rebuilt(n, n.args).axes
            if n.axes != wanted:
                fail(
                    n,
                    f"its axes are '{' '.join(n.axes)}', but {n.op} of its arguments has "
                    f"'{' '.join(wanted)}'; build it from the arguments",
                )
    for n in diagram.inputs:
        if n not in used:
            fail(n, "this input is never used; take it out of the signature, or use it")
    final = {e.node for e in columns(diagram)[-1]}
    for o in diagram.outputs:
        if o.node not in final:
            fail(o.node, f"output {o.name} is not in the last column")
        if sorted(o.axes) != sorted(o.node.axes):
            fail(
                o.node,
                f"output {o.name} is declared with axes '{' '.join(o.axes)}' but has "
                f"'{' '.join(o.node.axes)}'; declare those, in any order",
            )


def _opened(diagram: Diagram) -> Diagram:
    by = opened(diagram.roots)
    return replace(
        diagram,
        outputs=tuple(replace(o, node=by[o.node]) for o in diagram.outputs),
        names={by[n]: t for n, t in diagram.names.items() if n in by},
    )
