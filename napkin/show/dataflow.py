"""The dataflow of a diagram as a Graphviz graph: which arrays each operator reads.

The DOT text needs nothing but Python; Graphviz's program `dot` makes a picture of it.
"""

from __future__ import annotations

from graphviz import Digraph, escape

from napkin.diagram.columns import columns, stages
from napkin.diagram.diagram import Diagram
from napkin.ir.node import Node
from napkin.show.words import printable


def dot(diagram: Diagram) -> str:
    """The dataflow graph as DOT text: arrays on the edges, operators and ends at the nodes."""
    names = {e.node: e.name for column in columns(diagram) for e in column}
    names |= {n: str(n.params[0]) for n in diagram.inputs}
    graph = Digraph(escape(printable(diagram.name)))
    graph.attr("graph", rankdir="LR")
    graph.attr("node", shape="box", style="rounded", fontname="monospace", fontsize="11")
    graph.attr("edge", fontname="monospace", fontsize="10")
    at: dict[Node, str] = {}

    def flow(n: Node, head: str) -> None:
        axes = " ".join(n.axes) or "()"
        label = axes if n in diagram.inputs else f"{names[n]}: {axes}"
        graph.edge(at[n], head, label=escape(label))

    for i, n in enumerate(diagram.inputs):
        at[n] = f"in{i}"
        graph.node(at[n], escape(names[n]), shape="plaintext")
    for i, stage in enumerate(stages(diagram)):
        at[stage.node] = f"op{i}"
        graph.node(at[stage.node], escape(stage.text))
        for a in stage.args:
            flow(a, at[stage.node])
    for i, o in enumerate(diagram.outputs):
        graph.node(f"out{i}", escape(printable(o.name)), shape="plaintext")
        flow(o.node, f"out{i}")
    return str(graph.source)
