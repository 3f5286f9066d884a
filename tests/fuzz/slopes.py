"""Kernels of gradients in Triton's interpreter: values beside the gradient in float64, which mode
`gradient` holds to slopes, and bytes."""

from __future__ import annotations

import random
import time
from collections.abc import Mapping
from dataclasses import replace
from unittest import mock

import bounds
import numpy as np
from drawing import BOUNDED, TRAINED
from filled import arrays as fill
from forced import plans
from gradient import REFUSED, jittered
from interpret import Case, large_enough, specialised, too_short
from judged import COUNTS, Found, differing, error
from programs import Program
from sized import fit
from ties import tied
from values import DTYPE
from written import diagram as written_diagram

import napkin as nk
from napkin.check.rounding import roundings
from napkin.check.verdict import HALF_STEP
from napkin.cut.storing import check_stored
from napkin.derive.prepare import prepare
from napkin.ir.evaluate import aligned, evaluate_more
from napkin.ir.expansion import expanded
from napkin.ir.node import Node, postorder
from napkin.ir.storage import storage_type
from napkin.machine.machines import machine
from napkin.plan import fitting
from napkin.plan.plan import Plan
from napkin.run.arrays import to_device
from napkin.run.interpreted import SPELLING, Ran

OFF = 0.02
"""How far values may be off: a gradient is no program, of which every rounding is followed."""

MOVED = 30.0
"""How much further than by rounding every value that it is computed from."""


class Rounded(dict[Node, np.ndarray]):
    """Values of terms, each in float32 and moved by up to `step` of it where it is real: a sum of
    two by as much of the largest number that it is a sum of. A difference may be taken afterwards,
    of sums of both, and a pass computes again what another has rounded otherwise."""

    def __init__(self, known: Mapping[Node, np.ndarray], step: float, rng) -> None:
        super().__init__()
        self.step, self.rng, self.sizes = step, rng, dict[Node, np.ndarray]()
        for n, x in known.items():
            self[n] = x

    def __setitem__(self, n: Node, x: np.ndarray) -> None:
        near = x if n.kind == "real" else x.astype(DTYPE[n.kind])
        if n.kind == "real" and not n.constant and x.dtype.kind == "f":
            size = self.sizes[n] = self._size(n, x)
            near = x + self.step * size * self.rng.uniform(-1, 1, x.shape)
            near = near.astype(np.float32).astype(float)
        super().__setitem__(n, near)

    def _size(self, n: Node, x: np.ndarray) -> np.ndarray:
        size = np.where(np.isfinite(x), np.abs(x), 0)
        for a in n.args if n.op in {"add", "sub", "where"} else ():
            if a in self.sizes:
                size = np.maximum(size, aligned(self.sizes[a], a.axes, n.axes))
        return size


CAPPED = 1e3
"""An infinite score, where a softcap would cut it off: it may be NaN (docs/semantics.md)."""


LATE = 8.0
"""Seconds of a program after which no further plan of its gradient is tried."""


def slopes(program: Program, seed: int, begun: float) -> None:
    """Raises `Found` where a plan of the gradient of a program is wrong in the interpreter.

    Args:
        begun: the processor time at which the program was begun.
    """

    def late() -> bool:
        passed = time.process_time() - begun > LATE
        COUNTS["plans of gradients left, as a program takes long"] += passed
        return passed

    program, rng = replace(program, rules=()), random.Random(f"slopes {seed}")
    try:
        made = nk.gradient(written_diagram(program))
        check_stored(prepare(made), machine("h100"))  # drawn plans do not ask for this
    except (nk.Refusal, nk.InputError) as refused:
        if not any(w in str(refused) for w in (*REFUSED, "share a byte")):
            raise
        COUNTS["gradients refused"] += 1
        return
    if tied(program, fill(program, program.sizes, seed), program.sizes):
        return

    def case(plan: Plan, sizes: Mapping[str, int], warpgroups: bool = False) -> Case:
        return Slopes(program, made, plan, sizes, seed, warpgroups)

    known = {made.same_size.get(a, a): n for a, n in program.sizes.items()}
    sizes = {a: known[made.same_size.get(a, a)] for a in made.axes}
    for plan in () if late() else plans(made, sizes, "fp32", rng, 1, True, patient=True):
        COUNTS["plans of gradients"] += 1
        case(plan, sizes).check()
    if large_enough(program) and not late():
        specialised(made, sizes, seed, rng, case, patient=True)
    if seed >= BOUNDED and not late():
        with mock.patch.object(fitting, "available", return_value=False), bounds.drawn(rng):
            plan = nk.derive(made, "h100", sizes, "fp32", deterministic=False)
        COUNTS["own plans of gradients"] += 1
        case(plan, sizes).check()
    if seed >= TRAINED and not late():
        import trainings  # which reads this file

        trainings.training(program, made, seed)


