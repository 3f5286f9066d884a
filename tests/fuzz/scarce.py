"""Programs for branches that few others reach: what is drawn from `SCARCE` on."""

from __future__ import annotations

from drawing import Drawing
from keyed import key_set, pattern
from programs import Axes, Ref
from scans import seed

SCALES = ("plain", "plain", "exp", "sigmoid", "square")
"""What becomes of scales before they scale."""


def scaled(d: Drawing) -> Ref:
    """Products of blocks, each scaled along its rows, its columns or both, and then added up."""
    a, b = d.axis(d.rng.choice((24, 40, 64, 33))), d.axis(d.rng.choice((2, 3)))
    k, c = d.axis(d.rng.choice((16, 32, 32))), d.axis(d.rng.choice((16, 32, 64)))
    heads: Axes = (d.axis(2),) if d.sizes[a] < 64 and d.chance(0.2) else ()
    fp8 = d.chance(0.5)

    def matrix(*axes: str) -> Ref:
        if d.chance(0.15):  # which instructions of 8 bits do not read
            axes = (axes[0], axes[2], axes[1])
        return d.input((*heads, *axes), "real", "fp8" if fp8 else "", "fp8" if fp8 else "",
                       public=False)  # fmt: skip

    def scale() -> Ref:
        own = (
            (b, a),
            (b, a),
            (b, a),
            (a, b),
            (a, b),
            (b, c),
            (b, c),
            (b, c),
            (c, b),
            (b,),
            (b, a, c),
        )
        axes = d.rng.choice(own)
        s = d.input(axes, fill="positive", storage=d.rng.choice(("", "", "fp32")))
        way = d.rng.choice(SCALES)
        if way == "square":
            return d.step("mul", s, s, public=False)
        s = d.step("neg", s, public=False) if way == "exp" else s
        return s if way == "plain" else d.step(way, s, public=False)

    def product() -> Ref:
        rows = matrix(a, b, k) if d.chance(0.5) else matrix(b, a, k)
        y = d.step("contract", rows, matrix(b, c, k), over=k, public=False)
        return d.step("mul", y, 0.25, public=False)

    def one() -> Ref:
        way = d.rng.choice(
            ("one", "one", "both", "both", "squared", "inside", "two", "two", "bare")
        )
        if way == "inside":  # with scales as factors of the sum itself
            return d.step("contract", matrix(b, a, k), matrix(b, c, k), scale(), over=(b, k))
        if way == "bare":
            return d.step("sum", product(), over=b)
        y = d.step("mul", product(), scale(), public=False)
        if way == "two":
            y = d.step("mul", y, product(), public=False)
        elif way == "both":
            y = d.step("mul", y, scale(), public=False)
        elif way == "squared":
            y = d.step(d.rng.choice(("tanh", "abs")), y, public=False)
        return d.step("sum", y, over=b)

    y = one()
    if d.chance(0.35):
        plain = d.chance(0.5)  # beside what is scaled
        z = d.step("contract", matrix(b, a, k), matrix(b, c, k), over=(b, k)) if plain else one()
        y = d.step("add", y, z) if d.chance(0.4) else y
        d.outputs.append(z)
    if d.chance(0.2):  # a product after the sums
        after = d.step("tanh", d.input((c, d.axis(16))), public=False)
        y = d.step("contract", y, after, over=c)
    d.outputs.append(y)
    return y


def zero_points(d: Drawing) -> Ref:
    """Products of whole numbers of 8 bits, less what their zeros stand for."""
    a, k = d.axis(d.rng.choice((16, 33, 64))), d.axis(d.rng.choice((32, 64, 100)))
    c = d.axis(d.rng.choice((16, 32, 64)))
    X = d.input((a, k), "int", storage="int8", public=False)
    W = d.input((c, k) if d.chance(0.6) else (k, c), "int", storage="int8", public=False)
    y = d.step("contract", X, W, over=k, public=False)
    for n, rest in ((X, c), (W, a)):
        if d.chance(0.7):
            total = d.step(d.rng.choice(("sum", "sum", "max")), n, over=k, public=False)
            zero = d.input((rest,), "int", public=False)
            y = d.step("sub", y, d.step("mul", total, zero, public=False), public=False)
    y = d.step("mul", y, 0.001)
    d.outputs.append(y)
    return y


