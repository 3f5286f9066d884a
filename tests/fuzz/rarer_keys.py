"""Keys that queries see, drawn from `KINDS` on: with heads, in boxes, by residue, at places that an
array gives, beside other keys; and what warpgroups share of them."""

from __future__ import annotations

from dataclasses import replace

from drawing import Drawing
from keyed import box_set, neighborhood, pattern, user_pattern
from programs import Axes, Keys, Ref
from rare import SIDES


def rising(d: Drawing) -> Ref:
    """Heads of queries, of which later ones see more keys, and what is made of the result."""
    n = d.rng.choice((33, 40, 70))
    heads: Axes = tuple(d.axis(m) for m in d.rng.choice(((2,), (3,), (5,), (2, 3), (3, 5))))
    q, x, e = d.axis(n), d.axis(n), d.axis(d.rng.choice((2, 16)))
    S = d.step("contract", d.input((*heads, q, e)), d.input((*heads[:1], x, e)), over=e)
    among = ("causal", "causal", "causal", "blocked", "global_tokens", "sliding")
    keys = pattern(d, (q,), (x,), d.rng.choice((None, 0, 1)), among)
    if d.chance(0.4):  # begins at one place, or at several
        other = pattern(d, (q,), (x,), keys.at, ("sinks", "sinks", "global_tokens", "sliding"))
        keys = Keys(d.rng.choice("||&"), (), (), (q,), (x,), parts=(keys, other))
    V = d.input((*heads, x, d.axis()))
    if d.chance(0.3):
        return d.step("contract", S, V, over=x, keys=keys)
    return d.step("contract", d.step("softmax", S, over=x, keys=keys), V, over=x)


def residues(d: Drawing) -> Ref:
    """Keys in steps, whose queries are split by residue, and a product of the result."""
    n = d.rng.choice((17, 33, 40))
    heads: Axes = (d.axis(2),) if d.chance(0.4) else ()
    q, x, e = d.axis(n), d.axis(n), d.axis(16)
    way = d.rng.choice(("dilated", "checkered", "neighborhood", "strided"))
    step = d.rng.choice((2, 3))
    keys = Keys("dilated", (d.rng.choice((2, 4)), 1, step), (), (q,), (x,))
    if way == "checkered":
        keys = Keys(way, (step,), (), (q,), (x,))
    elif way == "neighborhood":
        keys = Keys(way, (d.rng.choice((3, 5)),), (("dilation", step),), (q,), (x,))
    elif way == "strided":
        keys = Keys(way, (step,), (("local", False),), (q,), (x,))
    S = d.step("contract", d.input((*heads, q, e)), d.input((*heads, x, e)), over=e)
    how = d.rng.choice(("softmax", "softmax", "sum", "max"))
    if how == "max":
        d.outputs.append(d.step("max", S, over=x, keys=keys, public=False, infinite=True))
        return d.outputs[-1]
    c = d.axis(16)
    V = d.input((*heads, x, c))
    own = keys if how == "sum" else None
    P = S if own else d.step("softmax", S, over=x, keys=keys)
    y = d.step("contract", P, V, over=x, keys=own)
    return d.step("contract", y, d.input((c, d.axis(16))), over=c) if d.chance(0.5) else y


def boxes(d: Drawing) -> Ref:
    """Neighborhoods over two axes or three, which groups visit in words of bits or without."""
    n = d.rng.choice(
        ((8, 12), (9, 7), (16, 3), (4, 5, 6), (3, 8, 4), (5, 4, 7), (6, 6, 6), (5, 7, 8))
    )
    heads: Axes = (d.axis(2),) if d.chance(0.3) else ()
    q, x = (tuple(d.axis(m) for m in n) for _ in range(2))
    keys = neighborhood(d, q, x)
    if d.chance(0.2):
        keys = Keys("|", (), (), q, x, parts=(keys, neighborhood(d, q, x)))
    e = d.axis(d.rng.choice((2, 16)))
    S = d.step("contract", d.input((*heads, *q, e)), d.input((*heads, *x, e)), over=e)
    V = d.input((*heads, *x, d.axis()))
    if d.chance(0.3):
        return d.step("contract", S, V, over=x, keys=keys)
    return d.step("contract", d.step("softmax", S, over=x, keys=keys), V, over=x)


