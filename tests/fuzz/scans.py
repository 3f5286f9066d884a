"""Scans with a state, random numbers, positions of extrema, and sums of squared differences."""

from __future__ import annotations

from drawing import KINDS, RESUMED, STEPPED, Drawing
from keyed import key_set
from moves import positive
from programs import ANY_STEPS, STEPS, Axes, Ref


def scan(d: Drawing) -> Ref:
    """The states of a linear step along an axis, or what is made of them."""
    x = whole_axis(d)
    along = d.rng.choice(d.axes_of(x))
    if d.seed >= STEPPED and d.chance(0.6):
        return any_step(d, x, along)
    form = d.rng.choice(tuple(STEPS))
    others = [a for a in d.axes if a != along]
    start = d.rng.choice((0.0, 0.0, 0.5, -1.0, d.input(d.some(others, 0, 2), public=False)))
    if form == "scaled":
        start = d.rng.choice((1.0, 0.5))
    states = d.step("scan", start, *operands(d, form, x, along), over=along, form=form)
    return folded(d, states, along) if d.chance(0.6) else states


def any_step(d: Drawing, x: Ref, along: str) -> Ref:
    """The states of a step that is not linear, or what is made of them."""
    within = [a for a in d.axes_of(x) if a != along]
    forms = [f for f, made in ANY_STEPS.items() if within or "within" not in made.text]
    form = d.rng.choice(forms)
    more = {"within": d.rng.choice(within)} if "within" in ANY_STEPS[form].text else {}
    start = d.rng.choice((0.0, 0.5, -1.0, d.input(d.some(within, 0, 2), public=False)))
    states = d.step("scan", start, *operands(d, form, x, along), over=along, form=form, **more)
    return folded(d, states, along) if d.chance(0.5) else states


def whole_axis(d: Drawing) -> Ref:
    """A value to scan: one that there is, a softmax, or a contraction."""
    x = d.pick(1)
    way = d.rng.random()
    if way < 0.2:
        return d.step("softmax", x, over=d.some(d.axes_of(x), 1, 1))
    if way < 0.35:
        gone = d.some(d.axes_of(x), 1, 1)
        return d.step("contract", x, d.input((*gone, d.axis())), over=gone)
    return x


def operands(d: Drawing, form: str, x: Ref, along: str) -> list[Ref | float]:
    """What a step reads beside the state: factors that keep it small, and what it adds."""
    found: list[Ref | float] = []
    for name in (STEPS | ANY_STEPS)[form].reads:
        if name == "test":
            index = d.step("index", over=along, public=False)
            zero = d.step("greater", x, d.rng.choice((0.0, 0.5)), public=False)
            last = d.step("not_equal", index, d.rng.choice((1, 2)), public=False)
            found.append(d.rng.choice((zero, last)))
        elif name == "factor":
            y = d.rng.choice((x, x, d.pick(), d.input((along,))))
            made = d.step(d.rng.choice(("sigmoid", "tanh")), y, public=False)
            found.append(d.rng.choice((made, made, 0.5, -0.9)))
        elif name == "divisor":
            found.append(d.rng.choice((2.0, d.step("add", positive(d, d.pick()), 1.0))))
        else:
            found.append(x)
    if not any(isinstance(a, Ref) and along in d.axes_of(a) for a in found):
        found[0] = d.step("sigmoid", x, public=False)
    return found


def folded(d: Drawing, y: Ref, along: str) -> Ref:
    """States that are folded along the axis or another, contracted, or read at the end."""
    way = d.rng.choice(("reduce", "contract", "other", "last", "softmax", "again"))
    if way == "reduce":
        return d.step(d.rng.choice(("sum", "max", "mean", "logsumexp")), y, over=along)
    if way == "contract":
        return d.step("contract", y, d.input((along, d.axis())), over=along)
    if way == "other":
        gone = d.some(d.axes_of(y), 1, 1)
        return d.step("contract", y, d.input((*gone, d.axis())), over=gone)
    if way == "last":
        last = d.step("sub", d.step("size", over=along, public=False), 1, public=False)
        at = d.step("index", over=along, public=False)
        test = d.step("equal", at, last, public=False)
        return d.step("sum", d.step("where", test, y, 0.0, public=False), over=along)
    if way == "softmax":
        return d.step("softmax", y, over=along)
    return d.step("scan", 0.0, 0.5, y, over=along, form="decayed")


def seed(d: Drawing) -> Ref | int:
    """A seed: a number, or an array of whole numbers."""
    if d.chance(0.5):
        return d.rng.choice((0, 1, 7, 2**31, 2**40 + 3, -1))
    return d.input(d.some(d.axes, 0, d.rng.choice((0, 0, 1))), "int", public=False)


