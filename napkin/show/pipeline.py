"""A pipelined algorithm as plain data: every figure beside what it was computed from."""

from __future__ import annotations

import math
from dataclasses import asdict
from itertools import product
from typing import Any

from napkin.count.alignment import combined
from napkin.count.traffic import ITEM_BYTES
from napkin.ir.node import Node
from napkin.studies.pipeline.clocks import Clocks
from napkin.studies.pipeline.colours import Coloured, Variable
from napkin.studies.pipeline.fit import Held
from napkin.studies.pipeline.model import Pipeline
from napkin.studies.pipeline.overlap import NOT_INDEPENDENT, Overlap
from napkin.studies.pipeline.setting import size_of

HOW = ("inter", "intra")


def pipeline_json(p: Pipeline, overhead: float = 0.0) -> dict[str, Any]:
    """Pseudocode, alignments, configuration, clocks, bandwidth and overlap.

    Args:
        overhead: e, of the arithmetic over its counted operations, where the overlap is shown.
    """
    s = p.setting
    return {
        "name": p.kernel.name,
        "machine": p.machine.name,
        "sizes": dict(p.sizes),
        "team": p.team,
        "threads": p.fit.threads,
        "along": s.along,
        "tiles": dict(s.tiles),
        "inner": dict(s.inner),
        "storage": {"": s.dtype, **s.storage},
        "computed": s.computed,
        "buffers": s.buffers,
        "init": [
            {"name": x.name, "value": x.init} for x in p.kernel.stream.states
        ],
        "blocks": [_block(b) for b in p.colouring.blocks],
        "alignments": _alignments(p),
        "levels": [_held(p, h) for h in p.fit.held],
        "teams": p.fit.teams,
        "teams_most": p.fit.limit,
        "group": p.fit.group,
        "loops": [_clocks(p, c) for c in p.clocks],
        "overlap": _overlaps(p, overhead),
        "overhead": overhead,
        "remark": NOT_INDEPENDENT if overhead else "",
    }  # fmt: skip


def drawn_body(p: Pipeline) -> str:
    """The first loop body as a circuit diagram in SVG, its wires in the colours of their levels."""
    from napkin.show.circuit import draw

    b = p.colouring.bodies[0]
    levels: dict[Node, tuple[str, ...]] = {}
    for s in b.steps:
        levels[s.stage.node] = (s.level,)
    for n, v in b.variables.items():
        handed = "to registers" in v.crossing
        levels[n] = ("tensor", v.level) if handed else (v.level,)
    axes = {a for stage in b.block.stages for a in (*stage.node.axes, *stage.over)}
    labels = {a: p.setting.symbol(p.kernel, a, True) for a in axes}
    return draw(b.block.diagram, labels, levels)


# --- the pseudocode -----------------------------------------------------------------------------


def _block(b: Coloured) -> dict[str, Any]:
    names = b.block.names
    steps = [
        {
            "name": names[s.stage.node],
            "text": s.stage.text,
            "level": s.level,
            "pieces": {a: n for a, (_, n) in (*s.pieces.items(), *s.split.items())},
            "adds": s.added,
        }
        for s in b.steps
    ]
    columns = [[names[e.node] for e in c] for c in b.block.columns]
    every = [_variable(v) for v in b.every]
    return {"title": b.block.title, "steps": steps, "columns": columns, "variables": every}


def _variable(v: Variable) -> dict[str, Any]:
    return {
        "name": v.name,
        "role": v.role,
        "level": v.level,
        "of": v.owner,
        "size": v.size,
        "values": v.values,
        "type": v.dtype,
        "item_bytes": v.item_bytes,
        "bytes": v.bytes,
        "crossing": list(v.crossing),
        "stored": v.stored,
    }


