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
from random_diagrams import draw

import napkin as nk
from napkin.check.verdict import run_case
from napkin.cost.traffic import Traffic
from napkin.derive.kernel import label, weaved
from napkin.derive.law import folded, merged
from napkin.derive.prepare import prepare
from napkin.derive.terms import COMBINE, identity
from napkin.diagram.evaluate import aligned, evaluate
from napkin.diagram.infer import pointwise
from napkin.diagram.node import REDUCTIONS, SCANS, node, over, postorder, substitute
from napkin.errors import Refusal
from napkin.lower.execute import execute
from napkin.plan.choose import labellings
from napkin.plan.samples import Case

EXAMPLES = int(os.environ.get("NAPKIN_EXAMPLES", "300"))
many = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES <= 300,
    suppress_health_check=list(HealthCheck),
)
seeds = st.integers(min_value=0, max_value=10**9)


def close(found, wanted):
    """Equal to rounding; a result that cancels to nothing is compared absolutely."""
    found, wanted = np.asarray(found, float), np.asarray(wanted, float)
    if not np.isfinite(found).all():
        return np.array_equal(found, wanted, equal_nan=True)
    gap = np.linalg.norm(found - wanted)
    return bool(gap <= 1e-9 * (1 + np.linalg.norm(wanted)))


def numbers(diagram, seed, sizes=None):
    """Random inputs by name, the sizes, and the outputs in float64."""
    rng = np.random.default_rng(seed)
    sizes = diagram.check_sizes(sizes or {})
    arrays = {str(n.params[0]): rng.normal(size=[sizes[a] for a in n.axes]) for n in diagram.inputs}
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
            # On one draw it may be right by luck: a maximum that stands in the first chunk.
            draws = (naive_streaming_is_right(diagram, ready, axis, seed + i) for i in range(4))
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


def naive_streaming_is_right(diagram, ready, axis, seed):
    """Whether one pass without the refused step computes the outputs all the same, at sizes where
    nothing is trivially so (a softmax over one position is 1 however it is run).

    Each reduction over the axis combines chunks whose bodies use the results so far, and what
    carries the axis is stored as it comes. Where that is right, refusing was not justified.
    """
    sizes, arrays, wanted = numbers(diagram, seed, {a: 4 + i for i, a in enumerate(diagram.axes)})
    roots = [o.node for o in ready.outputs]
    order = list(postorder(roots))
    if any(n.op == "rename" or (n.op in SCANS and axis in over(n)) for n in order):
        return False
    folds = [n for n in order if n.op in REDUCTIONS and axis in over(n)]
    old = {
        f: node("state", params=(i, "old"), axes=f.axes, kind=f.kind) for i, f in enumerate(folds)
    }
    new = {
        f: node("state", params=(i, "new"), axes=f.axes, kind=f.kind) for i, f in enumerate(folds)
    }
    inputs = [n for n in order if n.op == "input"]
    held = {f: np.full([sizes[a] for a in f.axes], identity(f), float) for f in folds}
    stored = {o.name: [] for o in ready.outputs}
    size = sizes[axis]
    parts = [range(i, min(i + max(1, size // 3), size)) for i in range(0, size, max(1, size // 3))]
    for part in parts:
        bind = {}
        for n in inputs:
            value = arrays[str(n.params[0])]
            if axis in n.axes:
                value = np.take(value, list(part), axis=n.axes.index(axis))
            bind[n] = value
        box = {axis: part}
        for f in folds:
            bind[old[f]] = held[f]
        by = dict(zip(folds, [new[f] for f in folds], strict=True))
        for f in folds:
            below = {g: n for g, n in by.items() if g is not f}
            chunk = substitute([f], below)[f]
            combined = pointwise(COMBINE[f.op], (old[f], chunk))
            (value,) = evaluate([combined], bind, sizes, {}, box)
            bind[new[f]] = held[f] = np.array(np.broadcast_to(value, held[f].shape))
        done = substitute(roots, by)
        for o in ready.outputs:
            (value,) = evaluate([done[o.node]], bind, sizes, {}, box)
            stored[o.name].append((value, done[o.node].axes))
    for o, w in zip(ready.outputs, wanted, strict=True):
        if axis in o.axes:
            value = np.concatenate(
                [aligned(v, axes, o.axes) for v, axes in stored[o.name]], axis=o.axes.index(axis)
            )
        else:
            v, axes = stored[o.name][-1]
            value = aligned(v, axes, o.axes)
        if not close(np.broadcast_to(value, w.shape), w):
            return False
    return True


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
