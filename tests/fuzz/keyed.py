"""Key sets of random programs: every pattern, with its numbers, and two joined."""

from __future__ import annotations

import math

from drawing import Drawing
from programs import Axes, Keys
from sized import counts

from napkin.ir.key_sets import MAX_BOXES

__all__ = ["box_set", "key_set"]


def key_set(d: Drawing, q: Axes, x: Axes, at: bool = False) -> Keys:
    """A key set over one to three key axes.

    Args:
        at: whether queries lie at places of their own among the keys.
    """
    if len(q) > 1:
        off = d.rng.choice((0, 1, 2)) if at else None
        one = neighborhood(d, q, x, off)
        other = neighborhood(d, q, x, off)
        return Keys("|", (), (), q, x, parts=(one, other)) if d.chance(0.1) else one
    off = d.rng.choice((0, 1, 2, -1)) if at else None
    one = pattern(d, q, x, off)
    if d.chance(0.3):
        how = d.rng.choice("&|")
        other = pattern(d, q, x, off)
        if how == "&" and stepped(one) and stepped(other):
            return one
        if (boxes(one) * boxes(other) if how == "&" else boxes(one) + boxes(other)) > MAX_BOXES:
            return one
        return Keys(how, (), (), q, x, parts=(one, other))
    return one


def stepped(keys: Keys) -> bool:
    """Whether a set goes through the keys in steps."""
    steps = {"dilated", "strided", "fixed", "thinning", "checkered"}
    near = (dict(k.options).get("dilation", 1) for k in keys.each() if k.pattern == "neighborhood")
    return any(k.pattern in steps for k in keys.each()) or any(n not in (1, (1,)) for n in near)


def boxes(keys: Keys) -> int:
    """How many boxes a key set is a union of, at most."""
    if keys.parts:
        return (math.prod if keys.pattern == "&" else sum)(map(boxes, keys.parts))
    if keys.pattern == "fixed":
        return 1 + int(str(keys.numbers[1]))
    if keys.pattern == "bigbird":
        return 1 + int(str(keys.numbers[2])) + len(keys.tables)
    return 2 if keys.pattern in {"strided", "thinning"} else 1


def pattern(d: Drawing, q: Axes, x: Axes, at: int | None, among: tuple[str, ...] = ()) -> Keys:
    """A pattern over one key axis, `among` some where these are given."""
    rng = d.rng
    if d.more and not among and d.chance(0.2):
        return user_pattern(d, q, x, at)
    n = rng.choice((0, 1, 2, 3))
    m = rng.choice((1, 2, 3, 4))
    numbers: dict[str, tuple[object, ...]] = {
        "causal": (),
        "sliding": (n, rng.choice((0, 1, 2))),
        "dilated": (n, rng.choice((0, 1)), rng.choice((1, 2, 3))),
        "strided": (m,),
        "fixed": (m, rng.randint(1, m)),
        "blocked": (m, rng.choice((0, 1)), rng.choice((0, 1))),
        "sinks": (m,),
        "global_tokens": (m,),
    }
    others = ("neighborhood", "neighborhood", "documents", "strided", "bigbird", "bigbird")
    name = rng.choice((*numbers, *(others if at is None else others[:-2])))
    name = rng.choice(among) if among else name
    if name == "neighborhood":
        return neighborhood(d, q, x, at if at is None else max(at, 0))
    if name == "documents":
        axis = d.axis(rng.choice((1, 2, 3)))
        lengths = d.input((axis,), "int", f"lengths:{x[0]}")
        return Keys(name, (), (), q, x, at, (lengths,))
    if name == "bigbird":
        block = rng.choice((1, 2, 3))
        blocks = d.axis(max(1, -(-d.sizes[q[0]] // block)))
        tables = [
            d.input((blocks,), "int", f"blocks:{x[0]}:{block}")
            for _ in range(rng.choice((0, 1, 2)))
        ]
        return Keys(
            name, (block, rng.choice((0, 1)), rng.choice((0, 1))), (), q, x, None, tuple(tables)
        )
    options = (("local", False),) if name == "strided" and d.chance(0.3) else ()
    return Keys(name, numbers[name], options, q, x, at)


def user_pattern(d: Drawing, q: Axes, x: Axes, at: int | None) -> Keys:
    """A pattern that a user adds."""
    name = d.rng.choice(("thinning", "checkered", "mirrored", "halved"))
    n = d.rng.choice((1, 2, 3))
    return Keys(name, (d.rng.choice((0, 1, 2)), n) if name == "thinning" else (n,), (), q, x, at)


def neighborhood(d: Drawing, q: Axes, x: Axes, at: int | None = None) -> Keys:
    """A neighborhood over one to three axes, of queries at places of their own where `at` says."""
    rng = d.rng
    clip = d.chance(0.15)
    k, s, w, c = [], [], [], []
    for axis in x:
        length = d.sizes[axis]
        dilation = rng.choice((1, 1, 2, 3)) if length > 2 else 1
        most = max(1, length // dilation)
        size = rng.randint(1, most + (2 if clip else 0))
        k.append(size)
        w.append(dilation)
        s.append(rng.randint(1, size))
        c.append(d.chance(0.3))
    options: list[tuple[str, object]] = []
    for name, each, plain in (("stride", s, 1), ("dilation", w, 1), ("is_causal", c, False)):
        if any(v != plain for v in each):
            options.append((name, tuple(each) if len(x) > 1 else each[0]))
    options += [("clip", True)] if clip else []
    return Keys("neighborhood", (tuple(k) if len(x) > 1 else k[0],), tuple(options), q, x, at)


def box_set(d: Drawing, q: Axes, x: Axes) -> tuple[Keys, tuple[int, ...]]:
    """A key set of one box whose windows a number bounds, and the slots along each axis."""
    if len(q) > 1 or d.chance(0.5):
        made = neighborhood(d, q, x)
        while dict(made.options).get("clip"):
            made = neighborhood(d, q, x)
        return made, tuple(int(n or 1) for n in counts(made))
    n = (d.rng.choice((0, 1, 2)), d.rng.choice((0, 1)))
    both = Keys("causal", (), (), q, x), Keys("sliding", n, (), q, x)
    made = d.rng.choice((
        Keys("sliding", n, (), q, x),
        Keys("dilated", (*n, 2), (), q, x),
        Keys("blocked", (2, n[1], 0), (), q, x),
        Keys("&", (), (), q, x, parts=both),
    ))  # fmt: skip
    return made, tuple(int(m or 1) for m in counts(made))
