"""What was measured on a device, as it is read: tables, and a plot of times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from napkin.plan.plan import Plan
from napkin.plan.ranked import setting_json
from napkin.show.console import RenderableType, Table, table
from napkin.show.plots import figure
from napkin.show.words import sizes_text

if TYPE_CHECKING:
    from napkin.measure.tune import Ranking
    from napkin.measure.verify import Verified


# --- settings -----------------------------------------------------------------------------------


def settings(plan: Plan, top: int) -> dict[str, list[dict[str, Any]]]:
    """The first `top` settings of each distinct kernel as plain data, by its name."""
    if not top:
        return {}
    return {name: [setting_json(c) for c in found] for name, found in plan.ranked(top).items()}


def with_settings(
    data: dict[str, Any],
    first: Mapping[str, Sequence[Any]],
    rankings: Sequence[Ranking] = (),
    about: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """A plan's plain data with those of its settings, where they were asked for."""
    if first:
        data["settings"] = dict(first)
    if rankings:
        data["tuned"] = {**(about or {}), "kernels": [r.to_json() for r in rankings]}
    return data


def settings_view(first: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[RenderableType]:
    """A table of settings for each kernel."""
    out: list[RenderableType] = []
    for kernel, rows in first.items():
        made = _setting_table(f"settings of {kernel}, least predicted time first", "limited by")
        for i, row in enumerate(rows):
            made.add_row(
                str(i + 1), *_setting(row), f"{row['predicted_us']:,.1f}", row["limited_by"]
            )
        out.append(made)
    return out


def _setting_table(title: str, *more: str) -> Table:
    columns = (">rank", "stream", "tiles", "warps", "warpgroups", "stages", "persistent", "swizzle")
    return table(*columns, ">shared", ">predicted us", *more, title=title)


def _setting(row: Mapping[str, Any]) -> list[str]:
    tiles = {a: n for a, n in row["tiles"].items() if n > 1}
    stream = row["stream"] + (f" in {row['passes']} passes" if row["passes"] > 1 else "")
    some = [str(row[key] or "-") for key in ("persistent", "swizzle")]
    numbers = (str(row["stages"]), *some, f"{row['shared_bytes']:,}")
    return [
        stream or "-",
        sizes_text(tiles) or "1",
        str(row["warps"]),
        _specialised(row["axis"], row["warpgroups"]),
        *numbers,
    ]


def _specialised(axis: str, groups: int) -> str:
    """How groups run as warpgroups of one block."""
    return f"{groups} along {axis}" if axis else f"{groups} ping-pong" if groups else "-"


def rankings_view(
    rankings: Sequence[Ranking], about: Mapping[str, str] | None = None
) -> list[RenderableType]:
    """Predicted beside measured, a table for each kernel."""
    out: list[RenderableType] = [_about(about)] if about else []
    for r in rankings:
        data = r.to_json()
        more = (">measured us", ">quartiles", ">measured rank", "note")
        made = _setting_table(f"settings of {r.kernel}, as predicted and as measured", *more)
        for row in data["candidates"]:
            made.add_row(
                str(row["predicted_rank"]),
                *_setting(row),
                f"{row['predicted_us']:,.1f}",
                *_times(row["measured_us"], row["measured_low_us"], row["measured_high_us"]),
                "-" if row["measured_rank"] is None else str(row["measured_rank"]),
                row["note"],
            )
        out.append(made)
        if r.first_over_best is None:
            out.append("nothing could be measured; the planner's choice stands")
            continue
        said = f"the first choice takes {r.first_over_best:.3f} times the fastest, which was ranked"
        said += f" {r.best.place}"
        if r.agreement is not None:
            said += f"; rank correlation {r.agreement:.2f}"
        out.append(said)
    if about and "remembered" in about:
        out.append(f"remembered in {about['remembered']}; napkin derive --tuned takes it")
    return out


def _times(median: float | None, low: float | None, high: float | None) -> tuple[str, str]:
    if median is None:
        return "-", "-"
    return f"{median:,.1f}", f"{low:,.1f} to {high:,.1f}"


_VERSIONS = ("driver", "cuda", "torch", "triton", "napkin")


def _about(data: Mapping[str, Any]) -> str:
    versions = ", ".join(f"{n} {data[n]}" for n in _VERSIONS if data.get(n))
    return f"{data['device']} ({data['arch']}), {versions}"


# --- checks -------------------------------------------------------------------------------------


def device_view(data: Mapping[str, Any]) -> list[RenderableType]:
    """What `check --gpu` adds, from its plain data."""
    out: list[RenderableType] = [f"on the device: {_about(data)}, seed {data['seed']}"]
    if data["note"]:
        out.append(data["note"])
    columns = ("output", ">relative error", ">at most", "")
    values = table(*columns, title="values on the device")
    for row in data["values"]:
        error, most = f"{row['relative_error']:.2e}", f"{row['tolerance']:.0e}"
        values.add_row(row["output"], error, most, "ok" if row["ok"] else "WRONG")
    repeats = "are the same" if data["repeats"] else "DIFFER"
    out += [values, f"results {repeats} from run to run"]
    if data["counters"]:
        out.append(_counters(data["counters"]))
    if data["counters_note"]:
        out.append(f"counters: {data['counters_note']}")
    t = data["time"]
    out.append(
        f"time: {t['measured_us']:,.1f} us ({t['measured_low_us']:,.1f} to "
        f"{t['measured_high_us']:,.1f}, {t['runs']} runs, cold L2), predicted "
        f"{t['predicted_us']:,.1f} us: {t['measured_over_predicted']:.2f} times"
    )
    return out


def _counters(rows: Sequence[Mapping[str, Any]]) -> Table:
    columns = (">H, read", ">read, predicted", ">read", ">over", ">written, predicted", ">written",
               ">from memory, predicted", ">from memory", ">to memory, predicted", ">to memory",
               )  # fmt: skip
    title = "bytes counted by the device, L2 to multiprocessors"
    made = table("kernel", *columns, "", title=title)
    names = ("written_predicted", "written", "from_memory_predicted", "from_memory",
             "to_memory_predicted", "to_memory")  # fmt: skip
    for r in rows:
        made.add_row(
            r["kernel"],
            f"{r['read_requested']:,}",
            f"{r['read_predicted']:,}",
            f"{r['read']:,}",
            f"{r['read'] / max(r['read_predicted'], 1):.4f}",
            *(f"{r[n]:,}" for n in names),
            "ok" if r["ok"] else "WRONG",
        )
    return made


# --- bench --------------------------------------------------------------------------------------


def bench_view(data: Mapping[str, Any]) -> list[RenderableType]:
    """The table of a bench, from its plain data."""
    head = f"{data['name']} planned for {data['machine']}, {data['dtype']}, "
    head += sizes_text(data["sizes"])
    numbers = (">median us", ">quartiles", ">over napkin", ">TFLOP/s", ">error")
    made = table("", *numbers, "settings")
    for r in data["rows"]:
        over, rate, error = r["over_napkin"], r["tflops"], r["relative_error"]
        wrong = error is not None and not error <= data["tolerance"]
        said = " WRONG" if r is data["rows"][0] else " differs"
        made.add_row(
            r["name"],
            *_times(r["median_us"], r["low_us"], r["high_us"]),
            "-" if over is None else f"{over:.2f}x",
            "-" if rate is None or not data["flops"] else f"{rate:,.0f}",
            "-" if error is None else f"{error:.1e}" + (said if wrong else ""),
            r["settings"] or r["note"],
        )
    ours = data["rows"][0]
    out: list[RenderableType] = [head, f"{_about(data)}, seed {data['seed']}"]
    if data["note"]:
        out.append(data["note"])
    out.append(made)
    if ours["median_us"]:
        over = ours["median_us"] / data["predicted_us"]
        rate = data["bytes"] / ours["median_us"] / 1e6
        out.append(
            f"predicted {data['predicted_us']:,.1f} us: measured is {over:.2f} times that; "
            f"{rate:.2f} TB/s between L2 and multiprocessors"
        )
    return out


def write_bench_plot(path: Path, data: Mapping[str, Any]) -> None:
    """Draw the times of a bench: a bar each, its quartiles, and the prediction as a line.

    Raises:
        InputError: see `napkin.show.plots.check_plot`; or the file cannot be written.
    """
    rows = [r for r in data["rows"] if r["median_us"] is not None]
    medians = [r["median_us"] for r in rows]
    below = [r["median_us"] - r["low_us"] for r in rows]
    above = [r["high_us"] - r["median_us"] for r in rows]
    with figure(path, 8, 1.4 + 0.4 * max(len(rows), 1)) as made:
        axes = made.subplots()
        axes.barh(range(len(rows)), medians, xerr=[below, above], capsize=3)
        axes.axvline(data["predicted_us"], color="black", linestyle=":", label="predicted")
        labels = [f"{r['name']}, {r['over_napkin']:.2f}x" for r in rows]
        axes.set_yticks(range(len(rows)), labels)
        axes.invert_yaxis()
        axes.set_xlabel("microseconds, median and quartiles, cold L2")
        about = f"{data['name']}, {data['dtype']}, {sizes_text(data['sizes'])}"
        axes.set_title(f"{about}\n{_about(data)}", fontsize=9)
        axes.legend(loc="lower right")


# --- verify -------------------------------------------------------------------------------------


def verified_view(found: Verified) -> list[RenderableType]:
    """How every group of problems went, then each that did not hold."""
    from napkin.measure.verify import summed

    counts = ("problems", "ok", "wrong", "refused", "skipped")
    made = table("group", *(f">{n}" for n in counts), ">worst error", ">at most", ">s")
    for row in summed(found.outcomes):
        made.add_row(
            row["group"],
            *(str(row[n]) for n in counts),
            "-" if row["worst"] is None else f"{row['worst']:.1e}",
            "-" if row["at_most"] is None else f"{row['at_most']:.0e}",
            f"{row['seconds']:.0f}",
        )
    out: list[RenderableType] = [
        f"{_about(found.about)}, planned for {found.machine}, seed {found.seed}",
        made,
    ]
    for t in found.tools:
        took = f" ({t.seconds:.0f} s)" if t.seconds else ""
        out.append(f"compute-sanitizer {t.tool}: {t.status}. {t.note}{took}")
    out += [str(o) for o in found.outcomes if o.status != "ok"]
    ran = sum(o.status in {"ok", "wrong"} for o in found.outcomes)
    said = "all hold" if found.ok else f"{len(found.wrong)} do NOT hold"
    idle = [t.tool for t in found.tools if t.status in {"refused", "skipped"}]
    beside = f"; not watched by {' and '.join(idle)}, see above" if idle else ""
    return [*out, f"{ran} problems run: {said if ran else 'nothing could be run'}{beside}"]
