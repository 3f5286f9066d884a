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


def draw(*shape: int) -> Any:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def taken(launch: Launch) -> str:
    """What a kernel takes for its tensors."""
    if launch.specialised:
        return WARPGROUPS
    described = any(d is not None for *_, d in launch.holes)
    return DESCRIPTORS if described else ADDRESSES


@pytest.mark.parametrize(
    ("takes", "heads", "n", "depth"),
    [(ADDRESSES, 4, 500, 33), (DESCRIPTORS, 4, 500, 64), (WARPGROUPS, 32, 4096, 64)],
)
def test_the_driver_launches(
    takes: str, heads: int, n: int, depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the tensors of the first launch, and on others, of which only the addresses differ."""
    for room, table in ((ops, "_WARM"), (arranged, "_CALLS")):
        monkeypatch.setattr(room, table, {})
    shapes = [(2, heads, n, depth), *[(2, heads, n - 200, depth)] * 2]
    nkt.attention(*(draw(*shape) for shape in shapes))
    (made,) = [call.prepared for call in arranged._CALLS.values()]
    assert isinstance(made, OnCuda)
    if torch.cuda.get_device_capability()[0] == 9:
        assert {taken(launch) for launch in made.launches} == {takes}
    for _ in range(3):
        given = [draw(*shape) for shape in shapes]
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
