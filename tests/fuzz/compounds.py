"""What is written of several steps: attention, normalisations, variances, quantised products."""

from __future__ import annotations

from drawing import ENDS, FOUND, MEANS, Drawing, Rejected
from keyed import box_set, key_set, pattern, user_pattern
from programs import Ref
from readings import found

INF = float("inf")


def scores(d: Drawing, q: tuple[str, ...], x: tuple[str, ...]) -> Ref:
    """Something for each query and key."""
    e = d.axis()
    Q, K = d.input((*q, e)), d.input((*x, e))
    S = d.step("contract", Q, K, over=e)
    if d.chance(0.5):
        size = d.step("size", over=e, public=False)
        S = d.step("mul", S, d.step("pow", size, -0.5, public=False))
    way = d.rng.random()
    if way < 0.12:
        S = d.step("add", S, d.input(d.some((*q, *x), 1, 2)))
    elif way < 0.2:
        S = d.step("mul", d.step("tanh", d.step("div", S, 2.0)), 2.0)
    elif way < 0.3:
        S = d.step("pow", S, d.rng.choice((2, 3)))
    elif way < 0.36:
        S = d.step("mul", S, S)
    return S


def attention(d: Drawing) -> Ref:
    """Weights of keys, by a softmax or without, and values summed under them."""
    several = d.rng.choice((1, 1, 1, 1, 2, 3))
    at = d.chance(0.15)
    n = [
        d.rng.choice((2, 3, 4, 5)) if several > 1 else d.rng.choice((3, 5, 7, 8))
        for _ in range(several)
    ]
    q = tuple(d.axis(s) for s in n)
    x = tuple(d.axis(d.rng.choice((3, 5, 7)) if at else s) for s in n)
    S = scores(d, q, x)
    keys = key_set(d, q, x, at) if d.chance(0.8) else None
    V = d.input((*x, d.axis())) if d.chance(0.9) else d.input(x)
    way = d.rng.random()
    if way < 0.45:
        P = d.step("softmax", masked(d, S, q, x), over=x, keys=keys)
        d.outputs += [d.step("logsumexp", S, over=x, keys=keys)] if d.chance(0.1) else []
        return d.step("contract", P, V, over=x)
    if way < 0.7:
        decay = d.step("mul", S, d.input(d.some((*q, *x), 1, 2))) if d.chance(0.5) else S
        return d.step("contract", decay, V, over=x, keys=keys)
    if way < 0.85:
        how = d.rng.choice(("sum", "max", "min", "mean", "logsumexp", "prod", "any", "all"))
        if how in {"any", "all"}:
            S = d.step("greater", S, 0.0, public=False)
        infinite = how in {"max", "min", "mean", "logsumexp"}
        found = d.step(how, S, over=x, keys=keys, public=False, infinite=infinite)
        d.outputs.append(found)
        return found
    weights = d.step("softmax", S, over=x, keys=keys)
    mean = d.step("contract", weights, V, over=x)
    off = d.step("sub", V, mean)
    return d.step("contract", weights, off, off, over=x)


def fields(d: Drawing) -> Ref:
    """Attention over two axes that are longer than the boxes of keys of a group."""
    q, x = (tuple(d.axis(n) for n in (8, 12)) for _ in range(2))
    S = scores(d, q, x)
    keys = key_set(d, q, x)
    if d.chance(0.3):
        d.outputs.append(d.step("max", S, over=x, keys=keys, public=False, infinite=True))
    else:
        weights = d.step("softmax", S, over=x, keys=keys)
        d.outputs.append(d.step("contract", weights, d.input((*x, d.axis())), over=x))
    return d.outputs[-1]


def masked(d: Drawing, S: Ref, q: tuple[str, ...], x: tuple[str, ...]) -> Ref:
    """Scores as they are, or -inf where a mask is."""
    if d.chance(0.7):
        return S
    if d.chance(0.5):
        mask = d.input(d.some((*q, *x), 1, 3), fill="mask", public=False)
        return d.step("add", S, mask, public=False, infinite=True)
    i = d.step("index", over=q[0], public=False)
    j = d.step("index", over=x[0], public=False)
    test = d.step(d.rng.choice(("less_equal", "greater", "not_equal")), j, i, public=False)
    return d.step("where", test, S, -INF, public=False, infinite=True)


