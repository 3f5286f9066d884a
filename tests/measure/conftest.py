"""A device played by torch on the CPU: kernels are evaluated, times are made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
from launches import outputs_of

from napkin.check.run_plan import plan_for
from napkin.cli import app
from napkin.cli.ending import run
from napkin.plan.plan import Plan

ABOUT = {"device": "a stand-in", "arch": "sm_90", "torch": "0", "triton": "0", "napkin": "0"}


@dataclass
class StandIn:
    """What the device is made to do.

    Attributes:
        change: applied to each output after a launch, with the number of launches so far.
        refuse: raised in place of a launch with these tiles.
        us: times by name; of others, 100.
        launches: how many plans were run.
    """

    change: Callable[[Any, int], Any] = lambda t, _: t
    refuse: Callable[[Plan], Exception | None] = lambda _: None
    us: Mapping[str, float] = field(default_factory=dict[str, float])
    launches: int = 0

    def opened(
        self, plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float], as_is: bool = False
    ) -> tuple[Plan, dict[str, Any], list[Callable[[], Any]]]:
        """As `napkin.torch.run.opened`."""
        import torch

        from napkin.run.prepared import DTYPES
        from napkin.torch.reference import evaluation

        sizes = plan.diagram.sizes_of([tuple(a.shape) for a in arrays])
        chosen = plan if as_is else plan_for(plan, sizes)
        tensors = {str(n.params[0]): a for n, a in zip(plan.diagram.inputs, arrays, strict=True)}
        sizes = chosen.full(sizes)
        for name, axes, dtype in outputs_of(chosen):
            tensors[name] = torch.empty([sizes[a] for a in axes], dtype=DTYPES[dtype])

        def launch() -> None:
            if (error := self.refuse(plan)) is not None:
                raise error
            self.launches += 1
            found = evaluation(plan.diagram, sizes)(*arrays)
            for o, f in zip(plan.diagram.outputs, found, strict=True):
                tensors[chosen.tensor_of[o.name]].copy_(self.change(f, self.launches))

        return chosen, tensors, [*[lambda: None] * (len(chosen.kernels) - 1), launch]

    def bound_call(
        self, plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]
    ) -> Callable[[], None]:
        """As `napkin.torch.run.bound_call`."""
        _, _, calls = self.opened(plan, arrays, scalars)

        def again() -> None:
            for call in calls:
                call()

        return again

    def interleaved(self, calls: Mapping[str, Callable[[], Any]], seconds: float = 0.1) -> Any:
        """As `napkin.measure.timing.interleaved`."""
        from napkin.measure.timing import Sample

        for call in calls.values():
            call()
        times = {name: self.us.get(name, 100.0) for name in calls}
        return {name: Sample(us, us - 1, us + 2, 10) for name, us in times.items()}


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> StandIn:
    """A CUDA device that is none."""
    torch = pytest.importorskip("torch")
    made = StandIn()
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("napkin.torch.run.bound_call", made.bound_call)
    for place in ("napkin.torch.run.opened", "napkin.measure.values.opened"):
        monkeypatch.setattr(place, made.opened)
    for place in ("napkin.measure.timing.interleaved", "napkin.measure.tune.interleaved"):
        monkeypatch.setattr(place, made.interleaved)
    monkeypatch.setattr("napkin.measure.tensors.DEVICE", "cpu")
    monkeypatch.setattr("napkin.measure.device.require", lambda what: torch)
    monkeypatch.setattr("napkin.measure.device.described", lambda: dict(ABOUT))
    facts = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", major=9, minor=0, shared_memory_per_block_optin=232_448
    )
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: facts)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (2**33, 2**34))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 0)
    return made


@pytest.fixture
def napkin(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: status, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        status = run(app, arguments)
        said = capsys.readouterr()
        return status, said.out, said.err

    return call