def attended(d: Drawing) -> Ref:
    """Scores and what they weigh, which a product, a scale or steps of keys come after."""
    q, x = d.axis(d.rng.choice((17, 33, 64, 65))), d.axis(d.rng.choice((17, 33, 64)))
    e, c = d.axis(64), d.axis(d.rng.choice((32, 64)))
    heads: Axes = (d.axis(2),) if d.chance(0.5) else ()
    Q, K, V = (d.input((*heads, *own)) for own in ((q, e), (x, e), (x, c)))
    S = d.step("mul", d.step("contract", Q, K, over=e, public=False), 0.25, public=False)
    way = d.rng.choice(
        ("steps", "steps", "after", "lacking", "lacking", "columns", "columns", "rounded")
    )
    keys = pattern(d, (q,), (x,), d.rng.choice((0, 1)), ("causal",)) if d.chance(0.3) else None
    if d.chance(0.3):
        keys = key_set(d, (q,), (x,), d.sizes[q] != d.sizes[x])
    if way == "columns":
        keys = pattern(d, (q,), (x,), 0, ("causal", "sliding", "sinks", "neighborhood"))
    if way == "steps":
        off = d.rng.choice((0, 1))
        keys = pattern(d, (q,), (x,), off, ("dilated", "strided", "fixed"))
    if way == "columns":  # numbers of keys beside scores
        S = d.step("add", S, d.step("sigmoid", d.input((x,)), public=False), public=False)
    if way == "lacking":  # random numbers, which the language of warpgroups lacks
        P = d.step("softmax", S, over=x, keys=keys, public=False)
        u = d.step("uniform", seed(d), over=d.axes_of(P), public=False)
        kept = d.step("where", d.step("less", u, 0.5, public=False), 0.0, 2.0, public=False)
        y = d.step("contract", d.step("mul", P, kept, public=False), V, over=x)
    else:
        y = d.step("contract", d.step("softmax", S, over=x, keys=keys), V, over=x)
    if way == "after":
        y = d.step("contract", y, d.input((*heads, c, d.axis(16))), over=c)
    elif way == "rounded":
        y = d.step("cast", y, dtype=d.rng.choice(("fp32", "bf16")), kind="real", public=False)
        y = d.step("mul", y, 0.5)
    d.outputs.append(y)
    return y


def typed(d: Drawing) -> Ref:
    """Whole numbers and truth values in what reals are computed of, and negatives of them."""
    x = d.pick(1)
    for _ in range(d.rng.choice((2, 3, 4))):
        axes = d.some(d.axes_of(x), 1, 2)
        n = d.input(axes, "int", public=False)
        if d.chance(0.4):
            n = d.step("index", over=axes[0], public=False)
        way = d.rng.choice(("chosen", "length", "number", "truth", "less", "zero", "less"))
        if way == "chosen":
            x = d.step("where", n, x, d.rng.choice((-0.0, 0.5, d.pick())))
        elif way == "length":
            x = d.step("hypotenuse", x, d.step("size", over=axes[0], public=False))
        elif way == "number":
            x = d.step("hypotenuse", x, d.rng.choice((1, 2)))
        elif way == "truth":
            test = d.step("less", x, 0.5, public=False)
            n = d.step(d.rng.choice(("add", "mul", "maximum")), n, test, public=False)
            x = d.step("add", x, d.step("hypotenuse", n, test) if d.chance(0.3) else n)
        elif way == "less":
            n = d.step("neg", n, public=False) if d.chance(0.5) else d.step("mul", n, -1)
            n = d.step("sub", 0, n, public=False) if d.chance(0.3) else n
            x = d.step("add", x, d.step("maximum", n, d.rng.choice((-1, 2)), public=False))
        else:
            near = d.step("cast", x, dtype=d.rng.choice(("bf16", "fp16", "fp32")), kind="real")
            x = d.step("where", d.step("equal", n, 0, public=False), near, -0.0)
    return x


def long_lines(d: Drawing) -> Ref:
    """Negatives of functions in expressions that a line does not hold."""
    d.nested = True
    x, y = d.pick(1), d.pick(1)
    for _ in range(d.rng.choice((3, 4))):
        z = d.step("maximum", x, d.step("minimum", y, d.rng.choice((0.25, d.pick()))), public=False)
        test = d.step("less", z, d.step("mul", x, 0.5, public=False), public=False)
        test = d.step("not", test, public=False) if d.chance(0.5) else test
        z = d.step("where", test, d.step("abs", y, public=False), z, public=False)
        x = d.step(d.rng.choice(("add", "mul", "sub")), x, d.step("neg", z, public=False))
        x = d.step("tanh", x) if d.chance(0.3) else x
    return d.step("sum", x, over=d.axes_of(x)[0]) if d.chance(0.5) else x
