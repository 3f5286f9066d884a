"""What other moves draw too rarely, or never: whole numbers past what float32 holds, ties, routed
rows, long rows of few, boxes and unions of keys, halves of bytes in every role."""

from __future__ import annotations

from compounds import INF, scores
from drawing import Drawing
from keyed import box_set, boxes, key_set, neighborhood, pattern, stepped
from programs import OWN_REDUCE, STEPS, Axes, Keys, Ref
from scans import operands, ranked, used

from napkin.ir.key_sets import MAX_BOXES

LONG = (64, 65, 96, 128, 200, 257)
SIDES = (33, 64, 70, 128)


def big(d: Drawing) -> Ref:
    """Whole numbers whose sums and products pass 2^24, which float32 no longer tells apart."""
    axes = d.some(tuple(d.sizes), 1, 2)
    n = d.input(axes, "int", "big")
    way = d.rng.choice(("contract", "square", "sum", "cumsum", "positions", "mean"))
    if way == "contract":
        m = d.input((axes[0], d.axis()), "int", "big")
        n = d.step("contract", n, m, over=axes[0], public=False)
    elif way == "square":
        n = d.step("mul", n, n, public=False)
    elif way == "positions":
        at = d.step("index", over=axes[0], public=False)
        n = d.step("add", d.step("mul", at, 5_000_011, public=False), n, public=False)
    if way in {"sum", "cumsum", "mean"} or d.chance(0.3):
        how = way if way in {"cumsum", "mean"} else d.rng.choice(("sum", "max", "min", "sort"))
        n = d.step(how, n, over=d.rng.choice(d.axes_of(n)), public=False)
    if d.chance(0.5):
        d.outputs.append(n)
        return n
    test = d.step(d.rng.choice(("less", "equal")), n, d.rng.choice((0, 2**24 + 1)), public=False)
    return d.step("where", test, d.pick(), 0.0)


def counted(d: Drawing) -> Ref:
    """Truth values that are reduced, multiplied and contracted as they are."""
    axes = d.some(tuple(d.sizes), 1, 3)
    m = d.input(axes, "bool")
    way = d.rng.choice(
        ("contract", "mixed", "prod", "min", "max", "all", "any", "cumsum", "same", "plus", "size")
    )
    if way == "same":
        other = d.input(axes, "bool")
        op = d.rng.choice(("equal", "not_equal", "and", "or", "less", "maximum"))
        found = d.step(op, m, other, public=False)
    elif way == "plus":
        other = d.rng.choice((d.input(axes[:1], "bool"), 2, d.step("index", over=axes[0])))
        found = d.step(d.rng.choice(("add", "sub", "mul")), m, other, public=False)
    elif way == "size":  # a truth value of no axis
        large = d.step("greater", d.step("size", over=axes[0], public=False), 2, public=False)
        found = d.step("add", d.step("index", over=axes[0], public=False), large, public=False)
    elif way == "contract":
        other = d.input((axes[0], d.axis()), "bool")
        found = d.step("contract", m, other, over=axes[0], public=False)
    elif way == "mixed":
        return d.step("contract", m, d.input((axes[0], d.axis())), over=axes[0])
    else:
        gone = axes[0] if way == "cumsum" else d.some(axes, 1, 2)
        found = d.step(way, m, over=gone, public=False)
    if d.chance(0.4):
        d.outputs.append(found)
        return found
    x = d.pick()
    return d.step("where", found, x, 0.0) if d.kind(found) == "bool" else d.step("mul", x, found)


def tied(d: Drawing) -> Ref:
    """Positions of extrema among equal values."""
    return ranked(d, d.input(d.some(d.axes, 1, 3), fill="repeated"))


def routed(d: Drawing) -> Ref:
    """Rows in blocks, each of one expert, and read back by the tokens that chose them."""
    t, m, b, s, e, f, k = (d.axis() for _ in range(7))

    def places(axes: Axes, along: str) -> Ref:
        return d.input(axes, "int", f"places:{along}", public=False)

    rows = d.step("take", d.input((t, m)), places((b, s), t), over=t)
    own = d.step("take", d.input((e, m, f)), places((b,), e), over=e)
    y = d.step("contract", rows, own, over=m)
    if d.chance(0.5):
        y = d.step(d.rng.choice(("gelu", "silu", "tanh")), y)
    if d.chance(0.5):
        n = d.axis()
        W = d.step("take", d.input((e, f, n)), places((b,), e), over=e)
        y = d.step("contract", y, W, over=f)
    if d.chance(0.2):
        return y
    back = d.step("take", y, places((t, k), b), places((t, k), s), over=(b, s))
    return d.step("contract", d.input((t, k)), back, over=k)


