"""Windows beside arrays along the axes that they run over, and along their own: what is drawn from
`WINDOWED` on. From `SLID` on, windows under key sets, too."""

from __future__ import annotations

from drawing import Drawing, Rejected
from keyed import key_set
from programs import Axes, Ref
from readings import window


def windows(d: Drawing) -> Ref:
    """Windows along one axis or more of an array, folded with weights or alone, and that beside an
    array along axes of which some are no more."""
    along = range(d.rng.choice((1, 2, 2)))
    lengths: Axes = tuple(d.axis(d.rng.choice((4, 5, 7, 9))) for _ in along)
    rest = (d.axis(),) if d.chance(0.5) else ()
    x = d.input(d.some((*lengths, *rest), 9, 9))
    y = d.step(d.rng.choice(("tanh", "sigmoid")), x, public=False) if d.chance(0.2) else x
    taps = list[str]()
    for i in lengths:
        before = set(d.axes_of(y))
        y = window(d, y, i)
        _, w = (a for a in d.axes_of(y) if a not in before)
        taps.append(w)
    y = _folded(d, y, taps)
    return beside(d, y, (*lengths, *d.axes_of(y), *rest))


def _folded(d: Drawing, y: Ref, taps: list[str]) -> Ref:
    if d.chance(0.2):
        return y
    if d.chance(0.5):
        more = d.some(d.axes_of(y), 0, 1) + ((d.axis(),) if d.chance(0.5) else ())
        axes = tuple(dict.fromkeys((*taps, *more)))
        return d.step("contract", y, d.input(d.some(axes, 9, 9)), over=tuple(taps))
    gone = d.some(taps, 1, len(taps))
    return d.step(d.rng.choice(("sum", "mean", "max", "logsumexp")), y, over=gone)


def beside(d: Drawing, y: Ref, names: Axes) -> Ref:
    """A value beside another array along some of the axes, and a fold of both, or of one first."""
    axes = d.some(tuple(dict.fromkeys(names)), 1, 3)
    C = d.input(axes)
    both = [a for a in d.axes_of(y) if a in axes]
    own = d.axes_of(y)
    way = d.rng.choice(("contract", "contract", "product", "first", "softmax"))
    if way == "contract" and both:
        return d.step("contract", y, C, over=d.some(both, 1, 2))
    if way == "first" and own:
        return d.step("mul", C, d.step("sum", y, over=d.some(own, 1, 2)))
    if way == "softmax" and own:
        return d.step("contract", d.step("softmax", y, over=own[0]), C, over=own[0])
    if not own:
        raise Rejected
    return d.step(d.rng.choice(("mul", "add", "maximum")), y, C)


def keyed(d: Drawing) -> Ref:
    """Windows that are reduced under a key set. The query axis and the key axis are two of the
    windows, the taps and other axes; the reduction goes over the key axis and some others."""
    i = d.axis(d.rng.choice((2, 4, 5, 9, 17)))
    beside = d.axis(d.rng.choice((2, 3, 5, 9, 18)))
    x = d.input(d.some((i, beside), 2, 2) if d.chance(0.6) else (i,))
    y = window(d, d.step("cumsum", x, over=i) if d.chance(0.2) else x, i)
    new = [a for a in d.axes_of(y) if a not in d.axes_of(x)]
    more = d.axis(d.sizes[d.rng.choice(new)]) if d.chance(0.5) else d.axis()
    every = tuple(dict.fromkeys((*d.axes_of(y), beside, more)))
    q, k = d.rng.sample(every, 2)
    if q not in new and k not in new and d.chance(0.5):
        k = d.rng.choice(new)
    # The window says how many taps there are, so no key set may tie their number to another axis.
    apart = d.sizes[q] != d.sizes[k] or new[1] in (q, k)
    keys = key_set(d, (q,), (k,), apart)
    others = [a for a in every if a not in (q, k)]
    own = () if q in d.axes_of(y) else (q,)
    E = d.input(d.some((*own, k, *d.some([a for a in every if a not in (*own, k)], 0, 2)), 9, 9))
    folded = (k, *d.some([a for a in others if a in new], 0, 2), *d.some(others, 0, 1))
    held = {*d.axes_of(y), *d.axes_of(E)}
    over = tuple(a for a in dict.fromkeys(folded) if a in held)
    how = d.rng.choice(("contract", "contract", "softmax", "sum", "mean", "max"))
    if how == "contract":
        return d.step("contract", y, E, over=over, keys=keys)
    product = d.step("mul", y, E)
    if how == "max":
        return d.step("max", product, over=over, keys=keys, public=False, infinite=True)
    if how != "softmax":
        return d.step(how, product, over=over, keys=keys)
    return d.step("contract", d.step("softmax", product, over=k, keys=keys), E, over=over)
