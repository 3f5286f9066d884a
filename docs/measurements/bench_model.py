"""The time model beside the GPU that is there: predicted and measured time of kernels.

Each row is timed with a cold L2 (`napkin.measure.timing`). `shapes` runs the planner's own choice
on shapes that its constants were not read off, with cuBLAS beside products; `fitted` those that
they were read off; `tiles` runs the first settings of the planner's ranking for nine problems and
says where its first choice stands.

    python docs/measurements/bench_model.py fitted|shapes|tiles [--json FILE] [--settings 48]

With --compile I/N only a share of the kernels is compiled, into Triton's cache: run N of them
first.
"""

import argparse
import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch
import triton

import napkin as nk
from napkin.diagram.diagram import Diagram
from napkin.diagram.library import load
from napkin.measure.inputs import drawn
from napkin.measure.timing import interleaved
from napkin.measure.tune import tune
from napkin.plan.plan import Plan
from napkin.plan.ranked import ranked
from napkin.torch.run import bound_call, opened

Problem = tuple[str, Diagram, dict[str, int]]


def heads(keys: Any = None) -> Diagram:
    """Attention over heads, under a key set."""

    @nk.diagram("h q d, h x d, h x d -> h q d")
    def attention(Q: Any, K: Any, V: Any) -> Any:
        S = nk.contract(Q, K, over="d") * nk.size("d") ** -0.5
        return nk.contract(nk.softmax(S, over="x", keys=keys), V, over="x")

    return attention


KEYS = {
    "full": None,
    "causal": nk.causal("q", "x"),
    "window 1024": nk.sliding(1024, 0, queries="q", keys="x"),
    "window 4096": nk.sliding(4096, 0, queries="q", keys="x"),
}


def attentions(shapes: list[tuple[str, int, int, int]]) -> Iterator[Problem]:
    for keys, h, s, d in shapes:
        yield f"attention {keys}", heads(KEYS[keys]), {"h": h, "q": s, "x": s, "d": d}


def products(shapes: list[tuple[int, int, int]], name: str = "matmul") -> Iterator[Problem]:
    for a, c, b in shapes:
        yield name, load(name), {"a": a, "b": b, "c": c}


def rows(shapes: list[tuple[str, int, int]]) -> Iterator[Problem]:
    for name, n, d in shapes:
        diagram = load(name)
        (first, *_), last = diagram.inputs[0].axes, diagram.inputs[0].axes[-1]
        yield name, diagram, {first: n, last: d}


def fitted() -> Iterator[Problem]:
    yield from products([(4096, 4096, 4096), (8192, 8192, 1024), (512, 8192, 8192)])
    yield from attentions(
        [("full", 16, 4096, 128), ("full", 32, 4096, 64), ("causal", 16, 8192, 128)]
    )
    yield from rows([("rmsnorm", 16384, 8192), ("softmax", 8192, 4096)])
    yield from rows([("cross_entropy", 4096, 128256)])


def shapes() -> Iterator[Problem]:
    yield from products([(n, n, n) for n in (1280, 1792, 2560, 3584, 4608, 7168)])
    yield from products([
        (2048, 6144, 3072), (6144, 2048, 2048), (2048, 14336, 4096), (3072, 8192, 8192),
        (1024, 8192, 4096), (384, 8192, 4096), (128, 8192, 8192), (64, 4096, 11008),
        (32768, 512, 1024), (1024, 1024, 16384), (6000, 2500, 3000), (9999, 2048, 2048),
    ])  # fmt: skip
    yield from products([(2048, 8192, 2048), (16384, 2048, 1024), (4096, 4096, 8192)],
                        "matmul_bias_gelu")  # fmt: skip
    for keys in ("full", "causal"):
        for h, s, d in ((24, 2048, 128), (4, 32768, 128), (96, 1024, 128), (10, 5000, 128),
                        (32, 2048, 64), (24, 4096, 64), (8, 16384, 64), (8, 8192, 96),
                        (8, 4096, 256), (64, 768, 64)):  # fmt: skip
            yield from attentions([(keys, h, s, d)])
    for keys in ("window 1024", "window 4096"):
        for h, s, d in ((24, 6144, 128), (4, 65536, 128), (32, 12288, 64)):
            yield from attentions([(keys, h, s, d)])
    for name in ("rmsnorm", "layernorm", "softmax"):
        yield from rows([(name, n, d) for n, d in ((8192, 3072), (49152, 768), (4096, 16384),
                                                   (24576, 1536), (100000, 384))])  # fmt: skip
    yield from rows([("cross_entropy", 4096, 32000), ("cross_entropy", 4096, 151936),
                     ("cross_entropy", 12288, 65536)])  # fmt: skip
    yield from rows([("logsumexp", 16384, 32000), ("variance", 8192, 12288)])
    for h, s in ((16, 131072), (8, 65536), (48, 32768)):
        yield "decode", heads(), {"h": h, "q": 1, "x": s, "d": 128}


