"""What is launched is what Triton would launch."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from warnings import catch_warnings

import pytest
import torch
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

sys.path.insert(0, str(Path(__file__).parents[2] / "docs" / "measurements"))
from bench_dispatch import STREAM, played

import napkin.torch as nkt
from napkin.lower.launch import TmaBox, fits
from napkin.run import cache_folder, launching
from napkin.run.launching import Launch, described
from napkin.run.prepared import OnCuda, passed, row_major
from napkin.torch import arranged, ops

HOOKS = slice(6, 9)
"""The metadata and the hooks of a launch, among what Triton's launchers are given."""


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(*shape).bfloat16()


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Recipes are kept in a folder of this run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NAPKIN_CACHE", str(tmp_path_factory.mktemp("cache")))
        patch.delenv("NAPKIN_MACHINE", raising=False)
        yield


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What launchers are given, on a GPU that is played."""
    for room, table in ((ops, "_WARM"), (arranged, "_CALLS")):
        monkeypatch.setattr(room, table, {})
    cache_folder.module_of.cache_clear()  # kernels that were compiled keep their launchers
    found: list[Any] = []
    with played(lambda *call: found.append(list(call))):
        yield found


def launch_of(*tensors: torch.Tensor) -> tuple[Launch, list[torch.Tensor]]:
    """The launch of an attention, and its tensors."""
    nkt.attention(*tensors)
    (made,) = [call.prepared for call in arranged._CALLS.values()]
    assert isinstance(made, OnCuda)
    (launch,) = made.launches
    return launch, made.tensors(tensors)


@pytest.mark.parametrize("depth", [32, 33])
def test_a_launch_is_that_of_triton(depth: int, calls: list[Any]) -> None:
    """With descriptors and without."""
    q, k = draw(2, 8, 512, depth), draw(2, 8, 500, depth)
    launch, given = launch_of(q, k, k)
    calls.clear()
    launch(given, STREAM)
    launch.by_triton(launch.bound(given))
    ours, theirs = calls
    assert ours[3] == STREAM
    assert any(isinstance(a, TensorDescriptor) for a in ours) == (depth == 32)
    assert ours[HOOKS] == [None] * 3  # which Triton passes on when there are none, too
    del ours[HOOKS], theirs[HOOKS]
    assert len(ours) == len(theirs)
    assert all(a is b or a == b for a, b in zip(ours, theirs, strict=True))


def test_what_a_descriptor_stands_for_is_set_to_zero_before() -> None:
    sums = torch.ones(16, 32)
    box = described(row_major(sums.shape), TmaBox((0, 1), (16, 32)), False, sums.dtype)
    made = Launch(None, 0, [None], [(0, 0, box)], {}, {}, zeros=[0])
    made([sums], STREAM)
    assert not sums.any()


@pytest.mark.parametrize("grid", [0, 2])
def test_what_a_kernel_adds_to_is_set_to_zero_before(grid: int) -> None:
    """Also where there is nothing to add."""
    seen: list[Any] = []

    class Kernel:
        def __getitem__(self, grid: Any) -> Any:
            return lambda t, **_: seen.append((grid, t.tolist()))

    made, sums = Launch(Kernel(), grid, [None], [(0, 0, None)], {}, {}, zeros=[0]), torch.ones(2)
    for _ in range(2):
        sums += 1
        made([sums], STREAM)
        assert sums.tolist() == [0, 0]
    assert seen == [((2, 1, 1), [0, 0])] * grid


def test_who_watches_launches_sees_them(calls: list[Any]) -> None:
    q = draw(1, 2, 128, 32)
    launch, given = launch_of(q, q, q)

    def watch(metadata: Any) -> None:
        pass

    hook = knobs.runtime.launch_enter_hook
    hook.add(watch)
    try:
        calls.clear()
        launch(given, STREAM)
    finally:
        hook.remove(watch)
    launch(given, STREAM)
    watched, plain = calls
    assert watched[7] is hook
    assert watched[6].get()["name"] == launch.kernel.__name__
    assert plain[HOOKS] == [None] * 3


def test_a_kernel_is_compiled_once(calls: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    q, k = draw(1, 2, 128, 32), draw(1, 2, 64, 32)
    launch, given = launch_of(q, k, k)
    monkeypatch.setattr(launch.kernel, "run", None)  # Triton's, which would look at all arguments
    monkeypatch.setattr(launching, "assembler", None)
    launch(given, STREAM)
    nkt.attention(q, k, k)
    assert len(calls) == 3


def test_a_kernel_that_triton_fails_on_runs_with_other_settings(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    q = draw(1, 2, 128, 64)
    launch, given = launch_of(q, q, q)
    settings = dict(launch._settings)
    warmup, tried = launch.kernel.warmup, list[tuple[int, int]]()

    def fails(*given_arguments: Any, num_warps: int, num_stages: int, **more: Any) -> Any:
        tried.append((num_warps, num_stages))
        if num_warps == settings["num_warps"]:
            raise RuntimeError("PassManager::run failed")
        return warmup(*given_arguments, num_warps=num_warps, num_stages=num_stages, **more)

    monkeypatch.setattr(launch.kernel, "warmup", fails)
    launch._run = None
    calls.clear()
    with pytest.warns(UserWarning, match=r"runs with num_warps=.*PassManager::run failed"):
        launch(given, STREAM)
    assert len(calls) == 1
    warps, stages = settings["num_warps"], settings["num_stages"]
    assert tried == [*dict.fromkeys([(warps, stages), (warps, 1)]), (2 * warps, stages)]

    monkeypatch.setattr(launch.kernel, "warmup", lambda *a, **k: fails(*a, **k | settings))
    launch._run = None
    with pytest.raises(RuntimeError, match="PassManager::run failed"):
        launch(given, STREAM)


def test_kernels_are_compiled_with_the_assembler_for_the_device(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def assembler(capability: int) -> Any:
        asked.append(capability)
        return nullcontext()

    monkeypatch.setattr(launching, "assembler", assembler)
    q = draw(1, 2, 128, 32)
    launch_of(q, q, q)
    assert asked == [90]
    assert len(calls) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_the_driver_loads_beside_what_is_done_meanwhile(
    monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    done: list[str] = []
    working = threading.Event()

    class Driver:
        @property
        def active(self) -> None:
            assert working.wait(60)
            done.append("driver")
            if fails:
                raise RuntimeError("0 active drivers")

    monkeypatch.setattr(launching, "driver", Driver())
    with launching.loading():  # no CUDA is in use, so there is nothing to load
        pass
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    with launching.loading():
        done.append("work")
        working.set()
    assert done == ["work", "driver"]


@pytest.mark.parametrize("shape", [(), (3,), (4097,), (3, 5), (2, 0), (3, 4097), (2, 3, 130)])
def test_long_rows_between_kernels_begin_where_descriptors_may(shape: tuple[int, ...]) -> None:
    found, strides = passed(shape)
    assert found == shape
    long = bool(shape) and shape[-1] >= 128
    assert strides == row_major(shape)[1] or long
    assert not long or fits(strides, 2)
    assert torch.empty_strided(shape, strides).shape == shape


@pytest.mark.parametrize(
    ("spills", "taken"),
    [({4: 63}, 4), ({4: 500, 8: 0}, 8), ({4: 500, 8: 200, 16: 8}, 16), ({4: 500, 8: 400}, 4)],
)
def test_threads_that_keep_much_in_memory_become_more(
    spills: dict[int, int], taken: int, calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    q, k = draw(1, 2, 128, 32), draw(1, 2, 100, 32)
    launch, given = launch_of(q, k, k)
    again = Launch(
        launch.kernel, launch.grid[0], launch.arguments, launch.holes, launch._constexprs,
        {**launch._settings, "num_warps": 4},
    )  # fmt: skip
    tried: list[int] = []

    def loaded(arguments: Any, settings: Any) -> Any:
        tried.append(settings["num_warps"])
        return SimpleNamespace(n_spills=spills[tried[-1]], run=True)

    monkeypatch.setattr(again, "_loaded", loaded)
    said = f"runs with num_warps={taken}, .*registers in memory, here {spills[taken]}$"
    with pytest.warns(match=said) if taken > 4 else catch_warnings(action="error"):
        assert again._made(again.bound(given)).n_spills == spills[taken]
    assert again._settings["num_warps"] == taken
    assert tried == [*spills]


def test_a_kernel_that_failed_to_load_fails_again(
    calls: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compiler keeps machine code that did not fit: another launch of it had no `n_spills`."""
    q, k = draw(1, 2, 128, 32), draw(1, 2, 100, 32)
    launch, given = launch_of(q, k, k)

    def failing() -> None:
        raise RuntimeError("out of resource: shared memory")

    kept = SimpleNamespace(run=partial(failing))
    monkeypatch.setattr(launch.kernel, "warmup", lambda *a, **k: kept)
    with pytest.raises(RuntimeError, match="shared memory"):
        launch._loaded(launch.bound(given), launch._settings)
