"""A pipelined algorithm as tables, from the data of `napkin.show.pipeline`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from napkin.show.console import RenderableType, Table, table
from napkin.show.words import sizes_text

Data = Mapping[str, Any]


def pipeline_view(data: Data) -> list[RenderableType]:
    """Pseudocode, alignments, configuration, clocks, bandwidth and overlap, in this order."""
    out: list[RenderableType] = [_heading(data), ""]
    loads = {v["name"]: v for b in data["blocks"] for v in b["variables"] if v["role"] == "input"}
    out += ["before the loop", *_moves("load", loads.values())]
    out += [*(f"  {x['name']} = {x['value']:g}" for x in data["init"]), ""]
    for block in data["blocks"]:
        out += _block(block)
    out += [_variables(data), _alignments(data), *_levels(data)]
    for loop in data["loops"]:
        out += [_work(loop), f"ideal: {loop['ideal'] / 1e12:,.0f} TFLOP/s = {loop['ideal_from']}"]
        out += ["", _bandwidth(data, loop)]
    out.append(_overlap(data))
    if data["remark"]:
        out.append(f"e = {data['overhead']:.4g}: {data['remark']}.")
    return out


def _heading(data: Data) -> str:
    stored = dict(data["storage"])
    other = stored.pop("")
    types = ", ".join(
        [*(f"{name} {t}" for name, t in stored.items()), f"others {other}" if stored else other]
    )
    tiles = [f"{a}={n}" for a, n in data["tiles"].items()]
    return "\n".join([
        f"{data['name']} on {data['machine']}, {sizes_text(data['sizes'])}",
        f"a {data['team']} of {data['threads']} threads holds {', '.join(tiles)}: "
        f"{_rows(data)}; several lie along {data['along']}",
        f"stored: {types}; registers: {data['computed']}",
    ])  # fmt: skip


def _rows(data: Data) -> str:
    """t: rows of a team for each of its threads."""
    rows, threads = data["loops"][0]["rows"], data["threads"]
    if rows >= threads:
        return f"{rows} rows, {rows / threads:g} a thread"
    return f"{rows} rows, {threads / rows:g} threads each"


def _block(block: Data) -> list[str]:
    """The stages of a block, each with the pipe that runs it and the arrays that it leaves."""
    rows: list[tuple[str, str, str]] = []
    for s, column in zip(block["steps"], block["columns"][1:], strict=True):
        where = "tensor cores" if s["level"] == "tensor" else "registers"
        where += ", in the accumulator" if s["adds"] else ""
        where += "".join(f", {n} of {a} at once" for a, n in s["pieces"].items())
        rows.append((f"{s['name']} = {s['text']}", f"[{where}]", " ".join(column)))
    wide = [max((len(row[i]) for row in rows), default=0) for i in range(2)]
    parts = {role: [v for v in block["variables"] if v["role"] == role] for role in _MOVES}
    lines = [block["title"] + (", leaving at each step" if rows else "")]
    lines += _moves("load", parts["chunk"])
    lines += [f"  {text:<{wide[0]}}  {where:<{wide[1]}}  {left}" for text, where, left in rows]
    lines += _moves("store", parts["output"])
    return [*lines, ""] if len(lines) > 1 else []


_MOVES = ("chunk", "output")


def _moves(what: str, variables: Iterable[Data]) -> list[str]:
    found = [f"{v['name']}[{v['size']}]" for v in variables]
    return [f"  {what} {', '.join(found)}"] if found else []


def _variables(data: Data) -> Table:
    columns = ("array", "role", "size", ">values", ">q", ">bytes", "type", "level", "one for each")
    made = table(*columns, title="variables")
    seen: set[tuple[Any, ...]] = set()
    for block in data["blocks"]:
        for v in block["variables"]:
            name = v["name"].removesuffix("'") if v["role"] == "state" else v["name"]
            key = (name, v["level"], v["size"])
            if key in seen:
                continue
            seen.add(key)
            owner = "block" if v["of"] == "block" else data["team"]
            level = f"{v['level']}, {' and '.join(v['crossing'])}" if v["crossing"] else v["level"]
            made.add_row(
                name, v["role"], v["size"], f"{v['values']:,}", str(v["item_bytes"]),
                f"{v['bytes']:,}", v["type"], level, owner,
            )  # fmt: skip
    return made


def _alignments(data: Data) -> Table:
    columns = ("axis", ">multiple of", ">is", "because")
    made = table(*columns, title="alignments, joined by LCM")
    for m in data["alignments"]:
        reasons = "\n".join(f"{r['multiple']}: {r['reason']}" for r in m["reasons"])
        size = f"{m['size']}" if m["ok"] else f"{m['size']}, broken"
        made.add_row(m["axis"], str(m["multiple"]), size, reasons)
    return made


def _levels(data: Data) -> list[RenderableType]:
    out: list[RenderableType] = []
    for h in data["levels"]:
        columns = ("held", "one for each", ">bytes", ">B a thread")
        made = table(*columns, title=f"{h['level']}, {h['when']}")
        for owner in ("block", "team"):
            name = data["team"] if owner == "team" else owner
            for part in h[owner]:
                thread = f"{part['bytes'] / data['threads']:g}" if owner == "team" else ""
                made.add_row(part["what"], name, f"{part['bytes']:,}", thread)
        made.add_section()
        if h["block"]:
            made.add_row("all", "block", f"{h['block_bytes']:,} = {_kib(h['block_bytes'])}", "")
        thread = f"{h['thread_bytes']:g}"
        made.add_row("all", data["team"], f"{h['team_bytes']:,} = {_kib(h['team_bytes'])}", thread)
        out += [made, f"N <= {h['most']:.2f} = {h['from']}", ""]
    limit = f"threads allow {data['teams_most']}"
    wide = data["tiles"][data["along"]]
    out.append(
        f"N = {data['teams']} {data['team']}s ({limit}): "
        f"g_{data['along']} = {data['teams']} x {wide} = {data['group']}"
    )
    return [*out, ""]


def _kib(count: int) -> str:
    return f"{count / 1024:g} KiB"


def _work(loop: Data) -> Table:
    columns = ("operation", "pipe", "counted from", ">ops", ">ops/clk/SM", ">clk")
    made = table(*columns, title=f"clocks of a row, {loop['title']}")
    for w in loop["work"]:
        made.add_row(
            w["what"], w["pipe"], w["from"], f"{w['ops']:,g}", f"{w['rate']:,g}",
            f"{w['clocks']:.4g}",
        )  # fmt: skip
    made.add_section()
    for pipe, clocks in loop["pipes"].items():
        made.add_row("all", pipe, "", "", "", f"{clocks:.4g}")
    return made


def _bandwidth(data: Data, loop: Data) -> Table:
    group = f"at g = {data['group']}"
    numbers = (f">g_{data['along']} at least", f">compute, {group}", ">transfer")
    title = "the group for which loads keep up, if no group shares them"
    made = table("pipe", "from", *numbers, title=title)
    for b in loop["bandwidth"]:
        least = "none" if b["least"] is None else f"{b['least']:.0f}"
        made.add_row(
            b["pipe"], b["from"], least, f"{b['compute'] * 1e6:.3g} us",
            f"{b['transfer'] * 1e6:.3g} us",
        )  # fmt: skip
    return made


def _overlap(data: Data) -> Table:
    e = data["overhead"]
    clocks, shares = (">T_1", ">T_2", ">T_S", ">T"), (">tensor cores busy", ">arithmetic idle")
    made = table("stored", "chunks", "overlap", *clocks, *shares, ">absorbs e of",
                 title=f"overlap of products and arithmetic, e = {e:.4g}")  # fmt: skip
    for o in data["overlap"]:
        loop = f", loop {o['loop'] + 1}" if len(data["loops"]) > 1 else ""
        absorbed = o["absorbed"]
        chunks = "long" if o["long"] else " x ".join(str(n) for n in data["inner"].values())
        made.add_row(
            o["storage"] + loop, chunks, o["how"],
            *(f"{o[key]:.4g}" for key in ("first", "second", "arithmetic", "clocks")),
            f"{o['utilisation']:.0%}", f"{o['idle']:.0%}",
            "any" if math.isinf(absorbed) else f"{absorbed:.0%}" if absorbed >= 0 else "none",
        )  # fmt: skip
    return made
