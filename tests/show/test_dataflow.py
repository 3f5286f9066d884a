"""Dataflow graphs: complete DOT text, and pictures where `dot` is there."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from napkin.diagram.columns import opened, stages
from napkin.diagram.library import load, names
from napkin.errors import InputError
from napkin.show.dataflow import dot, render


class DotFiles(SingleFileSnapshotExtension):
    """Goldens as DOT files; `pytest --snapshot-update` writes them."""

    _write_mode = WriteMode.TEXT
    file_extension = "dot"


def test_golden(snapshot: SnapshotAssertion) -> None:
    assert dot(load("attention")) == snapshot(extension_class=DotFiles)


@pytest.mark.parametrize("expanded", [False, True])
@pytest.mark.parametrize("name", names())
def test_everything_is_there(name: str, expanded: bool) -> None:
    diagram = load(name)
    text = dot(diagram, expanded=expanded)
    assert text == dot(load(name), expanded=expanded)
    assert text.startswith(f"digraph {name} {{")
    order = stages(opened(diagram) if expanded else diagram)
    for stage in order:
        assert f'label="{stage.text}"' in text
    assert text.count(" -> ") == sum(len(s.args) for s in order) + len(diagram.outputs)
    for axis in diagram.axes:
        assert re.search(rf"\b{axis}\b", text)


def test_text_is_escaped() -> None:
    named = replace(load("softmax"), name='a "b" \\')
    assert dot(named).startswith('digraph "a \\"b\\" \\\\" {')


@pytest.fixture
def tools(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "tools"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    return folder


def give(tools: Path, script: str) -> None:
    (tools / "dot").write_text(f"#!/bin/sh\n{script}\n")
    (tools / "dot").chmod(0o755)


def test_no_dot(tools: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tools))
    assert render("digraph {}", tmp_path / "a.svg") is False
    assert not (tmp_path / "a.svg").exists()


def test_a_picture(tools: Path, tmp_path: Path) -> None:
    give(tools, 'echo "$@"; cat')
    assert render("digraph {}", tmp_path / "a.svg") is True
    assert (tmp_path / "a.svg").read_text() == "-Tsvg\ndigraph {}"


def test_what_cannot_be_drawn(tools: Path, tmp_path: Path) -> None:
    give(tools, "cat >/dev/null; echo 'Format: \"zzz\" not recognized.' >&2; exit 1")
    with pytest.raises(InputError, match=r"names no picture format; write one such as .*a\.svg$"):
        render("digraph {}", tmp_path / "a")
    with pytest.raises(InputError, match=r'Format: "zzz" not recognized\.; a format such as svg'):
        render("digraph {}", tmp_path / "a.zzz")
    give(tools, "cat")
    with pytest.raises(InputError, match=r"cannot be written: No such file or directory; check"):
        render("digraph {}", tmp_path / "no" / "a.svg")