def wide(d: Drawing) -> Ref:
    """Attention, or a product, of matrices that warpgroups may multiply."""
    q, x = (d.axis(d.rng.choice((17, 33, 64, 70))) for _ in range(2))
    e, c = (d.axis(d.rng.choice((8, 16, 32))) for _ in range(2))
    if d.more and d.chance(0.7):  # a group holds the features of keys and of values whole
        c = e
    heads = (d.axis(2),) if d.chance(0.3) else ()
    V = d.input((*heads, x, c))
    if d.chance(0.3):
        P = d.input((*heads, q, x))
        found = d.step("contract", P, V, over=x)
        found = d.step(d.rng.choice(("tanh", "abs", "silu")), found) if d.chance(0.3) else found
        d.outputs.append(found)
        return found
    S = d.step("contract", d.input((*heads, q, e)), d.input((*heads, x, e)), over=e)
    S = d.step("mul", S, d.rng.choice((0.125, 0.25)))
    way = d.rng.random()
    keys = None
    if way < 0.4:
        off = d.rng.choice((0, 1))
        keys = pattern(d, (q,), (x,), off, ("causal", "sliding", "sinks", "neighborhood"))
        keys = user_pattern(d, (q,), (x,), off) if d.more and d.chance(0.25) else keys
    elif d.more and way < 0.5:
        S = d.step(d.rng.choice(("saturated", "softplus", "tanh")), S)
    elif way < 0.5:
        S = d.step("mul", d.step("tanh", d.step("div", S, 2.0)), 2.0)
    weights = S if d.chance(0.3) else d.step("softmax", S, over=x, keys=keys)
    own = keys if weights == S else None
    d.outputs.append(d.step("contract", weights, V, over=x, keys=own))
    return d.outputs[-1]


def by_hand(d: Drawing) -> Ref:
    """A softmax as it is written by hand, shifted by a maximum or not."""
    x = d.pick(1)
    gone = d.some(d.axes_of(x), 1, d.rng.choice((1, 2)))
    top = d.step("max", x, over=gone) if d.chance(0.7) else d.step("mean", x, over=gone)
    e = d.step("exp", d.step("sub", x, top))
    total = d.step("sum", e, over=gone)
    return d.step(d.rng.choice(("div", "mul")), e, total)


def beside(d: Drawing) -> Ref:
    """Reductions of different kinds over one axis, which meet."""
    x = d.pick(1)
    a = d.rng.choice(d.axes_of(x))
    gate = d.step("sigmoid", d.step(d.rng.choice(("sum", "mean", "max")), x, over=a))
    weights = d.step("softmax", x, over=a)
    V = d.input(d.some(tuple(dict.fromkeys((a, *d.axes))), 1, 2))
    V = V if a in d.axes_of(V) else d.input((a,))
    return d.step("contract", gate, weights, V, over=a)


def normalised(d: Drawing) -> Ref:
    """A normalisation, and often a linear map behind it."""
    x = d.pick(1)
    gone = d.some(d.axes_of(x), 1, d.rng.choice((1, 1, 2)))
    way = d.rng.choice(("layer", "rms", "l2", "l1"))
    if way == "layer":
        off = d.step("sub", x, d.step("mean", x, over=gone))
        variance = d.step("mean", d.step("mul", off, off), over=gone)
        y = d.step("mul", off, d.step("rsqrt", d.step("add", variance, 1e-3)))
    elif way == "rms":
        square = d.step("mean", d.step("mul", x, x), over=gone)
        y = d.step("mul", x, d.step("rsqrt", d.step("add", square, 1e-3)))
    elif way == "l2":
        square = d.step("sum", d.step("mul", x, x), over=gone)
        y = d.step("div", x, d.step("sqrt", d.step("add", square, 1e-3)))
    else:
        total = d.step("sum", d.step("abs", x), over=gone)
        y = d.step("div", x, d.step("add", total, 0.1))
    if d.chance(0.4):
        y = d.step("mul", y, d.input(gone))
    if d.chance(0.6):
        return d.step("contract", y, d.input((*gone, d.axis())), over=gone)
    return y


def variance(d: Drawing) -> Ref:
    """A variance: plain, weighted, masked, or weighted by a softmax."""
    x = d.pick(1)
    gone = d.some(d.axes_of(x), 1, d.rng.choice((1, 1, 2)))
    way = d.rng.choice(("weighted", "masked", "softmax", "plain", "covariance"))
    if way == "plain":
        if MEANS <= d.seed < ENDS and len(gone) == 1:
            size = d.step("size", over=gone[0], public=False)
            mean = d.step("div", d.step("sum", x, over=gone), size)
        else:
            mean = d.step("mean", x, over=gone)
        off = d.step("sub", x, mean)
        return d.step("mean", d.step("mul", off, off), over=gone)
    if way == "covariance":
        y = d.input(d.axes_of(x))
        a, b = (d.step("sub", v, d.step("mean", v, over=gone)) for v in (x, y))
        return d.step("mean", d.step("mul", a, b), over=gone)
    if way == "softmax":
        w = d.step("softmax", d.input(d.some(d.axes_of(x), 9, 9)), over=gone)
        mean = d.step("sum", d.step("mul", w, x), over=gone)
        off = d.step("sub", x, mean)
        return d.step("contract", w, d.step("mul", off, off), over=gone)
    if way == "masked":
        m = d.input(gone, "bool")
        w = d.step("where", m, 1.0, d.rng.choice((0.0, 0.5)))
    else:
        w = d.input(d.some(d.axes_of(x), 9, 9), fill="positive")
    total = d.step("add", d.step("sum", w, over=tuple(a for a in gone if a in d.axes_of(w))), 0.1)
    mean = d.step("div", d.step("sum", d.step("mul", w, x), over=gone), total)
    off = d.step("sub", x, mean)
    return d.step("div", d.step("sum", d.step("mul", w, d.step("mul", off, off)), over=gone), total)


