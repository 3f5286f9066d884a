"""Forwards and backwards that are planned together (`nk.training`), in Triton's interpreter: the
backward reads what the forward has stored, in the types in which it did."""

from __future__ import annotations

import copy
import random
from collections.abc import Mapping
from unittest import mock

import bounds
from interpret import MOST, too_short, turns
from judged import COUNTS
from programs import Program
from sized import held, longest, shrunk
from slopes import Slopes
from written import diagram as written_diagram

import napkin as nk
from napkin.errors import Refusal
from napkin.plan import fitting
from napkin.plan.keeping import Kept, Pairs
from napkin.plan.plan import Plan
from napkin.plan.training import Training
from napkin.run.interpreted import Ran, run_recipe

SOME = 0.5
"""How often what is kept is drawn, and each array of what may be."""

LARGE_AXES = 5
"""Axes of a program that is planned for large sizes, at most: two searches of more take 10 s."""

VALUES = 2**32
"""Values of one array of a program that is planned for large sizes, at most: 8 GiB in 16 bits."""

MOST_BYTES = 4096
"""Bytes that may be kept, at most, where they are bounded."""


def training(program: Program, made: nk.Diagram, seed: int) -> None:
    """Raises `Found` where a program's training is wrong at its own sizes, for which or for large
    ones it is planned; what is kept is drawn, or the planner's choice under drawn bounds.

    Args:
        made: the gradient of the program.
    """
    rng = random.Random(f"training {seed}")
    keep = rng.choice(("fastest", "least", rng.randrange(MOST_BYTES)))
    dtype = rng.choice(("fp32", "fp32", "bf16", "fp16"))
    best, sizes = Pairs.best, dict(program.sizes)
    if rng.random() < SOME and len(program.sizes) <= LARGE_AXES:
        large = dict.fromkeys(program.sizes, 2048) | dict.fromkeys(held(program), 64)
        sizes = shrunk(program, large, lambda of: longest(program, of) <= VALUES) or sizes

    def drawn(pairs: Pairs) -> Kept:
        return pairs._read(tuple(k for k in pairs.keepable if rng.random() < SOME))

    chosen = drawn if rng.random() < SOME else best
    with (
        mock.patch.object(fitting, "available", return_value=False),  # nothing is launched
        mock.patch.object(Pairs, "best", chosen),
        bounds.drawn(rng),
    ):
        try:
            found = nk.training(
                written_diagram(program), None, keep, sizes=sizes, dtype=dtype,
                deterministic=rng.random() < SOME,
            )  # fmt: skip
        except Refusal:
            if chosen is best and sizes == program.sizes:
                raise
            COUNTS["drawn trainings refused"] += 1
            return
    each = [(p, of(p.diagram, known(program, made))) for p in (found.forward, found.backward)]
    if max(turns(p, own) for p, own in each) > MOST:
        COUNTS["trainings that take long"] += 1
        return
    if any(too_short(p, own) for p, own in each):
        COUNTS["plans for large sizes whose tiles are too short"] += 1
        return
    COUNTS["trainings"] += 1
    COUNTS["arrays kept"] += len(found.kept)
    Trained(program, made, found, seed).check()


class Trained(Slopes):
    """The backward of a training, which reads what the forward has stored."""

    def __init__(self, program: Program, made: nk.Diagram, found: Training, seed: int) -> None:
        sizes = known(program, made)
        super().__init__(program, made, found.backward, of(made, sizes), seed, False)
        self.sizes = self.sizes | of(found.backward.diagram, sizes)
        ahead = copy.copy(self)
        ahead.plan, ahead.sizes = found.forward, of(found.forward.diagram, sizes)
        names = [str(n.params[0]) for n in found.forward.diagram.inputs]
        given, scalars = {n: self.inputs[n] for n in names}, found.forward.diagram.check_scalars({})
        ran = run_recipe(found.forward.recipe, given, ahead.sizes, scalars)
        ahead._bytes(ran)
        self._given(ran, found.forward)

    def _given(self, ran: Ran, forward: Plan) -> None:
        """Take over what the forward has stored."""
        for n in self.plan.diagram.inputs:
            name = str(n.params[0])
            if name in forward.tensor_of:
                self.inputs[name] = ran.tensors[forward.tensor_of[name]]


def known(program: Program, made: nk.Diagram) -> dict[str, int]:
    """The sizes of a program, and of the axes that stand for its own in a diagram."""
    roots = {made.same_size.get(a, a): n for a, n in program.sizes.items()}
    return roots | dict(program.sizes)


def of(diagram: nk.Diagram, known: Mapping[str, int]) -> dict[str, int]:
    """The sizes of the axes of a diagram."""
    return {a: known[a if a in known else diagram.same_size[a]] for a in diagram.axes}
