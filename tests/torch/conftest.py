"""The torch room, on the CPU: kernels run in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from napkin.torch import ops  # noqa: E402
from napkin.torch.function import Function  # noqa: E402
from napkin.torch.reference import evaluation  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Recipes are kept in a folder of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAPKIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("NAPKIN_MACHINE", raising=False)
        torch.manual_seed(0)
        yield


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator evaluates diagrams in float64, of gradients too, in place of their kernels: what
    is left is how the room asks for derivatives."""

    def warm(function: Function, arrays: Sequence[Any], scalars: Sequence[float]) -> Any:
        f = function.diagram
        sizes = f.sizes_of([tuple(a.shape) for a in arrays])
        made = evaluation(f, sizes, dict(zip(f.scalars, scalars, strict=True)))

        def run(given: Sequence[Any]) -> list[Any]:
            found = made(*(t.double() if t.is_floating_point() else t for t in given))
            dtype = next(t.dtype for t in given if t.is_floating_point())
            return [t.to(dtype).clone(memory_format=torch.contiguous_format) for t in found]

        return run

    monkeypatch.setattr(ops, "warm", warm)
