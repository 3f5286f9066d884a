"""Workers share one GPU: its memory, and its time."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

if not sys.stdout.isatty():
    # Of a failure pytest's summary has what fits a line: the name of a problem fills 80 columns.
    os.environ.setdefault("COLUMNS", "400")


_spoilt: list[str] = []
"""The test after which no launch works in this process any more."""


@pytest.fixture(autouse=True)
def given_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """What a test leaves in torch's cache is given back. After one that read out of bounds nothing
    works in this process: a worker ends, and another one takes the tests that are left; without
    workers these are skipped."""
    from napkin.measure.trials import usable

    torch = pytest.importorskip("torch")
    if _spoilt:
        pytest.skip(f"after {_spoilt[0]} the device takes no more launches")
    yield
    if not torch.cuda.is_available():
        return
    if usable():
        torch.cuda.empty_cache()
    elif "PYTEST_XDIST_WORKER" in os.environ:
        os._exit(1)
    else:
        _spoilt.append(request.node.name)


@pytest.fixture
def alone() -> bool:
    """Whether no other worker uses the GPU: times, and counters of the whole device, mean
    something."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) == 1


@pytest.fixture
def large_memory() -> Callable[[], AbstractContextManager[None]]:
    """A context in which one worker at a time takes more than a share of the memory."""

    @contextmanager
    def taken() -> Iterator[None]:
        path = Path(tempfile.gettempdir()) / f"napkin-large-memory-{os.getuid()}.lock"
        with path.open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    return taken
