"""Selections of what sums normalise, of rows that are looked up, moved or renamed: what is drawn
from `CHOSEN` on. A sum that a comparison reads in two places is to be computed once."""

from __future__ import annotations

from drawing import Drawing, Rejected
from programs import Axes, Ref
from readings import window


def selected(d: Drawing) -> Ref:
    """One or two selections along an axis of an array, and often the array beside them."""
    over = d.axis(d.rng.choice((3, 5, 7, 16, 17)))
    x = _rows(d, over)
    y = _normalised(d, x, over)
    found = [_selection(d, y, over) for _ in range(d.rng.choice((1, 1, 2)))]
    if d.chance(0.25):  # of what it was before, or of another one of the same rows
        found.append(_selection(d, _normalised(d, x, over) if d.chance(0.6) else x, over))
    if d.chance(0.2):
        found.append(y)
    d.outputs += found
    return found[0]


def _rows(d: Drawing, over: str) -> Ref:
    """An array along an axis, as it is read."""
    rows = d.axis(d.rng.choice((2, 3, 4)))
    rest = d.some(d.axes, 0, 1)
    table = d.input(d.some((over, rows, *rest), 3, 3))
    if d.chance(0.35):  # a product of rows, and not the rows themselves
        e = d.axis(d.rng.choice((3, 4, 16)))
        table = d.step("contract", d.input((rows, e)), d.input((over, e)), over=e)
    way = d.rng.choice(("take", "take", "take", "found", "index", "rename", "window", "twice"))
    if way in {"take", "twice"}:
        at = d.input((d.axis(d.rng.choice((4, 6, 9))), *d.some(d.axes, 0, 1)), "int",
                     f"places:{rows}", public=False)  # fmt: skip
        x = d.step("take", table, at, over=rows)
        if way == "twice":
            other = d.input(d.axes_of(at), "int", f"places:{rows}", public=False)
            how = d.rng.choice(("add", "mul", "sub"))
            x = d.step(how, x, d.step("take", table, other, over=rows))
        return x
    if way == "found":
        at = d.step(d.rng.choice(("argmax", "argmin")), table, over=rows, public=False)
        other = [a for a in d.axes_of(at) if a != over]
        at = d.step("max", at, over=over, public=False) if other or d.chance(0.5) else at
        return d.step("take", table, at, over=rows)
    if way == "index":
        i = d.step("index", over=d.axis(d.rng.choice((4, 6))), public=False)
        by = d.step(d.rng.choice(("floordiv", "mod")), i, d.rng.choice((2, 3)), public=False)
        return d.step("take", table, by, over=rows)
    if way == "rename":
        return d.step("rename", table, **{rows: d.axis(d.sizes[rows])})
    return window(d, table, rows)


def _normalised(d: Drawing, x: Ref, over: str) -> Ref:
    """An array with a sum of its own in every value, or nearly."""
    if d.chance(0.3):
        x = d.step("mul", x, d.rng.choice((0.25, 0.125, d.input((over,)))))
    way = d.rng.choice(("softmax", "softmax", "by", "about", "root", "over", "log", "added", "run"))
    if way == "softmax":
        return d.step("softmax", x, over=over)
    if way == "by":
        least = d.step("add", d.step("abs", x), 0.1)
        return d.step("div", least, d.step("sum", least, over=over))
    if way == "about":
        return d.step("sub", x, d.step("mean", x, over=over))
    if way == "root":
        square = d.step("mean", d.step("mul", x, x), over=over)
        return d.step("mul", x, d.step("rsqrt", d.step("add", square, 0.1)))
    if way == "log":
        return d.step("sub", x, d.step("logsumexp", x, over=over))
    if way == "run":
        return d.step("cumsum", x, over=over)
    other = [a for a in d.axes_of(x) if a != over]
    if not other:
        raise Rejected
    by = d.rng.choice(other)
    if way == "over":  # along another axis
        return d.step("softmax", x, over=by)
    weights: Axes = (by, *d.some([a for a in d.axes_of(x) if a != by], 0, 1))
    return d.step("contract", x, d.input(weights), over=by)


def _selection(d: Drawing, y: Ref, over: str) -> Ref:
    way = d.rng.choice(("place", "place", "top", "top", "equal", "past", "rank", "read"))
    if way == "place":
        return d.step(d.rng.choice(("argmax", "argmin")), y, over=over, public=False)
    if way == "top":
        k = d.rng.choice((1, 1, 2, 3))
        what = d.rng.choice(("places", "places", "values"))
        which = d.rng.randrange(k)
        return d.step("topk", y, over=over, keys=None, k=k, what=what, which=which, public=False)
    if way == "rank":
        other = d.step("rename", y, **{over: d.axis(d.sizes[over])})
        return d.step("sum", d.step("less", other, y, public=False), over=over, public=False)
    if way == "read":
        at = d.step(d.rng.choice(("argmax", "argmin")), y, over=over, public=False)
        table = y if d.chance(0.5) else d.input((over, *d.some(d.axes, 0, 1)))
        return d.step("take", table, at, over=over)
    if way == "equal":
        most = d.step(d.rng.choice(("max", "min")), y, over=over)
        test = d.step("equal", y, most, public=False)
    else:
        past = d.step("mul", d.step("mean", y, over=over), 0.875)  # not where all are equal
        test = d.step("less", d.step("add", past, 0.003), y, public=False)
    weights = d.step("where", test, d.rng.choice((1.0, d.input((over,)))), 0.0)
    return d.step("sum", weights, over=over)
