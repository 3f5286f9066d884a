"""What a user may add to napkin: operators, reductions, patterns of keys and rules of rewriting.

Each is lawful, and is defined once in a process, as this module is imported. Their values in numpy
are in `values` and `masks`, by other formulas.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import napkin as nk
from napkin.derive.rules.table import ADDED

# --- operators ----------------------------------------------------------------------------------

softplus = nk.operator(
    "softplus",
    1,
    evaluate=lambda xp, x: xp.logaddexp(x, xp.zeros_like(x)),
    triton="tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))",
    sign="nonnegative",
    increasing=True,
    derivative=lambda x: nk.sigmoid(x),
    flops=3,
    special=2,
)
doubled = nk.operator(
    "doubled",
    1,
    evaluate=lambda xp, x: xp.exp2(x),
    triton="tl.exp2(x)",
    sign="nonnegative",
    meaning=lambda sp, x: sp.Pow(2, x),
    increasing=True,
    steep=True,
    derivative=lambda x: math.log(2) * nk.exp(math.log(2) * x),
    special=1,
)
saturated = nk.operator(
    "saturated",
    1,
    evaluate=lambda xp, x: xp.minimum(xp.maximum(x, -2), 2),
    triton="tl.minimum(tl.maximum(x, -2, propagate_nan=ALL), 2, propagate_nan=ALL)".replace(
        "ALL", "tl.PropagateNan.ALL"
    ),
    kind=None,
    increasing=True,
    derivative=lambda x: nk.where((x > -2) & (x < 2), 1.0, 0.0),
    flops=2,
)
hypotenuse = nk.operator(
    "hypotenuse",
    2,
    evaluate=lambda xp, a, b: xp.sqrt(a * a + b * b),
    triton="tl.sqrt(a * a + b * b)",
    sign="nonnegative",
    derivative=lambda a, b: (a / nk.sqrt(a * a + b * b), b / nk.sqrt(a * a + b * b)),
    flops=3,
    special=1,
)
between = nk.operator(
    "between",
    3,
    evaluate=lambda xp, a, b, c: (a <= b) & (b <= c),
    triton="(a <= b) & (b <= c)",
    kind="bool",
    flops=3,
)
blended = nk.operator(
    "blended",
    3,
    evaluate=lambda xp, a, b, c: a + (b - a) * c,
    triton="d = b - a\nreturn a + d * c",
    meaning=lambda sp, a, b, c: a + (b - a) * c,
    text="({0} to {1} by {2})",
    derivative=lambda a, b, c: (1 - c, c, b - a),
    flops=3,
)
xor = nk.operator(
    "xor",
    2,
    evaluate=lambda xp, a, b: xp.bitwise_xor(xp.asarray(a, xp.int64), xp.asarray(b, xp.int64)),
    triton="a ^ b",
    kind="int",
)

# --- reductions ---------------------------------------------------------------------------------


def _log_sum(a, b):
    top = nk.maximum(nk.maximum(a, b), -3.4e38)
    return top + nk.log(nk.exp(a - top) + nk.exp(b - top))


def _smooth_least(a, b):
    least = nk.minimum(nk.minimum(a, b), 3.4e38)
    return least - nk.log(nk.exp(least - a) + nk.exp(least - b))


log_sum = nk.reduction(
    "log_sum",
    combine=_log_sum,
    identity=-math.inf,
    over="add",
    derivative=lambda y, x: nk.where(x > -math.inf, nk.exp(x - y), 0.0),
)
smooth_least = nk.reduction("smooth_least", combine=_smooth_least, identity=math.inf, over="add")
either = nk.reduction("either", combine=lambda a, b: a + b - a * b, identity=0.0)
added = nk.reduction(
    "added", combine=lambda a, b: a + b, identity=0.0, over="mul", sign="nonnegative"
)
nearest = nk.reduction(
    "nearest",
    combine=nk.operator(
        "nearer",
        2,
        evaluate=lambda xp, a, b: xp.where(
            abs(a) < abs(b), a, xp.where(abs(b) < abs(a), b, xp.maximum(a, b))
        ),
        triton="tl.where(tl.abs(a) < tl.abs(b), a, "
        "tl.where(tl.abs(b) < tl.abs(a), b, tl.maximum(a, b)))",
        kind=None,
        flops=4,
    ),
    identity=math.inf,
)

# --- patterns of keys ---------------------------------------------------------------------------


def thinning(near: int, step: int, **axes):
    """The last keys, and every `step`-th before them."""
    far = near + 3 * step
    return nk.key_set(
        f"thinning({near}, {step})",
        lambda i, size: [(i - near, i + 1), (i - far, i - near, step)],
        **axes,
    )


def checkered(step: int, **axes):
    """Every `step`-th key, those of the query's own residue."""
    return nk.key_set(f"checkered({step})", lambda i, size: [(i % step, size, step)], **axes)


