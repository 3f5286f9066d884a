"""The single steps of random programs: maps, arithmetic, contractions, reductions, scans, casts."""

from __future__ import annotations

from drawing import Drawing, Rejected
from programs import Ref

CONSTANTS = (0.5, -0.5, 1.0, 2.0, 0.1, -0.0, 0.0, 3, -1, 2, 1e-3)
EXPONENTS = (2, 3, 2, 4, 0.5, -0.5, -1, 1.5, -2, 0, 1, 5)


def positive(d: Drawing, x: Ref) -> Ref:
    """`x` as a positive array."""
    way = d.rng.choice(("abs", "square", "exp", "sigmoid"))
    if way == "abs":
        return d.step("add", d.step("abs", x, public=False), 0.1)
    if way == "square":
        return d.step("add", d.step("mul", x, x, public=False), d.rng.choice((0.1, 1.0)))
    if way == "exp":
        return d.step("exp", d.step("mul", x, 0.3, public=False))
    return d.step("sigmoid", x)


def unary(d: Drawing) -> Ref:
    """A function of one value."""
    x = d.pick()
    op = d.rng.choice((
        "neg", "abs", "exp", "log", "log", "sqrt", "rsqrt", "tanh", "sin", "sin", "cos", "cos",
        "erf", "erf", "ndtr", "ndtr", "sigmoid", "silu", "gelu", "gelu",
    ))  # fmt: skip
    if op in {"log", "sqrt", "rsqrt"}:
        x = positive(d, x)
    if op == "exp" and d.chance(0.6):
        x = d.step("mul", x, d.rng.choice((0.3, -0.5)), public=False)
    return d.step(op, x)


def power(d: Drawing) -> Ref:
    """A power, of a number or by one."""
    x, n = d.pick(), d.rng.choice(EXPONENTS)
    if d.chance(0.1):
        return d.step("pow", d.rng.choice((2.0, 0.5)), x)
    if d.chance(0.1):
        return d.step("pow", positive(d, x), d.pick())
    if isinstance(n, float) or n < 0:
        x = positive(d, x)
    return d.step("pow", x, n)


def arithmetic(d: Drawing) -> Ref:
    """Two values, or one and a number, or one with itself."""
    x = d.pick()
    y: Ref | float | int = d.pick()
    if d.chance(0.3):
        y = d.rng.choice(CONSTANTS)
    elif d.chance(0.1):
        y = x
    elif d.chance(0.1):
        y = d.step("size", over=d.rng.choice(tuple(d.sizes)), public=False)
    op = d.rng.choice(("add", "sub", "mul", "mul", "div", "maximum", "minimum"))
    if op == "div" and isinstance(y, Ref):
        y = positive(d, y) if d.kind(y) == "real" else d.step("maximum", y, 1, public=False)
    if op == "div" and not isinstance(y, Ref):
        y = y or 2.0
    pair = (y, x) if d.chance(0.2) and not (op == "div" and not isinstance(y, Ref)) else (x, y)
    if op == "div" and pair[1] == x:
        pair = (pair[0], positive(d, x))
    return d.step(op, *pair)


def chain(d: Drawing) -> Ref:
    """A value that is used again and again: a graph, and as a tree exponentially large."""
    x = d.pick()
    for _ in range(d.rng.choice((2, 3, 4, 8))):
        x = d.step("add", x, d.step("mul", x, d.rng.choice((0.5, -0.3)), public=False))
    return x


def contraction(d: Drawing) -> Ref:
    """A product of one to four values, repeated ones among them, summed over one to three axes."""
    parts = [d.pick(1) for _ in range(d.rng.choice((1, 2, 2, 2, 3, 3, 4)))]
    if d.chance(0.25):
        parts.append(d.rng.choice(parts))
    if d.chance(0.1):
        parts.append(parts[0])
    every = list(dict.fromkeys(a for p in parts for a in d.axes_of(p)))
    gone = d.some(every, 1, d.rng.choice((1, 1, 1, 2, 3)))
    args = [*parts, *([d.rng.choice((0.5, 2.0))] if d.chance(0.1) else [])]
    return d.step("contract", *args, over=gone)


def multilinear(d: Drawing) -> Ref:
    """A contraction of new inputs that share axes in a cycle: bilinear forms, MTTKRP and others."""
    n = d.rng.choice((2, 3, 3, 4))
    axes = list(d.some(tuple(d.sizes), 2, 4))
    while len(axes) < n:
        axes.append(d.axis())
    axes = axes[:n]
    parts = [d.input(tuple(dict.fromkeys((axes[i], axes[(i + 1) % n])))) for i in range(n)]
    if d.chance(0.5):
        parts.append(d.input(d.some(axes, 1, 1)))
    return d.step("contract", *parts, over=d.some(axes, 1, min(3, len(axes))))