def rows(d: Drawing) -> Ref:
    """Long rows along memory that are folded, and no matrix is multiplied."""
    q, x = d.axis(d.rng.choice((1, 3, 5, 16))), d.axis(d.rng.choice(LONG))
    heads: Axes = (d.axis(2),) if d.chance(0.2) else ()
    X = d.input((*heads, q, x))
    X = d.step("mul", X, d.rng.choice((0.5, d.input((x,)), d.input((q,)), d.input((q, x)))))
    way = d.rng.choice(
        ("entropy", "moments", "extrema", "count", "prod", "ranked", "shift", "own", "places")
    )
    if way == "own":
        how = d.rng.choice(OWN_REDUCE)
        X = d.step("sigmoid", X) if how == "either" else X
        return d.step("add", d.step(how, X, over=x), d.step("sum", X, over=x))
    if way == "places":  # no array lies along what is streamed
        at = d.step("mul", d.step("index", over=x, public=False), d.input((q,)), public=False)
        return d.step("sum", d.step("sin", at), over=x)
    if way == "entropy":
        label = d.input((q,), "int", f"places:{x}", public=False)
        here = d.step("equal", d.step("index", over=x, public=False), label, public=False)
        own = d.step("sum", d.step("where", here, X, 0.0, public=False), over=x)
        return d.step("sub", d.step("logsumexp", X, over=x), own)
    if way == "moments":
        off = d.step("sub", X, d.step("mean", X, over=x))
        square = d.step("mean", d.step("mul", off, off), over=x)
        return square if d.chance(0.5) else d.step("mul", off, d.step("rsqrt", positive(d, square)))
    if way == "extrema":
        both = (d.step(how, X, over=x) for how in ("max", d.rng.choice(("min", "sum", "mean"))))
        return d.step("sub", *both)
    if way == "count":
        test = d.step("greater", X, d.rng.choice((0.0, 1.0)), public=False)
        how = d.rng.choice(("sum", "any", "all", "mean"))
        d.outputs.append(d.step(how, test, over=x, public=False))
        return d.outputs[-1]
    if way == "prod":
        return d.step("prod", d.step("tanh", d.step("add", X, 2.0)), over=x)
    if way == "ranked":
        op = d.rng.choice(("argmax", "argmin"))
        return used(d, d.step(op, X, over=x, public=False), x)
    top = d.step("max", d.step("mul", X, 2.0), over=x)  # of other values than the exponent's
    near = d.step("exp", d.step("minimum", d.step("sub", X, top), 0.0))
    return d.step("sum", near, over=x)


def positive(d: Drawing, x: Ref) -> Ref:
    """A variance as a positive number."""
    return d.step("add", x, 1e-3)


def scaled(d: Drawing) -> Ref:
    """Scores that are scaled, and masked or shifted before or behind that."""
    q, x, e = d.axis(d.rng.choice((3, 8, 33))), d.axis(d.rng.choice((5, 17, 64))), d.axis()
    S = d.step("contract", d.input((q, e)), d.input((x, e)), over=e)
    by = d.rng.choice((0.25, 0.125, 2.0, -0.5, d.step("scalar", public=False, name="c", value=0.5)))
    T = d.step("mul", S, by)
    way = d.rng.choice(("where", "twice", "added", "plain", "shift", "least", "cold", "power"))
    V = d.input((x, d.axis()))
    if way in {"cold", "power"}:  # shifted, and then scaled
        off = d.step("sub", T, d.step("max", T, over=x))
        P = d.step("exp", d.step("mul", off, d.rng.choice((0.5, 2.0))))
        if way == "power":
            P = d.step("pow", d.step("softmax", T, over=x), d.rng.choice((2, 3)))
        y = d.step("contract", P, V, over=x)
        return y if d.chance(0.5) else d.step("div", y, d.step("sum", P, over=x))
    if way == "shift":
        top = d.step("max", d.rng.choice((S, d.step("mul", T, 2.0))), over=x)
        P = d.step("exp", d.step("minimum", d.step("sub", T, top), 1.0))
        return d.step("contract", P, V, over=x)
    if way == "least":
        P = d.step("exp", d.step("sub", d.step("min", T, over=x), T))
        return d.step("contract", P, V, over=x)
    if way in {"where", "twice"}:
        i, j = (d.step("index", over=a, public=False) for a in (q, x))
        test = d.step(d.rng.choice(("less_equal", "not_equal")), j, i, public=False)
        if way == "twice":
            test = d.step("and", test, d.step("greater", S, -1.0, public=False), public=False)
        T = d.step("where", test, T, d.rng.choice((-INF, -INF, -1e4)), public=False, infinite=True)
    elif way == "added":
        mask = d.input((q, x), fill="mask", public=False)
        T = d.step("add", T, mask, public=False, infinite=True)
    P = d.step("softmax", T, over=x)
    d.outputs += [d.step("logsumexp", T, over=x, infinite=True)] if d.chance(0.3) else []
    return d.step("contract", P, V, over=x)


