"""Launches by CUDA's driver: they happen, and kernels compute what they do when Triton launches."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
if torch.cuda.is_available():
    import napkin.torch as nkt
    from napkin.run.launching import Launch
    from napkin.run.prepared import OnCuda
    from napkin.torch import arranged, ops

ADDRESSES, DESCRIPTORS, WARPGROUPS = "addresses", "descriptors", "warpgroups"


def draw(*shape: int, dtype: str) -> Any:
    return torch.randn(*shape, device="cuda", dtype=getattr(torch, dtype))


def taken(launch: Launch) -> str:
    """What a kernel takes for its tensors."""
    if launch.specialised:
        return WARPGROUPS
    described = any(d is not None for *_, d in launch.holes)
    return DESCRIPTORS if described else ADDRESSES


@pytest.mark.parametrize("depth", [33, 64])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_driver_launches(dtype: str, depth: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the tensors of the first launch, and on others, of which only the addresses differ."""
    for room, table in ((ops, "_WARM"), (arranged, "_CALLS")):
        monkeypatch.setattr(room, table, {})
    shapes = (2, 4, 500, depth), (2, 4, 300, depth)
    nkt.attention(*(draw(*shapes[i], dtype=dtype) for i in (0, 1, 1)))
    (made,) = [call.prepared for call in arranged._CALLS.values()]
    assert isinstance(made, OnCuda)
    seen = set[str]()
    for launch in made.launches:
        assert launch._direct is not None, taken(launch)
        seen.add(taken(launch))
    if torch.cuda.get_device_capability()[0] == 9:
        assert seen == {
            ADDRESSES if depth == 33 else DESCRIPTORS if dtype == "float32" else WARPGROUPS
        }
    for _ in range(3):
        given = [draw(*shapes[i], dtype=dtype) for i in (0, 1, 1)]
        found, wanted = made.tensors(given), made.tensors(given)
        for which in made.stored:
            found[which].fill_(torch.nan)
            wanted[which].fill_(torch.nan)
        stream = torch.cuda.current_stream().cuda_stream
        for launch in made.launches:
            assert launch._direct is not None
            assert launch._direct(found, stream)
            launch.by_triton(launch.bound(wanted))
        for which in made.results:
            assert torch.equal(found[which], wanted[which])
            assert not found[which].isnan().any()
