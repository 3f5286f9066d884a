"""Random diagrams: what napkin derives is what they compute, and what it refuses would be wrong.

`NAPKIN_EXAMPLES=10000 pytest tests/property` runs more than the default.
"""

from __future__ import annotations

import itertools
import os
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from in_numpy import execute
from random_diagrams import draw

import napkin as nk
from napkin.algebra.law import chunk_of, folded, merged
from napkin.algebra.terms import combined, identity
from napkin.check.verdict import run_case
from napkin.count.traffic import Traffic
from napkin.derive.label import label, weaved
from napkin.derive.prepare import prepare
from napkin.errors import Refusal
from napkin.ir.evaluate import aligned, evaluate
from napkin.ir.infer import pointwise
from napkin.ir.node import REDUCTIONS, SCANS, node, number, over, postorder
from napkin.ir.rewrite import rewrite, substitute
from napkin.plan.samples import Case
from napkin.settings.labels import labellings

DRAWS = 48
"""Inputs on which a refused step is tried, until it is wrong on one."""

EXAMPLES = int(os.environ.get("NAPKIN_EXAMPLES", "300"))
many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 300,
    suppress_health_check=list(HealthCheck),
)
seeds = st.integers(min_value=0, max_value=10**9)


def close(found, wanted, tolerance=1e-9):
    """Equal to rounding; a result that cancels to nothing is compared absolutely."""
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    if not np.isfinite(found).all():
        return np.array_equal(found, wanted, equal_nan=True)
    with np.errstate(over="ignore"):
        gap, size = np.linalg.norm(found - wanted), np.linalg.norm(wanted)
    return bool(gap <= tolerance * (1 + size))


def numbers(diagram, seed, sizes=None, scales=(1.0,), shifts=(0.0,)):
    """Random inputs by name, the sizes, and the outputs in float64. Each input is scaled by one of
    `scales`, and moved at random by about one of `shifts`."""
    rng = np.random.default_rng(seed)
    sizes = diagram.check_sizes(sizes or {})
    arrays = {str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in diagram.inputs}
    arrays = {
        name: rng.choice(scales) * x + rng.choice(shifts) * rng.normal()
        for name, x in arrays.items()
    }
    wanted = diagram.evaluate(*arrays.values())
    return sizes, arrays, wanted if isinstance(wanted, tuple) else (wanted,)


@many
@given(seeds)
def test_every_labelling_computes_the_diagram_and_moves_what_is_predicted(seed):
    diagram = draw(seed)
    sizes, arrays, wanted = numbers(diagram, seed)
    ready = prepare(diagram)
    rng = random.Random(seed)
    for kernel in labellings("k", ready.outputs, ready.names, sizes):
        tiles = {
            a: sizes[a] if a in kernel.whole else rng.randint(1, sizes[a]) for a in kernel.axes
        }
        ran = execute(kernel, arrays, sizes, tiles)
        for o, w in zip(diagram.outputs, wanted, strict=True):
            assert close(ran.outputs[o.name], w), (kernel.stream.axis, tiles)
        assert ran.total == Traffic(kernel).values(sizes, tiles)


def streamed(ready, axis):
    """The kernel that streams an axis in one pass, or the refusal."""
    try:
        return label("k", ready.outputs, ready.names, streamed=axis, group=[]), None
    except Refusal as refusal:
        return None, refusal


def pieces(size, rng):
    """A random cut of range(size) in consecutive parts, some of them empty."""
    cuts = sorted(rng.randint(0, size) for _ in range(rng.randint(0, 4)))
    return [range(a, b) for a, b in itertools.pairwise([0, *cuts, size])]


@many
@given(seeds)
def test_streams_keep_their_law_and_refusals_are_justified(seed):
    diagram = draw(seed)
    sizes, arrays, wanted = numbers(diagram, seed)
    ready = prepare(diagram)
    rng = random.Random(seed)
    outputs = [o.node for o in ready.outputs]
    axes = {a for n in postorder(outputs) for a in (*n.axes, *over(n))}
    legal = weaved(ready.outputs)
    for axis in sorted(axes - set(legal)):
        kernel, refusal = streamed(ready, axis)
        if kernel is None:
            assert refusal.rule == f"stream {axis}"
            assert all((refusal.place, refusal.reason, refusal.nearest))
            if not any(axis in o.axes for o in outputs) and not depends_on(diagram, axis, seed):
                continue  # there is nothing to stream, and nothing to store
            # On one draw it may be right by luck: a maximum that stands in the first chunk, or
            # that one side always wins.
            draws = (naive_streaming_is_right(diagram, ready, axis, seed + i) for i in range(DRAWS))
            assert not all(draws), refusal
            continue
        bind = {a.leaf: arrays[a.tensor] for a in kernel.reads}
        parts = pieces(sizes[axis], rng)
        states, found = folded(kernel.stream, bind, sizes, parts)
        for o, ready_o, w in zip(diagram.outputs, ready.outputs, wanted, strict=True):
            n = next(
                e.node
                for e in [*kernel.stream.tails, *(e for p in kernel.stream.passes for e in p.emits)]
                if e.output == o.name
            )
            value = np.broadcast_to(
                aligned(found[o.name], n.axes, ready_o.axes), [sizes[a] for a in o.axes]
            )
            assert close(value, w), (axis, parts)
        step = kernel.stream.passes[0]
        half = rng.randint(0, sizes[axis])
        left, _ = folded(kernel.stream, bind, sizes, [range(half)])
        right, _ = folded(kernel.stream, bind, sizes, [range(half, sizes[axis])])
        joined = merged(step, left, right, sizes)
        for s in step.states:
            if s.held != "carried":
                assert close(joined[s.name], states[s.name]), (axis, half, s.name)