def fields(d: Drawing) -> Ref:
    """Keys in boxes of two axes or three, which groups visit chunk by chunk."""
    n = d.rng.choice(((8, 12), (9, 7), (6, 20), (4, 5, 6), (3, 8, 4)))
    at = d.chance(0.2)
    q = tuple(d.axis(m) for m in n)
    x = tuple(d.axis(m + (d.rng.choice((0, 1, 2)) if at else 0)) for m in n)
    keys = neighborhood(d, q, x, d.rng.choice((0, 1)) if at else None)
    if d.chance(0.3):
        other = neighborhood(d, q, x, keys.at)
        keys = Keys("|", (), (), q, x, parts=(keys, other))
    return seen(d, q, x, keys)


def unions(d: Drawing) -> Ref:
    """Keys in several boxes of one axis, some of which overlap."""
    n = d.rng.choice((7, 16, 33, 70))
    at = d.chance(0.2)
    q, x = (d.axis(n),), (d.axis(n + d.rng.choice((0, 5)) if at else n),)
    off = d.rng.choice((0, 1, 3)) if at else None
    keys = pattern(d, q, x, off)
    for _ in range(d.rng.choice((1, 1, 2))):
        other = pattern(d, q, x, off)
        how = d.rng.choice("|||&")
        every = boxes(keys) * boxes(other) if how == "&" else boxes(keys) + boxes(other)
        if every <= MAX_BOXES and not (how == "&" and stepped(keys) and stepped(other)):
            keys = Keys(how, (), (), q, x, parts=(keys, other))
    return seen(d, q, x, keys)


def seen(d: Drawing, q: Axes, x: Axes, keys: Keys) -> Ref:
    """What a query makes of the keys that it sees."""
    S = scores(d, q, x)
    way = d.rng.choice(("softmax", "softmax", "sum", "reduce", "mask"))
    if way == "reduce":
        how = d.rng.choice(("max", "min", "sum", "mean", "logsumexp", "any"))
        S = d.step("greater", S, 0.0, public=False) if how == "any" else S
        d.outputs.append(d.step(how, S, over=x, keys=keys, public=False, infinite=True))
        return d.outputs[-1]
    V = d.input((*x, d.axis()))
    if way == "sum":
        return d.step("contract", S, V, over=x, keys=keys)
    if way == "mask":
        S = d.step("add", S, d.input(d.some((*q, *x), 1, 2)))
    d.outputs += [d.step("logsumexp", S, over=x, keys=keys, infinite=True)] * d.chance(0.2)
    return d.step("contract", d.step("softmax", S, over=x, keys=keys), V, over=x)


