"""The torch room, on the CPU: kernels run in Triton's interpreter."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from napkin.torch import arranged, ops  # noqa: E402
from napkin.torch.function import Function  # noqa: E402
from napkin.torch.reference import evaluation  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Recipes are kept in a folder of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAPKIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("NAPKIN_MACHINE", raising=False)
        yield


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """The operator evaluates diagrams in float64, of gradients too, in place of their kernels: what
    is left is how the room asks for derivatives."""

    def prepare(
        self: Function, arrays: Sequence[Any], scalars: Any, layouts: Sequence[Any] | None = None
    ) -> Any:
        f = self.diagram
        sizes = f.sizes_of([tuple(a.shape) for a in arrays])
        made, seen = evaluation(f, sizes, scalars), [(a.shape, a.stride()) for a in arrays]

        def run(given: Sequence[Any]) -> list[Any]:
            views = [t.detach().as_strided(*s) for t, s in zip(given, seen, strict=True)]
            found = made(*(t.double() if t.is_floating_point() else t for t in views))
            dtype = next(t.dtype for t in given if t.is_floating_point())
            out = [t.to(dtype).clone(memory_format=torch.contiguous_format) for t in found]
            return (
                [t.as_strided(*how) for t, how in zip(out, layouts, strict=True)]
                if layouts
                else out
            )

        return run

    monkeypatch.setattr(Function, "prepare", prepare)
    for room, table in ((ops, "_WARM"), (arranged, "_CALLS")):
        monkeypatch.setattr(room, table, {})
