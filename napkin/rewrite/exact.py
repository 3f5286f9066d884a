"""What passes between kernels in float32, as it was computed, whatever the type of the plan.

One case is what an exponential reads. Rounding x to bf16 moves it by up to x / 256, and exp(x) by
as much of itself: scores of 60 lose all of their last digit before the point, which no later kernel
brings back. A kernel that computes both keeps the scores in float32, so one that reads them from
memory is to find them so. The least error turns a comparison, as of logits with their maximum.
Other operators move by no more than what they read was rounded to.

So it is with what a state or a running product is multiplied by at each position. A gate of 0.997
is 0.996 or 1 in bf16, and its power over 600 positions 0.1 or 1 where it should be 0.16.

Running sums pass in float32, too. They grow, and what is read of them is often the difference of
two, as of a moving sum: of sums about 500, bf16 has every second or fourth whole number.

Another case is what the plan's type may not hold. A sum of 65,505 ones is infinite in fp16, and
what is divided by it is 0, where one kernel that computes both has the quotient. So reductions and
scans pass in float32 where the type has a smaller range, and so does what is computed of them alone
along the same axes, such as 1 / sqrt(sum). The result of a matrix product has the plan's type: it
is as large as the arrays, and is mostly an operand of another product, which has that type in any
case.

One number for each row of an array that is read passes so, too: the rounding of such a mean may be
more than is left of a difference from it, as of the gradients of a softmax, and it takes next to no
memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from napkin.algebra.contraction import in_axes
from napkin.algebra.rule import Change, node_rule
from napkin.algebra.terms import EXTREMA, compares, in_float32, is_read, is_steep
from napkin.ir.expansion import expanded
from napkin.ir.infer import rebuilt
from napkin.ir.node import REDUCTIONS, SCANS, Node, built_on, over, postorder, preorder, steps_of
from napkin.ir.operators import POINTWISE
from napkin.ir.types import LARGEST

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


def _change(roots: Sequence[Node], dtype: str, sizes: Mapping[str, int]) -> Change:
    """A cast to fp32 on each term of `exact_terms`. That says how it is stored, where it is; a
    kernel that computes it has no use for the cast."""
    found = exact_terms(roots, dtype, sizes)

    def change(old: Node, args: tuple[Node, ...]) -> Node | None:
        if old not in found:
            return None
        return in_float32(old if args == old.args else rebuilt(old, args))

    return change


def exact_terms(roots: Sequence[Node], dtype: str, sizes: Mapping[str, int]) -> set[Node]:
    """The terms that are stored in float32, where they are stored, in a plan of this type."""
    return set() if dtype == "fp32" else _rounded_far(roots, dtype) | _small(roots, sizes)


def read_exactly(roots: Iterable[Node], dtype: str) -> set[Node]:
    """The same of terms with composites, composites among them, but for those of few values; and
    what such terms are multiples of, for that may be what is read."""
    if dtype == "fp32":
        return set()
    opened = expanded(roots)
    found = _rounded_far([opened[n] for n in list(opened)], dtype)
    found = {m for n in found for m in _on_the_way(n)}
    return {n for n, plain in opened.items() if plain in found}


def _rounded_far(roots: Sequence[Node], dtype: str) -> set[Node]:
    found = _below_steep(roots) | _running(roots)
    return found | _beyond(roots) if dtype in LARGEST else found


def _small(roots: Sequence[Node], sizes: Mapping[str, int]) -> set[Node]:
    """The terms that a kernel computes, with few values."""
    order = list(postorder(roots))
    read = [n for n in order if is_read(n) or n.op == "rename"]
    return {n for n in order if _computed(n) and is_small(n.axes, read, sizes)}


def _computed(n: Node) -> bool:
    """Whether a term is a real array that a kernel computes, whose type nobody chose."""
    own = n.op in POINTWISE or n.op in REDUCTIONS or n.op in SCANS
    return own and n.kind == "real" and n.op != "cast" and not n.constant


def _below_steep(roots: Iterable[Node]) -> set[Node]:
    """The reductions and scans of reals that steep operators and running products read through
    operators on single values, each with the constants it is scaled by; and what is computed on the
    way, such as scores with a mask, for that may be what is stored. An extremum is one of its
    values, so that these are on the way, too."""
    order = list(postorder(roots))
    waiting = [a for n in order if is_steep(n) or compares(n) for a in n.args]
    waiting += [a for n in order for a in _repeated(n)]
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


def _repeated(n: Node) -> Iterator[Node]:
    """The factors whose product over positions a scan or a reduction takes."""
    if n.op in {"recurrence", "prod"}:
        yield n.args[0]
    if n.op == "steps":
        yield from _gates(n)


def _gates(n: Node) -> Iterator[Node]:
    """What a step multiplies a state by, or divides it by, other than in a sum."""
    made = steps_of(n).made
    order = (m for m in postorder(made) if m.op not in REDUCTIONS)
    moved = built_on(order, lambda m: m.op == "previous")
    for m in filter(moved.__contains__, preorder(made, moved.__contains__)):
        others = [a for a in m.args if a not in moved] if m.op in {"mul", "div"} else []
        read = (x for x in postorder(others) if x.op == "operand")
        yield from (n.args[cast(int, x.params[0])] for x in read)


def _running(roots: Iterable[Node]) -> set[Node]:
    """The running sums of reals, and what is computed of one and of arrays that are the same at
    every position."""
    found = dict[Node, str]()
    for n in postorder(roots):
        if n.op == "cumsum" and n.kind == "real":
            (found[n],) = over(n)
        elif n.op in POINTWISE and n.op != "cast" and n.kind == "real":
            axis = next((found[a] for a in n.args if a in found), "")
            if axis and all(a in found for a in n.args if axis in a.axes):
                found[n] = axis
    return {*found}


def _beyond(roots: Iterable[Node]) -> set[Node]:
    """The reductions and scans of reals but for matrix products, and what is computed of one
    through operators on single values along its axes."""
    found = set[Node]()
    for n in postorder(roots):
        if n.kind != "real" or n.op == "cast":
            continue
        passed = n.op in POINTWISE and any(a in found and {*a.axes} >= {*n.axes} for a in n.args)
        if passed or ((n.op in REDUCTIONS or n.op in SCANS) and not _multiplied(n)):
            found.add(n)
    return found


def _multiplied(n: Node) -> bool:
    return n.op == "sum" and in_axes(n, n.args[0].axes).is_product


def _reduced(n: Node) -> bool:
    """Whether a term is a reduction or a scan, or computed from one and constants alone."""
    *_, last = _on_the_way(n)
    return last.op in REDUCTIONS or last.op in SCANS


def _on_the_way(n: Node) -> Iterator[Node]:
    """A term, and those that it is computed from one after another, by constants alone."""
    yield n
    while n.op in POINTWISE and n.op != "cast":
        moving = [a for a in n.args if not a.constant]
        if len(moving) != 1 or moving[0].kind != "real":
            return
        (n,) = moving
        yield n


EXACT = node_rule(
    "keep scores exact",
    "cast(x, fp32) = x",
    _change,
    ("x is real",),
    infinite=True,
)
