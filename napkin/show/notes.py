"""What a reader of predictions has to know beside the numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from napkin.bound.least import by_tensor
from napkin.count.interior import visited_symbol
from napkin.ir.key_sets import bounds_of
from napkin.ir.types import stored_bytes
from napkin.keys.typical import TYPICAL, needed
from napkin.keys.visits import Visits
from napkin.machine.calibration import borrows
from napkin.machine.machines import MEASURED
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel
from napkin.plan.workspace import resident_bytes
from napkin.show.words import bytes_text


def notes(plan: Plan) -> list[str]:
    """Of one plan, a line for each."""
    parts = plan.parts.items()
    out = [f"{axis} = {n:,}: the parts in which an axis is folded." for axis, n in parts]
    for k in plan.kernels:
        out += _of_kernel(k)
    return [*dict.fromkeys(out), *of_memory([plan]), *of_constants([plan])]


def of_constants(plans: Sequence[Plan]) -> list[str]:
    """Whose times rest on constants of another machine."""
    names = dict.fromkeys(p.machine.name for p in plans if borrows(p.machine))
    if not names:
        return []
    return [
        f"{', '.join(names)}: rates and capacities are {'their' if len(names) > 1 else 'its'}"
        " own; other constants (launch, iteration overhead, overlap) were measured on the"
        f" {MEASURED}."
    ]


def of_memory(plans: Sequence[Plan]) -> list[str]:
    """Where inputs, results and what passes between kernels do not fit the machine's DRAM: a line
    for each machine, of its largest plan."""
    largest: dict[str, Plan] = {}
    for p in sorted(plans, key=resident_bytes):
        largest[p.machine.name] = p
    return [
        f"{name}: inputs, results and arrays between kernels take"
        f" {bytes_text(resident_bytes(p))}, but its DRAM has"
        f" {bytes_text(p.machine.level('dram').capacity.value)}; the times assume that"
        " they fit."
        for name, p in largest.items()
        if not fits(p)
    ]


def fits(plan: Plan) -> bool:
    """Whether inputs, results and what passes between kernels fit the machine's DRAM."""
    return resident_bytes(plan) <= plan.machine.level("dram").capacity.value


def _of_kernel(k: PlannedKernel) -> Iterator[str]:
    visits = k.choice.kernel.visits
    if visits is not None and visited_symbol(visits.axes) in k.H.total.free_symbols:
        axes = " and ".join(visits.axes)
        yield (
            f"{visited_symbol(visits.axes)}: values of {axes} that a group visits, on average"
            f"{_typical(visits)}."
        )
    yield from _boxed(k)


def _typical(visits: Visits) -> str:
    """What is taken of the inputs that say which keys are seen."""
    read = {str(x.params[0]): of.what for x, of in needed(bounds_of(visits.boxes)).items()}
    return "".join(f"; {name} is taken to hold {TYPICAL[what]}" for name, what in read.items())


def _boxed(k: PlannedKernel) -> Iterator[str]:
    boxed: dict[str, None] = {}
    for (tensor, direction), own in by_tensor(k.cost).items():
        values = sum(t.values(k.choice.sizes, k.tiles) for t in own)
        if k.bytes[tensor, direction] > stored_bytes(values, k.dtypes[tensor]):
            boxed[tensor] = None
    if boxed:
        yield (
            f"{', '.join(boxed)}: bytes are those of whole chunks, as tensor descriptors load"
            " them; values are what the groups need of them."
        )
