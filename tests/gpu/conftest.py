"""Workers share one GPU: what a test leaves in torch's cache is given back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def given_back() -> Iterator[None]:
    yield
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
