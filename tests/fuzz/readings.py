"""Readings at other positions: takes, windows, and other names."""

from __future__ import annotations

from drawing import AFTERWARDS, Drawing, Rejected
from programs import Ref


def place(d: Drawing, axis: str) -> Ref:
    """Whole numbers that are positions along an axis."""
    way = d.rng.random()
    if way < 0.45:
        return d.input((d.axis(),), "int", f"places:{axis}", public=False)
    if way < 0.65:  # read backwards
        last = d.step("sub", d.step("size", over=axis, public=False), 1, public=False)
        return d.step("sub", last, d.step("index", over=axis, public=False), public=False)
    if way < 0.85:
        other = d.rng.choice(tuple(d.sizes))
        i = d.step("index", over=other, public=False)
        op = d.rng.choice(("floordiv", "mod", "add", "mul"))
        return d.step(op, i, d.rng.choice((1, 2, 3)), public=False)
    a, b = d.some(tuple(d.sizes), 2, 2) if len(d.sizes) > 1 else (axis, axis)
    i, j = (d.step("index", over=v, public=False) for v in (a, b))
    return d.step("add", d.step("sub", i, j, public=False), 2, public=False)


def taken(d: Drawing, x: Ref, public: bool = True) -> Ref:
    """An array at positions along one axis of it or two."""
    axes = [a for a in d.axes_of(x) if d.sizes[a] > 0]
    if not axes:
        raise Rejected
    gone = d.some(axes, 1, d.rng.choice((1, 1, 1, 2)))
    places = [place(d, a) for a in gone]
    return d.step("take", x, *places, over=gone, public=public)


def take(d: Drawing) -> Ref:
    """An input or a computed array at positions, and at positions of that."""
    x = d.pick(1)
    if d.chance(0.4):
        x = d.input(d.some(d.axes, 1, 2))
    x = taken(d, x)
    while d.chance(0.3):
        x = taken(d, x)
    if d.chance(0.3):
        return window(d, x)
    return x


def found(d: Drawing, x: Ref | None = None, over: str = "") -> Ref:
    """What is computed, read where it or another array is largest or smallest."""
    if x is None:
        x = d.pick(1)
        over = d.rng.choice(d.axes_of(x))
        way = d.rng.choice(("about", "softmax", "times", "plain"))
        if way == "about":
            x = d.step("sub", x, d.step("mean", x, over=over))
        elif way == "softmax":
            x = d.step("softmax", x, over=over)
        elif way == "times":
            x = d.step("mul", x, d.input((over,)))
    others = [a for a in d.axes if a != over]
    of = x if d.chance(0.4) else d.input((over, *d.some(others, 0, 1)))
    at = d.step(d.rng.choice(("argmax", "argmin")), of, over=over, public=False)
    y = d.step("take", x, at, over=over)
    return (
        compared(d, d.input((over, *d.some(others, 0, 1))), y, over) if d.seed >= AFTERWARDS else y
    )


def compared(d: Drawing, x: Ref, y: Ref, over: str) -> Ref:
    """What was read at a position that was found, beside all of an array along the same axis: in
    what is read where that is largest, in sums, or at each position."""
    for _ in range(d.rng.choice((0, 1, 1, 2))):
        z = d.step(d.rng.choice(("mul", "sub")), x, y)
        way = d.rng.choice(("found", "found", "softmax", "sum", "each"))
        if way == "found":
            at = d.step(d.rng.choice(("argmax", "argmin")), z, over=over, public=False)
            z = d.step("take", d.rng.choice((x, z)), at, over=over)
        elif way == "softmax":
            weights = d.step("softmax", z, over=over)
            z = d.step("sum", d.step("mul", weights, x), over=over)
        elif way == "sum":
            z = d.step(d.rng.choice(("sum", "max", "logsumexp")), z, over=over)
        y = d.step("mul", z, y) if d.chance(0.5) else z
    return y


def window(d: Drawing, x: Ref, along: str = "") -> Ref:
    """An array in windows along an axis, or any."""
    i = along or d.rng.choice(d.axes_of(x))
    n = d.sizes[i]
    taps = d.rng.choice((1, 2, 3))
    option: dict[str, object] = {}
    stride, dilation = d.rng.choice((1, 1, 2, 3)), d.rng.choice((1, 1, 2))
    padding: int | tuple[int, int] = d.rng.choice((0, 0, 1, 2, (1, 0), (0, 1), (2, 1)))
    if stride > 1:
        option["stride"] = stride
    if dilation > 1:
        option["dilation"] = dilation
    if padding:
        option["padding"] = padding
    before, after = padding if isinstance(padding, tuple) else (padding, padding)
    windows = (n + before + after - dilation * (taps - 1) - 1) // stride + 1
    if windows < 1:
        raise Rejected
    p, w = d.axis(windows), d.axis(taps)
    if d.chance(0.5):
        option["window"] = taps
    else:
        d.input((w, *d.some(d.axes, 0, 1)))
    return d.step("slide", x, over=i, into=(p, w), **option)


def slide(d: Drawing) -> Ref:
    """A convolution, a pooling, windows of windows or of what is taken."""
    x = d.input(d.some(d.axes, 1, 3)) if d.chance(0.6) else d.pick(1)
    y = window(d, x)
    if d.chance(0.4):
        y = d.rng.choice((window, taken))(d, y)
    way = d.rng.random()
    axes = d.axes_of(y)
    gone = d.some(axes, 1, 2)
    if way < 0.5:
        weights = d.input((*gone, d.axis()))
        return d.step("contract", y, weights, over=gone)
    if way < 0.8:
        return d.step(d.rng.choice(("max", "mean", "sum", "min")), y, over=gone)
    return y


def rename(d: Drawing) -> Ref:
    """An array beside itself under another name: self-attention, all pairs."""
    x = d.pick(1)
    if d.chance(0.5):
        x = d.input(d.some(d.axes, 1, 2))
    a = d.rng.choice(d.axes_of(x))
    b = d.axis(d.sizes[a])
    y = d.step("rename", x, **{a: b})
    way = d.rng.random()
    if way < 0.35:
        other = [c for c in d.axes_of(x) if c != a]
        if not other:
            return d.step("mul", x, y)
        S = d.step("contract", x, y, over=d.rng.choice(other))
        P = d.step("softmax", S, over=b) if d.chance(0.6) else S
        return d.step("contract", P, y, over=b)
    if way < 0.6:
        near = d.step("sub", x, y)
        return d.step("sum", d.step("mul", near, near), over=d.rng.choice((a, b)))
    if way < 0.8:
        smaller = d.step("less", y, x, public=False)
        return d.step("add", x, d.step("sum", smaller, over=b, public=False))
    return d.step(d.rng.choice(("add", "mul", "maximum")), x, d.step("mean", y, over=b))


def lookup_mask(d: Drawing) -> Ref:
    """Scores masked by whether two positions have one class."""
    q, x, c = d.axis(), d.axis(), d.axis()
    table = d.input((c,), "int", public=False)
    left, right = (
        d.step("take", table, d.step("index", over=a, public=False), over=c, public=False)
        for a in (q, x)
    )
    e = d.axis()
    S = d.step("contract", d.input((q, e)), d.input((x, e)), over=e)
    test = d.step("equal", left, right, public=False)
    masked = d.step("where", test, S, float("-inf"), public=False, infinite=True)
    P = d.step("softmax", masked, over=x)
    return d.step("contract", P, d.input((x, d.axis())), over=x)
