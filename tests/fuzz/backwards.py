"""Products that share what they multiply, as a gradient of attention has them: what is drawn from
`SEVERAL` on."""

from __future__ import annotations

from drawing import Drawing
from keyed import key_set
from programs import Axes, Ref


def backward(d: Drawing) -> Ref:
    """Gradients of keys and values, of which each is a sum over queries, and often of queries."""
    q, x = d.axis(d.rng.choice((17, 64, 64))), d.axis(d.rng.choice((33, 64, 64)))
    e = d.axis(d.rng.choice((16, 16, 32)))
    v = e if d.chance(0.6) else d.axis(16)
    heads: Axes = (d.axis(2),) if d.chance(0.2) else ()
    Q, dO = d.input((*heads, q, e)), d.input((*heads, q, v))
    K, V = d.input((*heads, x, e)), d.input((*heads, x, v))
    each = [d.input((*heads, q)) for _ in range(2)]  # one value for each column of a product
    scores = d.step("contract", Q, K, over=e, public=False)
    S = d.step("mul", scores, d.rng.choice((0.125, 0.25)), public=False)
    way = d.rng.choice(("softmax", "softmax", "square", "plain"))
    if way == "softmax":
        P = d.step("exp", d.step("sub", S, each[0], public=False), public=False)
    elif way == "square":
        P = d.step("mul", S, d.step("sigmoid", each[0], public=False), public=False)
    else:
        P = d.step("tanh", S, public=False)
    from_values = d.step("contract", dO, V, over=v, public=False)
    beside = d.step("sub", from_values, each[1], public=False)
    dS = d.step("mul", P, beside, public=False)
    keys = key_set(d, (x,), (q,), d.sizes[q] != d.sizes[x]) if d.chance(0.3) else None
    found = [d.step("contract", y, z, over=q, keys=keys) for y, z in ((dS, Q), (P, dO))]
    if d.chance(0.3):
        found.append(d.step("contract", dS, K, over=x))
    if d.chance(0.3):
        found.append(d.step("sum", dS, over=q))
    d.outputs += found[: d.rng.choice((1, 2, 2, 4))]
    return found[0]
