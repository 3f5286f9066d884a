"""What is asked of a diagram: the options that say which plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from napkin.cli.parse import parse_sizes, parse_types
from napkin.errors import InputError

if TYPE_CHECKING:
    from napkin.diagram.diagram import Diagram
    from napkin.plan.plan import Plan

Texts = Sequence[str] | None
"""What stands behind an option that may be given several times."""


@dataclass(frozen=True)
class Request:
    """A diagram, at sizes and on a machine.

    Attributes:
        diagram: with inputs stored as --storage says.
        on: a machine, or its file.
        sizes: those that are given; the diagram's own for the others.
        dtype: how reals are stored.
        parts: numbers of parts of streamed axes.
        gradient_of: the named diagram, where `diagram` is its gradient.
        accumulate: whether groups may add in memory in any order.
    """

    diagram: Diagram
    on: str
    sizes: Mapping[str, int]
    dtype: str
    parts: Mapping[str, int]
    gradient_of: Diagram | None = None
    accumulate: bool = False

    def plan(self, tuned: bool = False) -> Plan:
        """The plan, with settings that were measured where `tuned` and there are some."""
        from napkin.run.compile import available, start

        if available():
            start()  # the compiler loads while the search runs, whose winner it is asked about
        from napkin.plan.derive import derive

        on, exact = (self.on, self.sizes, self.dtype), not self.accumulate
        return derive(self.diagram, *on, parts=self.parts, tuned=tuned, deterministic=exact)


def load(name: str) -> Diagram:
    """A shipped diagram, or one in a file."""
    from napkin.diagram.library import load as found

    return found(name)


def request(
    name: str,
    on: str,
    sizes: Texts,
    dtype: str,
    parts: Texts = None,
    storage: Texts = None,
    *,
    sized: bool = True,
    gradient: bool = False,
    accumulate: bool = False,
) -> Request:
    """What the options say. What is cheap to find wrong is found here, before any work.

    Args:
        sized: every axis has a size by now.
        gradient: the gradient of the diagram is asked for.
        accumulate: groups may add in memory in any order.

    Raises:
        InputError: an option is written wrong, the diagram does not have what it names, or there is
            no such machine.
        Refusal: the diagram has no gradient.
    """
    given, cut = parse_sizes(sizes or ()), parse_sizes(parts or (), "--parts")
    diagram, of = load(name).stored(**parse_types(storage or ())), None
    if gradient:
        from napkin.gradient.gradient import gradient as gradient_by_all

        diagram, of = gradient_by_all(diagram), diagram
    if sized:
        diagram.check_sizes(given)
    from napkin.machine.machines import machine

    machine(on)
    return Request(diagram, on, given, dtype, cut, of, accumulate)


def check_tuning(tune: int, tuned: bool) -> None:
    """Refuse --tune beside --tuned.

    Raises:
        InputError: both are asked for.
    """
    if tune and tuned:
        raise InputError(
            "--tune measures settings and remembers the fastest, and --tuned uses those remembered "
            "before; leave one out"
        )


def tuned_plan(plan: Plan, most: int) -> tuple[Plan, Sequence[Any], dict[str, str]]:
    """A plan with the fastest of its first settings, which are remembered; the measurement."""
    from napkin.measure.device import described, fresh_seed
    from napkin.measure.tune import tune
    from napkin.plan.tuned import remember
    from napkin.show import console

    with console.progress() as tell:
        best, rankings = tune(plan, most, fresh_seed(), tell)
    about = described()
    measured = [r.to_json() for r in rankings]
    path = remember(plan, [r.best.choice for r in rankings], {**about, "measured": measured})
    return best, rankings, {**about, "remembered": str(path)}
