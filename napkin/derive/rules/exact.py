"""What an exponential reads passes between kernels as it was computed, in float32.

Rounding x to bf16 moves it by up to x / 256, and exp(x) by as much of itself: scores of 60 lose all
of their last digit before the point, which no later kernel brings back. A kernel that computes
both keeps the scores in float32, so one that reads them from memory is to find them so. The least
error turns a comparison, as of logits with their maximum. A number of a row that is taken from the
row's values may leave little of them. Other operators move by no more than what they read was
rounded to.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from napkin.algebra.rule import Change, node_rule
from napkin.algebra.terms import EXTREMA, compares, in_float32, is_read
from napkin.ir.expansion import expanded
from napkin.ir.infer import rebuilt
from napkin.ir.node import REDUCTIONS, SCANS, Node, postorder
from napkin.ir.operators import POINTWISE

_MOVED = frozenset({"rename", "compress", "spread", "take"})
"""Operators that say where values lie."""


def _change(roots: Sequence[Node]) -> Change:
    """A cast to fp32 on each reduction that a steep operator or a comparison is computed from,
    scaled as it comes, and on what is computed on the way. That says how it is stored, where
    it is; a kernel that computes it has no use for the cast."""
    found = below(roots)

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
    order = list(postorder(roots))
    waiting = [a for n in order if _steep(n) or compares(n) for a in n.args]
    waiting += [n.args[1] for n in order if n.op == "sub" and {*n.args[1].axes} < {*n.axes}]
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
