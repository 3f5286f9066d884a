"""What an exponential reads passes between kernels as it was computed, in float32, and so does what
has few values.

Rounding x to bf16 moves it by up to x / 256, and exp(x) by as much of itself: scores of 60 lose all
of their last digit before the point, which no later kernel brings back. A kernel that computes
both keeps the scores in float32, so one that reads them from memory is to find them so. The least
error turns a comparison, as of logits with their maximum. Other operators move by no more than what
they read was rounded to.

That may still be more than is left of a difference: of two gradients, say, of which one is the mean
of the others over a row. One number for each row takes next to no memory, and is not rounded.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from napkin.algebra.rule import Change, node_rule
from napkin.algebra.terms import EXTREMA, compares, in_float32, is_read
from napkin.ir.expansion import expanded
from napkin.ir.infer import rebuilt
from napkin.ir.node import REDUCTIONS, SCANS, Node, postorder
from napkin.ir.operators import POINTWISE

_MOVED = frozenset({"rename", "compress", "spread", "take"})
"""Operators that say where values lie."""

SMALL = 8
"""What has this many times fewer values than an array that has its axes passes in float32."""


def is_small(axes: Iterable[str], read: Iterable[Node], sizes: Mapping[str, int]) -> bool:
    """Whether an array with these axes takes next to no memory beside one that is read, as numbers
    of its rows do."""
    own = {*axes}
    values = math.prod(sizes[a] for a in own)
    rows = (n.axes for n in read if own <= {*n.axes})
    return any(SMALL * values <= math.prod(sizes[a] for a in each) for each in rows)


def kept_exact(roots: Sequence[Node], sizes: Mapping[str, int]) -> set[Node]:
    """The terms that are cast to fp32."""
    order = list(postorder(roots))
    read = [n for n in order if is_read(n) or n.op == "rename"]
    small = (n for n in order if n.kind == "real" and _computes(n))
    return below(roots) | {n for n in small if is_small(n.axes, read, sizes)}


def _computes(n: Node) -> bool:
    """Whether a kernel computes an array that it may store in any type."""
    if n.constant or is_read(n) or n.op == "cast":  # whose type somebody chose
        return False
    return n.op in POINTWISE or n.op in REDUCTIONS or n.op in SCANS


def _change(roots: Sequence[Node], sizes: Mapping[str, int]) -> Change:
    """A cast to fp32 on each reduction that a steep operator or a comparison is computed from,
    scaled as it comes, on what is computed on the way, and on what has few values. That says how it
    is stored, where it is; a kernel that computes it has no use for the cast."""
    found = kept_exact(roots, sizes)

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old not in found:
            return None
        return in_float32(old if args == old.args else rebuilt(old, args))

    return change


def below(roots: Iterable[Node]) -> set[Node]:
    """The reductions and scans of reals that steep operators read through operators on single
    values, each with the constants it is scaled by; and what is computed on the way, such as scores
    with a mask, for that may be what is stored. An extremum is one of its values, so that these are
    on the way, too."""
    waiting = [a for n in postorder(roots) if _steep(n) or compares(n) for a in n.args]
    found, seen = set[Node](), set[Node]()
    while waiting:
        n = waiting.pop()
        if n in seen or n.kind != "real" or is_read(n) or n.constant:
            continue
        seen.add(n)
        if _reduced(n):
            found.add(n)
            waiting.extend(n.args if n.op in EXTREMA else ())
        elif n.op in _MOVED:
            waiting.append(n.args[0])
        elif n.op in POINTWISE and n.op != "cast":  # whose type somebody chose
            found.add(n)
            waiting.extend(n.args)
    return found


def read_steeply(roots: Iterable[Node]) -> set[Node]:
    """The terms, composites among them, that are to be stored as they were computed."""
    opened = expanded(roots)
    found = below(opened[n] for n in list(opened))
    return {n for n, plain in opened.items() if plain in found}


def _steep(n: Node) -> bool:
    return n.op in POINTWISE and POINTWISE[n.op].steep


def _reduced(n: Node) -> bool:
    """Whether a term is a reduction or a scan, or computed from one and constants alone."""
    while n.op in POINTWISE and n.op != "cast":
        moving = [a for a in n.args if not a.constant]
        if len(moving) != 1 or moving[0].kind != "real":
            return False
        (n,) = moving
    return n.op in REDUCTIONS or n.op in SCANS


EXACT = node_rule(
    "keep scores exact",
    "cast(x, fp32) = x",
    _change,
    ("x is real",),
    infinite=True,
)
