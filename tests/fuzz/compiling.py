"""The planner's own plans at large sizes: compiled ahead of time for three architectures, and held
to the shared memory of their machine."""

from __future__ import annotations

import atexit
import os
import random

import sources
from drawing import KINDS
from judged import Found, plain
from programs import Program
from sized import fit, held
from written import diagram as written_diagram

from napkin.check.verdict import compiled
from napkin.ir.node import postorder
from napkin.ir.storage import own_type
from napkin.machine.machines import machine
from napkin.plan.derive import derive
from napkin.plan.fitting import at_most, job_of
from napkin.plan.plan import Plan
from napkin.plan.planned import distinct
from napkin.run import _compiler  # before processes are forked
from napkin.run.compile import allocations

SIZES = (64, 256, 1000, 1024, 2048, 4096, 1, 17, 63, 129, 1025, 8191)
"""Sizes of axes, of which windows and key sets may want others."""

HELD = 64
"""Size of an axis that a group holds whole, at most."""

VALUES = 2**34
"""Of all axes together, at most: planning time does not grow with it, but nobody has more."""

assert _compiler
_owner = os.getpid()
_folder = sources.here()


@atexit.register
def _forget() -> None:
    if os.getpid() == _owner:
        sources.forget(_folder)


def large(program: Program, rng: random.Random) -> dict[str, int] | None:
    """Large sizes that fit a program."""
    wanted = {a: rng.choice(SIZES) for a in program.sizes}
    wanted |= {a: min(wanted[a], HELD) for a in held(program) if a in wanted}
    sizes = fit(program, wanted)
    while sizes is not None:
        total = 1
        for n in sizes.values():
            total *= n
        if total <= VALUES or max(wanted.values()) <= 16:
            return sizes
        longest = max(wanted, key=wanted.__getitem__)
        wanted[longest] //= 4
        sizes = fit(program, wanted)
    return None


def compile(program: Program, seed: int) -> None:
    """Raises `Found` where a plan of a program does not compile."""
    plan = planned(program, seed)
    for row in compiled(plan, registers=False):
        about = f"{row.kernel} for {row.arch}, {plan.dtype}, sizes {dict(plan.sizes)}"
        if row.allocated is None:
            said = (row.note or "").strip().splitlines() or ["no reason given"]
            raise Found("does not compile", plain(said[-1])[:110], f"{about}: {row.note[:1500]}")
        if not row.ok:
            raise Found("wrong bytes", f"shared memory on {row.arch}", f"{about}: {row.said}")


def memory(program: Program, seed: int) -> None:
    """Raises `Found` where a plan of a program does not fit shared memory, or a bound of what is
    allocated does not hold."""
    plan = planned(program, seed)
    arch, room = plan.machine.arch, plan.machine.shared_per_block
    for k in distinct(plan.kernels):
        for served in {bool(k.schedule.described), False}:
            (taken,) = allocations([job_of(k, k.choice.sizes, arch, served)])
            about = f"{k.name} for {arch}, {plan.dtype}, sizes {dict(plan.sizes)}"
            if not isinstance(taken, int):
                raise Found("does not compile", plain(str(taken))[:110], f"{about}: {taken}")
            least = k.operand_bytes if served else 0
            if not least <= taken <= min(room, at_most(k)):
                said = f"{about}: {least} <= {taken} <= {at_most(k)}, of {room}"
                raise Found("wrong bytes", f"shared memory on {arch}", said)


def planned(program: Program, seed: int) -> Plan:
    """The planner's own plan of a program at large sizes, for one of three machines."""
    rng = random.Random(seed)
    diagram = written_diagram(program)
    dtype = rng.choice(("bf16", "fp32", "fp16"))
    sizes = large(program, rng)
    bytes8 = any(own_type(n) == "fp8" for n in postorder(diagram.roots))
    machines = ("h100", "b200") if bytes8 else ("h100", "a100", "b200")
    on = machine(rng.choice(machines))
    return derive(diagram, on, sizes, dtype, deterministic=seed < KINDS)
