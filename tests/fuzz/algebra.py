"""Every candidate plan of a program, in float64 by numpy alone: no Triton, no prices."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

import candidates
import numpy as np
from filled import arrays as fill
from handmade import by_hand
from in_numpy import ahead, awaits, execute, stuck
from judged import COUNTS, Failure, Found, differing, error, worst
from programs import Program
from sized import fit, shrunk
from ties import tied
from unsure import FLOAT64, Wobble, excess, on_grid, peak, wobbles
from values import Value, finite, results
from written import diagram as written_diagram

from napkin.algebra.law import advance, chunk_of, finished, merged, start
from napkin.count.traffic import Traffic
from napkin.cut.segments import Memo
from napkin.derive.kernel import Kernel, leaves, tensor_of
from napkin.derive.rules.ahead import AHEAD, in_chunks_ahead
from napkin.derive.rules.part import why_not_parted
from napkin.derive.rules.scan_parts import in_scanned_parts, scanned, why_not_scanned
from napkin.diagram.diagram import Diagram
from napkin.diagram.interface import Output
from napkin.ir.evaluate import aligned, evaluate, evaluate_more
from napkin.ir.node import FLOOR, Node, factors, number, over, postorder
from napkin.ir.slotted import guard
from napkin.ir.taking import table_of
from napkin.ir.walk import order_of

TOLERANCE = 1e-9
"""Of float64, by norm."""

NUDGE = 1e-12
"""How far inputs are moved to see how sensitive a result is."""

RUNS = 60
"""Runs of heavy terms that are tried of a program, about: a few have thousands."""

VALUES = 2**15
"""Values of the largest array of a program, about: of larger ones the sizes are made smaller."""

EMPTY = 0.15
"""How often an axis has no positions."""

BY_HAND = 0.3
"""How often a person's labels are tried, too."""

ROUNDING = 2.0**-53
"""Of float64, relative."""

SUMMED = 12
"""Times that sums are moved: a step turns in half of them."""

SLACK = 10.0
"""How much further than by that nudge a result may be off: rounding is ten thousand times less."""


def algebra(program: Program, seed: int) -> None:
    """Raises `Found` where a candidate plan of a program has not its independent value: at its
    sizes, or smaller ones, and sometimes without positions along an axis."""
    diagram = written_diagram(program)
    forms = list(candidates.terms(diagram, squared=not program.hard))
    sizes = _smaller(program, forms, seed)
    _Algebra(program, diagram, forms, sizes, seed).check()
    rng = random.Random(seed)
    if program.sizes and rng.random() < EMPTY:
        empty = fit(program, {**sizes, rng.choice(list(program.sizes)): 0})
        if empty is not None and finite(program, fill(program, empty, seed), empty):
            _Algebra(program, diagram, forms, empty, seed).check()


def _smaller(program: Program, forms: Sequence[candidates.Term], seed: int) -> dict[str, int]:
    """The sizes of a program, and smaller ones where an array of one of its forms has more than
    `VALUES`: what takes long is its numbers then, and not its algebra."""
    found = shrunk(program, program.sizes, lambda sizes: _largest(forms, sizes) <= VALUES)
    if found in (None, program.sizes):
        return dict(program.sizes)
    small, large = (finite(program, fill(program, s, seed), s) for s in (found, program.sizes))
    if large and not small:
        return dict(program.sizes)
    COUNTS["programs at smaller sizes"] += 1
    return found


def _largest(forms: Sequence[candidates.Term], sizes: Mapping[str, int]) -> int:
    """Values of the largest array of the forms of a program."""
    each = ((f.sizes(sizes), n) for f in forms for n in postorder(o.node for o in f.outputs))
    return max(math.prod([known[a] for a in n.axes]) for known, n in each)