def _alignments(p: Pipeline) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for axis, multiple in combined(p.alignments).items():
        size = size_of(p.kernel, p.setting, axis)
        reasons = dict.fromkeys((m.multiple, m.reason) for m in p.alignments if m.axis == axis)
        out.append({
            "axis": axis, "multiple": multiple, "size": size, "ok": size % multiple == 0,
            "reasons": [{"multiple": n, "reason": reason} for n, reason in reasons],
        })  # fmt: skip
    return out


# --- the configuration --------------------------------------------------------------------------


def _held(p: Pipeline, h: Held) -> dict[str, Any]:
    return {
        **asdict(h),
        "block_bytes": h.block_bytes,
        "team_bytes": h.team_bytes,
        "thread_bytes": h.team_bytes / p.fit.threads,
        "most": h.most,
        "from": f"({h.capacity:,} - {h.block_bytes:,}) / {h.team_bytes:,} B",
    }


# --- the time -----------------------------------------------------------------------------------


def _clocks(p: Pipeline, c: Clocks) -> dict[str, Any]:
    machine = p.machine
    slowest = max(c.pipes, key=lambda name: c.pipes[name])
    return {
        "title": c.body.block.title,
        "rows": c.rows,
        "work": [
            {
                "what": w.what, "pipe": w.pipe, "ops": w.ops + w.once, "from": w.source,
                "rate": w.rate, "clocks": w.clocks,
            }
            for w in c.work
        ],
        "pipes": dict(c.pipes),
        "slowest": slowest,
        "ideal": c.ideal,
        "ideal_from": f"{c.product_ops:,.0f} / {c.pipes[slowest]:g} clk of {slowest} x "
        f"{machine.sms} SMs x {machine.clock / 1e9:g} GHz",
        "bandwidth": [
            {
                "pipe": b.pipe,
                "least": b.least if math.isfinite(b.least) else None,
                "from": _least_text(p, c, b.block, b.team, b.pipe),
                "compute": b.compute,
                "transfer": b.transfer,
            }
            for b in c.bandwidth(p.fit.group)
        ],
    }  # fmt: skip


def _least_text(p: Pipeline, c: Clocks, block: int, own: int, pipe: str) -> str:
    source, target = pipe.split(" to ")
    rate = p.machine.pipe(source, target).rate.value
    wide, rows = p.setting.tiles[p.setting.along], c.rows
    clocks = f"{c.clocks('tensor'):g} clk / {p.machine.clock / 1e9:g} GHz"
    moved = f"{p.machine.sms} SMs / {rate / 1e12:g} TB/s"
    per_row = f"({clocks})" if rows == wide else f"({rows} / {wide} x {clocks})"
    if own:
        each = f"{own // wide:,} B" if own % wide == 0 else f"{own / wide:g} B"
        per_row = f"({per_row[1:-1]} - {each} x {moved})"
    return f"{block:,} B x {moved} / {per_row}"


def _overlaps(p: Pipeline, overhead: float) -> list[dict[str, Any]]:
    """The iteration as it is stored and with every tensor in one type, in chunks as given and
    long."""
    out: list[dict[str, Any]] = []
    kinds: list[tuple[str, Pipeline]] = [("as given", p)]
    tensors = {
        key.removeprefix("tensor_") for key in p.machine.compute if key.startswith("tensor_")
    }
    for name in ("fp16", "fp8"):
        if name in tensors and name in ITEM_BYTES:
            kinds.append((f"all {name}", p.stored(name)))
    for (label, made), long in product(kinds, (False, True)):
        for (i, iteration), how in product(enumerate(made.overlaps(long)), HOW):
            row = _overlap(iteration, how, overhead)
            out.append({"loop": i, "storage": label, "long": long, "how": how, **row})
    return out


def _overlap(iteration: Overlap, how: str, overhead: float) -> dict[str, Any]:
    return {
        **asdict(iteration),
        "clocks": iteration.clocks(how, overhead),
        "utilisation": iteration.utilisation(how, overhead),
        "idle": iteration.idle(how, overhead),
        "absorbed": iteration.absorbed(how),
    }
