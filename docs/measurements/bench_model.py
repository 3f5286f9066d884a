"""The time model beside the GPU that is there: predicted and measured time of kernels.

Each row is timed with a cold L2 (`napkin.measure.timing`). `fitted` are the shapes that the
constants were read off, `shapes` others, `new` shapes drawn from --seed, of which none stands in a
recorded run: what the model is judged on. Products by cuBLAS are rows of their own, predicted as
the fastest of the plan and of tiles that cuBLAS has and Triton has not (`library`). `tiles` runs
settings of nine problems, at least 40 of each: the planner's ranking, then other warps and stages
of its tiles, and tiles that it drops for their registers; and says where the planner's first choice
stands, and the best of its first five.

    python docs/measurements/bench_model.py new|shapes|fitted|tiles [--seed 1] [--json FILE]

With --compile I/N only a share of the kernels is compiled, into Triton's cache: run N of them
first.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
from heading import heading
from problems import Problem, drawn_shapes, fitted, shapes, sweeps, text

import napkin as nk
from napkin.measure import timing, tune
from napkin.measure.tensors import drawn
from napkin.plan.plan import Plan
from napkin.plan.ranked import ranked, setting, setting_json, with_choices
from napkin.schedule import Schedule
from napkin.settings.choice import Choice
from napkin.settings.labels import labellings
from napkin.settings.pricing import Pricing
from napkin.settings.tiles import Tiles
from napkin.torch import run as launching

SETTINGS = 56
"""Settings of each problem of a sweep."""

SECONDS = 0.08
"""Of running each of them, about: a hundred runs of most."""


HEIGHTS, WIDTHS, DEPTHS = range(64, 321, 64), range(64, 257, 32), (64, 128)
"""Tiles of cuBLAS's kernels for Hopper, by the names of those (nvjet_..._192x192_64x4): multiples
of what a matrix instruction takes, where Triton's are powers of two."""

LARGEST = 256 * 192
"""Values of such a tile, at most: those of two warpgroups' registers."""


# --- shapes -------------------------------------------------------------------------------------


def measured(problems: Sequence[Problem], out: list[dict[str, Any]]) -> None:
    """Predicted and measured time of each problem, printed and added to `out` as they come."""
    for name, diagram, sizes in problems:
        try:
            plan = nk.derive(diagram, on="h100", sizes=sizes)
            arrays = drawn(plan.diagram, plan.sizes, plan.dtype, 0)
            calls: dict[str, Any] = {name: launching.bound_call(plan, arrays, {})}
            if name == "matmul":
                calls["torch.matmul"] = partial(torch.matmul, *arrays)
            found = timing.interleaved(calls)
        except Exception as error:
            # One shape that does not run leaves the others standing; it is no row of the summary.
            print(f"{name:24s} {text(sizes):36s} {type(error).__name__}: {str(error)[:200]}")
            continue
        ran = plan.launched.kernels
        limit = ", ".join(dict.fromkeys(k.choice.time.limited_by for k in ran))
        for which, took in found.items():
            predicted = 1e6 * (plan.seconds if which == name else library(plan))
            out.append({
                "name": which, "sizes": sizes, "predicted": predicted, "measured": took.median,
                "low": took.low, "high": took.high,
                "kernels": [{"name": k.name, **setting_json(k.choice)} for k in ran],
            })  # fmt: skip
            ratio = f"{predicted / took.median:5.2f}  ({limit})"
            print(f"{which:24s} {text(sizes):36s} predicted {predicted:9.1f} us  measured "
                  f"{took.median:9.1f} us  {ratio}", flush=True)  # fmt: skip


def library(plan: Plan) -> float:
    """Seconds of a product by a library: those of the plan, or of the fastest tile of `HEIGHTS`,
    `WIDTHS` and `DEPTHS` by the same model."""
    whole = plan if len(plan.kernels) == 1 else nk.derive(
        plan.diagram, plan.machine, plan.sizes, plan.dtype, parts={"b": 1}
    )  # fmt: skip
    terms, known = whole.kernels[0].choice.kernel, whole.full(whole.sizes)
    best = plan.seconds
    for kernel in labellings(terms.name, terms.origin, terms.names, known):
        if not kernel.stream.axes or len(kernel.group) != 2:
            continue
        pricing = Pricing(kernel, kernel.sized(known), plan.dtype, plan.machine)
        row, column = kernel.group
        for high, wide, deep in itertools.product(HEIGHTS, WIDTHS, DEPTHS):
            if high * wide > LARGEST:
                continue
            tiles = {row: high, column: wide, kernel.stream.axis: deep}
            warps = 8 if high * wide > 128 * 128 else 4
            for stages, lasting in itertools.product((3, 4), (0, plan.machine.sms)):
                found = pricing.at(Schedule(tiles, warps, stages, persistent=lasting))
                if found.shared <= plan.machine.shared_per_block:
                    best = min(best, found.time.seconds)
    return best


