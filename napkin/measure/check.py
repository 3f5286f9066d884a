"""What `napkin check --gpu` adds to a verdict: values, counters and time on the device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from napkin.derive.kernel import leaves, tensor_of
from napkin.measure.counters import Counters
from napkin.measure.timing import Sample
from napkin.plan.plan import Plan

if TYPE_CHECKING:
    import numpy as np
    import torch

    from napkin.measure.values import DeviceValues


@dataclass(frozen=True)
class OnDevice:
    """A plan on the device that is there.

    Attributes:
        device: the device and versions.
        seed: of the random inputs.
        note: what should be known to read it, such as a device that the plan is not for.
    """

    device: Mapping[str, str]
    seed: int
    values: DeviceValues
    counters: Counters
    time: Sample
    predicted_us: float
    note: str = ""

    @property
    def ok(self) -> bool:
        """Whether values and counters hold; a time is reported, not judged."""
        return self.values.ok and self.counters.ok

    def to_json(self) -> dict[str, Any]:
        """It as plain data."""
        return {
            "ok": self.ok,
            **self.device,
            "seed": self.seed,
            "note": self.note,
            "values": [{**asdict(r), "ok": r.ok} for r in self.values.rows],
            "repeats": self.values.repeats,
            "counters": [{**asdict(r), "ok": r.ok} for r in self.counters.rows],
            "counters_note": self.counters.note,
            "time": {
                "predicted_us": self.predicted_us,
                "measured_us": self.time.median,
                "measured_low_us": self.time.low,
                "measured_high_us": self.time.high,
                "runs": self.time.runs,
                "measured_over_predicted": self.time.median / self.predicted_us,
            },
        }


def on_device(plan: Plan, command: list[str] | None, seed: int) -> OnDevice:
    """Run a plan on the device at its own sizes: values, counters, time.

    Args:
        command: runs the same plan from the same seed in a process of its own, for the counters;
            see `napkin.measure.driver.command`. Without it there are none.
    """
    from napkin.measure.counters import counted
    from napkin.measure.device import described
    from napkin.measure.tensors import drawn
    from napkin.measure.timing import interleaved
    from napkin.measure.values import device_values

    values = device_values(plan, seed)
    tensors = drawn(plan.diagram, plan.sizes, plan.dtype, seed)
    call = plan.bound_call(*tensors)
    time = interleaved({plan.name: call})[plan.name]
    counters = Counters(note="not asked for")
    ran = plan.launched
    if command is not None:
        named = dict(zip(plan.diagram.input_names, tensors, strict=True))
        needed = decisive(ran)
        known = named if needed <= named.keys() else _stored(ran, tensors)
        counters = counted(ran, command, {t: _host(known[t]) for t in needed})
    about = described()
    return OnDevice(
        about, seed, values, counters, time, plan.seconds * 1e6, elsewhere(plan, about["arch"])
    )


def decisive(plan: Plan) -> set[str]:
    """The tensors on whose values bytes depend: whole numbers, which may be positions, and those
    that say which chunks the kernels visit."""
    seen = ((k, k.choice.kernel.visits) for k in plan.kernels)
    keys = {k.binding[tensor_of(n)] for k, v in seen if v for n in leaves([v.keys])}
    return keys | {str(n.params[0]) for n in plan.diagram.inputs if n.kind == "int"}


def _stored(plan: Plan, tensors: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Every tensor of a plan after a run, by its name."""
    from napkin.torch.run import opened

    _, found, launches = opened(plan, tensors, {}, as_is=True)
    for launch in launches:
        launch()
    return found


def _host(t: torch.Tensor) -> np.ndarray:
    """A tensor's numbers, in a type that numpy has."""
    return (t.double() if t.is_floating_point() else t).cpu().numpy()


def elsewhere(plan: Plan, arch: str) -> str:
    """A note where the device is of another architecture than the plan's machine."""
    if plan.machine.arch == arch:
        return ""
    return (
        f"the plan is for {plan.machine.name} ({plan.machine.arch}), and this device is {arch}: "
        "its predictions are about the former; choose the machine with --on"
    )
