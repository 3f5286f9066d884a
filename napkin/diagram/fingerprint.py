"""A text that two diagrams share exactly if they compute the same in the same way.

A listing is for reading: it rounds numbers and abbreviates. This one leaves nothing out, is the
same in every process, and so names what is kept on disk.
"""

from __future__ import annotations

from napkin.diagram.diagram import Diagram
from napkin.diagram.node import postorder


def fingerprint(diagram: Diagram) -> str:
    """Every node under the inputs and outputs in order, arguments by their place."""
    order = list(postorder((*diagram.inputs, *diagram.roots)))
    place = {n: i for i, n in enumerate(order)}
    lines = [
        f"{n.op} {[place[a] for a in n.args]} {n.params!r} {' '.join(n.axes)} {n.kind}"
        for n in order
    ]
    lines.append(f"{diagram.name} takes {[place[n] for n in diagram.inputs]}")
    lines += [f"{o.name} {place[o.node]} {' '.join(o.axes)}" for o in diagram.outputs]
    lines.append(f"scalars {list(diagram.scalars)}")
    return "\n".join(lines)
