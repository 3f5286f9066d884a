"""What is drawn from `KINDS` on: shapes that kernels have a branch of their own for."""

from __future__ import annotations

from drawing import SEVERAL, Drawing
from moves import positive
from own import kinds
from programs import Axes, Ref
from rare import counted
from scans import operands

OPERATORS = (
    "neg", "abs", "exp", "log", "sqrt", "rsqrt", "tanh", "sin", "cos", "erf", "ndtr", "sigmoid",
    "silu", "gelu", "softplus", "doubled", "saturated",
)  # fmt: skip
PAIRS = ("add", "sub", "mul", "maximum", "minimum", "div", "hypotenuse", "blended")
TESTS = (
    "less", "less_equal", "greater", "greater_equal", "equal", "not_equal", "between", "and", "or",
)  # fmt: skip
WHOLE = ("floordiv", "mod", "xor", "add", "sub", "mul", "maximum", "minimum", "neg", "abs", "pow")
MOMENTS = ("skew", "entropy", "weighted", "moved", "moved", "signs", "twice", "alone", "fourth")


def pointwise(d: Drawing) -> Ref:
    """Several operators one after another, each of any kind."""
    x = d.pick()
    for _ in range(d.rng.choice((3, 4, 5))):
        way = d.rng.choice(("one", "one", "two", "test", "whole", "kinds", "counted"))
        if way in {"kinds", "counted"}:
            d.moving(kinds if way == "kinds" else counted)
            continue
        if way == "one":
            op = d.rng.choice(OPERATORS)
            y = positive(d, x) if op in {"log", "sqrt", "rsqrt"} else x
            y = d.step("tanh", x, public=False) if op in {"exp", "doubled"} else y
            x = d.step(op, y)
        elif way == "two":
            x = _pair(d, x)
        elif way == "test":
            test = _test(d, x) if d.chance(0.7) else _whole(d)  # any number but 0
            x = d.step("where", test, x, d.rng.choice((d.pick(), 0.0, -0.0)))
        else:
            x = d.step(d.rng.choice(("add", "mul")), x, _whole(d))
    return x


def _pair(d: Drawing, x: Ref) -> Ref:
    op, y = d.rng.choice(PAIRS), d.rng.choice((d.pick(), 0.5, 2))
    if op == "div":
        return d.step(op, x, positive(d, d.pick()))
    if op == "blended":
        return d.step(op, x, y, d.rng.choice((0.5, d.pick())))
    return d.step(op, x, y)


def _test(d: Drawing, x: Ref) -> Ref:
    """A test of one, two or three values, or its opposite."""
    op = d.rng.choice(TESTS)
    if op in {"and", "or"}:
        parts = (d.step("less", v, 0.5, public=False) for v in (x, d.pick()))
        test = d.step(op, *parts, public=False)
    elif op == "between":
        test = d.step(op, -0.5, x, d.rng.choice((0.5, d.pick())), public=False)
    else:
        test = d.step(op, x, d.rng.choice((d.pick(), 0.0)), public=False)
    return d.step("not", test, public=False) if d.chance(0.3) else test


def _whole(d: Drawing) -> Ref:
    """Arithmetic on positions and whole numbers."""
    axes = d.some(tuple(d.sizes), 1, 1)
    n = d.rng.choice((d.input(axes, "int"), d.step("index", over=axes, public=False)))
    for _ in range(2):
        op = d.rng.choice(WHOLE)
        n = d.step(op, *((n,) if op in {"neg", "abs"} else (n, d.rng.choice((2, 3)))), public=False)
    return n


def deep(d: Drawing) -> Ref:
    """A term of as many levels as are written by recursion, of one more, or of many."""
    x = d.input(d.some(d.axes, 1, 2))
    for i in range(d.rng.choice((31, 32, 32, 33, 64, 70))):
        way = (i + len(d.sizes)) % 4
        pair = ("tanh",) if way == 1 else (("add", 0.25) if way else ("mul", 0.75))
        x = d.step(pair[0], x, *pair[1:], public=False)
    d.outputs.append(x)
    return x


