"""Split-K: a streamed axis in parts that groups fold side by side, and a kernel that merges states.

A fold's merge joins the states of two parts (arXiv 2412.03317, section 2.3; flash-decoding is the
case of attention with few queries). So where a kernel has too few groups to fill a machine, the
streamed axis is cut into parts, one more grouped axis: each group folds one part and stores its
states, and a second kernel streams over the parts, with the fold's merge for its step and the
fold's own tail. Nothing here knows which fold it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from napkin.derive.fold import Emit, Pass, State, Stream
from napkin.derive.kernel import Kernel
from napkin.derive.rules.folds import verified_parts
from napkin.diagram.diagram import Output
from napkin.diagram.node import Node, node, postorder, substitute
from napkin.diagram.storage import Tensor
from napkin.errors import Refusal


def part_axis(axis: str, number: int) -> str:
    """The name of the axis of `number` parts of `axis`."""
    return f"{axis}_part{number}"


def why_not_parted(kernel: Kernel) -> str:
    """The condition that fails for cutting a kernel's stream into parts; "" where none does."""
    s = kernel.stream
    if not s.axes:
        return "nothing is streamed"
    if len(s.axes) > 1:
        return f"{s.axis} are streamed jointly, and their boxes have no order to cut"
    if len(s.passes) > 1:
        return f"{s.axis} is read in {len(s.passes)} passes: the next needs what the last found"
    for emit in (e for p in s.passes for e in p.emits):
        return f"output {emit.output} carries {s.axis} and is stored as it streams"
    if kernel.visits is not None:
        return f"a key set says which chunks of {s.axis} each group visits"
    if kernel.splits:
        return f"{kernel.splits[0].axis} is split by residue"
    return ""


def parted(kernel: Kernel, number: int) -> tuple[Kernel, Kernel]:
    """The kernel that folds `number` parts of the streamed axis, and the one that merges them.

    States pass between the two through memory, as float32: one tensor for each, called after it,
    with an axis of parts before its own.

    Raises:
        Refusal: the stream cannot be cut into parts.
    """
    s = kernel.stream
    reason = why_not_parted(kernel)
    if reason:
        raise Refusal(
            f"part {s.axis}".strip(), kernel.name, reason, "group more axes, or run it as it is"
        )
    axis = part_axis(s.axis, number)
    states = s.passes[0].states
    taken = {a.tensor for a in kernel.reads} | {o.name for o in kernel.outputs}
    stored = {x.name: _stored(x, axis, taken) for x in states}
    outputs = tuple(Output(str(n.params[0]), n, n.axes) for n in stored.values())
    tails = tuple(Emit(str(stored[x.name].params[0]), x.leaf("new")) for x in states)
    folded = {a for n in postorder(x.step for x in states) for a in n.axes}
    first = replace(
        kernel,
        name=f"{kernel.name}_parts",
        outputs=outputs,
        origin=outputs,
        group=(axis, *(a for a in kernel.group if a in folded)),
        stream=replace(s, passes=(Pass(states, ()),), tails=tails),
        part=axis,
    )
    joined = tuple(_joined(x, states, stored) for x in states)
    terms = [*(x.step for x in joined), *(e.node for e in s.tails)]
    used = {a for n in postorder(terms) for a in n.axes}
    used |= {a for o in kernel.outputs for a in o.axes}  # repeated along some, perhaps
    second = replace(
        kernel,
        name=f"{kernel.name}_merge",
        group=tuple(a for a in kernel.group if a in used),
        whole=tuple(a for a in kernel.whole if a in used),
        stream=Stream((axis,), (Pass(joined, ()),), s.tails, ()),
        merges=axis,
    )
    verified_parts(kernel, first, second, number)
    return first, second


def _stored(x: State, axis: str, taken: set[str]) -> Node:
    """The reading of the tensor that holds a state of every part."""
    name = f"{x.name}_part"
    while name in taken:
        name += "_"
    taken.add(name)
    tensor = Tensor(name, "fp32") if x.kind == "real" else name
    return node("input", params=(tensor,), axes=(axis, *x.axes), kind=x.kind)


def _joined(x: State, states: tuple[State, ...], stored: Mapping[str, Node]) -> State:
    """The state whose step is the merge with that of the next part."""
    sides = {y.leaf("left"): y.leaf("old") for y in states}
    sides |= {y.leaf("right"): stored[y.name] for y in states}
    return replace(x, step=substitute([x.merge], sides)[x.merge])
