"""The torch room, on the CPU: kernels run in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Recipes are kept in a folder of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAPKIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("NAPKIN_MACHINE", raising=False)
        torch.manual_seed(0)
        yield