def casts(d: Drawing) -> Ref:
    """Values that are rounded within a kernel, or made whole, and computed with."""
    x = d.pick(1)
    way = d.rng.choice(("rounded", "rounded", "whole", "truth", "wide", "fp8"))
    if way == "fp8":  # which holds numbers up to 448
        near = d.step(d.rng.choice(("tanh", "sigmoid", "cos")), x)
        y = d.step("cast", near, dtype="fp8", kind="real", public=False)
        if d.chance(0.4):
            d.outputs.append(y)
        if d.chance(0.4):
            return d.step("contract", y, d.input((d.axes_of(y)[0], d.axis(16))),
                          over=d.axes_of(y)[0])  # fmt: skip
        return d.step("add", y, d.rng.choice((0.5, d.pick())))
    if way == "rounded":
        dtype = d.rng.choice(("bf16", "fp16", "fp32"))
        y = d.step("cast", d.step(d.rng.choice(("tanh", "abs", "neg")), x), dtype=dtype,
                   kind="real")  # fmt: skip
        return d.step("add", y, d.rng.choice((0.5, d.pick())))
    if way == "whole":
        n = d.step("cast", d.step("mul", x, 3.0, public=False), public=False, dtype="int32",
                   kind="int")  # fmt: skip
        n = d.step("sum", n, over=d.some(d.axes_of(n), 1, 1), public=False)
        return d.step("mul", d.pick(), n)
    if way == "wide":
        n = d.step("index", over=d.rng.choice(d.axes_of(x)), public=False)
        n = d.step("cast", n, public=False, dtype=d.rng.choice(("fp16", "bf16")), kind="real")
        return d.step("mul", x, n)
    b = d.step("cast", x, public=False, dtype="bool", kind="bool")
    return d.step("where", b, d.step("exp", d.step("tanh", x)), 1.0)


def scaled_by(d: Drawing) -> Ref:
    """Numbers that the launcher computes: of scalars of the call, of sizes, of both."""
    x = d.pick(1)
    s = d.step("scalar", public=False, name=f"by{len(d.made)}", value=d.rng.choice((0.5, 1.5)))
    size = d.step("size", over=d.rng.choice(tuple(d.sizes)), public=False)
    way = d.rng.choice(("product", "root", "test", "start", *["alone", "kind", "truth"] * 3))
    if way == "kind":  # of a function of reals
        return d.step("hypotenuse", x, size)
    if way == "truth":  # in arithmetic
        here = d.step("greater", size, 2, public=False)
        n = d.step("index", over=d.rng.choice(d.axes_of(x)), public=False)
        return d.step("mul", x, d.step("add", n, here, public=False))
    if way == "product":
        s = d.step("mul", s, size, public=False)
        return d.step("mul", x, d.step("add", s, 1, public=False))
    if way == "root":
        return d.step("mul", x, d.step("rsqrt", d.step("add", size, s, public=False)))
    if way == "test":
        here = d.step("greater", size, 2, public=False)
        return d.step("where", here, x, d.step("mul", x, s))
    if way == "start":
        along = d.rng.choice(d.axes_of(x))
        return d.step("scan", s, 0.5, x, over=along, form="decayed")
    n = d.step(d.rng.choice(("floordiv", "mod", "pow")), size, 2, public=False)
    d.outputs.append(d.step(d.rng.choice(("add", "mul")), s, n, public=False))
    return d.step("add", x, d.outputs[-1])


