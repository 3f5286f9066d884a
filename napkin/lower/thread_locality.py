"""Reductions that Triton's pass OptimizeThreadLocality would take wrongly.

In `x = x + tl.sum(tl.load(..), axis=1)` the pass keeps a sum for each thread and adds these after
the loop. Triton 3.6 and 3.9 do not ask how the sum joins x: `tl.maximum(x, tl.sum(..))` becomes a
maximum for each thread, which is another value, and `a * x + tl.sum(..)` fails to compile. In
Triton 3.6 so does a sum that is read twice after the loop. And there it takes a thread's values in
the order in which they lie, as if a row's were together: where threads go along rows first and a
thread has several, each row gets values of others. The pass looks at float32 tiles as they were
loaded, reduced along the last dimension. So the reductions of `mishandled` are written along the
first one, of the transposed tile, for which no thread moves a value.
"""

from __future__ import annotations

from collections.abc import Iterator

from napkin.algebra.fold import State
from napkin.algebra.terms import is_read
from napkin.count.spread import WARP
from napkin.ir.node import REDUCTIONS, Node, postorder
from napkin.lower.program import Loop, Program

ARITHMETIC = frozenset({"add", "sub", "mul", "div"})
"""Operators whose text has each argument once."""


def mishandled(program: Program, loop: Loop) -> frozenset[Node]:
    """The reductions of a loop that the pass would take wrongly."""
    found: set[Node] = set()
    for s in program.kernel.stream.passes[loop.part].states:
        step = loop.steps[s.name]
        below = (_across_threads(program, a) for a in step.args)
        taken = {r for r in below if r.op in REDUCTIONS and _loaded(r.args[0])}
        others = [n for name, n in loop.steps.items() if name != s.name]
        beside = set(postorder([*others, *loop.emits.values()])) if taken else set()
        if s.leaf("new") in beside:  # the pass asks for a value that only the next iteration reads
            continue
        if s.leaf("old") in beside or not _read_once(program, loop, s):
            found |= taken
        found |= {r for r in taken if not _kept(step, r, s) or _rows_share(program, r)}
    return frozenset(found)


def _across_threads(program: Program, n: Node) -> Node:
    """A term below the reductions along axes of which a chunk has one value: they vanish."""
    while n.op in REDUCTIONS and program.shape(n) == program.shape(n.args[0]):
        n = n.args[0]
    return n


def _loaded(n: Node) -> bool:
    """Whether a term may be a tile as it was loaded: masks vanish where tiles divide an axis."""
    return is_read(n) or (n.op in {"mask", "cast"} and _loaded(n.args[0]))


def _kept(step: Node, r: Node, s: State) -> bool:
    """Whether a step does to its state what its reduction does to values."""
    return step.op == REDUCTIONS[r.op].combine and s.leaf("old") in step.args


def _rows_share(program: Program, r: Node) -> bool:
    """Whether a tile has more rows than threads: strides, which only a launch knows, decide whether
    threads go along these first."""
    return program.span(program.shape(r.args[0])[:-1]) > WARP * program.schedule.warps


def _read_once(program: Program, loop: Loop, s: State) -> bool:
    """Whether one expression after a loop reads a state, once."""
    own = s.leaf("left" if loop.joins else "new")
    roots = [j.of for j in loop.joins.values()] if loop.joins else list(_after(program, loop))
    readers = [n for n in postorder(roots) for a in n.args if a is own]
    if own in roots:
        return not readers and roots.count(own) == 1
    return len(readers) == 1 and readers[0].op in ARITHMETIC


def _after(program: Program, loop: Loop) -> Iterator[Node]:
    """What is computed after a pass of a loop."""
    yield from program.tails.values()
    for x in program.loops:
        if x.part > loop.part:
            yield from (*x.steps.values(), *x.emits.values())
