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


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    """What a test leaves in torch's cache is given back."""
    yield
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


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
