"""A failing program made smaller while it fails in the same way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace

from filled import arrays
from judged import Failure
from modes import prepared, tried
from pool import Pool
from programs import Input, Keys, Program, Ref, Step, moved, shapes
from sized import fit
from values import results
from written import text


def shrunk(name: str, program: Program, seed: int, limit: float, seconds: float = 120.0) -> Program:
    """The smallest program found that fails as `program` does, within some time."""
    mode = prepared(name)
    pool = Pool(lambda p: (tried(mode, p, seed), None), 1, limit)

    def fails(p: Program) -> Failure | None:
        return next(pool.run([p], limit * 2)).failure

    first, deadline = fails(program), time.monotonic() + seconds
    if first is None:
        return program  # by itself it holds: what was traced before it matters
    going = True
    while going:
        going = False
        for smaller in steps(program):
            if time.monotonic() > deadline:
                break
            failure = fails(smaller)
            if failure and (failure.category, failure.cause) == (first.category, first.cause):
                program, going = smaller, True
                break
    pool.close()
    return program


def steps(program: Program) -> Iterator[Program]:
    """Programs that are a little smaller, and well formed."""
    for smaller in _steps(program):
        try:
            made = smaller.used()
            sizes = fit(made, made.sizes)
            fine = sizes is not None and made.inputs and made.outputs and made != program
            if fine:
                made = replace(made, sizes=sizes)
                outputs = tuple((r, _kept(axes, made, r)) for r, axes in made.outputs)
                made = replace(made, outputs=outputs)
                text(made)
                results(made, arrays(made, sizes, 0), sizes)
                yield made
        except (AssertionError, ValueError, KeyError, IndexError, TypeError):
            continue  # it would be no program


def _kept(axes: tuple[str, ...], program: Program, r: Ref) -> tuple[str, ...]:
    """The axes of an output, as its value has them now."""
    own = (*program.weave[0], *shapes(program)[r.at].axes)
    return tuple(dict.fromkeys((*(a for a in axes if a in own), *own)))


def _steps(p: Program) -> Iterator[Program]:
    if p.chained:
        yield replace(p, chained=False)
    if p.nested:
        yield replace(p, nested=False)
    if p.rules:
        yield replace(p, rules=())
    if len(p.outputs) > 1:
        for i in range(len(p.outputs)):
            yield replace(p, outputs=p.outputs[:i] + p.outputs[i + 1 :])
    n = len(p.inputs)
    for i in range(len(p.steps)):  # an early step as an input, a step left out
        yield from _cut(p, i)
        for a in p.steps[i].args:
            if isinstance(a, Ref):
                yield _instead(p, n + i, a)
    for i, step in enumerate(p.steps):
        for other in _simpler(step):
            yield replace(p, steps=(*p.steps[:i], other, *p.steps[i + 1 :]))
    if p.weave[0]:
        plain = replace(p, weave=((), ()))
        for axis in p.weave[0]:
            plain = _without(plain, axis)
        yield plain
    for axis in p.sizes:
        yield _without(p, axis)
    for axis, size in p.sizes.items():
        for smaller in (1, 2, size - 1):
            if 0 < smaller < size:
                yield replace(p, sizes={**p.sizes, axis: smaller})
    for i, given in enumerate(p.inputs):
        if given.strewn:
            inputs = (*p.inputs[:i], replace(given, strewn=given.strewn[1:]), *p.inputs[i + 1 :])
            yield replace(p, inputs=inputs)
        if given.fill != "normal" and given.kind == "real":
            inputs = (*p.inputs[:i], replace(given, fill="normal"), *p.inputs[i + 1 :])
            yield replace(p, inputs=inputs)


def _cut(p: Program, i: int) -> Iterator[Program]:
    """The program with step `i` as an input."""
    step, n = p.steps[i], len(p.inputs)
    found = shapes(p)[n + i]
    if step.op in {"size", "scalar", "index"} or p.weave[0]:
        return
    made = Input(f"in{i}", found.axes, found.kind)
    table = {
        k: k if k < n else k + 1 if k < n + i else n if k == n + i else k
        for k in range(n + len(p.steps))
    }
    kept = [s for j, s in enumerate(p.steps) if j != i]
    yield replace(
        p,
        inputs=(*p.inputs, made),
        steps=tuple(moved(s, table) for s in kept),
        outputs=tuple((Ref(table[r.at]), axes) for r, axes in p.outputs),
    )


def _instead(p: Program, at: int, other: Ref) -> Program:
    """The program with another value in the place of one."""
    table = {k: k for k in range(len(p.inputs) + len(p.steps))} | {at: other.at}
    return replace(
        p,
        steps=tuple(
            s if j + len(p.inputs) == at else moved(s, table) for j, s in enumerate(p.steps)
        ),
        outputs=tuple((Ref(table[r.at]), axes) for r, axes in p.outputs),
    )


def _simpler(step: Step) -> Iterator[Step]:
    for i, keys in enumerate(step.keys):
        if keys is None or step.op in {"compress", "spread"}:
            continue
        others: list[Keys | None] = [None, *keys.parts]
        if keys.pattern not in {"causal", "&", "|"}:
            others.append(Keys("causal", (), (), keys.queries, keys.keys, keys.at))
        for other in others:
            yield replace(step, keys=(*step.keys[:i], other, *step.keys[i + 1 :]))
    if step.op == "contract" and len(step.args) > 1:
        for i in range(len(step.args)):
            yield replace(step, args=step.args[:i] + step.args[i + 1 :])
    if step.op == "slide":
        for name in ("stride", "dilation", "padding"):
            yield replace(step, options=tuple(o for o in step.options if o[0] != name))
    if (
        step.over
        and len(step.over) == 1
        and len(step.over[0]) > 1
        and step.op in {"contract", "sum", "max"}
    ):
        for axis in step.over[0]:
            yield replace(step, over=(tuple(a for a in step.over[0] if a != axis),))


def _without(p: Program, axis: str) -> Program:
    """The program without an axis: what works along it alone is left out."""
    before = p
    inputs = tuple(replace(i, axes=tuple(a for a in i.axes if a != axis)) for i in p.inputs)
    p = replace(p, inputs=inputs, sizes={a: n for a, n in p.sizes.items() if a != axis})
    for i, step in enumerate(p.steps):
        over = tuple(tuple(a for a in o if a != axis) for o in step.over)
        if over == step.over:
            continue
        if not all(over) or step.op in {"take", "slide", "rename"}:
            refs = [a for a in step.args if isinstance(a, Ref)]
            if not refs:  # a size, or positions: there is no other value for it
                return before
            p = _instead(p, len(p.inputs) + i, refs[0])
        else:
            p = replace(p, steps=(*p.steps[:i], replace(step, over=over), *p.steps[i + 1 :]))
    outputs = tuple((r, tuple(a for a in axes if a != axis)) for r, axes in p.outputs)
    return replace(p, outputs=outputs)