def joined(d: Drawing) -> Ref:
    """One softmax, or logsumexp, over several arrays side by side."""
    a, b = d.axis(), d.axis()
    rows = d.some(d.axes, 1, 2)
    S, T = d.input((*rows, a)), d.input((*d.some(rows, 0, 1), b))
    each = ((a,), (b,))
    if d.chance(0.3):
        return d.step("logsumexp", S, T, each=each)
    P = d.step("softmax", S, T, each=each, which=0)
    R = d.step("softmax", S, T, each=each, which=1)
    left = d.step("contract", P, d.input((a,)), over=a)
    return d.step("add", left, d.step("contract", R, d.input((b,)), over=b))


def quantised(d: Drawing) -> Ref:
    """A product with numbers that are stored in few bits, and scales."""
    a, b, c = d.axis(), d.axis(4), d.axis(d.rng.choice((2, 4)))
    X = d.input((a, b))
    kind = d.rng.choice(("int8", "uint8", "int4", "uint4", "fp8"))
    real = kind == "fp8"
    if d.more and kind in {"int8", "fp8"} and d.chance(0.4):
        X = d.input((a, b), "real" if real else "int", "fp8" if real else "", kind, public=False)
        W = d.input((b, c), "real" if real else "int", "fp8" if real else "", kind, public=False)
        return d.step("mul", d.step("contract", X, W, over=b, public=False), 0.01)
    W = d.input((b, c), "real" if real else "int", "fp8" if real else "", kind, public=False)
    scale = d.input(d.some((b, c), 1, 1), fill="positive")
    if not real and d.chance(0.5):
        W = d.step("sub", W, d.input((c,), "int"), public=False)
    scaled = d.step("mul", W, d.step("mul", scale, 0.05, public=False), public=False)
    return d.step("contract", X, scaled, over=b)


def slots(d: Drawing) -> Ref:
    """Attention whose weights are kept in compressed form."""
    several = d.rng.choice((1, 1, 2))
    n = [d.rng.choice((4, 5, 7)) for _ in range(several)]
    q, x, s = (tuple(d.axis(m) for m in n) for _ in range(3))
    keys, counts = box_set(d, q, x)
    for a, k in zip(s, counts, strict=True):
        d.sizes[a] = k
    S = scores(d, q, x)
    fill = {"fill": 0.0} if d.chance(0.3) else {}
    T = d.step("compress", S, over=x, keys=keys, public=False, infinite=True, into=s, **fill)
    P = d.step("softmax", T, over=s)
    if d.chance(0.3):
        return P
    back = d.step("spread", P, over=s, keys=keys, into=x)
    if d.seed >= FOUND and d.chance(0.4):
        return found(d, back, x[0])
    return d.step("contract", back, d.input((*x, d.axis())), over=x)


def turned(d: Drawing) -> Ref:
    """A contraction of a contraction, with factors that may be copies."""
    x = d.pick(2)
    a, b = d.some(d.axes_of(x), 2, 2)
    other = d.axis()
    S = d.step("contract", x, d.input((b, other)), over=b)
    parts = [S] * d.rng.choice((1, 1, 2, 3))
    for _ in range(d.rng.choice((0, 1, 1, 2))):
        axes = d.some(d.axes_of(S), 1, 2)
        parts.append(d.input((*axes, d.axis()) if d.chance(0.4) else axes))
    if d.chance(0.3):
        parts.append(x)
    if a not in d.axes_of(S):
        raise Rejected
    return d.step("contract", *parts, over=d.rng.choice(((a,), (other,), (a, other))))


def layers(d: Drawing) -> Ref:
    """The same steps again and again, each time of other weights."""
    q, e, c = d.axis(), d.axis(), d.axis()
    x = d.input((q, e))
    way = d.rng.choice(("products", "softmax", "scan"))
    for _ in range(d.rng.choice((2, 3, 4))):
        if way == "products":
            y = d.step("tanh", d.step("contract", x, d.input((e, c)), over=e))
            x = d.step("add", x, d.step("contract", y, d.input((c, e)), over=c))
        elif way == "softmax":
            weights = d.step("softmax", d.step("contract", x, d.input((c, e)), over=e), over=c)
            x = d.step("contract", weights, d.input((c, e)), over=c)
        else:
            states = d.step("scan", 0.0, 0.5, x, over=q, form="decayed")
            x = d.step("mul", states, d.step("max", states, over=q))
            x = d.step("tanh", d.step("mul", x, d.input((e,))))
    return x


def layouts(d: Drawing) -> Ref:
    """A constant result, or an input as it is."""
    way = d.rng.random()
    if way < 0.4:
        d.outputs.append(d.step("index", over=d.rng.choice(tuple(d.sizes)), public=False))
    elif way < 0.7:
        size = d.step("size", over=d.rng.choice(tuple(d.sizes)), public=False)
        d.outputs.append(d.step("mul", size, 2, public=False))
    else:
        d.outputs.append(d.rng.choice(d.pool))
    return d.pool[-1]