def trained(program: Program, seed: int) -> None:
    """Raises `Found` where the planner's own plan of a gradient at large sizes, in which groups may
    add in memory, is wrong at small ones in the interpreter: as warpgroups where it has such."""
    rng = random.Random(f"trained {seed}")
    made = nk.gradient(written_diagram(program))
    wide = {a for a, n in program.sizes.items() if n > 2}
    long = {a for a in wide if program.sizes[a] not in (32, 64, 128)}
    wanted = {a: 4096 if a in long else n if a in wide else 64 for a, n in program.sizes.items()}
    large = fit(program, wanted) or dict(program.sizes)
    known = ({made.same_size.get(a, a): n for a, n in s.items()} for s in (large, program.sizes))
    large, sizes = ({a: s[made.same_size.get(a, a)] for a in made.axes} for s in known)
    with mock.patch.object(fitting, "available", return_value=False):  # nothing is launched
        plan = nk.derive(made, "h100", large, rng.choice(("bf16", "fp16")), deterministic=False)
    if too_short(plan, sizes):
        COUNTS["plans for large sizes whose tiles are too short"] += 1
        return
    given = {k.name: k.choice for k in plan.launched.kernels if k.schedule.warpgroups}
    COUNTS["plans of gradients with warpgroups"] += bool(given)
    COUNTS["of these, adding in memory"] += any(c.kernel.added for c in given.values())
    plan = replace(plan, given=given, specialised=False)
    Slopes(program, made, plan, sizes, seed, bool(given)).check()


class Slopes(Case):
    """A plan of a gradient at some sizes."""

    def __init__(
        self,
        program: Program,
        made: nk.Diagram,
        plan: Plan,
        sizes: Mapping[str, int],
        seed: int,
        specialised: bool,
    ) -> None:
        self.program, self.plan, self.sizes, self.seed = program, plan, sizes, seed
        self.specialised, self.made = specialised, made
        rng = np.random.default_rng(seed)
        data = [jittered(a, rng) for a in fill(program, program.sizes, seed)]
        if any(n.op == "tanh" for n in postorder(made.roots)):
            data = [np.nan_to_num(a, nan=np.nan, posinf=CAPPED, neginf=-CAPPED) for a in data]
        known = {i.name: a for i, a in zip(program.inputs, data, strict=True)}
        self.inputs = {}
        for n in made.inputs:
            given = known.get(str(n.params[0]))
            x = rng.normal(size=[sizes[a] for a in n.axes]) if given is None else given
            self.inputs[str(n.params[0])] = to_device(x, SPELLING[storage_type(n, plan.dtype)])
        self.data = [a.to_float64() for a in self.inputs.values()]
        self.wanted = self._evaluated(self.data)

    def _evaluated(self, data: list[np.ndarray]) -> list[np.ndarray]:
        found = self.made.evaluate(*data)
        return list(found) if isinstance(found, tuple) else [found]

    def _value(self, i: int, name: str, ran: Ran) -> None:
        tensor = self.plan.tensor_of[name]
        found, wanted = ran.tensors[tensor].to_float64(), self.wanted[i]
        if not all(np.isfinite(x).all() for x in self.data):
            found = np.where(np.isnan(found) & self._past(i), wanted, found)
        size = np.abs(wanted[np.isfinite(wanted)]).max(initial=0)
        off, types = error(found, wanted), roundings(self.plan, tensor)
        largest = 6e4 if "fp16" in types else 1e30
        if off <= OFF or size > largest or not np.isfinite(wanted).all():
            return
        step = max(HALF_STEP[t] for t in types)
        if off > MOVED * self._moves(i, step):
            said = f"{self.about()}: {name} off by {off:.2g}: {differing(found, wanted)}"
            raise Found("wrong value", f"kernels of a gradient: {self.how()}", said)

    def _past(self, i: int) -> np.ndarray:
        """Where a lane of zeros past the end of an axis makes an output NaN: an infinity meets it
        in a product, which an operator makes finite elsewhere (docs/semantics.md)."""
        o, found = self.made.outputs[i], np.zeros(self.wanted[i].shape, bool)
        own = {a: self.made.same_size.get(a, a) for a in self.made.axes}
        for longer in set(own.values()):
            one = {a: int(own[a] == longer) for a in own}
            pairs = zip(self.made.inputs, self.data, strict=True)
            padded = [np.pad(x, [(0, one[a]) for a in n.axes]) if n.axes else x for n, x in pairs]
            try:
                with np.errstate(all="ignore"):
                    out = self._evaluated(padded)
            except nk.InputError:  # its sizes go by others
                continue
            found |= np.isnan(out[i][tuple(slice(self.sizes[a]) for a in o.axes)])
        return found

    def _moves(self, i: int, step: float) -> float:
        rng, worst, o = np.random.default_rng(0), 0.0, self.made.outputs[i]
        root = expanded([o.node])[o.node]
        names = (str(n.params[0]) for n in self.made.inputs)
        by_name = dict(zip(names, self.data, strict=True))
        scalars = self.made.check_scalars({})
        bind = {n: by_name[str(n.params[0])] for n in postorder([root]) if n.op == "input"}
        for _ in range(4):
            (found,) = evaluate_more([root], Rounded(bind, step, rng), self.sizes, scalars)
            shape = [self.sizes[a] for a in o.axes]
            off = error(np.broadcast_to(aligned(found, root.axes, o.axes), shape), self.wanted[i])
            worst = max(worst, off) if np.isfinite(off) else np.inf
        return worst
