"""What is kept on disk: found again by other processes, safe with several writers, not missed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import napkin as nk
from napkin.diagram.fingerprint import fingerprint
from napkin.diagram.library import load, names
from napkin.machine.machines import machine
from napkin.run import cache_folder
from napkin.run.cache_folder import read, write
from napkin.settings.tiles import power_of_two
from napkin.torch import cache
from napkin.torch.function import Function, size_class
from napkin.torch.ops import warm

SCRIPT = """
import os, pathlib, sys, time
import torch
import napkin as nk
from napkin.torch.function import Function
from napkin.torch.ops import warm

@nk.diagram("n x -> n")
def total(X, weight=2.0):
    return nk.reduce(nk.exp(X) * weight, "sum", over="x")

ready, others = pathlib.Path(sys.argv[1]), int(sys.argv[2])
(ready / str(os.getpid())).touch()
while len(list(ready.iterdir())) < others:  # until all have imported what they need
    time.sleep(0.001)
x = torch.ones(5, 40)
(found,) = warm(Function(total), [x], (3.0,))([x])
print("sympy" in sys.modules)
assert torch.allclose(found, torch.full((5,), 40 * 3 * 2.718281828))
"""


@nk.diagram("n x -> n")
def total(X: Any) -> Any:
    return nk.reduce(X * 2.0, "sum", over="x")


def ran(folder: Path, ready: Path, others: int) -> subprocess.Popen[str]:
    """A process that computes a sum, with its cache in `folder`, when others are ready, too."""
    ready.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", SCRIPT, str(ready), str(others)],
        env={
            "PATH": "/usr/bin:/bin",
            "PYTHONPATH": ":".join(sys.path),
            "NAPKIN_CACHE": str(folder),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said(process: subprocess.Popen[str]) -> str:
    out, error = process.communicate(timeout=300)
    assert process.returncode == 0, error
    return out.strip()


def test_two_processes_at_once_and_one_after_them(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    both = [ran(folder, tmp_path / "ready", 2) for _ in range(2)]
    assert [said(p) for p in both] == ["True", "True"]
    assert [p.suffix for p in (folder / "recipes").iterdir()] == [".json"]
    # Nothing is derived any more, so sympy is not needed.
    assert said(ran(folder, tmp_path / "ready", 1)) == "False"


def test_a_recipe_is_what_was_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    for name in ("rmsnorm_linear", "neighborhood_attention_1d"):
        recipe = nk.derive(load(name), on="h100", dtype="bf16").recipe
        cache.save("one", recipe)
        again = cache.load("one")
        assert again is not None
        assert json.dumps(again.to_json()) == json.dumps(recipe.to_json())
        sizes, scalars = load(name).sizes, load(name).check_scalars({})
        axes = {t.name: t.axes for t in recipe.stored}
        axes |= {str(n.params[0]): n.axes for n in load(name).inputs}
        strides = {t: (64, 1)[-len(own) :] for t, own in axes.items()}
        for step, same in zip(recipe.steps, again.steps, strict=True):
            given = (recipe.full(sizes), scalars, strides)
            assert step.launch(*given) == same.launch(*given)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"source": 1}', '{"source": "", "steps": [3]}'])
def test_a_broken_file_is_no_recipe(
    text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    function, x = Function(total), torch.ones(3, 20)
    file = tmp_path / "recipes"
    file.mkdir()
    sizes = tuple(size_class(total, {"n": 3, "x": 20}).items())
    name = cache.digest(function.print, repr(sizes), "fp32", repr(machine("h100")))
    (file / f"{name}.json").write_text(text)
    (found,) = warm(function, [x], ())([x])
    assert torch.equal(found, torch.full((3,), 40.0))
    assert cache.load(name) is not None  # and the file is whole again


def keep(folder: Path, change: Any) -> None:
    """A recipe as it is kept, sealed again after a change to its data."""
    function = Function(total)
    recipe = function.recipe({"n": 3, "x": 20}, "fp32", machine("h100"))
    cache.save("one", recipe)
    file = folder / "recipes" / "one.json"
    data = json.loads(file.read_text(encoding="utf-8"))["recipe"]
    change(data)
    sealed = {"sha256": cache._seal("one", data), "recipe": data}
    file.write_text(json.dumps(sealed), encoding="utf-8")


SHAPES = {
    "no steps": lambda d: d.update(steps=[]),
    "no results": lambda d: d.update(results=[]),
    "another result": lambda d: d.update(results=["P"]),
    "a result that nothing writes": lambda d: d["steps"][0].update(binding={}),
    "a name that is a number": lambda d: d["steps"][0]["entry"].update(name=3),
    "a kernel that is not there": lambda d: d["steps"][0]["entry"].update(name="other"),
    "no kernel": lambda d: d["steps"][0].update(entry=None),
    "warps in words": lambda d: d["steps"][0]["entry"]["schedule"].update(warps="4"),
    "half a stage": lambda d: d["steps"][0]["entry"]["schedule"].update(stages=1.5),
    "axes in one text": lambda d: d["stored"][0].update(axes="n"),
    "another type": lambda d: d["stored"][0].update(dtype="fp7"),
    "source that is null": lambda d: d.update(source=None),
    "an argument of another kind": lambda d: d["steps"][0]["entry"]["arguments"][0].update(
        kind="x"
    ),
    "a list in place of a table": lambda d: d.update(parts=[1]),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_shape_of_a_recipe_is_not_trusted(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    keep(tmp_path, lambda data: None)
    assert cache.load("one") is not None
    keep(tmp_path, SHAPES[name])
    assert cache.load("one") is None


def test_a_recipe_that_was_changed_or_moved_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    keep(tmp_path, lambda data: None)
    file = tmp_path / "recipes" / "one.json"
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace("triton.jit", "triton.jot"), encoding="utf-8")
    assert cache.load("one") is None
    (tmp_path / "recipes" / "two.json").write_text(text, encoding="utf-8")
    assert cache.load("two") is None
    file.write_text("[" * 100000, encoding="utf-8")  # deeper than Python reads
    assert cache.load("one") is None
    file.write_bytes(b"\xff\xfe")
    assert cache.load("one") is None


@pytest.mark.parametrize("what", ["file", "folder"])
@pytest.mark.filterwarnings("always")
def test_what_others_can_write_is_not_run(
    what: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path))
    source = f"def number(): return 1\n# {what}\n"
    own = Path(cache_folder.module_of(source).__file__ or "")
    assert own.parent == tmp_path / "kernels"
    keep(tmp_path, lambda data: None)
    for path in (own, tmp_path / "recipes" / "one.json"):
        (path if what == "file" else path.parent).chmod(0o777)
    with pytest.warns(RuntimeWarning, match="since others can write it: make it yours"):
        assert cache.load("one") is None
    own.write_text("raise SystemExit", encoding="utf-8")
    cache_folder.module_of.cache_clear()
    with pytest.warns(RuntimeWarning, match="since others can write it: make it yours"):
        again = cache_folder.module_of(source)
    assert again.number() == 1
    assert Path(again.__file__ or "").read_text(encoding="utf-8") == source
    assert (Path(again.__file__ or "") == own) == (what == "file")  # written anew, or elsewhere


def test_folders_and_files_are_the_users_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = os.umask(0o002)
    try:
        monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "a" / "b"))
        write(tmp_path / "a" / "b" / "c" / "text", "naïve\n")
    finally:
        os.umask(before)
    modes = [p.stat().st_mode & 0o777 for p in sorted((tmp_path / "a").rglob("*"))]
    assert modes == [0o700, 0o700, 0o600]
    assert read(tmp_path / "a" / "b" / "c" / "text") == "naïve\n"
    assert (tmp_path / "a" / "b" / "c" / "text").read_bytes() == "naïve\n".encode()


def test_what_was_begun_and_left_is_removed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new = tmp_path / "x" / "old.part", tmp_path / "x" / "new.part"
    old.parent.mkdir(mode=0o700)
    for part in (old, new):
        part.write_text("", encoding="utf-8")
    os.utime(old, (0, 0))
    write(tmp_path / "x" / "text", "")
    assert sorted(p.name for p in old.parent.iterdir()) == ["new.part", "text"]


def test_a_folder_that_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("NAPKIN_CACHE", str(tmp_path / "file"))
    x = torch.ones(3, 20)
    (found,) = warm(Function(total), [x], ())([x])
    assert torch.equal(found, torch.full((3,), 40.0))
    assert cache_folder.module_of("def nothing(): return 1\n").nothing() == 1
    assert [p.name for p in tmp_path.iterdir()] == ["file"]


def test_where_the_folder_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAPKIN_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/some/where")
    assert cache_folder.folder() == Path("/some/where/napkin")
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", "/home/user")
    assert cache_folder.folder() == Path("/home/user/.cache/napkin")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # which its specification says to ignore
    assert cache_folder.folder() == Path("/home/user/.cache/napkin")
    monkeypatch.setenv("NAPKIN_CACHE", "~/mine")
    assert cache_folder.folder() == Path("/home/user/mine")


def test_names_tell_everything_apart() -> None:
    assert cache.digest("ab", "c") != cache.digest("a", "bc")
    prints = [fingerprint(load(n)) for n in names()]
    assert len(set(prints)) == len(prints)

    def window(k: int, at: float) -> nk.Diagram:
        def f(X: nk.Array) -> nk.Array:
            S = X + nk.index("q") * at
            return nk.reduce(S, "sum", over="x", keys=nk.neighborhood(k))

        return nk.diagram("q x -> q", name="f")(f)

    assert fingerprint(window(3, 0.1)) == fingerprint(window(3, 0.1))
    assert fingerprint(window(3, 0.1)) != fingerprint(window(4, 0.1))
    # What a listing shows alike.
    assert repr(window(3, 0.1)) == repr(window(3, 0.1 + 1e-12))
    assert fingerprint(window(3, 0.1)) != fingerprint(window(3, 0.1 + 1e-12))


def test_sizes_that_share_a_recipe() -> None:
    line = load("neighborhood_attention_1d")
    assert size_class(line, dict(q=300, x=300, d=48)) == dict(q=320, x=320, d=48)
    assert size_class(line, dict(q=300, x=300, d=49)) == dict(q=320, x=320, d=56)
    assert size_class(line, dict(q=512, x=512, d=64)) == dict(q=512, x=512, d=64)
    plane = load("neighborhood_attention_2d")
    sizes = dict(q0=30, q1=80, d=48, x0=30, x1=80)
    assert size_class(plane, {**sizes, "d": 50}) == {**sizes, "d": 56}
    assert size_class(load("softmax"), dict(n=0, x=5)) == dict(n=1, x=5)


def test_classes_of_sizes() -> None:
    softmax = load("softmax")
    found = [size_class(softmax, dict(n=n, x=8))["n"] for n in range(1, 8193)]
    assert list(dict.fromkeys(found))[:14] == [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24]
    for n, size in enumerate(found, 1):
        assert n <= size < 1.25 * n
        assert power_of_two(size) == power_of_two(n)  # so tiles that hold one hold the other
    assert len(set(found)) == 4 * 12  # four to each doubling


def test_classes_of_packed_rows() -> None:
    packed = load("matmul_w4a16")
    row = packed.inputs[1].axes[-1]
    sizes = {a: 6 for a in packed.axes}
    assert size_class(packed, {**sizes, row: 2})[row] == 2
    assert size_class(packed, {**sizes, row: 6})[row] == 8
    assert size_class(packed, {**sizes, row: 530})[row] == 1024


def test_one_recipe_serves_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    function = Function(total)
    for n, x in ((29, 57), (30, 60), (32, 64)):
        given = torch.randn(n, x)
        (found,) = warm(function, [given], ())([given])
        torch.testing.assert_close(found, 2 * given.sum(1), rtol=1e-5, atol=1e-5)
    assert len(function._recipes) == 1