def off(row: Mapping[str, Any]) -> float:
    """How far the prediction is off, over the measured time."""
    return abs(row["predicted"] - row["measured"]) / row["measured"]


def summed(rows: Sequence[Mapping[str, Any]], what: str) -> str:
    """Mean absolute error and R^2 of rows; R^2 of times, and of their logarithms, to which all
    shapes count alike."""

    def squared(pairs: list[tuple[float, float]]) -> float:
        mean = fmean(m for _, m in pairs)
        spread = sum((m - mean) ** 2 for _, m in pairs)
        return 1 - sum((p - m) ** 2 for p, m in pairs) / spread if spread else math.nan

    if not rows:
        return f"no {what}"
    pairs = [(r["predicted"], r["measured"]) for r in rows]
    logs = [(math.log(p), math.log(m)) for p, m in pairs]
    offs = [off(r) for r in rows]
    return (
        f"{len(rows)} {what}: mean absolute error {100 * fmean(offs):.1f} %, median "
        f"{100 * median(offs):.1f} %, largest {100 * max(offs):.1f} %, R^2 {squared(pairs):.4f}, "
        f"of logarithms {squared(logs):.4f}"
    )


def summary(rows: Sequence[Mapping[str, Any]]) -> str:
    """All rows, generated kernels and cuBLAS, and the five that are worst."""
    theirs = [r for r in rows if r["name"] == "torch.matmul"]
    ours = [r for r in rows if r["name"] != "torch.matmul"]
    lines = [
        summed(rows, "times of generated kernels and of cuBLAS"),
        summed(ours, "of generated kernels"),
        summed(theirs, "of cuBLAS"),
    ]
    for r in sorted(rows, key=off, reverse=True)[:5]:
        lines.append(
            f"  worst: {r['name']} {text(r['sizes'])}: predicted {r['predicted']:.1f} us, "
            f"measured {r['measured']:.1f} us, {r['predicted'] / r['measured']:.2f}"
        )
    return "\n".join(lines)


# --- settings -----------------------------------------------------------------------------------


def widened(plan: Plan, most: int) -> tuple[list[Choice], int]:
    """Settings of a plan's first kernel: the ranking, then what the planner drops; and how many of
    them are ranked. The predictions of those after them are of the setting they are made from."""
    (kernel, *_) = plan.kernels
    chosen = ranked(plan, kernel, most)
    known = {setting(c) for c in chosen}
    out, alone = list(chosen), [c for c in chosen if not c.schedule.warpgroups]
    for other in itertools.chain(_turned(alone), _dropped(alone)):
        if len(out) >= most:
            break
        made = replace(kernel, choice=other)
        if setting(other) not in known and made.shared_bytes <= plan.machine.shared_per_block:
            known.add(setting(other))
            out.append(other)
    return out, len(chosen)


def _turned(chosen: Sequence[Choice]) -> Iterator[Choice]:
    """The tiles of settings, in their order, with other warps and stages."""
    for c in chosen:
        for stages in (2, 3, 1, 4):
            for warps in (4, 8):
                yield c.under(warps=warps, stages=stages, per_thread=True)


def _dropped(chosen: Sequence[Choice]) -> Iterator[Choice]:
    """Tiles of the first setting's labels that do not fit registers by the model."""
    first = chosen[0]
    for tiles in Tiles(first.kernel, first.sizes).settings():
        yield first.under(tiles=tiles, warps=8, stages=2, per_thread=True)


