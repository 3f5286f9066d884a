"""Numbers at the ends of the range of floats, logarithms of sums, and states that are read by pairs
of positions: what is drawn from `FAR` on."""

from __future__ import annotations

from drawing import SOLVED, Drawing
from moves import positive
from programs import Ref

LONG = (7, 17, 40, 70)


def exponents(d: Drawing) -> Ref:
    """Sums of exponentials of scores less another result, far from 0, and their logarithms."""
    n, x = d.axis(d.rng.choice((1, 3, 16))), d.axis(d.rng.choice(LONG))
    fill = d.rng.choice(("large", "large", "mean", "normal"))
    X, Y = d.input((n, x), fill=fill), d.input(d.rng.choice(((x,), (n, x))), fill=fill)
    a, b = d.rng.choice((1.0, 0.5, 2.0, 0.1)), d.rng.choice((1.0, 2.0, -1.0))
    top = d.rng.choice(("max", "min", "mean", "logsumexp", "sum"))
    result = d.step(top, d.step("mul", d.rng.choice((X, X, Y)), b, public=False), over=x)
    off = d.step("sub", d.step("mul", X, a, public=False), result, public=False)
    way = d.rng.choice(("plain", "weighed", "log", "two", "seen", "entropy"))
    power = d.step("exp", off, public=False, infinite=way not in {"two", "entropy"})
    if way == "weighed":
        power = d.step("mul", power, Y, public=False, infinite=True)
    if way == "two":
        least = d.step("min", Y, over=x, public=False)
        other = d.step("exp", d.step("sub", least, Y, public=False), public=False)
        power = d.step("mul", power, other, public=False, infinite=True)
    if way == "seen":
        some = d.step("greater", Y, 0.0, public=False)
        power = d.step("where", some, power, 0.0, public=False, infinite=True)
    if way == "entropy":
        power = d.step("mul", power, off, public=False, infinite=True)
    total = d.step("sum", power, over=x, public=False, infinite=True)
    if way == "log":
        total = d.step("add", d.step("log", total, public=False, infinite=True), result,
                       infinite=True)  # fmt: skip
    d.outputs.append(total)
    return total


def logarithms(d: Drawing) -> Ref:
    """Differences of logarithms of sums, and logarithms and roots of sums of any sign."""
    n, x = d.axis(d.rng.choice((2, 5))), d.axis(d.rng.choice(LONG))
    X = d.input((n, x))
    way = d.rng.choice(("levels", "signed", "mean of logs", "roots"))
    if way == "levels":
        first = d.step("logsumexp", d.step("mul", X, d.rng.choice((0.1, 10.0))), over=x)
        return d.step("sub", first, d.step("logsumexp", X, over=x))
    if way == "mean of logs":
        return d.step("exp", d.step("mean", d.step("log", positive(d, X)), over=x))
    total = d.step("sum", X, over=x, public=False)
    op = "log" if way == "signed" else "sqrt"
    made = d.step(op, total, public=False, infinite=True)
    y = d.step("sum", d.step("mul", X, made, public=False, infinite=True), over=x, infinite=True)
    d.outputs.append(y)
    return y


def past_half(d: Drawing) -> Ref:
    """Sums that leave fp16, and what is divided by them."""
    n, x = d.axis(d.rng.choice((3, 16))), d.axis(d.rng.choice((70, 200)))
    X = d.step("mul", positive(d, d.input((n, x))), 1000.0, infinite=True)
    total = d.step("sum", X, over=x, public=False, infinite=True)
    way = d.rng.choice(("share", "mean", "norm"))
    if way == "mean":
        y = d.step("div", total, d.step("size", over=x, public=False), infinite=True)
    elif way == "norm":
        square = d.step("mul", X, X, public=False, infinite=True)
        root = d.step("sqrt", d.step("sum", square, over=x, infinite=True), infinite=True)
        y = d.step("div", X, root, infinite=True)
    else:
        y = d.step("div", X, total, infinite=True)
    d.outputs.append(y)
    return y


def paired(d: Drawing) -> Ref:
    """States that are matrices, which products alone read, of positions in pairs."""
    t, k, v = d.axis(d.rng.choice((3, 16, 17, 33))), d.axis(16), d.axis(d.rng.choice((3, 16)))
    rows = (d.axis(2),) if d.chance(0.3) else ()
    K, V, Q = (d.input((*rows, t, a)) for a in (k, v, k))
    K = d.step("mul", K, d.rng.choice((0.25, 0.1)), public=False)
    gate = d.step("sigmoid", d.input(d.rng.choice(((t,), (*rows, t), (t, k)))), public=False)
    if d.chance(0.5):
        how = {"form": "delta", "within": k, "axes": k}
        a = d.rng.choice((0.5, d.step("sigmoid", d.input((*rows, t)), public=False)))
        read = [a, K, V]
        if d.seed >= SOLVED and d.chance(0.8):
            how["form"] = d.rng.choice(("corrected", "fed"))
            read.append(d.rng.choice((1.0, d.step("sigmoid", d.input((t,)), public=False))))
            if how["form"] == "fed":
                read.append(d.input((*rows, t, k)))
        h = d.step("scan", 0.0, *read, over=t, public=False, **how)
    else:
        added = d.step("mul", K, V, public=False)
        h = d.step("scan", 0.0, d.rng.choice((0.5, gate, gate)), added, over=t, form="decayed",
                   public=False)  # fmt: skip
    return d.step("contract", Q, h, over=k)
