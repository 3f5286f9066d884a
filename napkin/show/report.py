"""`napkin report`: one page of Markdown with everything that is predicted of a diagram."""

from __future__ import annotations

from pathlib import Path

from napkin.show import console
from napkin.show.files import write_file
from napkin.studies.strategies import Comparison

PAGE = "report.md"
"""The page's name in its folder."""


def write_report(found: Comparison, folder: Path) -> Path:
    """Write the page of a plan beside other strategies, and its plots, into a folder.

    Returns:
        The page's file.

    Raises:
        InputError: matplotlib is missing, or the folder cannot be written into.
    """
    page = folder / PAGE
    write_file(page, _page(found, folder).encode())
    return page


def _page(found: Comparison, folder: Path) -> str:
    from napkin.show import cost_plots, costs, levels, plans
    from napkin.show import strategy_table as strategies

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
