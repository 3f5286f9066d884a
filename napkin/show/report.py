"""`napkin report`: one page of Markdown with everything that is predicted of a diagram."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from napkin.diagram.diagram import Diagram
from napkin.plan.strategies import Comparison, compare
from napkin.show import console, options
from napkin.show.files import write_file

PAGE = "report.md"
"""The page's name in its folder."""


def run(
    diagram: Diagram,
    on: str,
    sizes: Sequence[str] | None,
    dtype: str,
    parts: Sequence[str] | None,
    folder: Path,
) -> None:
    """Write the page of a diagram and its plots into a folder, and say where.

    Raises:
        InputError: something that is written is wrong, matplotlib is missing, or the folder cannot
            be written into.
        Refusal: no kernel fits the machine.
    """
    known = diagram.check_sizes(options.parse_sizes(sizes or ()))
    cut = options.parse_sizes(parts or (), "--parts")
    from napkin.cost.machines import machine
    from napkin.show.cost_plots import check_folder

    place = machine(on)
    check_folder(folder, "report")
    with console.progress() as tell:
        found = compare(diagram, place, known, dtype, parts=cut, progress=tell)
        tell("plots", 2, 3)
        text = _page(found, folder)
        tell("plots", 3, 3)
    write_file(folder / PAGE, text.encode())
    console.emit(f"Written: {folder / PAGE}")


def _page(found: Comparison, folder: Path) -> str:
    from napkin.show import cost_plots, costs, levels, plans, strategies

    plan = found.plan
    sections = {
        "Derivation": plans.plan_view(plan),
        "Strategies": strategies.comparison_view(found),
        "Costs and rooflines": costs.cost_view(plan),
        "Levels of memory": levels.levels_view(plan),
    }
    drawn = [*cost_plots.plot_comparison(folder, found), *cost_plots.plot_plan(folder, plan)]
    parts = [f"# {plans.heading(plan)}\n"]
    if plan.diagram.doc:
        parts.append(f"{plan.diagram.doc.strip()}\n")
    parts += [f"## {title}\n\n```\n{console.plain_text(*v)}```\n" for title, v in sections.items()]
    parts.append("## Plots\n")
    parts += [f"![{name.removesuffix('.svg')}]({name})\n" for name in drawn]
    return "\n".join(parts)
