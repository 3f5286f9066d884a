"""What a user adds, in programs: operators, reductions, rules of rewriting; and whole numbers near
the ends of their type."""

from __future__ import annotations

from drawing import Drawing
from keyed import key_set
from moves import positive
from programs import OWN_REDUCE, Ref


def operator(d: Drawing) -> Ref:
    """A pointwise operator."""
    x, y = d.pick(), d.pick()
    op = d.rng.choice(
        ("softplus", "doubled", "saturated", "hypotenuse", "between", "blended", "xor")
    )
    if op == "doubled":
        return d.step(op, d.step("mul", x, d.rng.choice((0.3, 1.0)), public=False))
    if op == "hypotenuse":
        return d.step(op, x, d.rng.choice((y, 1.0, 0.0)))
    if op == "blended":
        return d.step(op, x, y, d.rng.choice((d.pick(), 0.5)))
    if op == "between":
        test = d.step(op, d.rng.choice((-0.5, y)), x, d.rng.choice((0.5, y)), public=False)
        return d.step("where", test, x, d.rng.choice((y, 0.0)))
    if op == "xor" or d.chance(0.3):
        n = whole(d, "index")
        n = d.step(
            op, *((n, d.rng.choice((1, 5, whole(d)))) if op == "xor" else (n,)), public=False
        )
        return d.step(d.rng.choice(("add", "mul")), x, n)
    return d.step(op, x)


def whole(d: Drawing, *ways: str) -> Ref:
    """Whole numbers: an input, or positions."""
    if d.rng.choice((*ways, "input")) == "index":
        return d.step("index", over=d.rng.choice(tuple(d.sizes)), public=False)
    return d.input(d.some(tuple(d.sizes), 1, 2), "int")


def kinds(d: Drawing) -> Ref:
    """Operators on reals that are given whole numbers or a size, and a choice by whole numbers."""
    x, n = d.pick(), whole(d, "index")
    way = d.rng.choice(("number", "size", "power", "choice", "function"))
    if way == "number":
        return d.step("hypotenuse", x, d.rng.choice((2, 3)))
    if way == "size":
        return d.step("hypotenuse", x, d.step("size", over=d.rng.choice(tuple(d.sizes))))
    if way == "power":
        return d.step("pow", positive(d, x), n)
    if way == "choice":
        return d.step("where", n, x, d.rng.choice((d.pick(), 0.0)))
    return d.step("mul", x, d.step(d.rng.choice(("tanh", "sin", "sigmoid")), n))


def reduced(d: Drawing, x: Ref, gone: tuple[str, ...], keys=None) -> Ref:
    """A reduction of a value; of nothing it may be infinite."""
    how = d.rng.choice(OWN_REDUCE)
    if how == "either":
        x = d.step(d.rng.choice(("sigmoid", "tanh")), x, public=False)
    infinite = keys is not None and how not in {"either", "added"}
    return d.step(how, x, over=gone, keys=keys, public=not infinite, infinite=infinite)


def reduction(d: Drawing) -> Ref:
    """A reduction over one to three axes, of reals or of whole numbers."""
    if d.chance(0.15):
        return nearest(d)
    x = whole(d) if d.chance(0.15) else d.pick(1)
    return reduced(d, x, d.some(d.axes_of(x), 1, d.rng.choice((1, 1, 2, 3))))


def nearest(d: Drawing) -> Ref:
    """The whole number nearest to zero, of all or of some keys."""
    q, x = d.axis(5), d.axis(5)
    keys = key_set(d, (q,), (x,)) if d.chance(0.6) else None
    n = d.input((q, x), "int", d.rng.choice(("normal", "vast")))
    d.outputs.append(d.step("nearest", n, over=x, keys=keys, public=False))
    return d.outputs[-1]


def weights(d: Drawing) -> Ref:
    """Weights of keys by a reduction, and values summed under them."""
    q, x, e = (d.axis(n) for n in (d.rng.choice((3, 5)), d.rng.choice((3, 5, 7)), 2))
    at = d.sizes[q] != d.sizes[x]
    S = d.step("contract", d.input((q, e)), d.input((x, e)), over=e)
    keys = key_set(d, (q,), (x,), at) if d.chance(0.8) else None
    if d.chance(0.4):
        d.outputs.append(reduced(d, S, (x,), keys))
        return d.outputs[-1]
    total = d.step("log_sum", S, over=x, keys=keys, public=False, infinite=keys is not None)
    near = d.step("exp", d.step("sub", S, total, public=False, infinite=True), public=False)
    return d.step("contract", near, d.input((x, d.axis())), over=x, keys=keys)


def streamed(d: Drawing) -> Ref:
    """A reduction of an operator of a value and of a reduction before it."""
    x = d.pick(1)
    gone = d.some(d.axes_of(x), 1, d.rng.choice((1, 1, 2)))
    r = d.step(d.rng.choice(("max", "min", "sum", "mean", "nearest", "log_sum")), x, over=gone)
    way = d.rng.choice(("softplus", "doubled", "saturated", "hypotenuse", "blended", "factor"))
    if way == "factor":
        y = d.step("mul", d.step(d.rng.choice(("softplus", "doubled")), r), x)
    elif way == "hypotenuse":
        y = d.step(way, x, r)
    elif way == "blended":
        y = d.step(way, *d.rng.choice(((x, r, 0.5), (x, 0.0, r), (r, x, d.input(gone)))))
    else:
        y = d.step(way, d.step("sub", x, r))
    how = d.rng.choice(("sum", "max", "min", "mean", "prod", "added", "log_sum", "nearest"))
    return d.step(how, y, over=gone)


def ruled(d: Drawing) -> Ref:
    """What a rule of rewriting may change."""
    x = d.pick(1)
    gone = d.some(d.axes_of(x), 1, d.rng.choice((1, 1, 2)))
    way = d.rng.choice(("sum differences apart", "least as largest", "divide once"))
    d.rules.append(way)
    if way == "least as largest":
        return d.step("min", x, over=gone)
    if way == "divide once":
        left = tuple(a for a in d.sizes if a not in gone)
        y = positive(d, d.input(d.some(left, 0, 2)))
        return d.step("sum", d.step("div", x, y), over=gone)
    other = d.step("sub", x, d.input((*gone, *d.some(d.axes, 0, 1))[:2] if len(gone) > 1 else gone))
    return d.step("contract", other, d.input(gone), over=gone)


def vast(d: Drawing) -> Ref:
    """Whole numbers near the ends of int32."""
    axes = d.some(tuple(d.sizes), 1, 2)
    n, m = d.input(axes, "int", "vast"), d.input(axes[:1], "int", "vast")
    for _ in range(d.rng.choice((1, 2, 3))):
        op = d.rng.choice(("maximum", "minimum", "floordiv", "mod", "xor", "neg", "abs", "where"))
        if op in {"neg", "abs"}:
            n = d.step(op, n, public=False)
        elif op == "where":
            test = d.step(d.rng.choice(("less", "greater_equal", "equal")), n, m, public=False)
            n = d.step(op, test, n, m, public=False)
        else:
            other = d.rng.choice((2, 3, 7)) if op in {"floordiv", "mod"} else d.rng.choice((m, 1))
            n = d.step(op, n, other, public=False)
    if d.chance(0.5):
        how = d.rng.choice(("max", "min", "sort"))
        n = d.step(how, n, over=d.rng.choice(axes), public=False)
    if d.chance(0.5):
        d.outputs.append(n)
        return n
    x = d.pick()
    return d.step("where", d.step("less", n, m, public=False), x, 0.0)
