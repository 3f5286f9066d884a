"""Where a kernel stands under the roofs of its machine: at each memory level, and on each pipe."""

from __future__ import annotations

from dataclasses import dataclass

from napkin.bound.least import bytes_once
from napkin.count.residency import live_set
from napkin.plan.planned import PlannedKernel
from napkin.studies.predicted import operations


@dataclass(frozen=True)
class PipeUse:
    """One pipe of the time model.

    Attributes:
        seconds: what its own work takes.
        share: of the predicted time of the kernel.
        slack: seconds that it is idle.
    """

    name: str
    seconds: float
    share: float
    slack: float


@dataclass(frozen=True)
class LevelUse:
    """The transfers into one level of memory.

    Attributes:
        source, target: the levels that the pipe joins.
        bytes: that cross it.
        rate: bytes/s of the pipe.
        intensity: operations for each byte.
        balance: operations for each byte from which on computing takes longer than moving.
        roof: the most operations/s at this intensity.
    """

    source: str
    target: str
    bytes: int
    rate: float
    intensity: float
    balance: float
    roof: float

    @property
    def bound(self) -> str:
        """The roof that is lower at this level: "compute" or "memory"."""
        return "compute" if self.intensity >= self.balance else "memory"


@dataclass(frozen=True)
class Roofline:
    """One kernel under the roofs.

    Attributes:
        kernel: its name.
        operations: of its matrix products, or of all arithmetic where it has none.
        peak: operations/s of the pipe that computes them.
        pipe: that pipe.
        seconds: predicted time of the kernel.
        limited_by: what sets it.
    """

    kernel: str
    operations: float
    peak: float
    pipe: str
    seconds: float
    limited_by: str
    pipes: tuple[PipeUse, ...]
    levels: tuple[LevelUse, ...]

    @property
    def rate(self) -> float:
        """Predicted operations/s."""
        return self.operations / self.seconds


def roofline(k: PlannedKernel) -> Roofline:
    """A planned kernel under the roofs of its machine.

    Into shared memory crosses what all groups read and write. Into the levels above, which all
    groups share, every tensor crosses once: a cache that holds what groups read together leaves no
    more, and less there cannot be.
    """
    time, machine = k.choice.time, k.machine
    products = bool(live_set(k.choice.kernel).products)
    dtype = k.dtype if products and k.dtype in machine.dtypes else "fp32"
    peak, done = machine.peak(dtype), operations(k)
    once = sum(bytes_once(k.byte_cost, k.choice.sizes, k.tiles).values())
    every = sum(k.bytes.values())
    levels: list[LevelUse] = []
    for pipe in machine.path("dram", "shared"):
        moved, rate = every if pipe.target == "shared" else once, pipe.rate.value
        intensity = done / moved if moved else float("inf")
        roof = min(peak, intensity * rate)
        levels.append(LevelUse(pipe.source, pipe.target, moved, rate, intensity, peak / rate, roof))
    pipes = [
        PipeUse(name, s, s / time.seconds, time.seconds - s)
        for name, s in sorted(time.pipes.items(), key=lambda item: -item[1])
    ]
    name = f"{dtype} products" if products else "fp32 arithmetic"
    return Roofline(
        k.name, done, peak, name, time.seconds, time.limited_by, tuple(pipes), tuple(levels)
    )
