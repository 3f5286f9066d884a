"""Attention with long rows, whose gradient runs as warpgroups that add in memory: what is drawn
from `SHARED` on."""

from __future__ import annotations

from dataclasses import replace

from drawing import Drawing
from keyed import key_set
from programs import Axes, Program, Ref, shapes

LENGTHS = ((17, 33), (33, 33), (33, 65), (40, 40))


def in_order(program: Program) -> Program:
    """The same with rows of results that lie as they are computed, as descriptors read them."""
    known, woven = shapes(program), dict.fromkeys(program.weave[0], -1)  # these come first
    lying = ({a: i for i, a in enumerate(known[r.at].axes)} | woven for r, _ in program.outputs)
    each = zip(program.outputs, lying, strict=True)
    outputs = tuple((r, tuple(sorted(axes, key=lambda a: at.get(a, -1)))) for (r, axes), at in each)
    return replace(program, outputs=outputs)


def attended(d: Drawing) -> Ref:
    """Values under weights of scores, which a bias, a cap or positions may have a say in."""
    nq, nx = d.rng.choice(LENGTHS)
    q, x, e = d.axis(nq), d.axis(nx), d.axis(d.rng.choice((64, 64, 128)))
    v = e if d.chance(0.8) else d.axis(64)
    shared: Axes = (d.axis(2),)
    heads: Axes = (*shared, d.axis(2)) if d.chance(0.3) else shared
    beside = shared if d.chance(0.3) else heads  # of keys: several heads of queries may share them
    scores = d.step("contract", d.input((*heads, q, e)), d.input((*beside, x, e)), over=e)
    S = d.step("mul", scores, d.rng.choice((0.0625, 0.125)), public=False)
    way = d.rng.choice(("plain", "plain", "bias", "cap", "near"))
    if way == "bias":
        S = d.step("add", S, d.input(d.some((*heads, q, x), 1, 2)), public=False)
    elif way == "cap":
        S = d.step("mul", d.step("tanh", S, public=False), d.rng.choice((0.5, 2.0)), public=False)
    elif way == "near":
        i, j = (d.step("index", over=a, public=False) for a in (q, x))
        off = d.step("abs", d.step("sub", i, j, public=False), public=False)
        S = d.step("sub", S, d.step("mul", off, 0.125, public=False), public=False)
    keys = key_set(d, (q,), (x,), nq != nx) if d.chance(0.6) else None
    V = d.input((*beside, x, v))
    kind = d.rng.choice(("softmax", "softmax", "softmax", "sigmoid", "plain"))
    if kind == "softmax":
        found = d.step("contract", d.step("softmax", S, over=x, keys=keys), V, over=x)
    else:
        P = d.step("sigmoid", S, public=False) if kind == "sigmoid" else S
        found = d.step("contract", P, V, over=x, keys=keys)
    d.outputs.append(found)
    return found
