"""Kernels in Triton's interpreter, in this very process: values and bytes of plans.

Of each program plans that are drawn at random (`forced`), and every few programs the planner's own
for large sizes, run at small ragged ones.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from unittest import mock

import alone  # and torch, before processes are forked
import bounds
import numpy as np
from algebra import kind
from candidates import squares
from drawing import BOUNDED, ENDS, KINDS, SCARCE, SEVERAL, SHARED
from filled import arrays as fill
from forced import Forcing, plans
from handmade import by_hand
from judged import COUNTS, Found, differing, error, reordered
from otherwise import allowed, leaves_fp16
from programs import Program
from sized import fit, held
from traits import saw
from unsure import MANY, SAMPLES, excess, held_in, wobbles
from values import finite, results, wrapped
from written import diagram as written_diagram

import napkin.run.interpret as interpreting
from napkin.algebra import rule
from napkin.check.rounding import roundings
from napkin.check.verdict import HALF_STEP, TOLERANCE
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.node import over, postorder
from napkin.ir.storage import own_type, storage_type
from napkin.plan import fitting
from napkin.plan.derive import derive
from napkin.plan.plan import Plan
from napkin.run import _interpreter
from napkin.run.arrays import to_device
from napkin.run.interpreted import SPELLING, Ran, run_recipe

PLANS = 2
"""Plans that are drawn for each program."""

WIDE = 17
"""Length of an axis from which groups are tried as warpgroups."""

SPECIALISED = 8
"""Plans among which one with warpgroups is looked for."""

OFTEN = 24
"""The same from `SCARCE` on."""

SHORT = 3
"""Programs of which one has a plan in 16 bits, of kernels whose groups are by themselves."""

EVERY = 0.3
"""How often the planner stores every array between reductions."""

SQUARES = 0.6
"""How often it multiplies squared differences out, where there are some."""

EMPTY = 0.08
"""How often an axis has no positions."""

LONG = 0.3
"""How often an axis is long."""

ALONE = 5
"""Programs of which one's plans run as files of their own too."""

VERIFIED = 16
"""Programs of which one's rules are held to their laws."""

HANDMADE = 5
"""Programs of which one runs with labels that a person gives."""

DERIVED = 7
"""Programs of which one's gradient runs."""

LASTING = 300
"""Groups times chunks of a plan, at most: an interpreter takes 10 ms for each (`turns`)."""

MOST = 1000
"""The same of any plan."""

SCANNED = 100
"""Values of a recurrence that an interpreter, which goes from one to the next, takes as long for as
for a chunk."""

COMPARED = 10
"""Rounds of a sort of which the same holds: n positions take log n (log n + 1) / 2."""

EDGES = (31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257)
"""Lengths of such an axis: those of tiles, one less and one more."""

SENSITIVE = 50.0
"""How much further than by rounding its inputs once a result may be off."""


class _Here:
    """The interpreter in this process, in the place of a child."""

    def call(self, launch, timeout: float | None = None):
        """Run a launch."""
        return _interpreter.handle(launch)


interpreting.start = _Here


def interpret(program: Program, seed: int) -> None:
    """Raises `Found` where a plan of a program is wrong in the interpreter; of some programs, also
    where an application of a rule breaks its law."""
    with mock.patch.object(rule, "VERIFYING", rule.VERIFYING or verified(seed)):
        if SHARED <= seed < ENDS:
            import slopes  # which reads this file

            slopes.trained(program, seed)
        else:
            interpreted(program, seed)


def verified(seed: int) -> bool:
    """Whether the rules that a seed applies are held to their laws."""
    return seed >= KINDS and seed % VERIFIED == 3


def interpreted(program: Program, seed: int) -> None:
    """Raises `Found` where a plan of a program is wrong in the interpreter."""
    rng, begun = random.Random(seed), time.process_time()
    diagram = written_diagram(program)
    for sizes in (dict(program.sizes), ragged(program, rng)):
        if sizes is None:
            continue
        many = PLANS if seed < SCARCE else 1
        for plan in plans(diagram, sizes, "fp32", rng, many, seed >= KINDS):
            COUNTS["plans that add in memory"] += bool(plan.accumulates)
            Case(program, plan, sizes, seed).check()
    if seed >= KINDS and seed % SHORT == 0:
        for plan in plans(diagram, program.sizes, rng.choice(("bf16", "fp16")), rng, 1, True):
            Case(program, plan, program.sizes, seed).check()
    if seed % 4 == 0:
        planned(program, diagram, seed)
    if (seed % 4 or seed >= KINDS) and large_enough(program):
        specialised(
            diagram, program.sizes, seed, rng, lambda p, n, fast: Case(program, p, n, seed, fast)
        )
    if seed >= KINDS and seed % HANDMADE == 2:
        handmade(program, diagram, seed, rng)
    if seed >= SEVERAL and seed % DERIVED == 3:
        import slopes  # which reads this file

        slopes.slopes(program, seed, begun)


