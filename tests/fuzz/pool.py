"""Seeds tried by processes, each with a limit of time and of memory: what hangs is killed."""

from __future__ import annotations

import multiprocessing
import os
import resource
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from judged import Failure

LIFE = 200
"""Seeds that one process tries: what it has traced before should rarely matter."""

IDLE = 6
"""How much longer than its limit a process may take where it waits for a processor."""


def _cpu(pid: int) -> float:
    """Seconds of processors that a process and the children that it waited for have had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Worker:
    """A process that tries seeds, and the one that it is at."""

    process: Any
    line: Connection
    seed: Any = None
    begun: float = 0.0
    cpu: float = 0.0
    tried: int = 0


@dataclass(frozen=True)
class Result:
    """What came of a seed: a failure, or what the program gave."""

    seed: Any
    failure: Failure | None
    seconds: float
    data: Any = None


def _serve(line: Connection, work: Callable[[Any], Any], memory: int) -> None:
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    while True:
        seed = line.recv()
        if seed is None:
            return
        line.send(work(seed))


class Pool:
    """Processes that try seeds.

    Args:
        work: what is done with a seed; gives a failure or None, and data.
        limit: seconds for each seed.
        memory: bytes of each process; 0 for no limit.
    """

    def __init__(
        self, work: Callable[[Any], Any], jobs: int, limit: float, memory: int = 6 << 30
    ) -> None:
        self.work, self.limit, self.memory = work, limit, memory
        self.context = multiprocessing.get_context("fork")
        self.workers = [self._start() for _ in range(jobs)]

    def _start(self) -> Worker:
        ours, theirs = self.context.Pipe()
        process = self.context.Process(
            target=_serve, args=(theirs, self.work, self.memory), daemon=True
        )
        process.start()
        theirs.close()
        return Worker(process, ours)

    def _end(self, w: Worker) -> None:
        w.process.kill()
        w.process.join()
        w.line.close()

    def run(self, seeds: Iterable[Any], seconds: float) -> Iterator[Result]:
        """What comes of each seed, in the order in which they are done, for some time."""
        todo, deadline = iter(seeds), time.monotonic() + seconds
        busy: list[Worker] = []
        while True:
            while self.workers and time.monotonic() < deadline:
                seed = next(todo, None)
                if seed is None:
                    break
                w = self.workers.pop()
                w.seed, w.begun, w.tried = seed, time.monotonic(), w.tried + 1
                w.cpu = _cpu(w.process.pid)
                w.line.send(seed)
                busy.append(w)
            if not busy:
                break
            ready = wait([w.line for w in busy], timeout=0.5)
            for w in list(busy):
                found = self._found(w, w.line in ready)
                if found is not None:
                    busy.remove(w)
                    yield found

    def close(self) -> None:
        """End the processes."""
        for w in self.workers:
            self._end(w)
        self.workers = []

    def _found(self, w: Worker, ready: bool) -> Result | None:
        taken = _cpu(w.process.pid) - w.cpu
        if ready:
            try:
                failure, data = w.line.recv()
            except EOFError:
                w.process.join()
                failure, data = Failure("crash", f"process ended with {w.process.exitcode}"), None
                self._again(w)
            else:
                self._again(w, fresh=failure is not None or w.tried >= LIFE)
            return Result(w.seed, failure, taken, data)
        if taken > self.limit or time.monotonic() - w.begun > IDLE * self.limit:
            self._again(w)
            return Result(w.seed, Failure("timeout", f"over {self.limit:g} s"), taken)
        return None

    def _again(self, w: Worker, fresh: bool = True) -> None:
        if fresh:
            self._end(w)
            w = self._start()
        self.workers.append(w)
