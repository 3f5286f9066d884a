"""Times the functions of two checkouts of napkin, beside each other in one run.

    python docs/measurements/bench_versions.py path/to/the/old/checkout [TEXT ...]

With texts, only the calls with one of them in their name are timed. Each checkout computes in a
process of its own; these take turns. A line has the medians of three rounds, each with a cold L2,
and their ratio. Kernels are compiled before, by other processes.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import problems
import torch
from bench_functions import ATTENTION, DECODE, PRODUCTS, WINDOWS, draw
from heading import heading

import napkin as nk
import napkin.torch as nkt
from napkin.measure.timing import interleaved

HERE = Path(__file__).resolve()
ROUNDS, WORKERS = 3, 8


def attention(shape: Sequence[int], causal: bool) -> Callable[[], Any]:
    return partial(nkt.attention, *(draw(*shape) for _ in range(3)), is_causal=causal)


def shipped(name: str, *shapes: Sequence[int]) -> Callable[[], Any]:
    from napkin.diagram.library import load

    return partial(nkt.compile(load(name)), *(draw(*shape) for shape in shapes))


def windows(kind: str, layout: Sequence[int], heads: int, **how: Any) -> Callable[[], Any]:
    return partial(getattr(nkt, f"na{kind}"), *(draw(1, *layout, heads, 128) for _ in "qkv"), **how)


def product(a: int, c: int, b: int) -> Callable[[], Any]:
    @nk.diagram("a b, b c -> a c")
    def matmul(A: Any, B: Any) -> Any:
        return nk.contract(A, B, over="b")

    return partial(nkt.compile(matmul), draw(a, b), draw(b, c))


def decode(h: int, x: int, d: int) -> Callable[[], Any]:
    return partial(nkt.compile(problems.heads()), draw(h, 1, d), draw(h, x, d), draw(h, x, d))


def calls(texts: Sequence[str]) -> dict[str, Callable[[], Callable[[], Any]]]:
    """What makes each call, by name; with texts, of those with one of them in their name."""
    n, d = 16384, 8192
    found: dict[str, Callable[[], Callable[[], Any]]] = {}
    for shape in ATTENTION:
        for causal in (False, True):
            name = f"attention {' '.join(map(str, shape))} {'causal' if causal else 'full'}"
            found[name] = partial(attention, shape, causal)
    found |= {f"matmul {' '.join(map(str, p))}": partial(product, *p) for p in PRODUCTS}
    found |= {f"decode {' '.join(map(str, p))}": partial(decode, *p) for p in DECODE}
    found["matmul_bias_gelu"] = partial(
        shipped, "matmul_bias_gelu", (8192,) * 2, (8192,) * 2, (8192,)
    )
    found["rmsnorm"] = partial(shipped, "rmsnorm", (n, d), (d,))
    found["layernorm"] = partial(shipped, "layernorm", (n, d), (d,), (d,))
    found["softmax"] = partial(shipped, "softmax", (n, d))
    wide = (8192, 4096), (4096,), (4096, 4096)
    found["rmsnorm_linear"] = partial(shipped, "rmsnorm_linear", *wide)
    found["layernorm_linear"] = partial(shipped, "layernorm_linear", *wide[:2], (4096,), wide[2])
    for kind, (layout, heads, window, strides) in WINDOWS.items():
        for stride in strides:
            how = {"kernel_size": window, "stride": stride}
            found[f"na{kind} {stride}"] = partial(windows, kind, layout, heads, **how)
    return {n: make for n, make in found.items() if not texts or any(t in n for t in texts)}


def warm(part: int, texts: Sequence[str]) -> None:
    """Compiles every `WORKERS`-th call, beginning with `part`."""
    for make in list(calls(texts).values())[part::WORKERS]:
        make()()
    torch.cuda.synchronize()


def serve() -> None:
    """Times the calls that are named on stdin, in microseconds."""
    every = calls(())
    for line in sys.stdin:
        try:
            us = interleaved({"call": every[line.strip()]()}, 0.1)["call"].median
            print(json.dumps({"us": us}), flush=True)
        except Exception as e:
            print(json.dumps({"error": f"{type(e).__name__}: {e}"}), flush=True)
        torch.cuda.empty_cache()


def started(checkout: Path, *how: str, **pipes: Any) -> subprocess.Popen[str]:
    paths = [str(checkout), *filter(None, [os.environ.get("PYTHONPATH")])]
    cache = Path(tempfile.gettempdir()) / f"napkin-{checkout.name}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "NAPKIN_CACHE": str(cache)}
    return subprocess.Popen([sys.executable, str(HERE), *how], env=env, text=True, **pipes)


def main(old: Path, texts: Sequence[str]) -> None:
    """Times calls of both."""
    new = HERE.parents[2]
    every = [started(c, "--warm", str(i), *texts) for c in (old, new) for i in range(WORKERS)]
    for process in every:
        process.wait()
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    serving = {name: started(c, "--serve", **pipes) for name, c in (("old", old), ("new", new))}
    for name in calls(texts):
        found = timed(name, serving)
        if found is not None:
            before, after = (statistics.median(found[which]) for which in ("old", "new"))
            print(f"{name:36s} old {before:9.1f} us | new {after:9.1f} us | new / old "
                  f"{after / before:.3f}", flush=True)  # fmt: skip


def timed(name: str, serving: Mapping[str, subprocess.Popen[str]]) -> dict[str, list[float]] | None:
    """Microseconds of a call in each checkout, in turns; None where one does not run."""
    found: dict[str, list[float]] = {which: [] for which in serving}
    for turn in range(ROUNDS):
        for which, process in list(serving.items())[:: 1 if turn % 2 == 0 else -1]:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(f"{name}\n")
            process.stdin.flush()
            answer = json.loads(process.stdout.readline())
            if "error" in answer:
                print(f"{name} ({which}): {answer['error']}", flush=True)
                return None
            found[which].append(answer["us"])
    return found


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["--warm", part, *texts]:
            warm(int(part), texts)
        case ["--serve"]:
            serve()
        case [old, *texts]:
            print(heading(), flush=True)
            main(Path(old).resolve(), texts)
        case _:
            sys.exit(__doc__)