def tiles(problems: Sequence[Problem], out: list[dict[str, Any]], most: int) -> None:
    """Each problem's settings measured, and where the first choice stands; added to `out`."""
    for name, diagram, sizes in problems:
        plan = nk.derive(diagram, on="h100", sizes=sizes)
        choices, by_model = widened(plan, most)
        ranking = tune.measured(plan, plan.kernels[0], choices, 0, SECONDS)
        times = [r.measured.median for r in ranking.rows if r.measured]
        first, five = ranking.rows[0].measured, [r.measured for r in ranking.rows[:5]]
        if first is None:
            print(f"{name:22s} {text(sizes):32s} first choice: {ranking.rows[0].note}")
            continue
        best = min(times)
        top = min(m.median for m in five if m) / best
        first_over = first.median / best
        out.append({
            "name": name, "sizes": sizes, "settings": len(times), "of_the_ranking": by_model,
            "best_us": best, "first": first_over, "five": top, **ranking.to_json(),
        })  # fmt: skip
        samples = {i: r.measured for i, r in enumerate(ranking.rows[:by_model]) if r.measured}
        agreement = tune.placed(ranking.kernel, choices[:by_model], samples, {}).agreement or 0.0
        print(f"{name:22s} {text(sizes):32s} {len(times)} settings ({min(by_model, most)} ranked), "
              f"best {best:8.1f} us; first choice {first_over:.3f}, best of five {top:.3f} of it; "
              f"rank correlation {agreement:.2f}; best stands as number "
              f"{ranking.best.place}: {shown(ranking.best.choice)}", flush=True)  # fmt: skip


def shown(c: Choice) -> str:
    """A setting in a few words."""
    s = c.schedule
    long = ", ".join(f"{a}={n}" for a, n in s.tiles.items() if n > 1)
    lasting = f" p{s.persistent}" if s.persistent else ""
    return f"{long} w{s.warps} s{s.stages}{lasting} {s.side}".rstrip()


def standing(rows: Sequence[Mapping[str, Any]]) -> str:
    """First choices over the best, and the best of five."""
    if not rows:
        return "no sweep was measured"
    first, five = [r["first"] for r in rows], [r["five"] for r in rows]
    return (
        f"{len(rows)} problems, {min(r['settings'] for r in rows)} settings and more of each; "
        f"first choice over best: median {median(first):.3f}, worst {max(first):.3f}; "
        f"best of the first five over best: worst {max(five):.3f}"
    )


# --- compiling ----------------------------------------------------------------------------------


def compile_only(problems: Sequence[Problem], share: str, most: int) -> None:
    """Launch each setting once: every N-th kernel of the problems, from the I-th on."""
    at, count = map(int, share.split("/"))
    place = itertools.count()
    for name, diagram, sizes in problems:
        if not most and next(place) % count != at:
            continue
        try:
            plan = nk.derive(diagram, on="h100", sizes=sizes)
            choices = [[c] for c in widened(plan, most)[0]] if most else [None]
            mine = [c for c in choices if not most or next(place) % count == at]
            tensors = drawn(plan.diagram, plan.sizes, plan.dtype, 0) if mine else []
        except Exception as error:
            print(f"{name} {text(sizes)}: {type(error).__name__}: {str(error)[:200]}", flush=True)
            continue
        for chosen in mine:
            try:
                made = with_choices(plan, chosen) if chosen else plan
                for call in launching.opened(made, tensors, {})[2]:
                    call()
                torch.cuda.synchronize()
            except Exception as error:  # a setting that needs too much memory, say
                print(f"{name}: {type(error).__name__}", flush=True)
        del tensors
        torch.cuda.empty_cache()


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table that was asked for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["fitted", "shapes", "new", "tiles"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--settings", type=int, default=SETTINGS)
    parser.add_argument("--compile", default="", metavar="I/N")
    given = parser.parse_args(arguments)
    chosen = {
        "fitted": lambda: [*fitted()], "shapes": lambda: [*shapes()],
        "new": lambda: drawn_shapes(given.seed), "tiles": sweeps,
    }  # fmt: skip
    problems = chosen[given.what]()
    if given.compile:
        compile_only(problems, given.compile, given.settings if given.what == "tiles" else 0)
        return 0
    print(heading(f"{given.what}: {len(problems)} problems"), flush=True)
    made = list[dict[str, Any]]()
    swept = given.what == "tiles"
    try:
        tiles(problems, made, given.settings) if swept else measured(problems, made)
    except KeyboardInterrupt:
        print("stopped before the end")
    print(standing(made) if swept else summary(made))
    if given.json:
        given.json.write_text(json.dumps(made))
    return int(not made)


if __name__ == "__main__":
    raise SystemExit(main())
