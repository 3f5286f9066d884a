"""A diagram as columns: tuples of arrays, and between them operators.

A diagram alternates data columns, the tuple of arrays that exists at a moment, and function
columns, here one operator each: a term of n composed stages has n + 1 data columns (arXiv
2412.03317, section 2). Copying, deleting and swapping arrays rearranges wires and is no stage.

A stage is a reduction with the product under it (a contraction), a composite such as softmax, a
scan, a renaming, or the pointwise arithmetic between two of those.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from napkin.diagram.diagram import Diagram
from napkin.errors import InputError
from napkin.ir.infer import rebuilt
from napkin.ir.listing import assign_names, text
from napkin.ir.names import numbered
from napkin.ir.node import LEAVES, MOVES, Node, factors, over, postorder, preorder, union_axes
from napkin.ir.operators import POINTWISE
from napkin.ir.slots import slots_of

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


def columns(diagram: Diagram, levels: Levels | None = None) -> tuple[Column, ...]:
    """The data columns: column i is the tuple on the wires cut after stage i.

    Column 0 holds the inputs and the last column the outputs, both in the diagram's order; those in
    between are in the order of `alive`. `levels` are the level paths of nodes of stages.
    """
    names, order = _named(diagram), stages(diagram)
    outer, age = {*diagram.inputs, *diagram.roots}, dict[Node, int]()
    made: list[Column] = []
    for i, cut in enumerate(alive(diagram)):
        rows: dict[Node, Entry] = {}
        for n in cut:
            path = (levels or {}).get(n) or ((OUTER,) if n in outer else (INNER,))
            level = path[min(age.get(n, 0), len(path) - 1)]
            age[n] = age.get(n, 0) + 1
            rows[n] = Entry(names[n], n.axes, n, level)
        entries = tuple(rows.values())
        if order and i == len(order):
            entries = tuple(
                replace(rows[o.node], name=o.name, axes=o.axes) for o in diagram.outputs
            )
        made.append(Column(entries, order[i - 1] if i else None))
    return tuple(made)


def alive(diagram: Diagram) -> tuple[tuple[Node, ...], ...]:
    """The arrays on each cut, in an order that lets few wires cross: a result takes the place of
    its first argument that ends with it, and everything else stays where it is."""
    order = stages(diagram)
    last = {a: i for i, stage in enumerate(order) for a in stage.args}
    last |= dict.fromkeys(diagram.roots, len(order))
    now = list(dict.fromkeys(diagram.inputs))
    cuts = [tuple(now)]
    for i, stage in enumerate(order):
        used = [n for n in now if n in stage.args]
        ending = [n for n in now if last.get(n, -1) <= i]
        gone = [n for n in used if n in ending]
        at = now.index(gone[0]) if gone else now.index(used[-1]) + 1 if used else len(now)
        now.insert(at, stage.node)
        now = [n for n in now if n not in ending]
        cuts.append(tuple(now))
    return tuple(cuts)


def stages(diagram: Diagram) -> tuple[Stage, ...]:
    """The operators, in an order in which they can run."""
    names = _named(diagram)
    out: list[Stage] = []
    for n in postorder(diagram.roots):
        if n not in names or n in diagram.inputs:
            continue
        args = _arguments(n, names)
        op = "pointwise" if n.op in POINTWISE else n.op
        if n.op == "sum" and len(args) > 1:
            op = "contract"
        out.append(Stage(op, n, args, _along(n), text(n, names)))
    return tuple(out)


def _along(n: Node) -> tuple[str, ...]:
    """The axes that an operator works along: a window's keys and slots are among them."""
    if n.op not in MOVES:
        return over(n)
    s = slots_of(n)
    return (*s.keys, *s.slots)


def validate(diagram: Diagram, unused: bool = False) -> None:
    """Check that the columns fit together (composition needs equal tuples on both sides).

    Args:
        unused: whether inputs may be used by nothing, as those of a gradient may.

    Raises:
        InputError: an axis stands twice in an array, an operator's result does not have the axes
            that its arguments give it, an operator works along an axis that its argument lacks, an
            input is used but not declared or declared but not used, or an output is not in the
            last column or not declared with its axes.
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
            if axis not in union_axes(n.args):
                fail(
                    n,
                    f"{n.op} over {axis!r}, but its argument has axes "
                    f"'{' '.join(union_axes(n.args))}'; reduce over one of those",
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
        if n not in used and not unused:
            raise InputError(
                f"{diagram.name}: {names[n]} is never used; take it out of the signature, or use it"
            )
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


def _arguments(n: Node, wires: Mapping[Node, str]) -> tuple[Node, ...]:
    """The wires that `n` is computed from, in order of reading, each once."""
    return tuple(a for a in preorder(n.args, lambda a: a not in wires) if a in wires)


def _wires(diagram: Diagram) -> set[Node]:
    """The nodes that are arrays of some column; the others stand in the text of a stage."""
    # Key sets stand in the text, too, with all that their bounds are computed from.
    sets = set(diagram.key_sets)
    order = [n for n in postorder(diagram.roots, sets) if n not in sets]
    uses: dict[Node, int] = {}
    for n in order:
        for a in n.args:
            uses[a] = uses.get(a, 0) + 1
    wires = {*diagram.inputs, *diagram.roots}
    for n in order:
        # Written twice, arithmetic is still done once: what is shared is an array.
        shared = n in diagram.names or uses.get(n, 0) > 1
        if _is_operator(n) or (shared and _is_array(n)):
            wires.add(n)
    for n in order:
        if not _is_operator(n):
            continue
        parts = {a for a in factors(n.args[0], wires) if _is_array(a) or a in wires}
        wires |= parts if n.op == "sum" and len(parts) > 1 else {a for a in n.args if _is_array(a)}
    return wires


def _is_operator(n: Node) -> bool:
    """Whether `n` is a stage wherever it stands. (A sum of ones is a size, not an array.)"""
    if n.op == "sum" and n.args[0].op == "ones":
        return False
    return n.op not in POINTWISE and n.op not in LEAVES and n.op != "keys"


def _is_array(n: Node) -> bool:
    """Whether pointwise `n` is more than a constant."""
    return n.op in POINTWISE and not n.constant


def _named(diagram: Diagram) -> dict[Node, str]:
    """The wires, each with a name of its own: that of listings, where they give it a line."""
    wires = _wires(diagram)
    results = {o.node: o.name for o in reversed(diagram.outputs) if o.node.op != "input"}
    known = assign_names(diagram.roots, diagram.names, taken=[o.name for o in diagram.outputs])
    known |= {n: str(n.params[0]) for n in diagram.inputs} | results
    used = set(known.values())
    out: dict[Node, str] = {}
    for n in postorder([*diagram.inputs, *diagram.roots]):
        if n in wires:
            out[n] = known[n] if n in known else numbered("t", used)
            used.add(out[n])
    return out
