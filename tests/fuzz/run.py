"""Random programs through napkin: `python tests/fuzz/run.py --mode algebra --seeds 0..1000`.

Modes: algebra (every candidate plan's value, in float64), interpret (kernels in Triton's
interpreter: values and bytes), compile (for sm_80, sm_90 and sm_100), gpu (on a CUDA device).
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # each process has one core

MODES = ("algebra", "interpret", "compile", "gpu")


def arguments() -> argparse.Namespace:
    """The options of the command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mode", choices=MODES, default="algebra")
    parser.add_argument("--seeds", default="0..100", help="A..B, or numbers with commas")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where results are written")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--limit", type=float, default=0.0, help="seconds for each program")
    parser.add_argument("--show", action="store_true", help="print the programs, and no more")
    parser.add_argument("--shrink", action="store_true", help="shrink one program of each cause")
    parser.add_argument("--coverage", action="store_true", help="what was drawn, and what never")
    return parser.parse_args()


def seeds_of(text: str) -> list[int]:
    """The seeds that are asked for."""
    if ".." in text:
        first, last = map(int, text.split(".."))
        return list(range(first, last))
    return [int(s) for s in text.split(",")]


def main() -> int:
    """Tries the seeds, and says what failed."""
    asked = arguments()
    if asked.mode == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"
    if asked.coverage:
        from drawn import install

        install()
    from draw import draw
    from written import text

    if asked.show:
        for seed in seeds_of(asked.seeds):
            print(f"# seed {seed}\n{text(draw(seed))}")
        return 0
    from modes import LIMITS, prepared, worker
    from pool import Pool

    prepared(asked.mode)
    memory = 0 if asked.mode == "gpu" else 6 << 30
    limit = asked.limit or LIMITS[asked.mode]
    pool = Pool(worker(asked.mode, asked.coverage), asked.jobs, limit, memory)
    begun, done = time.monotonic(), 0
    failed: list = []
    drawn: collections.Counter[str] = collections.Counter()
    for result in pool.run(seeds_of(asked.seeds), asked.seconds):
        done += 1
        drawn.update(result.data or ())
        if result.failure is not None:
            failed.append(result)
            print(
                f"seed {result.seed}: {result.failure.category}: {result.failure.cause}", flush=True
            )
    pool.close()
    causes = collections.Counter((r.failure.category, r.failure.cause) for r in failed)
    taken = time.monotonic() - begun
    print(f"\n{done} programs in {taken:.0f} s, {len(failed)} failed")
    for (category, cause), n in causes.most_common():
        own = [r.seed for r in failed if (r.failure.category, r.failure.cause) == (category, cause)]
        print(f"{n:5} {category}: {cause}: {', '.join(map(str, own[:6]))}")
    if asked.coverage:
        from drawn import report

        print(report(drawn))
    if asked.shrink:
        from shrinking import shrunk

        for category, cause in causes:
            seed = next(r.seed for r in failed if r.failure.cause == cause)
            small = shrunk(asked.mode, draw(seed), seed, limit)
            said = f"# {category}: {cause} (seed {seed}, sizes {small.sizes})"
            print(f"\n{said}\n{text(small)}", flush=True)
    if asked.json:
        asked.json.write_text(json.dumps(record(failed, done, taken, drawn), indent=1))
    return 1 if failed else 0


def record(failed: list, done: int, taken: float, drawn) -> dict:
    """The results as plain data."""
    rows = [
        {"seed": r.seed, "category": r.failure.category, "cause": r.failure.cause,
         "detail": r.failure.detail, "seconds": round(r.seconds, 2)}
        for r in failed
    ]  # fmt: skip
    return {"programs": done, "seconds": round(taken, 1), "failed": rows, "drawn": dict(drawn)}


if __name__ == "__main__":
    sys.exit(main())
