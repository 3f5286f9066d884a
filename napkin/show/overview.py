"""What there is: the shipped diagrams and the machines."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from napkin.diagram import library
from napkin.diagram.diagram import Diagram
from napkin.machine.machines import Machine
from napkin.show.console import Table, table


def summary(diagram: Diagram, name: str) -> str:
    """The first sentence that a shipped page, or else its function, says about itself."""
    page = library._shelf() / f"{name}.py"  # pyright: ignore[reportPrivateUsage]
    text = ast.get_docstring(ast.parse(page.read_bytes())) or diagram.doc
    paragraph = " ".join(text.partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", paragraph, maxsplit=1)[0]


def diagrams_json() -> list[dict[str, Any]]:
    """The shipped diagrams as plain data."""
    found = [(name, library.load(name)) for name in library.names()]
    return [
        {
            "name": name,
            "signature": str(d.signature),
            "summary": summary(d, name),
            "sizes": dict(d.sizes),
        }
        for name, d in found
    ]


def diagrams_table() -> Table:
    """The shipped diagrams: name, signature, and what each is."""
    made = table("name", "signature", "computes")
    made.columns[0].no_wrap = True
    for row in diagrams_json():
        made.add_row(row["name"], row["signature"], row["summary"])
    return made


def machines_json(machines: Sequence[Machine]) -> list[dict[str, Any]]:
    """Machines as plain data, with the unit and the source of every figure."""
    return [
        {
            "name": m.name,
            "title": m.title,
            "arch": m.arch,
            "figures": {key: asdict(f) for key, f in m.figures()},
        }
        for m in machines
    ]


def machines_table(machines: Sequence[Machine]) -> Table:
    """Machines: what limits a kernel on each."""
    numbers = (">SMs", ">DRAM TB/s", ">bf16 TFLOP/s", ">shared per block")
    made = table("name", "title", "arch", *numbers)
    for m in machines:
        peak = f"{m.peak('bf16') / 1e12:,.1f}" if "bf16" in m.dtypes else "-"
        made.add_row(
            m.name,
            m.title,
            m.arch,
            str(m.sms),
            f"{m.dram_rate / 1e12:.2f}",
            peak,
            f"{m.shared_per_block:,}",
        )
    return made


def machine_table(m: Machine) -> Table:
    """Every figure of one machine, with its source."""
    rows = ((key, f"{f.value:,.10g}", f.unit, f.source) for key, f in m.figures())
    title = f"{m.name}: {m.title}, {m.arch}"
    return table("figure", ">value", "unit", "source", title=title, rows=rows)