def keyed(d: Drawing) -> Ref:
    """Any pattern of keys, seen by queries of few heads."""
    n = d.rng.choice((5, 7, 16, 33))
    q, x = (d.axis(n),), (d.axis(n),)
    keys = (user_pattern if d.chance(0.4) else pattern)(d, q, x, None)
    S = d.step("contract", d.input((*q, e := d.axis())), d.input((*x, e)), over=e)
    P = S if d.chance(0.3) else d.step("softmax", S, over=x, keys=keys)
    return d.step("contract", P, d.input((*x, d.axis())), over=x, keys=keys if P == S else None)


def placed(d: Drawing) -> Ref:
    """Queries at places that an array gives, of every head or of all."""
    n = d.rng.choice((7, 16, 40))
    heads: Axes = (d.axis(2),) if d.chance(0.6) else ()
    q, x, e = d.axis(d.rng.choice((1, 5, 17))), d.axis(n), d.axis(d.rng.choice((2, 16)))
    axes = (*heads, q) if d.chance(0.5) else (q,)
    at = d.input(axes, "int", f"places:{x}", public=False)
    among = ("causal", "causal", "sliding", "blocked", "strided", "dilated", "fixed")
    off = d.rng.choice((0, 0, 1, -1))
    keys = pattern(d, (q,), (x,), off, among)
    own = user_pattern(d, (q,), (x,), off) if d.chance(0.2) else keys
    keys = own if own.numbers != (1,) else keys  # every key, wherever the query is
    keys = replace(keys, tables=(at,), placed=True)
    S = d.step("contract", d.input((*heads, q, e)), d.input((*heads[:1], x, e)), over=e)
    V = d.input((*heads, x, d.axis(d.rng.choice((3, 16)))))
    way = d.rng.choice(("softmax", "softmax", "sum", "max"))
    if way == "max":
        d.outputs.append(d.step("max", S, over=x, keys=keys, public=False, infinite=True))
        return d.outputs[-1]
    if way == "sum":
        return d.step("contract", S, V, over=x, keys=keys)
    return d.step("contract", d.step("softmax", S, over=x, keys=keys), V, over=x)


def side_by_side(d: Drawing) -> Ref:
    """One softmax over the keys that a query sees and over others beside them."""
    n = d.rng.choice((5, 16, 33))
    heads: Axes = (d.axis(2),) if d.chance(0.3) else ()
    q, x, a, e = d.axis(n), d.axis(n), d.axis(d.rng.choice((1, 4, 20))), d.axis(16)
    Q = d.input((*heads, q, e))
    S = d.step("contract", Q, d.input((*heads, x, e)), over=e)
    T = d.step("contract", Q, d.input((a, e)), over=e)
    T = d.input((*heads, a)) if d.chance(0.3) else T
    keys = pattern(d, (q,), (x,), d.rng.choice((None, 0)))
    each, sets = ((x,), (a,)), (keys, None)
    if d.chance(0.3):
        d.outputs.append(d.step("logsumexp", S, T, each=each, keys=sets))
        return d.outputs[-1]
    P, R = (d.step("softmax", S, T, each=each, keys=sets, which=i) for i in (0, 1))
    c = d.axis(d.rng.choice((3, 16)))
    y = d.step("contract", P, d.input((*heads, x, c)), over=x)
    return d.step("add", y, d.step("contract", R, d.input((a, c)), over=a))


