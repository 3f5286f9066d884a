"""Scans along the queries and along the keys of a key set, of what it leaves: what is drawn from
`ALONG` on. Their kernels go over all chunks, where others leave some out by the set."""

from __future__ import annotations

from drawing import Drawing
from keyed import key_set
from programs import STEPS, Ref
from scans import any_step, folded, operands


def along(d: Drawing) -> Ref:
    """A scan of weights, or of what a sum over keys chooses, and often a sum beside it."""
    n = d.rng.choice((3, 7, 16, 17, 33))
    q, x = d.axis(n), d.axis(n if d.chance(0.7) else d.rng.choice((5, 20)))
    keys = key_set(d, (q,), (x,), d.sizes[q] != d.sizes[x])
    scores = d.input((q, x))
    if d.chance(0.3):
        e = d.axis(d.rng.choice((4, 16)))
        scores = d.step("contract", d.input((q, e)), d.input((x, e)), over=e)
    weights = _seen(d, scores, x, keys)
    over = d.rng.choice((q, x))
    way = d.rng.choice(("cumsum", "linear", "any", "any"))
    if way == "any":
        states = any_step(d, weights, over)
    elif way == "cumsum":
        states = d.step("cumsum", weights, over=over)
    else:
        form = d.rng.choice(tuple(STEPS))
        start = d.rng.choice((0.0, 0.5)) if form != "scaled" else 1.0
        states = d.step("scan", start, *operands(d, form, weights, over), over=over, form=form)
    if d.chance(0.5):
        d.outputs.append(states)
    if d.chance(0.4):
        d.outputs.append(d.step("contract", weights, d.input((x, d.axis())), over=x))
    if d.chance(0.2):
        d.outputs.append(
            d.step("max", scores, over=x, keys=key_set(d, (q,), (x,), n != d.sizes[x]))
        )
    still = over in d.axes_of(states)
    return folded(d, states, over) if still and d.chance(0.3) else states


def _seen(d: Drawing, scores: Ref, x: str, keys: object) -> Ref:
    """What a key set leaves of scores: weights, or those that a sum over what is seen chooses."""
    way = d.rng.choice(("softmax", "softmax", "chosen", "scaled"))
    if way == "softmax":
        return d.step("softmax", scores, over=x, keys=keys)
    total = d.step(d.rng.choice(("sum", "max")), scores, over=x, keys=keys, public=False)
    if way == "chosen":
        return d.step("where", d.step("greater", total, 0.0, public=False), scores, 0.0)
    return d.step("mul", scores, d.step("tanh", total))