def mirrored(width: int, **axes):
    """The keys about the query's place counted from the end."""
    return nk.key_set(
        f"mirrored({width})",
        lambda i, size: [(size - 1 - i - width, size - i + width)],
        **axes,
    )


def halved(block: int, **axes):
    """Keys from half of the query's block on."""
    return nk.key_set(
        f"halved({block})", lambda i, size: [(i // (2 * block) * block, i + 1)], **axes
    )


# --- rules of rewriting -------------------------------------------------------------------------


def _difference(term):
    """x, y, w and the axes of sum (x - y) w."""
    if term.op != "sum" or term.args[0].op != "mul":
        return None
    gone, (first, second) = set(term.params[0]), term.args[0].args
    for inner, w in ((first, second), (second, first)):
        if inner.op == "sub" and all(gone <= set(x.axes) for x in (*inner.args, w)):
            return *inner.args, w, " ".join(term.params[0])
    return None


def _least(term):
    """x and the axes of min x, of reals."""
    if term.op != "min" or term.kind != "real" or term.params[1:] != (math.inf,):
        return None
    return term.args[0], " ".join(term.params[0])


def _sum_of_quotients(term):
    """x, y and the axes of sum x / y, where y has none of these."""
    if term.op != "sum" or term.args[0].op != "div":
        return None
    x, y = term.args[0].args
    return None if {*y.axes, ""} & set(term.params[0]) else (x, y, " ".join(term.params[0]))


@nk.diagram("q d, k d, d -> q k", sizes={"q": 3, "k": 4, "d": 5})
def _linear(X, Y, w):
    return nk.contract(X - Y, w, over="d")


@nk.diagram("q d -> q", sizes={"q": 3, "d": 5})
def _lowest(X):
    return nk.reduce(X, "min", over="d")


@nk.diagram("q d, q -> q", sizes={"q": 3, "d": 5})
def _shares(X, y):
    return nk.reduce(X / y, "sum", over="d")


def _defined() -> dict[str, object]:
    """The rules by name; none is in force yet."""
    nk.rule(
        name="sum differences apart",
        law="sum_d (x - y) w = sum_d x w - sum_d y w",
        matches=_difference,
        apply=lambda x, y, w, axes: nk.contract(x, w, over=axes) - nk.contract(y, w, over=axes),
        examples=[_linear],
    )
    nk.rule(
        name="least as largest",
        law="min_d x = -max_d -x",
        matches=_least,
        apply=lambda x, axes: -nk.reduce(-x, "max", over=axes),
        examples=[_lowest],
    )
    nk.rule(
        name="divide once",
        law="sum_d x / y = (sum_d x) / y",
        matches=_sum_of_quotients,
        apply=lambda x, y, axes: nk.reduce(x, "sum", over=axes) / y,
        examples=[_shares],
        empty=False,
    )
    found = dict(ADDED)
    ADDED.clear()
    return found


RULES = _defined()


@contextmanager
def in_force(names: Sequence[str]) -> Iterator[None]:
    """Rules of rewriting that napkin has meanwhile."""
    ADDED.update({n: RULES[n] for n in names})
    try:
        yield
    finally:
        ADDED.clear()
