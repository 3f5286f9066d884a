"""Everything that is measured on a machine with one H100, in order of worth, each step under a
limit of time.

    python docs/measurements/campaign.py tests       # tests/gpu, compute-sanitizer
    python docs/measurements/campaign.py model       # counters, new shapes, sweeps of tiles, decode
    python docs/measurements/campaign.py functions   # networks, functions, the machine itself

Each of the three takes at most --seconds (570); single steps may be named, too. What a step prints
goes to OUT/STEP.txt as it comes (OUT: --out, else the environment's OUT, else the current folder),
and its end to the terminal; a step that runs past its limit is interrupted and what it printed
stays. Compiling is work of the CPU: kernels that are timed are compiled before, by many processes.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HERE = Path("docs/measurements")

GRACE = 20
"""Seconds from asking a step to stop until it is killed: pytest then says what failed so far."""


@dataclass(frozen=True)
class Step:
    """One thing to run.

    Attributes:
        commands: run at once; what they print goes to one file.
        seconds: at most.
        tail: lines of its end that are shown.
    """

    name: str
    commands: Sequence[Sequence[str]]
    seconds: float
    tail: int = 12


def steps(out: Path, workers: int, seed: int) -> dict[str, list[Step]]:
    """The steps by part."""
    python = sys.executable
    bench = lambda name, *more: [python, str(HERE / f"bench_{name}.py"), *more]  # noqa: E731
    napkin = [python, "-m", "napkin"]
    few = max(1, workers // 4)

    def json(name: str) -> tuple[str, str]:
        return "--json", str(out / f"{name}.json")

    new = ("new", "--seed", str(seed))
    compiled = [
        *(bench("model", "tiles", "--compile", f"{i}/{workers}") for i in range(workers)),
        *(bench("model", *new, "--compile", f"{i}/{few}") for i in range(few)),
        bench("counters", "--compile"),
    ]
    pytest = [python, "-m", "pytest", "tests/gpu", "-n", str(workers), "-q", "-rsfE"]
    sanitize = [*napkin, "verify", "--gpu", "--only", "two streams", "--sanitize"]
    machine = [*napkin, "machines", "measure", "-o", str(out / "machine.toml")]
    return {
        "tests": [
            Step("gpu", [[*pytest, "-p", "no:cacheprovider"]], 430, 40),
            Step("sanitize", [sanitize], 130),
        ],
        "model": [
            Step("compile", compiled, 170, 4),
            Step("counters", [bench("counters", *json("counters"))], 120, 18),
            Step("new", [bench("model", *new, *json("new"))], 150, 10),
            Step("tiles", [bench("model", "tiles", *json("tiles"))], 200),
            Step("decode", [bench("functions", "decode")], 60),
        ],
        "functions": [
            Step("network", [bench("network", *json("network"))], 270, 24),
            Step("functions", [bench("functions", "products", "rows", "windows", "attention")],
                 200, 60),
            Step("first", [bench("first")], 150, 12),
            Step("machine", [machine], 60),
        ],
    }  # fmt: skip


def run(step: Step, out: Path, limit: float) -> bool:
    """Run a step for at most `limit` seconds; whether it ended by itself, and well."""
    path, env = out / f"{step.name}.txt", environment()
    began = time.monotonic()
    with path.open("wb") as file:
        running = [
            subprocess.Popen(
                command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT, env=env,
                start_new_session=True,
            )
            for command in step.commands
        ]  # fmt: skip
        late = not ended(running, began + limit)
        if late:
            for p in running:
                p.send_signal(signal.SIGINT)
            ended(running, time.monotonic() + GRACE)
        for p in running:  # and what they started
            stop(p)
    statuses = [p.wait() for p in running]
    lines = path.read_text(errors="replace").splitlines()
    said = "past its limit" if late else f"status {max(map(abs, statuses))}"
    print(f"== {step.name}: {time.monotonic() - began:.0f} s, {said} -> {path}", flush=True)
    print("\n".join(lines[-step.tail :]), flush=True)
    return not late and not any(statuses)


def environment() -> Mapping[str, str]:
    """That of the steps: this napkin is imported, and what they print comes at once."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


def ended(running: Sequence[subprocess.Popen[bytes]], by: float) -> bool:
    """Wait until all have ended, or until `by`; whether they have."""
    for p in running:
        try:
            p.wait(max(0.0, by - time.monotonic()))
        except subprocess.TimeoutExpired:
            return False
    return True


def stop(p: subprocess.Popen[bytes]) -> None:
    """End the process group of a step, where something of it is left."""
    try:
        os.killpg(p.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the steps that are named; 1 where one did not end well."""
    parser = argparse.ArgumentParser()
    parser.add_argument("what", nargs="+", help="tests, model, functions, or names of steps")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT", ".")))
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=570)
    given = parser.parse_args(arguments)
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    parts = steps(out, given.workers, given.seed)
    single = {s.name: [s] for part in parts.values() for s in part}
    known = single | parts
    for what in given.what:
        if what not in known:
            parser.error(f"there is no {what!r}; there are {', '.join(known)}")
    chosen = [s for what in given.what for s in known[what]]
    by, good = time.monotonic() + given.seconds, True
    for step in chosen:
        left = by - time.monotonic() - GRACE
        if left < 5:
            print(f"== {step.name}: no time left", flush=True)
            good = False
            continue
        good &= run(step, out, min(step.seconds, left))
    return int(not good)


if __name__ == "__main__":
    raise SystemExit(main())