def handmade(program: Program, diagram, seed: int, rng: random.Random) -> None:
    """The plan of one kernel whose labels a person gives, where one can compute the diagram."""
    kernel = by_hand(diagram, rng)
    if kernel is None:
        return
    plan = Forcing(diagram, program.sizes, "fp32", rng, True).of(kernel)
    if plan is not None:
        COUNTS["plans by hand"] += 1
        Case(program, plan, program.sizes, seed).check()


def large_enough(program: Program) -> bool:
    """Whether groups are tried as warpgroups."""
    return any(n >= WIDE for n in program.sizes.values())


def specialised(
    diagram,
    sizes: Mapping[str, int],
    seed: int,
    rng: random.Random,
    case: Callable[..., Case],
    patient: bool = False,
) -> None:
    """A plan with kernels of warpgroups, if one is drawn."""
    dtype = rng.choice(("bf16", "fp16"))
    forcing = Forcing(diagram, sizes, dtype, rng, seed >= KINDS, patient)
    often = seed >= SCARCE and not patient
    most = OFTEN if often else SPECIALISED // 4 if patient else SPECIALISED
    tried = (forcing.plan(seed >= KINDS and i % 2 == 0) for i in range(most))
    found = (p for p in tried if p is not None and p.given)
    plan = next(found, None)
    if plan is None:
        return
    COUNTS["plans with warpgroups"] += 1
    case(plan, sizes, True).check()
    if seed >= KINDS and most == SPECIALISED:
        list(found)  # more are drawn, for why kernels do not run as warpgroups


def ragged(program: Program, rng: random.Random) -> dict[str, int] | None:
    """Sizes about the tiles that kernels have: one less and more than 16, primes, 1; None where the
    program has no axis, or none fit, or what fits is large."""
    if not program.sizes:
        return None
    choices = (1, 2, 3, 5, 7, 15, 16, 17, 13, 11)
    root = {a: rng.choice(choices) for a in program.sizes}
    if rng.random() < EMPTY:
        root[rng.choice(list(root))] = 0
    elif rng.random() < LONG:
        root[rng.choice(list(root))] = rng.choice(EDGES)
    sizes = fit(program, root)
    while sizes and np.prod([float(n) for n in sizes.values()]) > 2e6:
        largest = max(root, key=root.__getitem__)
        if root[largest] == 1:  # windows want more
            return None
        root[largest] //= 2
        sizes = fit(program, root)
    return sizes


def planned(program: Program, diagram, seed: int) -> None:
    """The planner's own plan for large sizes on one of three machines, at small ones; sometimes
    with every array between reductions stored."""
    large = fit(program, dict.fromkeys(program.sizes, 2048) | dict.fromkeys(held(program), 64))
    rng = random.Random(seed)
    bytes8 = any(own_type(n) == "fp8" for n in postorder(diagram.roots))
    on = rng.choice(("h100", "b200") if bytes8 else ("h100", "h100", "a100", "b200"))
    stored = "every" if rng.random() < EVERY else None
    any_type = seed >= BOUNDED or (seed >= KINDS and stored)
    dtype = rng.choice(("fp32", "bf16", "fp16")) if any_type else "fp32"
    square = squares(diagram) and not program.hard and rng.random() < SQUARES
    with mock.patch.object(fitting, "available", return_value=False):  # nothing is launched
        how = {"materialise": stored, "multiply_out": square, "deterministic": seed < KINDS}
        try:
            with bounds.drawn(rng) if seed >= BOUNDED else nullcontext():
                plan = derive(diagram, on, large, dtype, **how)
        except Refusal:
            if stored is None:
                raise
            COUNTS["refused with every array stored"] += 1  # a scan of scores under a key set
            return
    sizes = dict(program.sizes)
    while turns(plan, sizes) > LASTING and max(sizes.values()) > 1:
        if (smaller := halved(program, sizes)) is None:
            COUNTS["plans for large sizes that take long"] += 1
            return
        sizes = smaller
    if too_short(plan, sizes):
        COUNTS["plans for large sizes whose tiles are too short"] += 1
        return
    Case(program, plan, sizes, seed).check()


