"""A text that two diagrams share exactly if they compute the same in the same way.

A listing is for reading: it rounds numbers and abbreviates. This one leaves nothing out, is the
same in every process, and so names what is kept on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from napkin.diagram.diagram import Diagram
from napkin.ir.node import REDUCTIONS, Node, within
from napkin.ir.operators import POINTWISE


def definitions(terms: Iterable[Node]) -> dict[str, str]:
    """What the operators of a user are that terms use, by name: another process may have others
    under these names."""
    names = dict.fromkeys(n.op for n in terms)
    records = [r for op in names if (r := REDUCTIONS.get(op) or POINTWISE.get(op)) is not None]
    return {r.name: r.definition for r in records if r.definition}


def fingerprint(diagram: Diagram) -> str:
    """Every node under the inputs and outputs in order, arguments by their place."""
    order = list(within((*diagram.inputs, *diagram.roots)))
    place = {n: i for i, n in enumerate(order)}

    def said(param: object) -> object:
        if isinstance(param, tuple):
            return tuple(map(said, cast("tuple[object, ...]", param)))
        return place[param] if isinstance(param, Node) else param

    lines = [
        f"{n.op} {[place[a] for a in n.args]} {said(n.params)!r} {' '.join(n.axes)} {n.kind}"
        for n in order
    ]
    lines.append(f"{diagram.name} takes {[place[n] for n in diagram.inputs]}")
    lines += [f"{o.name} {place[o.node]} {' '.join(o.axes)}" for o in diagram.outputs]
    lines.append(f"scalars {list(diagram.scalars)}")
    lines += [f"{op} is {text}" for op, text in definitions(order).items()]
    return "\n".join(lines)
