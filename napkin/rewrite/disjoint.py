"""Windows that share no position, as an axis that is split in two.

Where a window has no more taps than windows lie apart, as in patches of an image or in pooling,
i = s * p + w reads no position twice: the axis i is then the two axes p and w, as they would lie in
memory. Windows and taps are labelled as any other axes, so that taps are depth of a matrix product
together with what lies beside them; of windows that share positions, taps are streamed one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from napkin.algebra.rule import Instance, LawError, Rule, between, verified, verifying
from napkin.ir.evaluate import evaluate
from napkin.ir.node import Node, node, postorder
from napkin.ir.sliding import slide_of, windows
from napkin.ir.taking import own_axes, taken_of
from napkin.ir.windows import Slide, Span

SEEN = 64
"""Windows whose positions are looked at, where the law is executed."""


def _matches(terms: Sequence[Node], sizes: Mapping[str, int]) -> Iterator[Instance]:
    """The readings of windows of which some share no position at these sizes."""
    for n in postorder(terms):
        new = _split(n, sizes)
        if new is not n:
            what = ", ".join(str(s) for s in _disjoint(new))
            yield Instance(what, new, between([n], [new]), of=sizes)


def _split(leaf: Node, sizes: Mapping[str, int]) -> Node:
    """A reading whose windows are said to be disjoint where they are."""
    taken = taken_of(leaf)
    if taken is None or not any(taken.spans):
        return leaf
    axes = {u: own for own, u in zip(own_axes(leaf), taken.under, strict=True)}
    each = enumerate(zip(leaf.args, taken.spans, strict=True))
    spans = tuple(_marked(axes[i], at, span, sizes) for i, (at, span) in each)
    if spans == taken.spans:
        return leaf
    params = (*leaf.params[:2], replace(taken, spans=spans))
    return node(leaf.op, leaf.args, params, leaf.axes, leaf.kind)


def _marked(axis: str, at: Node, span: Span | None, sizes: Mapping[str, int]) -> Span | None:
    """How far positions reach, said to be disjoint where they are those of such windows."""
    if span is None or (s := slide_of(axis, at, span)).shares(sizes[s.tap]):
        return span
    return replace(span, disjoint=True)


def _disjoint(leaf: Node) -> Iterator[Slide]:
    return (s for s, _ in windows(leaf) if s.span.disjoint)


def _verified(rule: Rule, found: Instance) -> None:
    """Report an instance, and look at the positions of its windows where that is asked for.

    Raises:
        LawError: two windows read one position.
    """
    verified(rule, found)
    if not verifying():
        return
    for s, at in windows(found.made):
        if s.span.disjoint:
            sizes = {s.out: min(found.of[s.out], SEEN), s.tap: found.of[s.tap]}
            (read,) = evaluate([at], {}, sizes)
            if len(np.unique(read)) < read.size:
                raise LawError(f"rule {rule.name!r} broke its law, {rule.law}: {s} at {sizes}")


DISJOINT = Rule(
    "split windows",
    "T at s p + w reads no position for two p, so that its axis is split into p and w",
    _matches,
    ("a window has at most as many taps as windows lie apart", "it has no padding"),
    infinite=True,
    check=_verified,
)