def reduction(d: Drawing) -> Ref:
    """A reduction over one to three axes."""
    x = d.pick(1)
    gone = d.some(d.axes_of(x), 1, d.rng.choice((1, 1, 1, 2, 3)))
    how = d.rng.choice(("sum", "max", "min", "mean", "logsumexp", "prod", "sum", "max"))
    return d.step(how, x, over=gone)


def softmax(d: Drawing) -> Ref:
    """Softmax over one axis or several."""
    x = d.pick(1)
    return d.step("softmax", x, over=d.some(d.axes_of(x), 1, d.rng.choice((1, 1, 1, 2))))


def about(d: Drawing) -> Ref:
    """A reduction of what is beside a reduction: nested, one to three deep."""
    x = d.pick(1)
    gone = d.some(d.axes_of(x), 1, d.rng.choice((1, 1, 2, 3)))
    for _ in range(d.rng.choice((1, 1, 2, 3))):
        how = d.rng.choice(("mean", "max", "min", "sum", "logsumexp"))
        own = gone if d.chance(0.8) else d.some(d.axes_of(x), 1, 2)
        r = d.step(how, x, over=own)
        way = d.rng.choice(("sub", "mul", "exp", "div", "maximum", "abs", "greater"))
        if way == "exp":
            x = d.step("exp", d.step("minimum", d.step("sub", x, r), 2.0, public=False))
        elif way == "div":
            x = d.step("div", x, positive(d, r))
        elif way == "abs":
            x = d.step("abs", d.step("sub", x, r))
        elif way == "greater":
            x = d.step("where", d.step("greater", x, r, public=False), x, d.rng.choice((0.0, 1.0)))
        else:
            x = d.step(way, x, r)
    how = d.rng.choice(("sum", "mean", "max", "square"))
    if how == "square":
        return d.step("sum", d.step("mul", x, x, public=False), over=gone)
    return d.step(how, x, over=gone)


def factored(d: Drawing) -> Ref:
    """Reductions of some values over one axis, multiplied, and summed over others with them."""
    x, y = d.pick(1), d.pick(1)
    a = d.rng.choice(d.axes_of(x))
    r = d.step(d.rng.choice(("sum", "mean", "max")), x, over=a)
    parts = [y, r] if d.chance(0.6) else [y, r, d.rng.choice((y, r, x))]
    every = list(dict.fromkeys(b for p in parts for b in d.axes_of(p)))
    if not every:
        raise Rejected
    t = d.step("contract", *parts, over=d.some(every, 1, 2))
    return d.step("mul", t, d.step("sum", d.pick(1, wide=(a,)), over=a)) if d.chance(0.4) else t


def compared(d: Drawing) -> Ref:
    """A choice by comparisons and logic."""
    x, y = d.pick(), d.pick()
    ops = ("less", "less_equal", "greater", "greater_equal", "equal", "not_equal")
    other = d.rng.choice((y, 0.0, 0.5, d.step("mul", y, 0.5)))
    test = d.step(d.rng.choice(ops), x, other, public=False)
    if d.chance(0.45):
        index = d.step("index", over=d.rng.choice(tuple(d.sizes)), public=False)
        again = d.step(d.rng.choice(ops), index, d.rng.choice((1, 2)), public=False)
        test = d.step(d.rng.choice(("and", "or")), test, again, public=False)
    if d.chance(0.2):
        test = d.step("not", test, public=False)
    axes = d.axes_of(test)
    if axes and d.chance(0.3):
        how = d.rng.choice(("any", "all", "sum", "mean", "max"))
        found = d.step(how, test, over=d.some(axes, 1, 2), public=False)
        return (
            d.step("add", x, found) if d.kind(found) != "bool" else d.step("where", found, x, 0.0)
        )
    return d.step("where", test, x, d.rng.choice((y, 0.0, -0.0, 1.0, -1)))


def signed_zero(d: Drawing) -> Ref:
    """What the sign of a zero decides."""
    x = d.pick()
    test = d.step("greater", x, d.rng.choice((0.0, 5.0)), public=False)
    zero = d.step("where", test, *d.rng.choice(((0.0, -0.0), (-0.0, 0.0))), public=False)
    inverse = d.step("div", 1.0, zero, public=False, infinite=True)
    return d.step("where", d.step("greater", inverse, 0.0, public=False), x, 1.0)


