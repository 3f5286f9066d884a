"""Blocks: each group folds one block of an axis that it holds, while another axis streams.

Where a reduction folds what a contraction computes, as a softmax over classes folds logits, the
contraction's axis may be too long to be held. So the folded axis is grouped: a group streams the
contraction for one block of it, folds the block, and stores the states; a second kernel merges
them, as after split-K (`napkin.derive.rules.part`). What is contracted is then never stored (linear
and cross entropy without logits in memory, arXiv 2411.09009). Nothing here knows which fold it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace

from napkin.algebra.fold import State
from napkin.algebra.rule import Instance, Rule
from napkin.algebra.terms import is_count
from napkin.derive.kernel import Kernel, tensor_of
from napkin.derive.label import label
from napkin.derive.rules.part import handing, merging, readings, why_not_parted
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.node import Node, in_kind, number, over, postorder
from napkin.ir.rewrite import substitute
from napkin.keys.residues import Blocks


def block_axis(axis: str, length: int) -> str:
    """The name of the axis of the blocks of `axis`, each of `length` positions."""
    return f"{axis}_block{length}"


def blocked(kernel: Kernel, inner: str, length: int) -> tuple[Kernel, Kernel] | None:
    """The kernel that folds blocks of the streamed axis while it streams `inner`, and the one that
    merges their states; None where `inner` cannot be streamed within a block.

    States pass between the two through memory, as float32: one tensor for each, with an axis of
    blocks before its own.
    """
    first: Kernel | None = BLOCKED.first(kernel, inner, length)
    return None if first is None else (first, merging(kernel, first))


def _blocks(kernel: Kernel, inner: str, length: int) -> Iterator[Instance]:
    """The kernel that folds blocks of a stream and stores their states; none where it cannot."""
    if why_not_parted(kernel) or inner not in kernel.whole or kernel.stream.passes[0].emits:
        return
    axis, states = kernel.stream.axes[0], kernel.stream.passes[0].states
    blocks = Blocks(axis, block_axis(axis, length), length)
    stored, own = readings(kernel, states, blocks.place), of_one_block(states)
    if any(set(own[x.name].axes) != set(x.axes) for x in states):
        return
    counts = (n for n in postorder(own.values()) if is_count(n))
    if any({axis, inner} <= {*over(n)} for n in counts):  # its end is taken for both sizes
        return
    outputs = [Output(tensor_of(stored[x.name]), own[x.name], x.axes) for x in states]
    with suppress(Refusal):
        made = label(f"{kernel.name}_blocks", outputs, kernel.names, streamed=inner, block=axis)
        if axis in made.whole and not any(p.emits for p in made.stream.passes):
            own = [a for a in kernel.group if a in made.axes]
            group = (*dict.fromkeys((*own, *made.group)), axis)
            yield Instance(axis, handing(grouped(made, group, blocks), (), stored.values()))


def of_one_block(states: Sequence[State]) -> dict[str, Node]:
    """What each state is after one step from its start, over what the kernel reads."""
    found: dict[str, Node] = {}
    known: dict[Node, Node] = {}
    for x in states:
        known[x.leaf("old")] = number(in_kind(x.init, x.kind))
    for x in states:
        found[x.name] = known[x.leaf("new")] = substitute([x.step], known)[x.step]
    return found


def grouped(made: Kernel, group: tuple[str, ...], blocks: Blocks) -> Kernel:
    """A kernel that holds an axis whole, with one block of it in each group."""
    whole = tuple(a for a in made.whole if a not in group)
    return replace(made, group=group, whole=whole, blocks=(blocks,))


BLOCKED = Rule(
    "block",
    "step(init, x_b) = fold(x_b), of a block x_b that is held while another axis streams",
    _blocks,
    (
        "the stream of the block's states separates along the other axis, which none carries",
        "no mean is over both axes",
        "the axis is not empty as a whole",
    ),
    empty=False,
)
