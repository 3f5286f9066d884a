"""The moves of diagrams, derivations and plans that other rooms make.

`Diagram.draw`, `Plan.check` and a plan's call belong to rooms above the ones that define these
classes. Each is imported when it is first used, which keeps `import napkin` light.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from napkin.diagram.moves import offer

if TYPE_CHECKING:
    from napkin.bound.symbolic_cost import Cost
    from napkin.check.verdict_rows import Verdict
    from napkin.derive.kernel import Kernel
    from napkin.diagram.diagram import Diagram
    from napkin.moves.derivation import Derivation
    from napkin.plan.plan import Plan
    from napkin.plan.planned import PlannedKernel
    from napkin.settings.choice import Choice


def _start(diagram: Diagram) -> Derivation:
    """An empty derivation of a diagram."""
    from napkin.moves.derivation import Derivation

    return Derivation.start(diagram)


def _cost(kernel: Kernel) -> Cost:
    """The symbolic cost of a labelled kernel."""
    from napkin.bound.symbolic_cost import Cost

    return Cost(kernel)


def _draw(diagram: Diagram) -> str:
    """The SVG drawing of a diagram."""
    from napkin.show.circuit import draw

    return draw(diagram)


def _workspace(plan: Plan) -> int:
    """The most bytes of materialised arrays that are alive at once."""
    from napkin.plan.workspace import workspace

    return workspace(plan)


def _kernel_file(plan: Plan, derivation: bool = True) -> str:
    """The file of the kernels of a plan."""
    from napkin.plan.file import kernel_file

    return kernel_file(plan, derivation)


def _warpgroup_file(plan: Plan, derivation: bool = True) -> str:
    """The file of its kernels of warpgroups."""
    from napkin.plan.file import warpgroup_file

    return warpgroup_file(plan, derivation)


def _plan_text(plan: Plan) -> str:
    """A plan in words."""
    from napkin.plan.text import plan_text

    return plan_text(plan)


def _ranked(plan: Plan, k: PlannedKernel, most: int) -> list[Choice]:
    """The first settings of a kernel of a plan."""
    from napkin.plan.ranked import ranked

    return ranked(plan, k, most)


def _check(plan: Plan, **settings: Any) -> Verdict:
    """The verdict on a plan; of a gradient also by torch, where that is installed."""
    from napkin.check.verdict import check

    if settings.get("gradient_of") is not None and find_spec("torch") is not None:
        from napkin.torch.autograd import autograd

        settings.setdefault("autograd", autograd)
    return check(plan, **settings)


def _run(plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Any:
    """The results of a plan: of CUDA tensors on their GPU, of numpy arrays and CPU tensors through
    the interpreter."""
    if any(hasattr(a, "detach") for a in (*arrays, *scalars.values())):
        from napkin.torch.given import check_run

        scalars = check_run(plan.name, arrays, scalars)
    if any(getattr(getattr(a, "device", None), "type", "cpu") == "cuda" for a in arrays):
        from napkin.torch.run import run as launch

        return launch(plan, arrays, scalars)
    from napkin.check.run_plan import run

    return run(plan, arrays, scalars)


def _bound_call(plan: Plan, arrays: Sequence[Any], scalars: Mapping[str, float]) -> Any:
    """A function that runs a plan again and again on the same CUDA tensors."""
    from napkin.torch.run import bound_call

    return bound_call(plan, arrays, scalars)


offer(
    start=_start, cost=_cost, draw=_draw,
    workspace=_workspace, kernel_file=_kernel_file, warpgroup_file=_warpgroup_file,
    plan_text=_plan_text, ranked=_ranked, check=_check, run=_run, bound_call=_bound_call,
)  # fmt: skip
