"""Labels put on terms: which axes are grouped, streamed and held whole, where that is legal."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from napkin.algebra.fold import Emit, Stream, Twin
from napkin.derive.kernel import Kernel, tile_axes
from napkin.derive.streaming import stream
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.names import numbered
from napkin.ir.node import MOVES, Node, over, postorder, within
from napkin.ir.slots import slots_of
from napkin.ir.slotted import filling, scattered
from napkin.ir.storage import packed_axis, unstored
from napkin.rewrite.counts import COUNTED
from napkin.rewrite.seen import SEEN
from napkin.rewrite.split import SplitTerm


def weaved(outputs: Sequence[Output]) -> tuple[str, ...]:
    """Axes that the whole term is weaved over: a group partition on them is an identity."""
    order = list(within(o.node for o in outputs))
    mixed = {a for n in order for a in over(n)}
    for n in order:
        if n.op in {"rename", "take"} or n.op in MOVES:
            mixed |= set(n.args[0].axes) ^ set(n.axes)
    shared = [a for a in outputs[0].axes if all(a in o.axes for o in outputs)]
    return tuple(a for a in shared if a not in mixed)


def _why_not_weaved(outputs: Sequence[Output], axis: str) -> tuple[str, str]:
    """Where a group partition on `axis` fails, and the condition."""
    order = list(postorder(o.node for o in outputs))
    for n in order:
        if axis in over(n):
            reason = f"{n.op} works along {axis}, so the algorithm is not weaved over it"
            return f"{n.op} over {' '.join(over(n))}", reason
    for o in outputs:
        if axis not in o.axes:
            return f"output {o.name}", f"output {o.name} does not carry {axis}"
    place = f"output {outputs[0].name}"
    for n in order:
        if n.op in MOVES and axis in (*slots_of(n).keys, *slots_of(n).slots):
            return place, f"{n.op} moves between keys and slots, so {axis} is cut with its window"
    return place, f"{axis} is read under two names"


def reduced(outputs: Sequence[Output]) -> tuple[str, ...]:
    """Axes that some operator works along, in order."""
    order = postorder(o.node for o in outputs)
    return tuple(dict.fromkeys(a for n in order for a in over(n)))


def label(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    *,
    streamed: str = "",
    passes: int = 1,
    group: Collection[str] | None = None,
    hold: Collection[str] = (),
    split: SplitTerm | None = None,
    block: str = "",
    pair: int = 0,
    rounded: bool = False,
) -> Kernel:
    """The kernel with `streamed` (an axis, or several separated by spaces, cut jointly) cut into
    chunks, `group` (default: every weaved axis) cut into
    groups, and all other axes held whole.

    Args:
        split: the term with axes split by residue, if it is to run so.
        block: an axis of which the outputs are of one block: its positions are counted.
        pair: positions of a chunk of the streamed axis, if they are paired.
        rounded: whether operands of products are rounded to 16 bits.

    Raises:
        Refusal: a partition is not legal.
    """
    cut, origin = tuple(streamed.split()), tuple(outputs)
    if split is not None:
        outputs, names = split.outputs, split.names
    outputs, names = _seen_from_keys(known_counts(outputs, (*cut, block)), names, cut)
    legal = weaved(outputs)
    chosen = legal if group is None else tuple(group)
    for axis in chosen:
        if axis not in legal:
            nearest = f"group {', '.join(legal)}" if legal else f"stream {axis}"
            raise Refusal(f"group {axis}", *_why_not_weaved(outputs, axis), nearest)
    chosen = tuple(a for a in legal if a in chosen and a not in cut)
    _refuse_moves(outputs, names, streamed)
    _check_steps(outputs, names, cut)
    computed = [(o.name, unstored(o.node)) for o in outputs]
    pairs = [(name, scattered(n) if n.op == "compress" else n) for name, n in computed]
    every = dict.fromkeys(a for n in within(n for _, n in pairs) for a in n.axes)
    every |= dict.fromkeys(a for o in outputs for a in tile_axes(o))
    whole = tuple(a for a in every if a not in chosen and a not in cut)
    _check_stored(outputs, streamed)
    later, between = (numbered(f"{streamed}_{w}", every, "_") for w in ("later", "between"))
    twin = Twin(streamed, later, between, pair, rounded) if pair else None
    made = (
        stream(pairs, cut, names, passes=passes, hold=hold, twin=twin)
        if cut
        else Stream((), (), tuple(Emit(n, t) for n, t in pairs), ())
    )
    _check_states(made, streamed)
    splits = split.splits if split else ()
    kernel = Kernel(name, tuple(outputs), names, chosen, whole, made, origin, splits)
    order = _grid_order(kernel)
    return kernel if order == kernel.group else replace(kernel, group=order)


def _check_stored(outputs: Sequence[Output], streamed: str) -> None:
    """Check that what is stored along a streamed axis is computed along it: else it is stored after
    the loop, for the last chunk.

    Raises:
        Refusal: a result is the same along a streamed axis that it is stored with, or has slots
            without a key there.
    """
    what = f"stream {streamed}"
    for o in outputs:
        compressed = o.node.op == "compress"
        empty = filling(o.node) if compressed else None
        rows = [a for a in streamed.split() if empty is not None and a in empty.axes]
        if rows:
            reason = (
                f"slots without a key are stored after the loop, where {rows[0]} has no position"
            )
            raise Refusal(what, o.name, reason, f"hold {rows[0]} whole")
        more = [a for a in streamed.split() if a in tile_axes(o) and a not in o.node.axes]
        if more and not compressed:
            reason = f"it is stored along {' '.join(more)} and is the same everywhere along it"
            raise Refusal(what, o.name, reason, "stream another axis, or hold this one whole")


def _check_steps(outputs: Sequence[Output], names: Mapping[Node, str], cut: Sequence[str]) -> None:
    """Check that what any step takes along an axis is streamed along it, one position at a time.

    Raises:
        Refusal: it is not, or two positions of what is read share a byte.
    """
    order = tuple(postorder(o.node for o in outputs))
    steps = [n for n in order if n.op == "steps"]
    for n in steps:
        if over(n) != tuple(cut):
            (axis,) = over(n)
            reason = f"its state is taken from one position of {axis} to the next"
            raise Refusal("run as one kernel", names.get(n, n.op), reason, f"stream {axis}")
    for n in order if steps else ():
        if (axis := packed_axis(n)) in cut:
            reason = f"steps read one value of {n.params[0]} along {axis}, and two share a byte"
            instead = "materialise what is computed of it: nk.derive cuts there"
            raise Refusal(f"stream {axis}", names.get(steps[0], "steps"), reason, instead)


def _check_states(made: Stream, streamed: str) -> None:
    """Check that what a step makes of a state has the state's axes, and no others.

    Raises:
        Refusal: a factor of a sum carries an axis that is summed over.
    """
    for state in made.states:
        more = [a for a in state.step.axes if a not in state.axes]
        if more:
            reason = (
                f"a factor that carries {' '.join(more)} would be applied after the sum over it"
            )
            nearest = "stream another axis, or hold this one whole"
            raise Refusal(f"stream {streamed}", state.name, reason, nearest)


def _grid_order(kernel: Kernel) -> tuple[str, ...]:
    """The grouped axes in grid order: first those that all that is streamed carries, so that groups
    which read the same chunks start together, wherever these axes lie in memory. Neighborhoods of
    24 heads that lie inside the tokens took 20.6 ms with the heads last, and 12.8 with them first
    (256 x 256 tokens, windows of 80 x 80, H100)."""
    first = set(kernel.group).intersection(*kernel.streamed) if kernel.streamed else set[str]()
    return tuple(sorted(kernel.group, key=lambda a: a not in first))


def _refuse_moves(outputs: Sequence[Output], names: Mapping[Node, str], streamed: str) -> None:
    """Check that compressed arrays are only stored, and only stored arrays are spread or taken of.

    Raises:
        Refusal: one would have to be moved between keys and slots inside the kernel.
    """
    what = f"stream {streamed}" if streamed else "run as one kernel"
    roots = {o.node for o in outputs if o.node.op == "compress"}
    slots = {a for n in roots for a in slots_of(n).slots}
    instead = "materialise it: nk.derive cuts there"
    for axis in streamed.split():
        if axis in slots:
            reason = f"{axis} is the slots of a compressed array, which are stored as keys are seen"
            keys = " ".join(a for n in roots for a in slots_of(n).keys)
            raise Refusal(what, outputs[0].name, reason, f"stream {keys}")
    for n in postorder(o.node for o in outputs):
        place = names.get(n) or n.op
        if n.op in {"spread", "take"}:
            reason = "what it reads is computed in this kernel, and is read at computed addresses"
            raise Refusal(what, place, reason, instead)
        if any(a.op == "compress" for a in n.args):
            reason = "it reads a compressed array of this kernel, which exists only in memory"
            raise Refusal(what, place, reason, instead)
        if slots & set(n.axes) and n not in roots:
            axis = next(a for a in n.axes if a in slots)
            reason = f"it carries {axis}, the slots of a compressed array of this kernel"
            raise Refusal(what, place, reason, instead)


def _seen_from_keys(
    outputs: Sequence[Output], names: Mapping[Node, str], streamed: Sequence[str]
) -> tuple[Sequence[Output], Mapping[Node, str]]:
    """The outputs, and their names, with key sets whose queries are streamed seen from their
    keys."""
    roots = [o.node for o in outputs]
    if not any(n.op == "keys" for n in postorder(roots)):
        return outputs, names
    done = SEEN.everywhere(roots, roots, streamed)
    return [replace(o, node=done[o.node]) for o in outputs], {
        done.get(n, n): text for n, text in names.items()
    }


def known_counts(outputs: Sequence[Output], streamed: Sequence[str]) -> list[Output]:
    """The outputs with each count of positions as a size, unless streaming makes it grow."""
    roots = [o.node for o in outputs]
    if not any(n.op == "ones" for n in postorder(roots)):
        return list(outputs)
    done = COUNTED.everywhere(roots, roots, streamed)
    return [replace(o, node=done[o.node]) for o in outputs]
