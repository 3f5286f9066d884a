"""What plans are predicted to take: over sizes, and on several machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from napkin.count.work import work
from napkin.diagram.diagram import Diagram
from napkin.errors import InputError, Refusal
from napkin.ir.symbols import size_symbol
from napkin.machine.machines import Machine, machine
from napkin.plan.derive import derive
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.progress import Progress, silent
from napkin.studies.strategies import compulsory, optimum_of


@dataclass(frozen=True, eq=False)
class Predicted:
    """One plan in numbers.

    Attributes:
        plan: the plan.
        optimum: the least bytes that the plan's cut, or one kernel for all, moves in the memory of
            one group; None where that has no such form (see `napkin.studies.strategies.optimum_of`,
            and `compare`, which looks at more cuts).
        compulsory: bytes of every input and output once.
        operations: of the matrix products, or of all arithmetic where a kernel has none.
        price: USD per hour of the machine; None where nobody said.
    """

    plan: Plan
    optimum: float | None
    compulsory: int
    operations: float
    price: float | None = None

    @property
    def rate(self) -> float:
        """Operations per second."""
        return self.operations / self.plan.seconds

    @property
    def usd(self) -> float | None:
        """What one run costs in USD, at the price of the hour."""
        return None if self.price is None else self.price * self.plan.seconds / 3600


@dataclass(frozen=True)
class Refused:
    """A machine on which a diagram has no plan at some sizes, and why."""

    machine: str
    reason: str


def predicted(plan: Plan, price: float | None = None) -> Predicted:
    """A plan in numbers."""
    own = plan.machine.price.value if plan.machine.price else None
    return Predicted(
        plan,
        optimum_of(plan),
        compulsory(plan),
        sum(map(operations, plan.kernels)),
        own if price is None else price,
    )


def operations(k: PlannedKernel) -> float:
    """Operations of a kernel's matrix products, or of all its arithmetic where it has none.

    Where a key set says which there are, those of the chunks that are visited.
    """
    found = k.flops.subs({size_symbol(a): n for a, n in k.choice.sizes.items()})
    if not found.free_symbols:
        return float(found)
    counted = work(k.choice.kernel, k.choice.sizes, k.tiles)
    return counted["product"] or counted["arithmetic"] + counted["special"]


def over_sizes(
    diagram: Diagram,
    on: str | Machine,
    every: Sequence[Mapping[str, int]],
    dtype: str,
    *,
    parts: Mapping[str, int] | None = None,
    progress: Progress = silent,
) -> list[Predicted | Refused]:
    """The plans of a diagram at several sizes, in their order; or why there is none.

    Raises:
        InputError: a size, a dtype or a machine is not known.
    """
    on = on if isinstance(on, Machine) else machine(on)
    every = [diagram.check_sizes(sizes) for sizes in every]  # before any work
    out: list[Predicted | Refused] = []
    for i, sizes in enumerate(every):
        progress("planning", i, len(every))
        out.append(_tried(diagram, on, sizes, dtype, parts))
    progress("planning", len(every), len(every))
    return out


def _tried(
    diagram: Diagram,
    on: Machine,
    sizes: Mapping[str, int],
    dtype: str,
    parts: Mapping[str, int] | None,
    price: float | None = None,
) -> Predicted | Refused:
    """The plan of a diagram; or why there is none."""
    try:
        return predicted(derive(diagram, on, sizes, dtype, parts=parts), price)
    except Refusal as refusal:
        return Refused(on.name, str(refusal))


def on_machines(
    diagram: Diagram,
    names: Sequence[str],
    sizes: Mapping[str, int],
    dtype: str,
    prices: Mapping[str, float],
    *,
    parts: Mapping[str, int] | None = None,
    progress: Progress = silent,
) -> tuple[list[Predicted], list[Refused]]:
    """The plans of a diagram on several machines, the fastest first; and where there is none.

    Args:
        prices: USD per hour of machines, where the machine's file says none or another.

    Raises:
        InputError: a machine, a size or a dtype is not known, or a price is of none of them.
    """
    machines = [machine(name) for name in names]  # before any work
    for i, (name, on) in enumerate(zip(names, machines, strict=True)):
        if on in machines[:i]:
            same = names[machines.index(on)]
            twice = f"{name} is given twice" if same == name else f"{name} is {same}"
            raise InputError(f"--against: {twice}; write it once")
    for name in prices:
        if name not in names and name not in {on.name for on in machines}:
            raise InputError(f"--prices: {name} is none of {', '.join(names)}")
    out: list[Predicted | Refused] = []
    for i, (name, on) in enumerate(zip(names, machines, strict=True)):
        progress(f"on {on.name}", i, len(machines))
        price = prices.get(name, prices.get(on.name))
        out.append(_tried(diagram, on, sizes, dtype, parts, price))
    progress("done", len(machines), len(machines))
    found = sorted((p for p in out if isinstance(p, Predicted)), key=lambda p: p.plan.seconds)
    return found, [r for r in out if isinstance(r, Refused)]