def halves(d: Drawing) -> Ref:
    """Values that lie two to a byte: multiplied, reduced along their bytes and across, compared."""
    a, b = d.axis(), d.axis(d.rng.choice((2, 4, 6, 34)))
    more: Axes = (d.axis(),) if d.chance(0.3) else ()
    W = d.input((*more, a, b), "int", storage=d.rng.choice(("int4", "uint4")), public=False)
    way = d.rng.choice(("along", "across", "both", "sum", "point", "test", "pair", "take"))
    if way == "along":
        return d.step("contract", W, d.input((b, d.axis())), over=b)
    if way == "across":
        return d.step("contract", d.input((d.axis(), a)), W, over=a)
    if way == "both":
        return d.step("contract", W, d.input((a, b)), over=(a, b))
    if way == "sum":
        how = d.rng.choice(("sum", "max", "min", "mean", "cumsum"))
        found = d.step(how, W, over=d.rng.choice((a, b)), public=False)
        d.outputs.append(found)
        return found
    if way == "point":
        return d.step("mul", W, d.input(d.some((a, b), 1, 2)))
    if way == "test":
        test = d.step("greater", W, d.rng.choice((0, 3)), public=False)
        return d.step("where", test, d.input((a, b)), d.rng.choice((0.0, 1.0)))
    if way == "take":
        places = d.input((d.axis(),), "int", f"places:{a}", public=False)
        W = d.step("take", W, places, over=a, public=False)
        return d.step("contract", W, d.input((b, d.axis())), over=b)
    other = d.input((b, d.axis()), "int", storage="int8", public=False)
    return d.step("mul", d.step("contract", W, other, over=b, public=False), 0.1)


def roles(d: Drawing) -> Ref:
    """Matrices that warpgroups multiply, in the orders in which their axes may lie."""
    q, x = (d.axis(d.rng.choice(SIDES)) for _ in range(2))
    c = e = d.axis(d.rng.choice((16, 32)))
    c = d.axis(d.rng.choice((16, 64))) if d.chance(0.25) else c
    heads: Axes = (d.axis(2),) if d.chance(0.3) else ()

    def matrix(*axes: str) -> Ref:
        own = (*heads, *axes) if d.chance(0.7) else (axes[0], *heads, *axes[1:])
        return d.input(own if d.chance(0.7) else (*own[:-2], own[-1], own[-2]))

    if d.chance(0.4):  # a product, or a sum of two, and what is made of it
        c = d.axis(d.rng.choice((32, 64)))
        y = d.step("contract", matrix(q, x), matrix(x, c), over=x)
        if d.chance(0.3):
            y = d.step("add", y, d.step("contract", matrix(q, x), matrix(x, c), over=x))
        if d.chance(0.5):
            y = d.step(d.rng.choice(("gelu", "silu", "tanh", "abs")), y)
        y = d.step("add", y, d.input(d.some((q, c), 1, 1))) if d.chance(0.3) else y
        d.outputs.append(y)
        return y
    more = [d.input(d.some((q, x), 1, 1))] if d.chance(0.25) else []  # outside of the product
    S = d.step("contract", matrix(q, e), matrix(x, e), *more, over=e)
    S = d.step("mul", S, d.rng.choice((0.125, 0.25)))
    keys = key_set(d, (q,), (x,), True) if d.chance(0.5) else None
    if d.chance(0.25):  # without a maximum
        P = d.step(d.rng.choice(("tanh", "erf", "silu")), S)
        d.outputs.append(d.step("contract", P, matrix(x, c), over=x, keys=keys))
        return d.outputs[-1]
    S = d.step("add", S, d.input(d.some((q, x), 1, 2))) if d.chance(0.2) else S
    P = d.step("softmax", S, over=x, keys=keys)
    found = d.step("contract", P, matrix(x, c), over=x)
    if d.chance(0.2):  # its rows of length 1
        square = d.step("sum", d.step("mul", found, found), over=c)
        found = d.step("mul", found, d.step("rsqrt", d.step("add", square, 1e-3)))
    d.outputs.append(found)
    if d.chance(0.2):
        d.outputs.append(d.step("contract", P, matrix(x, c), over=x))
    if d.chance(0.2):
        d.outputs.append(d.step("max", S, over=x, keys=keys, infinite=True))
    if d.chance(0.2):
        d.outputs.append(d.step("logsumexp", S, over=x, keys=keys, infinite=True))
    return d.outputs[-1]