def too_short(plan: Plan, sizes: Mapping[str, int]) -> bool:
    """Whether a kernel's tiles hold an axis whole that is longer at these sizes: windows may be
    many where taps are few."""
    full = plan.full(sizes)
    return any(
        full.get(a, 0) > k.tiles[a]
        for k in plan.kernels
        for a in k.choice.kernel.whole
        if a in k.tiles
    )


def halved(program: Program, sizes: Mapping[str, int]) -> dict[str, int] | None:
    """Sizes of which the longest that can be is half as long; None where none can."""
    for a in sorted(sizes, key=sizes.__getitem__, reverse=True):
        smaller = fit(program, {**sizes, a: sizes[a] // 2}) if sizes[a] > 1 else None
        if smaller is not None and sum(smaller.values()) < sum(sizes.values()):
            return smaller
    return None


def turns(plan: Plan, sizes: Mapping[str, int]) -> float:
    """Groups of a plan's kernels times their chunks, each as many as its scans take as long as."""
    out = 0.0
    for k in plan.kernels:
        kernel, known = k.choice.kernel, k.choice.kernel.sized(plan.full(sizes))
        cut = (*kernel.group, *kernel.stream.axes)
        each = 1.0
        for n in postorder(k.program.roots):
            length = math.prod(k.tiles.get(a, 1) for a in over(n))
            values = math.prod(k.tiles.get(a, 1) for a in n.axes)
            rounds = length.bit_length() - 1
            each += values / SCANNED if n.op == "recurrence" else 0
            each += rounds * (rounds + 1) / 2 / COMPARED if n.op == "sort" else 0
        out += each * math.prod([-(-known[a] // k.tiles[a]) for a in cut])
    return out


class Case:
    """A plan at some sizes."""

    def __init__(
        self,
        program: Program,
        plan: Plan,
        sizes: Mapping[str, int],
        seed: int,
        specialised: bool = False,
    ) -> None:
        self.program, self.plan, self.sizes, self.seed = program, plan, sizes, seed
        self.specialised = specialised
        data = fill(program, sizes, seed)
        self.inputs = {
            str(n.params[0]): to_device(x, SPELLING[storage_type(n, plan.dtype)])
            for n, x in zip(plan.diagram.inputs, data, strict=True)
        }
        self.data = [a.to_float64() for a in self.inputs.values()]
        self.wanted = results(program, self.data, sizes)

    def check(self) -> None:
        """Run it, and compare values and bytes, where that does not take long."""
        if turns(self.plan, self.sizes) > MOST:
            COUNTS["plans that take long"] += 1
            return
        scalars = self.plan.diagram.check_scalars({})
        ran = run_recipe(self.plan.recipe, self.inputs, self.sizes, scalars, self.specialised)
        COUNTS["kernels run"] += len(self.plan.kernels)
        COUNTS["kernels of warpgroups run"] += sum(ran.specialised)
        for k, warpgroups in zip(self.plan.kernels, ran.specialised, strict=True):
            saw(k, self.plan.full(self.sizes), warpgroups)
        for i, o in enumerate(self.plan.diagram.outputs):
            self._value(i, o.name, ran)
            self._type(o, ran)
        self._bytes(ran)
        if self.seed % ALONE == 1 and not self.specialised:
            self._alone(ran)

    def _alone(self, ran: Ran) -> None:
        """The function `run` of the plan's own file gives the same bits."""
        try:
            found = alone.results(self.plan, self.inputs)
        except ZeroDivisionError:  # Python has no 1 / 0
            if 0 not in self.sizes.values():
                raise
            COUNTS["files that divide by a size of 0"] += 1
            return
        COUNTS["files run"] += found is not None
        for t, bits in zip(self.plan.recipe.results, found or (), strict=found is not None):
            if not np.array_equal(bits, ran.tensors[t].data, equal_nan=bits.dtype.kind == "f"):
                said = f"{self.about()}: {t} {differing(bits, ran.tensors[t].data)}"
                raise Found("wrong value", "file that runs alone", said)

    def _value(self, i: int, name: str, ran: Ran) -> None:
        found, wanted = ran.tensors[self.plan.tensor_of[name]].to_float64(), self.wanted[i]
        if any(given.strewn for given in self.program.inputs):
            found = reordered(found, wanted)
        types = roundings(self.plan, self.plan.tensor_of[name])
        limit = max(TOLERANCE[t] for t in types)
        if np.abs(wanted[np.isfinite(wanted)]).max(initial=0) > (6e4 if "fp16" in types else 1e30):
            return
        off = error(found, wanted)
        if off <= limit or wrapped(self.program, self.data, self.sizes)[i]:
            return
        numbers = np.isfinite(found).all() and np.isfinite(wanted).all()
        if (
            0 in self.sizes.values()
            and not numbers
            and not finite(self.program, self.data, self.sizes)
        ):
            return
        step = max(HALF_STEP[t] for t in types)
        moves = self._moves(i, step)
        if off <= SENSITIVE * moves:
            return
        if "fp16" in types and leaves_fp16(self.plan, ran, self.plan.full(self.sizes)):
            COUNTS["plans that leave fp16 between kernels"] += 1
            found = np.where(np.isfinite(found), found, wanted)
        held = held_in(types, self.plan)
        for samples in (SAMPLES, MANY):
            known = self.program, self.data, self.sizes
            moved = wobbles(*known, self.wanted, step, held, samples=samples)
            off = excess(found, wanted, allowed(*known, self.plan, moved, self.wanted)[i])
            if off <= limit:
                return
        category = "wrong value" if off > 100 * limit and off > 1e4 * moves else "imprecise"
        said = f"{self.about()}: {name} off by {off:.2g}, inputs move it by {moves:.2g}: "
        said += differing(found, wanted)
        raise Found(category, f"kernels {self.how()}", said)

    def _type(self, o: Output, ran: Ran) -> None:
        """Whether an output is stored in a type that its term says: scores may stay in float32."""
        own = SPELLING[storage_type(o.node, self.plan.dtype)]
        stored = ran.tensors[self.plan.tensor_of[o.name]].dtype
        if own_type(o.node) and stored != own:
            said = f"{self.about()}: {o.name} is stored in {stored}, and is {own}"
            raise Found("wrong bytes", "type of a result", said)

    def _moves(self, i: int, step: float) -> float:
        rng = np.random.default_rng(0)
        worst = 0.0
        for _ in range(3):
            near = [
                x * (1 + step * rng.uniform(-1, 1, x.shape)) if n.kind == "real" else x
                for n, x in zip(self.program.inputs, self.data, strict=True)
            ]
            off = error(results(self.program, near, self.sizes)[i], self.wanted[i])
            worst = max(worst, off) if np.isfinite(off) else np.inf
        return worst

    def _bytes(self, ran: Ran) -> None:
        given = {
            t: a.data
            for t, a in ran.tensors.items()
            if a.data.dtype.kind in "iu" and a.dtype != "bf16"
        }
        full = self.plan.full(self.sizes)
        own = zip(self.plan.kernels, self.plan.launched.kernels, ran.specialised, strict=True)
        kernels = [fast if specialised else plain for plain, fast, specialised in own]
        for k, counted, boxed in zip(kernels, ran.moved, ran.described, strict=True):
            wanted = k.bytes_at(full, given, boxed)
            predicted: dict[tuple[str, str], int] = {}
            for (t, way), n in wanted.items():
                key = (k.binding[t], str(way))
                predicted[key] = predicted.get(key, 0) + n
            passed = k.crossing_at(full, given) if all(full.values()) else {}
            if any(n < 0 for n in passed.values()):
                said = f"{self.about()}: {passed} pass between caches"
                raise Found("wrong bytes", f"caches, kernel {kind(k)}", said)
            for key in dict.fromkeys([*predicted, *counted]):
                both = predicted.get(key, 0), counted.get(key, 0)
                if both[0] != both[1]:
                    said = (
                        f"{self.about()}: {key[1]} {key[0]}: {both[0]} predicted, {both[1]} counted"
                    )
                    raise Found("wrong bytes", f"kernel {kind(k)}", said)

    def how(self) -> str:
        """What kinds of kernels there are."""
        return "; ".join(dict.fromkeys(kind(k) for k in self.plan.kernels))

    def about(self) -> str:
        """The plan in words."""
        each = [f"{k.name}: {kind(k)} {dict(k.tiles)}" for k in self.plan.kernels]
        return f"sizes {dict(self.sizes)}; {'; '.join(each)}"