class _Algebra:
    def __init__(
        self,
        program: Program,
        diagram: Diagram,
        forms: Sequence[candidates.Term],
        sizes: Mapping[str, int],
        seed: int,
    ) -> None:
        self.rng, self.seed = random.Random(seed), seed
        self.program, self.diagram, self.forms = program, diagram, forms
        self.sizes = dict(sizes)
        data = fill(program, self.sizes, seed)
        self.arrays = {i.name: a for i, a in zip(program.inputs, data, strict=True)}
        self.wanted = results(program, data, self.sizes)
        self.scalars = self.diagram.check_scalars({})
        self.tied = tied(program, data, self.sizes)
        self.failed: list[Failure] = []
        self.seen: set[object] = set()

    def check(self) -> None:
        """Tries everything, and raises the worst."""
        if self.tied:
            COUNTS["equal values are ranked"] += 1
            return
        self._evaluated()
        alike = Memo("fp32", candidates.H100)
        for term in self.forms:
            sizes = term.sizes(self.sizes)
            values = candidates.Values(self.arrays, sizes, self.scalars)
            self._compared(map(values.output, term.outputs), "rewriting", term.law)
            for run in candidates.runs(
                term, sizes, alike, self.rng, max(8, RUNS // len(self.forms))
            ):
                self._run(run, term, values, sizes)
        self._by_hand()
        if self.failed:
            raise Found(worst(self.failed))

    def _by_hand(self) -> None:
        """The labels of a person, where the diagram is one kernel."""
        rng = random.Random(f"by hand {self.seed}")
        kernel = by_hand(self.diagram, rng) if rng.random() < BY_HAND else None
        if kernel is not None:
            wanted = dict(zip((o.name for o in self.diagram.outputs), self.wanted, strict=True))
            own = {o.name: wanted[o.name] for o in kernel.origin}
            about = f"by hand: {labels(kernel)}"
            candidate = _Candidate(kernel, self.arrays, self.sizes, self.scalars, about)
            candidate.check(own, rng)

    def _evaluated(self) -> None:
        found = self.diagram.evaluate(*self.arrays.values())
        found = found if isinstance(found, tuple) else (found,)
        self._compared(found, "evaluate")

    def _compared(self, found: Iterable[np.ndarray], how: str, law: str = "") -> None:
        """Compare outputs that were found somehow, further than rounding moves them."""
        for i, (f, w) in enumerate(zip(found, self.wanted, strict=True)):
            if how == "rewriting":  # sums in another order, in which 0 * inf may meet
                f = np.where(np.isnan(f) & np.isinf(w), w, f)
            if error(f, w) > TOLERANCE and excess(f, w, self.wobbles[i]) > TOLERANCE:
                said = f"{law} {self.diagram.outputs[i].name}: {differing(f, w)}"
                raise Found("wrong value", how, said.strip())

    @cached_property
    def wobbles(self) -> list[Wobble]:
        """What roundings in float64 make of each output: another order of sums turns a step of
        values that lie on its edge."""
        data = list(self.arrays.values())
        return wobbles(self.program, data, self.sizes, self.wanted, ROUNDING, FLOAT64)

    def _run(self, run, term, values, sizes: Mapping[str, int]) -> None:
        node_of = candidates.node_of(run.pieces)
        laid = {o.name: o.axes for o in run.pieces.outputs}
        for known, names in run.segment.runs:
            held = tuple(node_of.get(t, t) for t in names)
            under = postorder(n for n in held if isinstance(n, Node))
            key = known, held, frozenset((a, sizes[a]) for n in under for a in n.axes)
            if key in self.seen:  # the same kernels on the same arrays, by whatever names
                continue
            self.seen.add(key)
            ready: dict[Node, np.ndarray] = {}
            ours = dict(zip(known.first, names, strict=True))
            for kernel in known.search.kernels:
                every = _read(kernel) | _needed(kernel)
                read = {t: node_of[ours[t]] for t in every if ours[t] in node_of}
                arrays = {
                    t: aligned(values.of(n), n.axes, laid.get(ours[t]) or run.pieces.axes_of(n))
                    if (n := read.get(t))
                    else self.arrays[ours[t]]
                    for t in every
                }
                wanted = {
                    o.name: aligned(values.of(n), n.axes, o.axes)
                    for o in kernel.origin
                    for n in [node_of[ours[o.name]]]
                }
                about = f"{term.law}; terms {run.first}..{run.last}; {labels(kernel)}"
                try:
                    tried = _Candidate(kernel, arrays, sizes, self.scalars, about, ready)
                    tried.check(wanted, self.rng)
                except Found as found:
                    self.failed.append(found.failure)


def _read(kernel: Kernel) -> set[str]:
    """The tensors that a kernel reads."""
    return {a.tensor for a in kernel.reads}


def _needed(kernel: Kernel) -> set[str]:
    """The tensors that its results are of, some of which may cancel."""
    return {tensor_of(n) for n in leaves(o.node for o in kernel.origin)}


class _Candidate:
    """One labelled kernel, what it reads, and values of terms that others on it had, too."""

    def __init__(self, kernel: Kernel, arrays, sizes, scalars, about: str, ready=None) -> None:
        self.kernel, self.arrays, self.sizes = kernel, arrays, sizes
        self.scalars, self.about = scalars, about
        self.ready: dict[Node, np.ndarray] = {} if ready is None else ready

    def check(self, wanted: Mapping[str, np.ndarray], rng: random.Random) -> None:
        """Run at some tiles."""
        tiles = candidates.tiling(self.kernel, self.sizes, rng)
        ran = execute(self.kernel, self.arrays, self.sizes, tiles, self.scalars, self.ready)
        for name, want in wanted.items():
            given = self._excused(ran.outputs[name], want, ran.stuck)
            off = error(given, want)
            if off <= TOLERANCE or off <= self._allowed(tiles, name):
                continue
            if self._beyond_sums(given, want, name) > TOLERANCE:
                said = f"{self.about}, tiles {tiles}: {name} {differing(ran.outputs[name], want)}"
                raise Found("wrong value", f"kernel {how(self.kernel)}", said)
        bind = candidates.read_by(self.kernel, self.arrays)
        predicted = Traffic(self.kernel).values(self.sizes, tiles, bind)
        # What is read or stored at computed addresses is counted in the interpreter.
        placed = any(a.leaf.args for a in self.kernel.reads) or any(
            o.node.op == "compress" for o in self.kernel.outputs
        )
        if ran.total != predicted and not placed:
            said = f"{self.about}, tiles {tiles}: {predicted} predicted, {ran.total} moved"
            raise Found("wrong bytes", f"kernel {how(self.kernel)}", said)
        self._merged(wanted, rng, tiles)

    def _excused(self, found: np.ndarray, wanted: np.ndarray, stuck: bool) -> np.ndarray:
        """What was found, but for what docs/semantics.md leaves open: NaN of sums that follow what
        is no number or infinite, and of sums in another order in place of an infinity, 0 of
        exponentials that a choice may leave out, and a number where one that is none cancels."""
        tails = postorder(e.node for e in self.kernel.stream.tails)
        other = not self.about.startswith("as it is")
        fine = np.isnan(found) & (stuck | (other & np.isinf(wanted)))
        if any(n.op == "greater" and number(FLOOR) in n.args for n in tails):
            fine |= (found == 0) & np.isnan(wanted)
        if _needed(self.kernel) - _read(self.kernel):
            fine |= np.isnan(wanted)
        return np.where(fine, wanted, found)

    def _allowed(self, tiles: Mapping[str, int], name: str) -> float:
        """How far a result may be off: further than moving what the kernel reads moves it, there or
        back, for a step turns one way alone."""
        return SLACK * max(self._moved(tiles, name, by) for by in (NUDGE, -NUDGE))

    def _beyond_sums(self, found: np.ndarray, wanted: np.ndarray, name: str) -> float:
        """How far a result is off beyond what roundings of sums make of it: a mean of equal values
        is one of them to rounding alone, wherever they lie."""
        (root,) = (o for o in self.kernel.origin if o.name == name)
        exact = self._summed(root, 0.0, 0)
        wobble = Wobble.none(exact)
        for seed in range(SUMMED):
            wobble = wobble.beside(exact, self._summed(root, NUDGE, seed))
        return excess(found, wanted, wobble)

    def _summed(self, output: Output, by: float, seed: int) -> np.ndarray:
        """A result where every sum is moved, or with the first seed, rounded: what cancels is 0."""
        rng = np.random.default_rng(seed)
        known = {table_of(n): self.arrays[tensor_of(n)] for n in leaves([output.node])}
        for n in order_of((output.node,), frozenset(known)):
            (value,) = evaluate_more([n], known, self.sizes, self.scalars)
            if n.op in {"sum", "either"} and value.dtype.kind == "f":
                if n.op == "either":
                    size = peak(Value(n.args[0].axes, known[n.args[0]]), over(n), n.axes)
                else:
                    large = {p: np.abs(known[p]) for p in factors(n.args[0])}
                    (size,) = evaluate([n], large, self.sizes, self.scalars)
                moved = value + by * size * rng.uniform(-1, 1, value.shape)
                known[n] = moved if seed else on_grid(value, by * size)
        made = aligned(known[output.node], output.node.axes, output.axes)
        return np.broadcast_to(made, [self.sizes[a] for a in output.axes])

    def _moved(self, tiles: Mapping[str, int], name: str, by: float) -> float:
        found = execute(self.kernel, self.arrays, self.sizes, tiles, self.scalars).outputs[name]
        rng = np.random.default_rng(0)
        near = {
            t: x * (1 + by * rng.uniform(-1, 1, x.shape)) if x.dtype.kind == "f" else x
            for t, x in self.arrays.items()
        }
        moved = execute(self.kernel, near, self.sizes, tiles, self.scalars).outputs[name]
        off = error(moved, found)
        return off if np.isfinite(off) else 0.0

    def _merged(
        self, wanted: Mapping[str, np.ndarray], rng: random.Random, tiles: Mapping[str, int]
    ) -> None:
        """Parts that are folded apart merge to the whole; the last may be short, or empty."""
        kernel, sizes, scalars = self.kernel, self.sizes, self.scalars
        moved = any(o.node.op == "compress" for o in kernel.outputs)
        scans, paired = not why_not_scanned(kernel), [*AHEAD.matches(kernel, 3)]
        if (why_not_parted(kernel) and not scans and not paired) or moved:
            return
        if any(guard(a.leaf) for a in kernel.reads):
            return
        stream, (step,) = kernel.stream, kernel.stream.passes
        known = kernel.sized(sizes)
        length = known[stream.axes[0]]
        share = max(1, -(-length // rng.choice((2, 3))))
        parts = [range(min(k * share, length), min((k + 1) * share, length)) for k in range(3)]
        lengths = [len(p) for p in parts]
        read = [a.leaf for a in kernel.reads if not awaits(a.leaf)]
        tables = candidates.read_by(kernel, self.arrays)
        reads = dict(zip(read, evaluate(read, tables, sizes, scalars), strict=True))
        bind = tables | reads | ahead(kernel, stream.axes, reads, sizes, scalars, self.ready)
        alone = scanned(kernel, 3) if scans else ()
        ways = [(alone, in_scanned_parts(alone, bind, parts, known, scalars))] if alone else []
        if paired:  # a chunk has as many positions, at most, as are paired
            each = min(share, stream.twin.length)
            short = [range(i, min(i + each, length)) for i in range(0, length, each)] or parts[:1]
            ways += [(x.made, in_chunks_ahead(x.made, bind, short, known, scalars)) for x in paired]
        COUNTS["scans in parts"] += scans
        COUNTS["chunks ahead"] += len(paired)
        odd = not all(np.isfinite(x).all() for x in self.arrays.values())
        for made, found in ways:
            for e in made[-1].stream.emits:
                axes = next(o.axes for o in kernel.outputs if o.name == e.output)
                value = aligned(found[e.output], e.node.axes, axes)
                self._held(e.output, value, wanted[e.output], tiles, lengths, odd)
        if ways:
            return
        joined = start(step, known)
        for part in parts:
            chunk = {stream.axes[0]: part}
            own = start(step, known)
            own, _ = advance(step, own, chunk_of(bind, chunk), chunk, sizes, scalars)
            joined = merged(step, joined, own, sizes, scalars, bind)
        found = finished(stream, joined, bind, sizes, scalars)
        tails = {e.output: e.node for e in stream.tails}
        for o in (o for o in kernel.outputs if o.name in tails):  # others are stored as it streams
            tail = tails[o.name]
            shape = wanted[o.name].shape
            value = np.broadcast_to(aligned(found[o.name], tail.axes, o.axes), shape)
            self._held(o.name, value, wanted[o.name], tiles, lengths, stuck(step, joined))

    def _held(self, name: str, value, wanted, tiles, lengths: Sequence[int], stuck: bool) -> None:
        """Hold what parts of some lengths give to what is wanted."""
        given = self._excused(value, wanted, stuck)
        off = error(given, wanted)
        if off <= 1e-7 or off <= self._allowed(tiles, name):
            return
        if self._beyond_sums(given, wanted, name) > TOLERANCE:
            said = f"{self.about}, parts {lengths}: {name} {differing(value, wanted)}"
            raise Found("wrong value", f"merge {how(self.kernel)}", said)


def labels(kernel: Kernel) -> str:
    """The labels of a kernel, in words."""
    split = f", split {' '.join(s.axis for s in kernel.splits)}" if kernel.splits else ""
    return f"stream {kernel.stream.axis or 'nothing'} in {len(kernel.stream.passes)}{split}"


def how(kernel: Kernel) -> str:
    """What kind of kernel it is."""
    n = len(kernel.stream.axes)
    held = sorted({s.held for p in kernel.stream.passes for s in p.states})
    said = f"streams {n} in {len(kernel.stream.passes)}" if n else "streams nothing"
    visits = " visits" if kernel.visits is not None else ""
    return f"{said} {'/'.join(held)}{visits}{' split' if kernel.splits else ''}".strip()


def kind(k) -> str:
    """What kind of kernel it is as it was planned."""
    more = " part" if k.choice.kernel.part else " merge" if k.choice.kernel.merges else ""
    return how(k.choice.kernel) + more + (" boxes" if k.schedule.described else "")