def lone(d: Drawing) -> Ref:
    """Axes of one position, results without axes, sums of what is nowhere 0, products of whole
    numbers alone: what a kernel has a way of its own for."""
    one, a = d.axis(1), d.axis()
    x = d.input((a, one))
    way = d.rng.choice(("scan", "constant", "nowhere", "whole", "reading"))
    if way == "scan":
        y = d.step("scan", 0.5, d.step("sigmoid", x), x, over=one, form="decayed")
        y = d.step(d.rng.choice(("cumsum", "sort")), y, over=one) if d.chance(0.5) else y
        return d.step(d.rng.choice(("sum", "max")), y, over=one)
    if way == "constant":
        size = d.step("size", over=a, public=False)
        d.outputs.append(d.step("pow", size, d.rng.choice((0.5, -1.0, 2.0)), public=False))
        return x
    if way == "nowhere":
        y = d.step("cos", d.input((a, d.axis())))
        return d.step("contract", d.step("exp", d.step("tanh", x)), y, over=a)
    if way == "whole":
        n, m = d.input((d.axis(), a), "int"), d.input((a, d.axis()), "int")
        half = d.step("mul", n, 0.5, public=False)
        product = d.step("contract", half, d.step("mul", m, 0.25, public=False), over=a)
        d.outputs.append(d.step("greater", product, 0.0, public=False))
        return product
    y = d.step("take", x, d.input((d.axis(),), "int", f"places:{one}", public=False), over=one)
    return d.step("sum", y, over=a)


def kept(d: Drawing) -> Ref:
    """Scores in slots, along one axis or two, as they are, or under a softmax."""
    n = d.rng.choice(((7,), (17,), (4, 5), (3, 8)))
    q, x, s = (tuple(d.axis(m) for m in n) for _ in range(3))
    keys, counts = box_set(d, q, x)
    for axis, k in zip(s, counts, strict=True):
        d.sizes[axis] = k
    S = scores(d, q, x)
    fill = {"fill": d.rng.choice((0.0, 1.0))} if d.chance(0.5) else {}
    T = d.step("compress", S, over=x, keys=keys, public=False, infinite=True, into=s, **fill)
    if d.chance(0.7):
        d.outputs.append(T)
    if d.chance(0.5) or T not in d.outputs:
        d.outputs.append(d.step("softmax", T, over=s))
    return d.outputs[-1]


def looked_up(d: Drawing) -> Ref:
    """Rows at positions that do not go along what is reduced."""
    q, x, r, e = (d.axis(n) for n in d.rng.choice(((4, 5, 3, 2), (7, 8, 8, 3), (1, 6, 2, 5))))
    at: Axes = d.rng.choice(((q, x), (x,), (q,)))
    places = d.input(at, "int", f"places:{r}", public=False)
    if d.chance(0.4):
        i, j = (d.step("index", over=a, public=False) for a in (q, x))
        size = d.step("size", over=r, public=False)
        places = d.step("mod", d.step("add", i, j, public=False), size, public=False)
    T = d.step("take", d.input(d.some((r, e), 2, 2)), places, over=r)
    A = d.input(d.rng.choice(((q, e), (e,), (x, e))))
    way = d.rng.choice(("contract", "several", "max", "sum", "scores"))
    if way in {"max", "sum"}:
        return d.step(way, d.step(d.rng.choice(("sub", "mul")), A, T), over=e)
    more = [d.step("take", d.input((r, e)), places, over=r)] if way == "several" else []
    S = d.step("contract", A, T, *more, over=e)
    if way != "scores":
        return S
    S = d.step("add", S, d.step("contract", d.input((q, e)), d.input((x, e)), over=e))
    P = d.step("softmax", S, over=x)
    return d.step("contract", P, d.input((x, d.axis())), over=x)


def blocks(d: Drawing) -> Ref:
    """Scans of few long rows, whose states are results."""
    n, t = d.axis(d.rng.choice((1, 2, 3))), d.axis(d.rng.choice((33, 64, 100)))
    x = d.input(d.some((n, t), 2, 2) if d.chance(0.7) else (t,))
    form = d.rng.choice(tuple(STEPS))
    start = d.rng.choice((0.0, 0.5, d.input((n,), public=False)))
    h = d.step("scan", start, *operands(d, form, x, t), over=t, form=form)
    way = d.rng.choice(("alone", "alone", "gated", "two", "sums"))
    if way == "gated":
        h = d.step("mul", h, d.step("sigmoid", d.input((t,))))
    elif way == "two":
        h = d.step("sub", h, d.step("cumsum", x, over=t))
    elif way == "sums":
        h = d.step("cumsum", x, over=t)
    d.outputs.append(h)
    return h