def uniform(d: Drawing) -> Ref:
    """Random numbers, or a choice by them."""
    along = d.some(tuple(d.sizes), 1, d.rng.choice((1, 2, 3)))
    u = d.step("uniform", seed(d), over=along)
    if d.chance(0.4):
        return d.step("where", d.step("less", u, 0.5, public=False), d.pick(), 0.0)
    return u if d.chance(0.3) else d.step(d.rng.choice(("add", "mul")), u, d.pick())


def dropout(d: Drawing) -> Ref:
    """Values some of which are dropped: of an input, a softmax or another; and often a sum."""
    x = d.pick(1)
    x = d.step("softmax", x, over=d.some(d.axes_of(x), 1, 1)) if d.chance(0.3) else x
    p = d.rng.choice((0.1, 0.5, 0.3, 0.5, 0.0, 1.0))
    keyed = d.seed >= RESUMED and any(s.keys for s, _ in d.made)
    if keyed or any(s.op == "scan" for s, _ in d.made):  # whose order of axes no user is told
        u = d.step("uniform", seed(d), over=d.axes_of(x), public=False)
        kept = 1 / (1 - p) if p < 1 else 0.0
        y = d.step("mul", x, d.step("where", d.step("less", u, p, public=False), 0.0, kept))
    else:
        y = d.step("dropout", x, p, seed(d), over=d.axes_of(x))
    way = d.rng.random()
    gone = d.some(d.axes_of(x), 1, 2)
    if way < 0.3:
        return d.step("contract", y, d.input((*gone, d.axis())), over=gone)
    if way < 0.5:
        return d.step(d.rng.choice(("sum", "max", "mean")), y, over=gone)
    return y


def ranked(d: Drawing, given: Ref | None = None) -> Ref:
    """The position of an extremum, or one of the largest values or its position."""
    x, keys, infinite = given or d.pick(1), None, False
    if given is None and d.chance(0.3):
        q, k, e = d.axis(), d.axis(), d.axis()
        x = d.step("contract", d.input((q, e)), d.input((k, e)), over=e)
        keys, over = key_set(d, (q,), (k,), d.sizes[q] != d.sizes[k]), k
    else:
        over = d.rng.choice(d.axes_of(x))
    op = d.rng.choice(("argmax", "argmin", "topk", "topk"))
    if op != "topk":
        place = d.step(op, x, over=over, keys=keys, public=False)
        return used(d, place, over)
    k = d.rng.choice((1, 2, 2, 3, 4) if d.seed < KINDS else (1, 2, 3, 4, 5, 7, 16))
    infinite = keys is not None or k > d.sizes[over]
    rest = {"over": over, "keys": keys, "k": k}
    which = d.rng.randrange(k)
    if d.chance(0.4):
        return used(d, d.step("topk", x, public=False, what="places", which=which, **rest), over)
    public = not infinite
    y = d.step("topk", x, public=public, infinite=infinite, what="values", which=which, **rest)
    if infinite:
        d.outputs.append(y)
    elif d.chance(0.4):
        other = d.step("topk", x, public=False, what="places", which=which, **rest)
        d.outputs.append(used(d, other, over))
    return y


def used(d: Drawing, place: Ref, over: str) -> Ref:
    """A position as a result, a mask, or where something is read."""
    way = d.rng.random()
    if way < 0.35:
        d.outputs.append(place)
        return place
    if way < 0.7:
        table = d.input((over, *d.some([a for a in d.axes if a != over], 0, 1)))
        return d.step("take", table, place, over=over)
    here = d.step("equal", d.step("index", over=over, public=False), place, public=False)
    return d.step("where", here, d.pick(), 0.0)


def distances(d: Drawing) -> Ref:
    """Squared distances of two sets of points, and often the nearest, or a softmax of them."""
    q, k, e = d.axis(), d.axis(), d.axis()
    heads: Axes = (d.axis(),) if d.chance(0.3) else ()
    X, Y = d.input((*heads, q, e)), d.input((*heads, k, e))
    X = d.step("sigmoid", X) if d.chance(0.2) else X
    off = d.step("sub", X, Y, public=False)
    parts = [off, off, *([d.input((e,))] if d.chance(0.3) else [])]
    near = d.step("contract", *parts, over=e)
    way = d.rng.choice(("plain", "min", "argmin", "softmax", "kernel"))
    if way == "plain":
        return near
    if way == "min":
        return d.step("min", near, over=k)
    if way == "argmin":
        d.outputs.append(d.step("argmin", near, over=k, public=False))
        return d.outputs[-1]
    scaled = d.step("mul", near, -0.5, public=False)
    P = d.step("softmax", scaled, over=k) if way == "softmax" else d.step("exp", scaled)
    return d.step("contract", P, d.input((k, d.axis())), over=k)