def sides(d: Drawing) -> Ref:
    """What warpgroups share, and what they may not: operands, rows, columns, and what is beside a
    product of computed rows."""
    q, x = (d.axis(d.rng.choice(SIDES)) for _ in range(2))
    e = c = d.axis(d.rng.choice((16, 32)))
    c = d.axis(d.rng.choice((16, 300))) if d.chance(0.3) else c
    heads: Axes = (d.axis(2),) if d.chance(0.2) else ()
    way = d.rng.choice((
        "outside", "plain", "lacking", "two", "largest", "added", "whole", "then", "computed",
        "stored", "beside", "tile", "tile", "order", "order", "slots", "normalised", "held", "held",
        "before", "before", "counted", "counted", "inner", "inner",
    ))  # fmt: skip
    if way == "held":
        return held(d)
    if way == "inner":  # two axes of columns, which lie inside the rows of an operand
        y = d.step("contract", d.input((q, x)), d.input((x, d.axis(2), d.axis(32))), over=x)
        return d.step(d.rng.choice(("tanh", "abs")), y)
    Q, K, V = d.input((*heads, q, e)), d.input((*heads, x, e)), d.input((*heads, x, c))
    if way in {"added", "then"}:
        y = d.step("contract", d.input((*heads, q, x)), V, over=x)
        if way == "then":
            return d.step("contract", d.step("tanh", y), d.input((c, d.axis(16))), over=c)
        y = d.step("add", y, d.step("contract", d.input((*heads, q, x)), V, over=x))
        return d.step("tanh", y)
    if way == "slots":
        return slots(d)
    more = [d.input(d.some((q, x), 1, 1))] if way == "outside" else []
    more = [d.input((x, e), "int")] if way == "whole" else more
    if way == "before":
        Q = d.step("contract", Q, d.input((e, f := d.axis(16))), over=e)
        K, e = d.input((*heads, x, f)), f
    S = d.step("mul", d.step("contract", Q, K, *more, over=e), 0.25)
    keys = None
    if way == "order":
        keys = user_pattern(d, (q,), (x,), d.rng.choice((0, 1)))
    elif d.chance(0.4):
        off = d.rng.choice((0, 1))
        keys = pattern(d, (q,), (x,), off, ("causal", "sliding", "sinks", "neighborhood"))
    if way == "largest":
        d.outputs.append(d.step("max", S, over=x, keys=keys, infinite=True))
    if way == "computed":
        S = d.step("mul", S, d.step("mean", d.step("mul", Q, Q), over=e))
    if way == "stored":
        d.outputs.append(S)
    if way in {"plain", "lacking"}:  # without a maximum
        P = d.step(d.rng.choice(("erf", "ndtr") if way == "lacking" else ("tanh", "silu")), S)
        y = d.step("contract", P, V, over=x, keys=keys)
    else:
        P = d.step("softmax", S, over=x, keys=keys)
        counted = [d.input((q, x), "int")] if way == "counted" else []
        y = d.step("contract", P, *counted, V, over=x)
    if way == "normalised":  # its rows of length 1
        square = d.step("sum", d.step("mul", y, y), over=c)
        y = d.step("mul", y, d.step("rsqrt", d.step("add", square, 1e-3)))
    if way == "two":
        d.outputs.append(d.step("contract", P, d.input((*heads, x, c)), over=x))
    if way == "beside":
        y = d.step("add", y, d.step("contract", d.input((*heads, q, x)), V, over=x))
    if way == "tile":
        y = d.step("add", y, d.step("sum", d.step("abs", d.input((x, c))), over=x))
    d.outputs.append(y)
    return y


def held(d: Drawing) -> Ref:
    """Products of many rows and of few keys, all of which a group holds, stored in slots or reduced
    by residue."""
    n = d.rng.choice((8, 16))
    b, q, x, e = d.axis(d.rng.choice((2, 17))), d.axis(n), d.axis(n), d.axis(64)
    S = d.step("contract", d.input((b, q, e)), d.input((x, e)), over=e)
    if d.chance(0.5):
        keys, s = Keys("sliding", (2, 2), (), (q,), (x,)), d.axis(5)
        y = d.step("compress", S, over=x, keys=keys, public=False, infinite=True, into=(s,))
    else:
        keys = Keys("dilated", (2, 1, 2), (), (q,), (x,))
        y = d.step("max", S, over=x, keys=keys, public=False, infinite=True)
    d.outputs.append(y)
    return y


def slots(d: Drawing) -> Ref:
    """Long products that are stored in slots, along one axis or two."""
    n = d.rng.choice(((17,), (33,), (4, 5)))
    q, x, s = (tuple(d.axis(m) for m in n) for _ in range(3))
    keys, counts = box_set(d, q, x)
    if len(n) == 1 and d.chance(0.2):  # a key for each query
        keys, counts = Keys("sliding", (0, 0), (), q, x), (1,)
    for axis, k in zip(s, counts, strict=True):
        d.sizes[axis] = k
    e = d.axis(d.rng.choice((2, 64)))
    S = d.step("contract", d.input((*q, e)), d.input((*x, e)), over=e)
    fill = {"fill": 0.0} if d.chance(0.5) else {}
    T = d.step("compress", S, over=x, keys=keys, public=False, infinite=True, into=s, **fill)
    d.outputs.append(T)
    return T
