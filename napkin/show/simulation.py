"""Simulations as they are read: tables and plots."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from napkin.keys.neighbors import Window
from napkin.show.console import Table, pairs, table
from napkin.show.plots import figure
from napkin.studies.simulator import Simulation, group_tiles, shape_text
from napkin.studies.sweep import Sweep

# --- tables -------------------------------------------------------------------------------------


def view(found: Simulation | Sweep) -> Table:
    """One simulation, a measure each line; or the problems of a sweep, best first."""
    if isinstance(found, Simulation):
        return pairs(found.problem, _rows(found))
    return _problems(found)


def _rows(s: Simulation) -> Iterable[tuple[str, str]]:
    yield (
        "speed-up bound",
        f"{s.speedup_bound:.2f}x: {s.tiles_dense:,} key tiles dense, {s.tiles_worst:,} at worst",
    )
    yield "speed-up, mean", f"{s.speedup_mean:.2f}x: where idle cores take work from the worst tile"
    yield "speed-up, FLOP-wise", f"{s.speedup_flops:.2f}x: tokens by keys of a window"
    if s.end_to_end is not None:
        yield "end to end", f"{s.end_to_end:.2f}x: attention is {s.share:.0%} of the run"
    yield "pairs of tiles", f"{s.visited:,} visited"
    for name, count, why in (
        ("full", s.full, "no mask"),
        ("partial", s.partial, "a mask by coordinates"),
        ("padding only", s.padding, "a check against the end"),
    ):
        yield f"  {name}", f"{count:,} = {count / s.visited:.1%}: {why}"


def _problems(found: Sweep) -> Table:
    first = found.results[0]
    extra = () if first.share is None else (">end to end",)
    title = f"{first.speedup_flops:.2f}x FLOP-wise; {found.tried:,} problems, least work first"
    made = table(
        "stride", "q tile", "kv tile", ">bound", ">mean", ">worst", ">dense", ">full", *extra,
        title=f"{title}; a stride stands only where it gains over all smaller ones",
    )  # fmt: skip
    for s in found.results:
        more = () if s.end_to_end is None else (f"{s.end_to_end:.2f}x",)
        made.add_row(
            *(shape_text(v) for v in (s.stride, s.q_tile, s.kv_tile)),
            f"{s.speedup_bound:.2f}x",
            f"{s.speedup_mean:.2f}x",
            f"{s.tiles_worst:,}",
            f"{s.tiles_dense:,}",
            f"{s.full_share:.0%}",
            *more,
        )
    return made


# --- plots --------------------------------------------------------------------------------------


def write_plot(path: Path, found: Simulation | Sweep) -> None:
    """Draw a simulation (what each tile of queries visits) or a sweep (its speed-ups).

    Raises:
        InputError: see `napkin.show.plots.check_plot`; or the file cannot be written.
    """
    if isinstance(found, Simulation):
        with figure(path, 8, 1.2 + 1.8 * len(found.layout)) as made:
            _draw_tiles(made, found)
    else:
        with figure(path, 8, 1.4 + 0.3 * len(found.results)) as made:
            _draw_bars(made, found.results)


def _draw_tiles(figure: Any, s: Simulation) -> None:
    """For each axis, the key tiles that its tiles of queries visit."""
    figure.suptitle(f"{s.problem}\nspeed-up bound {s.speedup_bound:.2f}", fontsize=10)
    panels = figure.subplots(len(s.layout), squeeze=False)[:, 0]
    for a, axes in enumerate(panels):
        w = Window(s.kernel_size[a], s.stride[a], s.dilation[a], s.is_causal[a])
        length = -(-s.layout[a] // w.dilation)
        tile = s.q_tile[a]
        visited, whole, full = group_tiles(length, w, tile, s.kv_tile[a], s.kv_tiling)
        base = 0 * visited
        for name, count in (
            ("full", full), ("padding only", whole - full), ("partial", visited - whole)
        ):  # fmt: skip
            starts = [i * tile for i in range(len(visited))]
            axes.bar(starts, count, tile * 0.9, base, align="edge", label=name)
            base = base + count
        group = f" of a dilation group (every {w.dilation}th token)" if w.dilation > 1 else ""
        axes.set_xlabel(f"first query of a tile along axis {a}{group}")
        axes.set_ylabel("key tiles")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower right", ncols=3)


def _draw_bars(figure: Any, results: Sequence[Simulation]) -> None:
    """Bound and mean of each result, and the FLOP-wise speed-up that neither passes."""
    rows = range(len(results))
    axes = figure.subplots()
    axes.barh([i - 0.2 for i in rows], [s.speedup_bound for s in results], 0.4, label="bound")
    axes.barh([i + 0.2 for i in rows], [s.speedup_mean for s in results], 0.4, label="mean")
    axes.axvline(results[0].speedup_flops, color="black", linestyle=":", label="FLOP-wise")
    labels = [
        f"{shape_text(s.stride)}, {shape_text(s.q_tile)} / {shape_text(s.kv_tile)}" for s in results
    ]
    axes.set_yticks(list(rows), labels, fontsize=8)
    axes.invert_yaxis()
    axes.set_xlabel("speed-up over dense attention")
    axes.set_ylabel("stride, tiles of queries / keys")
    figure.legend(loc="outside lower right", ncols=3)