def depends_on(diagram, axis, seed):
    """Whether other inputs along an axis give other outputs."""
    _, arrays, wanted = numbers(diagram, seed)
    other = numbers(diagram, seed + 1)[1]
    carried = {str(n.params[0]) for n in diagram.inputs if axis in n.axes}
    found = diagram.evaluate(*(other[t] if t in carried else x for t, x in arrays.items()))
    found = found if isinstance(found, tuple) else (found,)
    return not all(map(close, found, wanted))


def naive_streaming_is_right(diagram, ready, axis, seed):
    """Whether one pass without the refused step computes the outputs all the same, at sizes where
    nothing is trivially so (a softmax over one position is 1 however it is run).

    Where that is right, refusing was not justified.
    """
    order = list(postorder(o.node for o in ready.outputs))
    if any(n.op == "rename" or (n.op in SCANS and axis in over(n)) for n in order):
        return False
    rng = np.random.default_rng(seed)
    sizes = {a: 4 + i for i, a in enumerate(diagram.axes)}
    sizes, arrays, _ = numbers(diagram, seed, sizes, (0.03, 0.3, 1.0, 3.0), (0.0, 1.0, 3.0))
    masked = rng.random() < 0.3
    if masked:
        mask_a_row(arrays, rng)
    roots = moved_apart([o.node for o in ready.outputs], rng)
    bind = {n: arrays[str(n.params[0])] for n in order if n.op == "input"}
    wanted = evaluate(roots, bind, sizes, {})
    if not all(np.isfinite(w).all() for w in wanted):
        return True  # what overflows shows nothing
    for value, w in zip(naively_streamed(roots, bind, sizes, axis), wanted, strict=True):
        # inf - inf is the fault of this way to stream, not of streaming.
        shows = not masked or np.isfinite(value).all()
        if shows and not close(np.broadcast_to(value, w.shape), w, 1e-8):
            return False
    return True


def mask_a_row(arrays, rng):
    """Set one row of one input to -inf, as a mask does: a softmax sums to 0 there, and not to 1."""
    x = arrays[rng.choice(sorted(arrays))]
    at = [slice(None)] * x.ndim
    axis = rng.integers(x.ndim)
    at[axis] = rng.integers(x.shape[axis])
    x[tuple(at)] = -np.inf


def moved_apart(roots, rng):
    """The outputs with the two sides of each maximum moved: a refusal does not know that with
    these constants one side always wins."""
    shift = number(float(rng.choice((0.0, 1.0, 10.0)) * rng.normal()))

    def change(old, args):
        if old.op not in {"maximum", "minimum"}:
            return None
        return pointwise(old.op, (args[0], pointwise("add", (args[1], shift))))

    done = rewrite(roots, change)
    return [done[n] for n in roots]


def naively_streamed(roots, arrays, sizes, axis):
    """The values of `roots` in one pass: each reduction over the axis combines chunks whose bodies
    use the results so far, and what carries the axis is stored as it comes."""
    folds = [n for n in postorder(roots) if n.op in REDUCTIONS and axis in over(n)]
    old, new = (
        {f: node("state", params=(i, tag), axes=f.axes, kind=f.kind) for i, f in enumerate(folds)}
        for tag in ("old", "new")
    )
    held = {f: np.full([sizes[a] for a in f.axes], identity(f), float) for f in folds}
    stored = [[] for _ in roots]
    size = sizes[axis]
    parts = [range(i, min(i + max(1, size // 3), size)) for i in range(0, size, max(1, size // 3))]
    done = substitute(roots, new)
    for part in parts:
        bind = chunk_of(arrays, {axis: part})
        for f in folds:
            bind[old[f]] = held[f]
        for f in folds:
            chunk = substitute([f], {g: n for g, n in new.items() if g is not f})[f]
            joined = combined(f.op, old[f], chunk)
            (value,) = evaluate([joined], bind, sizes, {}, {axis: part})
            bind[new[f]] = held[f] = np.array(np.broadcast_to(value, held[f].shape))
        values = evaluate([done[n] for n in roots], bind, sizes, {}, {axis: part})
        for kept, n, value in zip(stored, roots, values, strict=True):
            kept.append(aligned(value, done[n].axes, n.axes))
    return [
        np.concatenate(kept, axis=n.axes.index(axis)) if axis in n.axes else kept[-1]
        for n, kept in zip(roots, stored, strict=True)
    ]


@settings(
    max_examples=max(12, EXAMPLES // 25),
    deadline=None,
    derandomize=EXAMPLES <= 300,
    suppress_health_check=list(HealthCheck),
)
@given(seeds)
def test_kernels_in_the_interpreter(seed):
    plan = nk.derive(draw(seed), on="h100", dtype="fp32")
    values, traffic = run_case(plan, Case("drawn", plan.sizes), np.random.default_rng(seed))
    assert all(r.predicted == r.counted for r in traffic)
    for r in values:
        assert r.relative_error <= 1e-5 or np.isfinite(r.relative_error), r
        assert r.relative_error <= 1e-3, r


if __name__ == "__main__":
    pytest.main([__file__])