def patches(d: Drawing) -> Ref:
    """Windows that share no position, or that reach past the end, and products of them."""
    taps, more = d.rng.choice((1, 2, 3, 4)), d.rng.choice((0, 0, 1))
    i, c = d.axis(d.rng.choice((8, 12, 13))), d.axis()
    apart = d.chance(0.7)
    stride = taps + more if apart else d.rng.choice((1, 2))
    option: dict[str, object] = {"stride": stride} if stride > 1 else {}
    if not apart:
        option["padding"] = d.rng.choice((1, (1, 0), (0, 2)))
        option |= {"dilation": 2} if d.chance(0.5) else {}
    length, reach = d.sizes[i], option.get("dilation", 1) * (taps - 1) + 1  # type: ignore[operator]
    padding = option.get("padding", 0)
    padded = sum(padding) if isinstance(padding, tuple) else 2 * padding  # type: ignore[operator]
    p, w = d.axis((length + padded - reach) // stride + 1), d.axis(taps)
    X = d.input(d.some((i, c), 2, 2) if d.chance(0.8) else (i,))
    if d.chance(0.3):
        X = d.step("tanh", X)
    y = d.step("slide", X, over=i, into=(p, w), window=taps, **option)
    way = d.rng.choice(("contract", "contract", "max", "mean", "plain", "cumsum"))
    if way == "contract":
        return d.step("contract", y, d.input((w, c, d.axis())), over=(w, c))
    return y if way == "plain" else d.step(way, y, over=w)


def renamed(d: Drawing) -> Ref:
    """A sum under another name of its axis, as a result or beside the sum."""
    a, b, c = d.axis(), d.axis(), d.axis()
    new = d.axis(d.sizes[a])
    x = d.input(d.some((a, b), 2, 2))
    if d.chance(0.4):
        x = d.step(d.rng.choice(("tanh", "exp", "abs")), x)
    way = d.rng.choice(("sum", "max", "product", "nested", "weighted"))
    if way == "product":
        y = d.step("contract", x, d.input((b, c)), over=b)
    elif way == "weighted":
        y = d.step("contract", x, d.input((b,)), over=b)
    elif way == "nested":
        y = d.step("sum", d.step("sub", x, d.step("mean", x, over=b)), over=b)
    else:
        y = d.step(way, x, over=b)
    z = d.step("rename", y, public=False, **{a: new})
    z = d.step(d.rng.choice(("mul", "add")), z, d.rng.choice((0.5, d.input((new,)))), public=False)
    d.outputs.append(z)
    if d.chance(0.3):
        d.outputs.append(y)
    return y


def lanes(d: Drawing) -> Ref:
    """Long rows of which lanes keep folds, whose merges are a reduction or are none."""
    q, x = d.axis(d.rng.choice((1, 3, 16))), d.axis(d.rng.choice((200, 512, 2000)))
    X, way = d.input((q, x)), d.rng.choice((*MOMENTS, "held", "crossed", "own"))
    if way == "held":
        h = d.axis(d.rng.choice((2, 4)))
        X = d.step(d.rng.choice(("cumsum", "sort")), d.input((q, h, x)), over=h)
        return d.step("sum", X, over=(h, x))
    if way == "crossed":
        h = d.axis(d.rng.choice((2, 4)))
        return d.step("sum", d.step("mul", X, d.input((h, x))), over=(h, x))
    if way == "own":
        how = d.rng.choice(("smooth_least", "log_sum", "either", "nearest"))
        X = d.step("tanh", X) if how == "either" else X
        return d.step("sub", d.step(how, X, over=x), d.step("mean", X, over=x))
    if way == "entropy":
        P = d.step("softmax", X, over=x)
        return d.step("sum", d.step("mul", P, d.step("mul", X, 0.5)), over=x)
    if way == "weighted":
        P = d.step("softmax", X, over=x)
        off = d.step("sub", d.input((q, x)), d.step("sum", d.step("mul", P, X), over=x))
        return d.step("sum", d.step("mul", P, d.step("mul", off, off)), over=x)
    if way == "moved":
        top = d.step("max", d.step("mul", X, 2.0), over=x)
        return d.step("sum", d.step("exp", d.step("sub", X, top)), over=x)
    if way == "signs":
        least = d.step("min", X, over=x)
        return d.step("prod", d.step("tanh", d.step("sub", X, least)), over=x)
    off = d.step("sub", X, d.step("mean", X, over=x))
    if way == "twice":
        return d.step("sum", d.step("mul", off, d.step("sub", X, d.step("max", X, over=x))), over=x)
    if way == "alone":
        return d.step("mul", off, d.step("rsqrt", positive(d, d.step("mean", off, over=x))))
    return d.step("mean", d.step("pow", off, 3 if way == "skew" else 4), over=x)


def recurrent(d: Drawing) -> Ref:
    """States that are matrices, which each position reads, and states of few positions."""
    t, e, c = d.axis(d.rng.choice((1, 4, 7, 17))), d.axis(16), d.axis(d.rng.choice((2, 16)))
    K, V, Q = d.input((t, e)), d.input((t, c)), d.input((t, e))
    K = d.step("mul", K, 0.25)
    if d.seed >= SEVERAL and d.chance(0.5):
        h = d.step("scan", 0.0, K, V, over=t, form="recalled", within=e)
        return d.step("contract", Q, h, over=e)
    decay = d.rng.choice((0.5, d.step("sigmoid", d.input((t,)), public=False)))
    h = d.step("scan", 0.0, decay, d.step("mul", K, V), over=t, form="decayed")
    return h if d.chance(0.2) else d.step("contract", Q, h, over=e)


def exponents(d: Drawing) -> Ref:
    """Exponentials of scores and of multiples of them, under a maximum of others."""
    q, x, e = d.axis(d.rng.choice((3, 17))), d.axis(d.rng.choice((7, 40))), d.axis(16)
    S = d.step("contract", d.input((q, e)), d.input((x, e)), over=e)
    by = d.rng.choice((0.25, 2.0, 0.5))
    way = d.rng.choice(("twice", "plain", *["softmax"] * 4, "halved"))
    V = d.input((x, d.axis()))
    T = d.step("mul", S, by)
    if way == "softmax":  # whose scale is written as a product of scales
        T = d.step("mul", T, d.rng.choice((1.0, 1.0, 2.0)))
        return d.step("contract", d.step("softmax", T, over=x), V, over=x)
    top = d.step("max", T, over=x)
    off = d.step("sub", d.rng.choice((S, d.step("tanh", T))), top)
    if way == "halved":
        off = d.step("mul", off, 0.5)
    P = d.step("exp", off)
    Z = d.step("sum", d.step("exp", d.step("sub", T, top)), over=x)
    y = d.step("contract", P, V, over=x)
    return d.step("div", y, Z) if way == "twice" else y


def scanned(d: Drawing) -> Ref:
    """Long rows, of which each position is sorted or summed up along what a group holds."""
    q, x = d.axis(d.rng.choice((1, 3, 16))), d.axis(d.rng.choice((200, 512, 2000)))
    h = d.axis(d.rng.choice((2, 4)))
    X = d.step(d.rng.choice(("cumsum", "sort")), d.input((q, h, x)), over=h)
    return d.step(d.rng.choice(("sum", "max", "mean")), X, over=(h, x))


def numbers(d: Drawing) -> Ref:
    """Results that no array has a part in, and products of whole numbers alone."""
    a, x = d.axis(), d.pick(1)
    if d.chance(0.5):
        size = d.step("size", over=d.rng.choice(d.axes_of(x)), public=False)
        s = d.step("scalar", public=False, name=f"by{len(d.made)}", value=1.5)
        by = d.step(d.rng.choice(("pow", "mul")), size, d.rng.choice((0.5, -1.0)), public=False)
        d.outputs.append(d.step("mul", by, s, public=False) if d.chance(0.5) else by)
        return d.step("mul", x, by)
    n, m = d.input((d.axis(16), a), "int"), d.input((a, d.axis(16)), "int")
    half = d.step("mul", n, 0.5, public=False)
    y = d.step("contract", half, d.step("mul", m, 0.25, public=False), over=a, public=False)
    d.outputs.append(d.step("greater", y, 0.0, public=False) if d.chance(0.7) else y)
    return y


def long_held(d: Drawing) -> Ref:
    """Products of matrices with a long side, which a box does not hold, or with many axes."""
    a, k = d.axis(d.rng.choice((16, 33))), d.axis(d.rng.choice((16, 40)))
    if d.chance(0.3):
        heads = tuple(d.axis(d.rng.choice((1, 2))) for _ in range(4))
        return d.step("contract", d.input((*heads, a, k)), d.input((*heads, k)), over=k)
    n: Axes = (d.axis(d.rng.choice((257, 300))),)
    if d.chance(0.4):
        n = (d.axis(d.rng.choice((2, 3))), d.axis(16))
    y = d.step("contract", d.input((a, k)), d.input((k, *n) if d.chance(0.5) else (*n, k)), over=k)
    way = d.rng.choice(("plain", "max", "softmax", "tanh"))
    if way in {"plain", "tanh"}:
        return d.step("tanh", y) if way == "tanh" else y
    return d.step(way, y, over=n[-1])


def nowhere(d: Drawing) -> Ref:
    """Sums of products that are nowhere 0, of wide factors, of narrow ones, or of positions."""
    a, q = d.axis(d.rng.choice((3, 7, 33))), d.axis()
    if d.chance(0.4):  # no array lies along what is streamed
        b = d.axis(d.rng.choice((33, 70)))
        at = d.step("mul", d.step("index", over=b, public=False), d.input((q,)), public=False)
        return d.step("sum", d.step("sin", at), over=b)
    X = d.step(d.rng.choice(("exp", "cos", "sigmoid")), d.step("tanh", d.input((q, a))))
    y = d.step("cos", d.input(d.rng.choice(((a,), (a, d.axis()), (q, a)))))
    z = [d.step("sigmoid", d.input((a,)))] if d.chance(0.3) else []
    return d.step("contract", X, y, *z, over=a)


def long_lines(d: Drawing) -> Ref:
    """Expressions of many operands and calls within calls, whose line is too long."""
    x, d.nested = d.pick(1), True
    way = d.rng.choice(("sum", "test", "nested", "negative", "negative", "power"))
    parts = [d.pick(1) for _ in range(d.rng.choice((5, 6, 7)))]
    if way == "test":
        test = d.step("less", parts[0], 0.5, public=False)
        for p in parts[1:]:
            more = d.step(d.rng.choice(("less", "greater", "equal")), p, x, public=False)
            test = d.step(d.rng.choice(("and", "or")), test, more, public=False)
        return d.step("where", test, x, 0.0)
    for p in parts:
        if way == "sum":
            x = d.step(d.rng.choice(("add", "sub")), x, d.step("mul", p, 0.25, public=False))
        elif way == "negative":
            near = d.step("maximum", d.step("mul", p, 0.25, public=False), x, public=False)
            x = d.step("neg", d.step("abs", near, public=False), public=False)
            x = d.step("mul", x, d.step("add", p, 0.5, public=False)) if d.chance(0.3) else x
        elif way == "power":
            x = d.step("pow", d.step("tanh", d.step("add", x, p, public=False)), 3, public=False)
        else:
            test = d.step("greater", p, x, public=False)
            x = d.step("where", test, d.step("tanh", x, public=False), p)
    return d.step("add", x, 0.5)


def alike(d: Drawing) -> Ref:
    """Layers of one form, each of other weights, all of which are results."""
    q, e = d.axis(), d.axis()
    x = d.input((q, e))
    for _ in range(d.rng.choice((2, 3))):
        y = d.step("contract", x, d.input((e, f := d.axis(3))), over=e)
        z = d.step("contract", d.step("silu", y), d.input((f, e)), over=f)
        x = d.step("div", z, positive(d, d.step("sum", d.step("mul", z, z), over=e)))
        d.outputs += [x] * d.chance(0.3)
    return x


def bytes_(d: Drawing) -> Ref:
    """Numbers of few bits that are multiplied, used twice, or computed with, in several types."""
    a, b, c = d.axis(d.rng.choice((2, 16))), d.axis(d.rng.choice((4, 32))), d.axis(16)
    kind = d.rng.choice(("int8", "int8", "uint8", "int4", "uint4", "fp8", "fp8", "fp8"))
    real = kind == "fp8"
    fill = "fp8" if real else ""

    def stored(*axes: str) -> Ref:
        return d.input(axes, "real" if real else "int", fill, kind, public=False)

    W = stored(c, b) if d.chance(0.5) else stored(b, c)
    way = d.rng.choice(("both", "both", "both", "twice", "scaled", "rows", "whole"))
    if way == "whole":  # numbers of no type of their own, beside reals
        return d.step("contract", d.input((a, b)), d.input((b, c), "int"), over=b)
    if way == "both":
        return d.step("mul", d.step("contract", stored(a, b), W, over=b, public=False), 0.01)
    if way == "twice":
        square = d.step("mul", W, W, public=False)
        total = d.step("sum", d.step("add", square, W, public=False), over=b, public=False)
        return d.step("mul", total, 0.01)
    if way == "scaled":
        off = d.step("sub", W, d.input((c,), "real" if real else "int"), public=False)
        scaled = d.step("mul", off, d.input((b,), fill="positive"), public=False)
        return d.step("mul", d.step("contract", d.input((a, b)), scaled, over=b), 0.05)
    least = d.step("min", W, over=b, public=False)
    return d.step("mul", d.step("max", d.step("sub", W, least, public=False), over=b), 0.1)


def sorted_rows(d: Drawing) -> Ref:
    """Rows that are sorted or summed up to each place, along any of their axes, or along one of a
    single position."""
    n = d.rng.choice((1, 1, 1, 5, 8))
    a, b = d.axis(n), d.axis()
    x = d.input(d.some((a, b), 2, 2))
    way = d.rng.choice(("sort", "sort", "cumsum", "scan", "scan"))
    if way == "scan":
        form = d.rng.choice(("decayed", "twice", "average", "signed"))
        y = d.step("scan", 0.5, *operands(d, form, x, a), over=a, form=form)
    else:
        y = d.step(way, x, over=a)
    return d.step(d.rng.choice(("sum", "max")), y, over=d.rng.choice((a, b))) if n == 1 else y
