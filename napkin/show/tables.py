"""The two tables of `generated/`: what kernels are predicted to cost, and what checks found.

Each row says by its first two columns of which plan it is: the diagram and the machine.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from napkin.plan.plan import Plan
from napkin.show.files import csv_text
from napkin.show.words import sizes_text

COSTS, VERDICTS = "costs.csv", "verdicts.csv"

Row = dict[str, str]
Key = tuple[str, str]

COLUMNS = {
    COSTS: (
        "diagram", "machine", "dtype", "sizes", "kernel", "warpgroups", "H", "M", "bound", "bytes",
        "tiles", "warps", "stages", "persistent", "blocks", "shared_bytes", "register_bytes",
        "time_us", "limited_by",
    ),
    VERDICTS: (
        "diagram", "machine", "digest", "cases", "relative_error", "tolerance", "byte_figures",
        "kernel", "arch", "operands", "allocated", "room", "registers", "spills",
    ),
}  # fmt: skip


def key_of(row: Row) -> Key:
    """The plan that a row is of."""
    return row["diagram"], row["machine"]


def cost_rows(plan: Plan) -> list[Row]:
    """The predictions of a plan, a row for each distinct kernel and for each of warpgroups."""
    data = plan.to_json()
    named: dict[str, Mapping[str, Any]] = {k["name"]: k for k in data["kernels"]}
    fast: list[Mapping[str, Any]] = data.get("warpgroups", [])
    whole = {
        "diagram": plan.name, "machine": plan.machine.name, "dtype": plan.dtype,
        "sizes": sizes_text(plan.sizes, " "),
    }  # fmt: skip
    return [{**whole, **_costs(k)} for k in (*named.values(), *fast)]


def _costs(k: Mapping[str, Any]) -> Row:
    side = f"{k['warpgroups']} along {k['axis']}" if k["axis"] else k["warpgroups"] or ""
    out = {
        "kernel": k["name"], "warpgroups": side, "H": k["H"]["total"], "blocks": k["swizzle"],
        "bytes": sizes_text(k["bytes"], " "), "tiles": sizes_text(k["tiles"], " "),
    }  # fmt: skip
    same = ("M", "bound", "warps", "stages", "persistent", "shared_bytes", "register_bytes",
            "time_us", "limited_by")  # fmt: skip
    return {name: str(value) for name, value in {**out, **{c: k[c] for c in same}}.items()}


def verdict_rows(plan: Plan, verdict: Mapping[str, Any]) -> list[Row]:
    """What a check found, as plain data: a row for each kernel and architecture."""
    values = verdict["values"]
    cases = {r["case"] for r in values.get("rows", ())}
    whole = {
        "diagram": plan.name, "machine": plan.machine.name, "digest": digest(plan),
        "cases": len(cases), "relative_error": f"{values['relative_error']:.1e}",
        "tolerance": f"{values['tolerance']:.0e}", "byte_figures": len(verdict["traffic"]),
    }  # fmt: skip
    kinds = ("kernel", "arch", "operands", "allocated", "room", "registers", "spills")
    own = [{c: r[c] for c in kinds} for r in verdict["resources"]]
    rows = ({**whole, **r} for r in own)
    return [{c: "" if v is None else str(v) for c, v in row.items()} for row in rows]


def digest(plan: Plan) -> str:
    """What a verdict is about: the sources of a plan, and how they are launched."""
    launched = [
        (e.name, e.schedule.tiles, e.schedule.warps, e.schedule.stages, e.schedule.persistent)
        for e in (s.entry for s in plan.recipe.steps)
    ]
    text = json.dumps([plan.source, plan.warpgroups, launched])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# --- files --------------------------------------------------------------------------------------


def read_table(path: Path) -> list[Row] | None:
    """The rows of a table; none where there is no file, and None where it is no such table."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return []
    except UnicodeDecodeError:
        return None
    reader = csv.DictReader(io.StringIO(text))
    if tuple(reader.fieldnames or ()) != COLUMNS[path.name]:
        return None
    rows = list(reader)
    whole = all(None not in (*row, *row.values()) for row in rows)
    return [{str(c): str(v) for c, v in row.items()} for row in rows] if whole else None


def table_text(name: str, rows: Iterable[Row]) -> bytes:
    """A table as its file has it, by diagram and machine."""
    return csv_text(sorted(rows, key=key_of), COLUMNS[name]).encode()


def replaced(have: Iterable[Row], new: Sequence[Row]) -> list[Row]:
    """Rows with those of some plans in place of theirs."""
    keys = {key_of(row) for row in new}
    return [*(row for row in have if key_of(row) not in keys), *new]
