"""The planner's first settings measured on the device: what its ranking is worth, and the best."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from napkin.measure.timing import Sample, interleaved
from napkin.plan.plan import Plan
from napkin.plan.planned import PlannedKernel, distinct
from napkin.plan.ranked import ranked, setting_json, with_choices
from napkin.progress import Progress, silent
from napkin.settings.choice import Choice


@dataclass(frozen=True)
class Candidate:
    """One setting of a kernel, as predicted and as measured.

    Attributes:
        place: its rank by prediction, from 1.
        measured: its times, or None where it did not run or was wrong; `note` then says why.
        measured_place: its rank by measurement, from 1.
    """

    choice: Choice
    place: int
    measured: Sample | None = None
    measured_place: int | None = None
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """The candidate as plain data."""
        m = self.measured
        return {
            **setting_json(self.choice),
            "predicted_rank": self.place,
            "measured_us": m.median if m else None,
            "measured_low_us": m.low if m else None,
            "measured_high_us": m.high if m else None,
            "measured_rank": self.measured_place,
            "note": self.note,
        }


@dataclass(frozen=True)
class Ranking:
    """The candidates of one kernel, in the order of the prediction."""

    kernel: str
    rows: tuple[Candidate, ...]

    @property
    def best(self) -> Candidate:
        """The fastest measured; the planner's own where nothing could be measured."""
        return next((r for r in self.rows if r.measured_place == 1), self.rows[0])

    @property
    def first_over_best(self) -> float | None:
        """Time of the planner's choice over that of the fastest: 1 where the model was right."""
        first, best = self.rows[0].measured, self.best.measured
        return first.median / best.median if first and best else None

    @property
    def agreement(self) -> float | None:
        """Spearman's correlation of both rankings; None of fewer than two settings."""
        ran = [(r.place, r.measured_place) for r in self.rows if r.measured_place is not None]
        if len(ran) < 2:
            return None
        from scipy.stats import spearmanr

        found: Any = spearmanr(ran)
        return float(found.statistic)

    def to_json(self) -> dict[str, Any]:
        """The ranking as plain data."""
        return {
            "kernel": self.kernel,
            "first_over_best": self.first_over_best,
            "rank_correlation": self.agreement,
            "best_predicted_rank": self.best.place,
            "candidates": [r.to_json() for r in self.rows],
        }


def placed(
    kernel: str, choices: Sequence[Choice], times: Mapping[int, Sample], notes: Mapping[int, str]
) -> Ranking:
    """The ranking of choices from times and notes by their index."""
    order = sorted(times, key=lambda i: times[i].median)
    place = {i: n + 1 for n, i in enumerate(order)}
    return Ranking(
        kernel,
        tuple(
            Candidate(c, i + 1, times.get(i), place.get(i), notes.get(i, ""))
            for i, c in enumerate(choices)
        ),
    )


def tune(
    plan: Plan, most: int, seed: int, progress: Progress = silent
) -> tuple[Plan, tuple[Ranking, ...]]:
    """Measure the first `most` settings of each distinct kernel of a plan, others as planned.

    A setting that does not launch, or whose results are off by more than the storage type allows,
    has a note in place of a time.

    Returns:
        The plan with the fastest settings, and what was measured.
    """
    kinds = distinct(plan.kernels)
    rankings: list[Ranking] = []
    for i, k in enumerate(kinds):
        progress(f"tune {k.name}", i, len(kinds))
        rankings.append(measured(plan, k, ranked(plan, k, most), seed))
    best = [r.best.choice for r in rankings]
    return with_choices(plan, best), tuple(rankings)


def measured(
    plan: Plan, k: PlannedKernel, choices: Sequence[Choice], seed: int, seconds: float = 0.15
) -> Ranking:
    """Settings of one kernel of a plan, measured.

    Args:
        choices: in the order of the prediction.
        seconds: of running, about, for each.
    """
    import torch

    from napkin.check.verdict import on_device
    from napkin.measure.tensors import drawn, poison
    from napkin.measure.values import Errors, errors
    from napkin.torch.run import opened

    at = next(i for i, p in enumerate(plan.kernels) if p.choice is k.choice)
    tensors = drawn(plan.diagram, plan.sizes, plan.dtype, seed)
    outputs = {o.name: plan.tensor_of[o.name] for o in plan.diagram.outputs}
    stored = {p.binding[o.name] for p in plan.kernels for o in p.choice.origin}
    limit = on_device(plan.diagram, plan.dtype)
    right: dict[str, torch.Tensor] = {}
    calls: dict[str, Callable[[], Any]] = {}
    notes: dict[int, str] = {}
    for i, choice in enumerate(choices):
        settings = [choice if p.choice is k.choice else p.choice for p in distinct(plan.kernels)]
        try:
            _, known, launches = opened(with_choices(plan, settings), tensors, {})
            for name in stored:
                poison(known[name])
            for launch in launches:
                launch()
            torch.cuda.synchronize()
        except Exception as error:
            # Whatever the compiler or the driver says of one setting leaves the others standing.
            notes[i] = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            continue
        found = {o: known[t] for o, t in outputs.items()}
        if right:  # both are within the limit of what is exact
            off = max(Errors().add(found[o], right[o]).relative for o in outputs)
            good = off <= 2 * limit
        else:
            off = max(errors(plan, found, tensors, plan.sizes).values())
            good = off <= limit
            right = {o: t.clone() for o, t in found.items()} if good else {}
        if good:
            calls[str(i)] = launches[at]
        else:
            notes[i] = f"its results are off by {off:.1e}"
    times = {int(i): sample for i, sample in interleaved(calls, seconds).items()}
    return placed(k.name, choices, times, notes)
