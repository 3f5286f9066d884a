"""A diagram made ready for derivation: composites opened, every array named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from napkin.diagram.diagram import Diagram, Output
from napkin.diagram.expand import expanded
from napkin.diagram.keys.slots import read_inputs
from napkin.diagram.listing import assign_names
from napkin.diagram.node import COMPOSITES, Node, over, postorder, rewrite
from napkin.diagram.taking import read_table


@dataclass(frozen=True, eq=False)
class Prepared:
    """Outputs without composites, distinct names, and what was opened, in words."""

    outputs: tuple[Output, ...]
    names: Mapping[Node, str]
    expansions: tuple[str, ...]


def prepare(diagram: Diagram) -> Prepared:
    """Open the composites of a diagram and name its arrays."""
    done = expanded(diagram.roots)
    read = rewrite(done.values(), lambda old, args: read_table(old, args) or read_inputs(old, args))
    done = {old: read[new] for old, new in done.items()}
    outputs = tuple(replace(o, node=done[o.node]) for o in diagram.outputs)
    hints = {done[n]: text for n, text in diagram.names.items() if n in done}
    taken = {o.name for o in outputs}
    names = assign_names([o.node for o in outputs], hints, taken)
    for o in outputs:
        if o.node.op != "input":
            names[o.node] = o.name
    opened = [n for n in postorder(diagram.roots) if n.op in COMPOSITES]
    what = {
        "softmax": "max, exp, sum and divide",
        "logsumexp": "max, exp, sum and log",
        "mean": "sum and count",
    }
    texts = [f"{n.op} over {' '.join(over(n))} into {what[n.op]}" for n in opened]
    return Prepared(outputs, names, tuple(dict.fromkeys(texts)))
