"""Times the first call of a function in a new process that finds nothing kept: importing what
derives kernels, deriving one, compiling it, loading it, running it.

    python docs/measurements/bench_first.py [NAME ...]

Each row is a process of its own, with empty caches of napkin and Triton. Python modules have their
byte code, as installers leave it. `import` is that of torch and napkin.torch and comes before;
`derive` is the part of the first call until there is a recipe; `later` is the first call, in the
same process, of the same function with another window or mask (of a product: with a bias). Without
a GPU a stand-in takes the place of the driver: all but the driver's own work and the kernel's is
timed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

TOKENS = {"na1d": (32768, 1), "na2d": (256, 256, 24), "na3d": (30, 48, 80, 24)}
WINDOW = {"na1d": 2048, "na2d": 80, "na3d": (18, 24, 24)}
STRIDES = {"na1d": (1, 256), "na2d": (1, 16), "na3d": (1, (2, 8, 8))}
"""What bench_functions.py times, by function: tokens and heads, windows, strides."""

NAMES = [
    *(f"{kind} {which}" for kind in TOKENS for which in ("plain", "strided")),
    "attention full", "attention causal", "matmul plain", "matmul bias",
]  # fmt: skip


def calls(name: str, on: str) -> list[Callable[[], Any]]:
    """The call that a row is named after, and another of its kind."""
    import torch

    import napkin.torch as nkt

    def made(*shape: int) -> torch.Tensor:
        return torch.ones(*shape, device=on, dtype=torch.bfloat16)

    kind, which = name.split()
    if kind in TOKENS:
        q = made(1, *TOKENS[kind], 128)
        function = getattr(nkt, kind)
        found = [lambda s=s: function(q, q, q, WINDOW[kind], s) for s in STRIDES[kind]]
    elif kind == "attention":
        q = made(4, 16, 4096, 128)
        found = [lambda c=c: nkt.attention(q, q, q, is_causal=c) for c in (False, True)]
    else:
        from napkin.diagram.library import load

        a = made(4096, 4096)
        plain, gelu = (nkt.compile(load(n)) for n in ("matmul", "matmul_bias_gelu"))
        bias = made(4096)
        found = [lambda: plain(a, a), lambda: gelu(a, a, bias)]
    return found if which in ("plain", "full") else found[::-1]


def one(name: str) -> dict[str, float]:
    """Seconds of a row, in this process."""
    begin = time.perf_counter()
    import torch

    from napkin.torch.function import Function  # and all of napkin.torch with it

    seconds = {"import": time.perf_counter() - begin}
    recipe = Function.recipe

    def timed(*given: Any) -> Any:
        begin = time.perf_counter()
        found = recipe(*given)
        seconds.setdefault("derive", time.perf_counter() - begin)
        return found

    Function.recipe = timed
    there = torch.cuda.is_available()
    if there:
        beside, wait = nullcontext(), torch.cuda.synchronize
    else:
        from bench_dispatch import played

        beside, wait = played(), lambda: None
    with beside, torch.no_grad():
        made = calls(name, "cuda" if there else "cpu")
        for label, call in zip(("first", "later"), made, strict=True):
            wait()
            begin = time.perf_counter()
            call()
            wait()
            seconds[label] = time.perf_counter() - begin
    return seconds


def alone(name: str, bytecode: str) -> dict[str, float]:
    """Seconds of a row, in a process of its own; byte code is kept in a folder."""
    with tempfile.TemporaryDirectory() as kept:
        root = str(Path(__file__).resolve().parents[2])
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env |= {
            "PYTHONPATH": os.pathsep.join(filter(None, [root, env.get("PYTHONPATH")])),
            "PYTHONPYCACHEPREFIX": bytecode,
            "TRITON_CACHE_DIR": f"{kept}/triton",
            "NAPKIN_CACHE": f"{kept}/napkin",
        }
        command = [sys.executable, __file__, "--one", name]
        ran = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(ran.stdout)


def main(names: list[str]) -> None:
    """Print the rows."""
    from heading import heading

    print(heading(), flush=True)
    print(f"\n{'seconds':18}{'import':>8}{'first':>8}{'derive':>8}{'later':>8}", flush=True)
    with tempfile.TemporaryDirectory() as bytecode:
        alone(names[0], bytecode)  # so that there is byte code
        for name in names:
            found = alone(name, bytecode)
            cells = (f"{found[c]:8.2f}" for c in ("import", "first", "derive", "later"))
            print(f"{name:18}{''.join(cells)}", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one(sys.argv[2])))
    else:
        main(sys.argv[1:] or NAMES)
