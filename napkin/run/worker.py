"""Child processes that hold Triton, so that the user's process never has to.

Triton reads ``TRITON_INTERPRET`` while it is imported: a process interprets kernels or compiles
them, never both, and interpreting rewrites `triton.language` in place. So each of the two tasks
has a child of its own, started when first asked for and kept for the life of this process. What
a kernel does wrong cannot harm the user's process, and neither child imports torch. `napkin verify
--gpu` has children too, which do: each runs problems on the device.

A child runs a module that has ``handle(request) -> reply``; both travel by pickle over a socket
that only the two processes hold.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Mapping
from multiprocessing.connection import Connection
from typing import Any

from napkin.errors import InputError, NapkinError

_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[3]); "
    "from napkin.run.worker import serve; serve(int(sys.argv[1]), sys.argv[2])"
)


SCRATCH = "NAPKIN_SCRATCH"
"""The variable that has a child's folder for temporary files."""

NEEDS = (
    "kernels run and compile with Triton, which is not installed: pip install triton (it is built "
    "for Linux alone); derive, cost, draw, report and simulate work without it"
)


class KernelError(NapkinError):
    """A kernel did something wrong while it was checked; the message says where."""


class OutOfBounds(KernelError):
    """A kernel touched memory that belongs to no element of its arguments."""


class CompileError(KernelError):
    """The compiler refused a kernel; the message is the compiler's own first line."""


class Worker:
    """One child process that answers requests, one at a time, in the order of the calls."""

    def __init__(self, module: str, environment: Mapping[str, str | None]) -> None:
        """Start the child without waiting for it.

        Args:
            module: the module whose ``handle`` answers the requests.
            environment: variables to set in the child, or to remove where None.
        """
        self._lock = threading.Lock()
        self._owner = os.getpid()
        self._scratch = tempfile.mkdtemp(prefix="napkin-")
        variables = {**os.environ, **{k: v for k, v in environment.items() if v is not None}}
        variables |= {"TMPDIR": self._scratch, SCRATCH: self._scratch}  # one killed leaves files
        for name, value in environment.items():
            if value is None:
                variables.pop(name, None)
        ours, theirs = socket.socketpair()
        # The child prints to this process's stderr: stdout belongs to whoever asked for `--json`.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(theirs.fileno()), module, json.dumps(sys.path)],
            stdin=subprocess.DEVNULL,
            stdout=2,
            env=variables,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._connection = Connection(ours.detach())

    @property
    def usable(self) -> bool:
        """Whether the child is alive and was started by this process, not by a fork's parent."""
        return os.getpid() == self._owner and self._process.poll() is None

    def call(self, request: object, timeout: float | None = None) -> Any:
        """Send `request` and return the reply; what `handle` raised on purpose is raised here.

        Args:
            request: anything that pickles.
            timeout: seconds to wait for the reply before the child is killed; None waits on.
        """
        with self._lock:
            try:
                self._connection.send(request)
                if timeout is not None and not self._connection.poll(timeout):
                    raise KernelError(f"the kernel was still running after {timeout:g} s")
                failed, reply = self._connection.recv()
            except (EOFError, ConnectionError):
                status = self._process.wait()
                self.close()
                how = signal.Signals(-status).name if status < 0 else f"exit status {status}"
                raise KernelError(f"the process that runs the kernel died ({how})") from None
            except BaseException:
                self.close()  # a half-read reply must not answer the next request
                raise
        if not failed:
            return reply
        if isinstance(reply, NapkinError):
            raise reply
        raise RuntimeError(f"in the process that runs the kernel:\n{reply}")

    def close(self) -> None:
        """End the child at once, and remove its temporary files."""
        if os.getpid() != self._owner:
            return
        with contextlib.suppress(OSError):
            self._connection.close()
        self._process.kill()
        self._process.wait()
        shutil.rmtree(self._scratch, ignore_errors=True)


_workers: dict[str, Worker] = {}
_workers_lock = threading.Lock()


def worker(module: str, environment: Mapping[str, str | None], slot: int = 0) -> Worker:
    """The running child number `slot` for `module`, started if there is none yet."""
    with _workers_lock:
        key = f"{module}/{slot}"
        found = _workers.get(key)
        if found is None or not found.usable:
            if found is not None:
                found.close()
            found = _workers[key] = Worker(module, environment)
        return found


@atexit.register
def close_all() -> None:
    """End every child; they start again when they are next needed."""
    with _workers_lock:
        for each in _workers.values():
            each.close()
        _workers.clear()


def serve(descriptor: int, module: str) -> None:
    """Answer requests until the other side closes; this is the child's whole life."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides what an interrupt ends
    atexit.register(shutil.rmtree, os.environ[SCRATCH], ignore_errors=True)  # it may be gone
    connection = Connection(descriptor)
    handle = _handle(module)  # before it is asked for: whoever starts a child early waits less
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            request = connection.recv()
            try:
                answer = (False, handle(request))
            except NapkinError as error:
                answer = (True, error)
            except Exception:
                answer = (True, traceback.format_exc())
            connection.send(answer)


def _handle(module: str) -> Callable[[Any], Any]:
    """What answers a module's requests; raises for each what kept the module from being loaded."""
    try:
        return importlib.import_module(module).handle
    except Exception as error:
        missing = isinstance(error, ModuleNotFoundError) and error.name == "triton"
        why = InputError(NEEDS) if missing else error

    def fail(_: Any) -> Any:
        raise why

    return fail
