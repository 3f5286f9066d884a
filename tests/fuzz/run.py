"""Random programs through napkin: `python tests/fuzz/run.py --mode algebra --seeds 0..1000`.

Modes: algebra (every candidate plan's value, in float64), interpret (kernels in Triton's
interpreter: values and bytes), memory (plans at large sizes fit shared memory), compile (for sm_80,
sm_90 and sm_100), gpu (on a CUDA device), gradient (its value beside central differences).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(name, "1")  # each process has one core

MODES = ("algebra", "interpret", "memory", "compile", "gpu", "gradient")


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
    parser.add_argument(
        "--again", type=Path, nargs="*", help="try what drew rare branches in these results again"
    )
    parser.add_argument(
        "--merge", type=Path, nargs="*", help="print the table of these results together"
    )
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
    if asked.merge:
        return merged(asked.merge)
    if asked.mode == "interpret":
        os.environ["TRITON_INTERPRET"] = "1"
    tally = None
    if asked.coverage:
        import drawn

        drawn.install()
        tally = drawn.Tally()
    from draw import draw
    from modes import again
    from written import text

    if asked.show:
        for seed in seeds_of(asked.seeds):
            print(f"# seed {seed}\n{text(draw(again(seed)[0]))}")
        return 0
    from record import Record

    record = Record(asked.mode, asked.json, tally)
    limit = tried(asked, record)
    print(record.summary(), flush=True)
    record.write()
    if tally is not None:
        print(tally.report())
    if asked.shrink and not record.cut:
        shrunk(asked.mode, record, limit)
    return 1 if record.failed else 0


def redrawn(paths: list[Path]) -> Iterator[int]:
    """Seeds of programs that drew what few did in these results, with plans that none of them had:
    in turn for each branch, as often as it is drawn too seldom."""
    from drawn import ENOUGH
    from modes import AGAIN

    drawn, rare, tries = Counter[str](), dict[str, list[int]](), 0
    for path in paths:
        found = json.loads(path.read_text(encoding="utf-8"))
        drawn.update(found["drawn"])
        tries = max(tries, found["tries"])
        for name, seeds in found["rare"].items():
            rare.setdefault(name, []).extend(seeds)
    left = {name: ENOUGH - drawn[name] for name in sorted(rare, key=drawn.__getitem__)}
    given = set[int]()
    for i in range(ENOUGH):
        for name, missing in left.items():
            first = rare[name][i % len(rare[name])] % AGAIN
            seed = first + (tries + 1 + i // len(rare[name])) * AGAIN
            if i < 2 * missing and seed not in given:
                given.add(seed)
                yield seed


def merged(paths: list[Path]) -> int:
    """Prints what several runs drew together."""
    from drawn import Tally

    tally = Tally()
    for path in paths:
        tally.merge(json.loads(path.read_text(encoding="utf-8"))["drawn"])
    print(tally.report())
    return 0


def tried(asked: argparse.Namespace, record) -> float:
    """Tries the seeds until they are done, or the run is told to end; gives the limit of each."""
    from modes import AHEAD, LIMITS, prepared, times, worker
    from pool import Pool

    prepared(asked.mode)
    memory = 0 if asked.mode == "gpu" else 6 << 30
    limit = asked.limit or LIMITS[asked.mode]
    work = worker(asked.mode, asked.coverage)
    longer = partial(times, asked.mode)
    pool = Pool(work, asked.jobs, limit, memory, AHEAD[asked.mode], longer)
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda *_: pool.stop())
    try:
        seeds = redrawn(asked.again) if asked.again else seeds_of(asked.seeds)
        for result in pool.run(seeds, asked.seconds):
            record.add(result)
    finally:
        pool.close()
    record.cut = pool.stopped
    return limit


def shrunk(mode: str, record, limit: float) -> None:
    """Prints a small program of each cause."""
    from draw import draw
    from modes import again
    from shrinking import shrunk
    from written import text

    for (category, cause), (seed, *_) in record.causes().items():
        first, seed = again(seed)
        small = shrunk(mode, draw(first), seed, limit)
        strewn = {i.name: i.strewn for i in small.inputs if i.strewn}
        said = f"# {category}: {cause} (seed {seed}, sizes {small.sizes}, strewn {strewn})"
        print(f"\n{said}\n{text(small)}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