def whole(d: Drawing) -> Ref:
    """Arithmetic on whole numbers, whose result meets reals."""
    axes = d.some(tuple(d.sizes), 1, 2)
    given = d.chance(0.5)
    n = d.input(axes, "int") if given else d.step("index", over=axes[0], public=False)
    for _ in range(d.rng.choice((1, 2, 3))):
        op = d.rng.choice(("add", "mul", "sub", "floordiv", "mod", "maximum", "minimum", "abs",
                           "neg", "pow"))  # fmt: skip
        if op in {"abs", "neg"}:
            n = d.step(op, n, public=False)
        elif op == "pow":
            n = d.step("pow", n, d.rng.choice((2, 3)), public=False)
        else:
            n = d.step(op, n, d.rng.choice((2, 3, 4)), public=False)
    if d.axes_of(n) and d.chance(0.5):
        how = d.rng.choice(("sum", "max", "min", "prod", "cumsum", "sort", "mean"))
        n = d.step(how, n, over=d.rng.choice(d.axes_of(n)), public=False)
    if d.chance(0.2):
        d.outputs.append(n)
    if d.chance(0.3):
        n = d.step("cast", n, public=False, dtype="fp32", kind="real")
    return d.step(d.rng.choice(("add", "mul")), d.pick(), n)


def truths(d: Drawing) -> Ref:
    """Truth values that are given, in a mask or in arithmetic."""
    x = d.pick(1)
    m = d.input(d.some(d.axes_of(x), 1, 2), "bool")
    if d.chance(0.3):
        m = d.step("not", m, public=False)
    if d.chance(0.4):
        masked = d.step("where", m, x, float("-inf"), public=False, infinite=True)
        gone = d.some(d.axes_of(x), 1, 1)
        return d.step("softmax", masked, over=gone)
    if d.chance(0.5):
        return d.step("mul", x, m)
    found = d.step(
        d.rng.choice(("any", "all", "sum", "mean")), m, over=d.axes_of(m)[0], public=False
    )
    return d.step("mul", x, d.step("cast", found, public=False, dtype="fp32", kind="real"))


def cast(d: Drawing) -> Ref:
    """A conversion, which in float64 changes nothing of reals."""
    x = d.pick()
    if d.chance(0.2):
        wide = d.rng.choice(("int32", "int32", "int64"))
        n = d.step("cast", x, public=False, dtype=wide, kind="int")
        return d.step("add", x, n)
    if d.chance(0.1):
        b = d.step("cast", x, public=False, dtype="bool", kind="bool")
        return d.step("where", b, x, 1.0)
    if d.chance(0.2):  # no output is stored so
        wide = d.step("cast", x, public=False, dtype="fp64", kind="real")
        return d.step("add", wide, 0.5)
    stored = d.rng.choice(("bf16", "fp16", "fp32")) if d.more else "fp32"
    return d.step("cast", x, dtype=stored, kind="real")


def scan(d: Drawing) -> Ref:
    """Running sums, sorting, and what is read off them."""
    x = d.pick(1)
    along = d.rng.choice(d.axes_of(x))
    way = d.rng.choice(("cumsum", "cumsum", "sort", "rank", "argmax", "topk"))
    if way in {"cumsum", "sort"}:
        return d.step(way, x, over=along)
    top = d.step("max", x, over=along)
    if way == "argmax":
        places = d.step("index", over=along, public=False)
        hit = d.step("equal", x, top, public=False)
        return d.step(
            "min", d.step("where", hit, places, 99, public=False), over=along, public=False
        )
    if way == "topk":
        order = d.step("sort", x, over=along, public=False)
        k = d.step("index", over=along, public=False)
        late = d.step("greater_equal", k, d.rng.choice((1, 2)), public=False)
        return d.step("sum", d.step("where", late, order, 0.0, public=False), over=along)
    near = d.step("greater_equal", x, d.step("mul", top, 0.5, public=False), public=False)
    return d.step("add", top, d.step("sum", near, over=along, public=False))


def scalar(d: Drawing) -> Ref:
    """A scalar of the call."""
    name = f"eps{len(d.made)}"
    s = d.step("scalar", public=False, name=name, value=d.rng.choice((0.5, 1.5, 0.1)))
    return d.step(d.rng.choice(("add", "mul")), d.pick(), s)
