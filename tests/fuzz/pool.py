"""Seeds tried by processes, each with a limit of time and of memory: what hangs is killed."""

from __future__ import annotations

import ctypes
import gc
import itertools
import math
import multiprocessing
import os
import resource
import signal
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from judged import Failure

LIFE = 200
"""Seeds that one process tries: what it has traced before should rarely matter."""

AHEAD = 2
"""Seeds that a process is handed at once: it need not wait for the next."""

COLLECTED = 25
"""Seeds after which a process collects its garbage."""

LOOKED = 0.5
"""Seconds between looks at processes that are late."""

PR_SET_PDEATHSIG = 1
"""Linux's name for: the signal that this process gets when its parent ends."""

ALONE = 4
"""Programs that took too long once are tried again when the others are done, by one of so many
processes: beside as many processes as there are cores, one has half a core or less."""

IDLE = 6
"""How much longer than its limit a process may take where it waits for a processor."""


def _cpu(pid: int) -> float:
    """Seconds of processors that a process and the children that it waited for have had."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


@dataclass(eq=False)
class Worker:
    """A process that tries seeds, and those that it was handed: the first is the one it is at."""

    process: Any
    line: Connection
    seeds: deque[Any] = field(default_factory=deque)
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
    _alone()
    if memory:
        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    gc.freeze()
    gc.disable()
    for tried in itertools.count(1):
        line.send(work(line.recv()))
        if tried % COLLECTED == 0:
            gc.collect()


def _alone() -> None:
    """Signals to the pool's processes as a group reach the pool alone; its end is theirs."""
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


class Pool:
    """Processes that try seeds.

    Args:
        work: what is done with a seed; gives a failure or None, and data.
        limit: seconds for each seed.
        memory: bytes of each process; 0 for no limit.
        ahead: seeds that a process is handed at once.
        times: how many times the limit a seed may take.
    """

    def __init__(
        self,
        work: Callable[[Any], Any],
        jobs: int,
        limit: float,
        memory: int = 6 << 30,
        ahead: int = AHEAD,
        times: Callable[[Any], float] = lambda seed: 1.0,
    ) -> None:
        self.times = times
        self.work, self.limit, self.memory, self.ahead = work, limit, memory, ahead
        self.context = multiprocessing.get_context("fork")
        self.workers = [self._start() for _ in range(jobs)]
        self.stopped = False
        self._slow: list[Any] | None = [] if jobs > 1 else None

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
        """What comes of each seed, in the order in which they are done, for some time, and then of
        those that took too long beside others."""
        deadline = time.monotonic() + seconds
        yield from self._run(iter(seeds), deadline)
        slow, self._slow, self.ahead = iter(self._slow or ()), None, 1
        for w in self.workers[max(1, len(self.workers) // ALONE) :]:
            self._end(w)
            self.workers.remove(w)
        yield from self._run(slow, math.inf)

    def _run(self, todo: Iterator[Any], deadline: float) -> Iterator[Result]:
        back: deque[Any] = deque()
        looked = time.monotonic()
        while not self.stopped:
            more = time.monotonic() < deadline
            while more and (w := self._free()) is not None:
                seed = back.popleft() if back else next(todo, None)
                if seed is None:
                    break
                self._hand(w, seed)
            busy = [w for w in self.workers if w.seeds]
            if not busy:
                break
            for line in wait([w.line for w in busy], timeout=LOOKED):
                yield self._received(next(w for w in busy if w.line is line), back)
            if time.monotonic() - looked > LOOKED:
                looked = time.monotonic()
                yield from (r for w in list(self.workers) if (r := self._late(w, back)))

    def _free(self) -> Worker | None:
        """The process that was handed the fewest seeds, if it takes one more."""
        able = (w for w in self.workers if w.tried < LIFE and len(w.seeds) < self.ahead)
        return min(able, key=lambda w: len(w.seeds), default=None)

    def _hand(self, w: Worker, seed: Any) -> None:
        w.seeds.append(seed)
        w.tried += 1
        with suppress(ConnectionError):  # of a process that ended, `_received` says so
            w.line.send(seed)
        if len(w.seeds) == 1:
            w.begun, w.cpu = time.monotonic(), _cpu(w.process.pid)

    def stop(self) -> None:
        """End the run where it is, in half a second at most."""
        self.stopped = True

    def close(self) -> None:
        """End the processes."""
        for w in self.workers:
            self._end(w)
        self.workers = []

    def _received(self, w: Worker, back: deque[Any]) -> Result:
        seed, now, cpu = w.seeds.popleft(), time.monotonic(), _cpu(w.process.pid)
        taken = cpu - w.cpu
        try:
            failure, data = w.line.recv()
        except (EOFError, ConnectionError):
            w.process.join()
            failure, data = Failure("crash", f"process ended with {w.process.exitcode}"), None
        if failure is not None or (w.tried >= LIFE and not w.seeds):
            self._again(w, back)
        w.begun, w.cpu = now, cpu
        return Result(seed, failure, taken, data)

    def _late(self, w: Worker, back: deque[Any]) -> Result | None:
        """The failure of a process that takes too long."""
        if not w.seeds or w.line.poll():
            return None
        taken = _cpu(w.process.pid) - w.cpu
        limit = self.limit * self.times(w.seeds[0])
        if taken <= limit and time.monotonic() - w.begun <= IDLE * limit:
            return None
        seed = w.seeds.popleft()
        self._again(w, back)
        if self._slow is not None:
            self._slow.append(seed)
            return None
        return Result(seed, Failure("timeout", f"over {limit:g} s"), taken)

    def _again(self, w: Worker, back: deque[Any]) -> None:
        """A new process in the place of one; what that had not come to is done by others."""
        back.extend(w.seeds)
        self._end(w)
        self.workers[self.workers.index(w)] = self._start()
