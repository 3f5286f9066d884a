"""Results so far that go far from the data on the way: no sum of squares is held about them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import sympy

from napkin.algebra.law_points import points
from napkin.algebra.rescale import Rescale
from napkin.algebra.separate import multiplied_sums
from napkin.algebra.sides import NotSeparable, by_side
from napkin.algebra.terms import EXTREMA, added, carrying, is_read
from napkin.derive.folding import Folding
from napkin.ir.infer import along, pointwise
from napkin.ir.listing import text
from napkin.ir.node import FLOOR, Node, over, postorder
from napkin.ir.rewrite import substitute

_TRIALS, _LONGER = 3, 3
"""How often differences are tried at each size, and how many positions are still to come."""

_GUARDS = 1e-3
"""What a guard in a divisor, such as 1e-6, may make of a sum that is 0 without it."""


def refuse_far(f: Node, p: int, rescale: Rescale, folding: Folding) -> None:
    """Refuse sums of squares, or of products, of differences from results that may go far from the
    data on the way, and come back: (K - r)**2 with r far from K has lost the digits of K.

    A mean by the weights of the sum is as close as any: differences from it add up to 0, by which
    it is known. Another result is not, such as a mean by other weights, a part of a sum of products
    with shares, or a sum so far over a final size. An extremum of the data goes one way alone. One
    of other data stays at its start where all of these are masked so far, which is very far.

    Raises:
        NotSeparable: there is such a result.
    """
    meaning = rescale.meaning
    moving = [s for s in rescale.old if _moves(meaning.nodes[s], p, folding)]

    def streams(s: Any) -> bool:
        return folding.streamed(meaning.stands_for(s).axes)

    def still(base: Any) -> Any:
        """What a difference has beside the data and results, the same at every chunk."""
        apart = [a for a in base.args if not any(map(streams, a.free_symbols))]
        return sympy.Add(*(a for a in apart if not a.free_symbols & set(moving)))

    def near_0(expression: Any) -> tuple[bool, bool]:
        terms = sympy.Add.make_args(sympy.expand(expression))
        return _near_0([meaning.node(t) for t in terms], f, p, folding)

    for term in sympy.Add.make_args(rescale.basis[0]):
        powers = multiplied_sums(term, lambda base: all(by_side(base)))
        bases = [power.as_base_exp()[0] for power in powers]
        rest = term / sympy.Mul(*powers)
        for r, base in itertools.product(moving, bases):
            slope = sympy.diff(base, r)
            if slope == 0:
                continue
            near = all(any(near_0(rest * slope * (other - still(other)))) for other in bases)
            if near and _is_extreme(meaning.nodes[r], p, folding):
                _, near = near_0(base - still(base))
            if not near:
                what = text(meaning.node(base), folding.names)
                raise NotSeparable("sum", f"{what} is no difference from a mean of its own")


def _moves(r: Node, p: int, folding: Folding) -> bool:
    """Whether a result changes from chunk to chunk of a pass."""
    return any(folding.pass_of[u] == p for u in folding.uses(r))


def _is_extreme(r: Node, p: int, folding: Folding) -> bool:
    """Whether a result is computed from extrema themselves, and not from sums alone."""
    starts = folding.starts()
    return any(abs(starts.get(n, 0.0)) >= -FLOOR for n in postorder([folding.current(r, p)]))


def _near_0(terms: Sequence[Node], f: Node, p: int, folding: Folding) -> tuple[bool, bool]:
    """Whether terms add up to 0 over the axes of `f`, whatever the chunks so far, and whether they
    do at each position, where extrema of pass `p` are what they are of; tried with random
    values."""
    gap, of_all = added(terms), added([pointwise("abs", (t,)) for t in terms])
    order = list(postorder([gap]))
    moving = (n for n in order if folding.pass_of.get(n) == p)
    extrema = {n: n.args[0] for n in moving if n.op in EXTREMA}
    places = postorder(a for n in order if is_read(n) for a in n.args)
    extrema = {} if not extrema.keys().isdisjoint(places) else extrema  # no reading goes along them
    here = substitute([gap, of_all], extrema)
    tried = [along("sum", carrying(t, over(f)), over(f)) for t in (gap, of_all)]
    tried += [here[gap], here[of_all]]
    tries = [*itertools.islice(points(tried, {}, (), False, False), 2)]
    if not tries or any(n.op == "state" for n in order):
        return False, False
    tries = [replace(t, whole={a: _LONGER + t.sizes[a] for a in folding.axes}) for t in tries]
    found = [replace(t, seed=i).values(tried) for t in tries for i in range(_TRIALS)]
    at_each = bool(extrema) and _all_small([v[2:4] for v in found])
    return _all_small([v[0:2] for v in found]), at_each


def _all_small(pairs: Sequence[Sequence[Any]]) -> bool:
    """Whether numbers are as good as 0, each beside another; what is no number says nothing."""
    with np.errstate(all="ignore"):
        quotients = np.concatenate([np.ravel(np.abs(np.asarray(a, float)) / b) for a, b in pairs])
    known = quotients[np.isfinite(quotients)]
    return bool(known.size and (known <= _GUARDS).all())