def sweeps() -> list[Problem]:
    return [
        *products([(4096, 4096, 4096), (8192, 8192, 1024), (512, 8192, 8192)]),
        *attentions([
            ("full", 16, 4096, 128), ("full", 64, 2048, 64), ("causal", 16, 4096, 128),
            ("window 1024", 16, 8192, 128), ("full", 16, 4096, 96),
        ]),
        *rows([("cross_entropy", 8192, 32000)]),
    ]  # fmt: skip


def text(sizes: dict[str, int]) -> str:
    return " ".join(f"{a}={n}" for a, n in sizes.items())


def settings(plan: Plan) -> list[dict[str, Any]]:
    """The plan's kernels as plain data."""
    from napkin.plan.ranked import setting_json

    return [{"name": k.name, **setting_json(k.choice)} for k in plan.kernels]


def measured(problems: list[Problem]) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for name, diagram, sizes in problems:
        plan = nk.derive(diagram, on="h100", sizes=sizes)
        arrays = drawn(plan.diagram, plan.sizes, plan.dtype, 0)
        calls: dict[str, Any] = {"napkin": bound_call(plan, arrays, {})}
        if name == "matmul":
            calls["cuBLAS"] = partial(torch.matmul, *arrays)
        found = interleaved(calls)
        us, predicted = found["napkin"].median, plan.seconds * 1e6
        beside = found["cuBLAS"].median if "cuBLAS" in found else None
        row = {
            "name": name, "sizes": sizes, "predicted": predicted, "measured": us,
            "cuBLAS": beside, "kernels": settings(plan),
        }  # fmt: skip
        out.append(row)
        limit = ", ".join(dict.fromkeys(k.choice.time.limited_by for k in plan.kernels))
        more = f"  cuBLAS {beside:9.1f} us" if beside else ""
        print(f"{name:24s} {text(sizes):36s} predicted {predicted:9.1f} us  measured {us:9.1f} us"
              f"  {predicted / us:5.2f}{more}  ({limit})", flush=True)  # fmt: skip
    return out


def summary(out: list[dict[str, Any]]) -> None:
    for which in ("measured", "cuBLAS"):
        pairs = [(r["predicted"], r[which]) for r in out if r[which]]
        if not pairs:
            continue
        off = [abs(p - m) / m for p, m in pairs]
        mean = fmean(m for _, m in pairs)
        spread = sum((m - mean) ** 2 for _, m in pairs)
        r2 = 1 - sum((p - m) ** 2 for p, m in pairs) / spread if spread else float("nan")
        print(f"{len(pairs)} shapes, against {'napkin' if which == 'measured' else which}: mean "
              f"absolute error {100 * fmean(off):.1f} %, median {100 * median(off):.1f} %, largest "
              f"{100 * max(off):.1f} %, R^2 {r2:.4f}")  # fmt: skip


def tiles(problems: list[Problem], most: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for name, diagram, sizes in problems:
        plan = nk.derive(diagram, on="h100", sizes=sizes)
        _, (ranking, *_) = tune(plan, most, 0)
        times = [r.measured.median for r in ranking.rows if r.measured]
        best, five = min(times), min(r.measured.median for r in ranking.rows[:5] if r.measured)
        out.append({"name": name, "sizes": sizes, **ranking.to_json()})
        print(f"{name:22s} {text(sizes):32s} {len(times)} settings, best {best:8.1f} us; first "
              f"choice {ranking.first_over_best:.3f}, best of five {five / best:.3f} of it; "
              f"rank correlation {ranking.agreement:.2f}; best predicted as number "
              f"{ranking.best.place}", flush=True)  # fmt: skip
    off = [r["first_over_best"] for r in out]
    print(f"first choice over best: median {median(off):.3f}, worst {max(off):.3f}")
    return out


def compile_only(problems: list[Problem], share: str, most: int) -> None:
    """Launch each setting once: every N-th kernel of the problems, from the I-th on."""
    at, count = map(int, share.split("/"))
    place = 0
    for _, diagram, sizes in problems:
        plan = nk.derive(diagram, on="h100", sizes=sizes)
        tensors = None
        every = [[c] for c in ranked(plan, plan.kernels[0], most)] if most else [None]
        for chosen in every:
            place += 1
            if place % count != at:
                continue
            from napkin.plan.ranked import with_choices

            try:
                if tensors is None:
                    tensors = drawn(plan.diagram, plan.sizes, plan.dtype, 0)
                made = with_choices(plan, chosen) if chosen else plan
                for call in opened(made, tensors, {})[2]:
                    call()
                torch.cuda.synchronize()
            except Exception as error:
                print(f"{place}: {type(error).__name__}")
        del tensors
        torch.cuda.empty_cache()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["fitted", "shapes", "tiles"])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--settings", type=int, default=48)
    parser.add_argument("--compile", default="")
    given = parser.parse_args()
    chosen = {"fitted": lambda: [*fitted()], "shapes": lambda: [*shapes()], "tiles": sweeps}
    problems = chosen[given.what]()
    if given.compile:
        compile_only(problems, given.compile, given.settings if given.what == "tiles" else 0)
        raise SystemExit
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}")
    print(f"{given.what}: {len(problems)} problems", flush=True)
    made = tiles(problems, given.settings) if given.what == "tiles" else measured(problems)
    if given.what != "tiles":
        summary(made)
    if given.json:
        given.json.write_text(json.dumps(made))
