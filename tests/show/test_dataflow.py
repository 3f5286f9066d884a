"""Dataflow graphs: complete DOT text, and pictures where `dot` is there."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

from napkin.diagram.columns import stages
from napkin.diagram.library import load, names
from napkin.show.dataflow import dot


class DotFiles(SingleFileSnapshotExtension):
    """Goldens as DOT files; `pytest --snapshot-update` writes them."""

    _write_mode = WriteMode.TEXT
    file_extension = "dot"


def test_golden(snapshot: SnapshotAssertion) -> None:
    assert dot(load("attention")) == snapshot(extension_class=DotFiles)


@pytest.mark.parametrize("name", names())
def test_everything_is_there(name: str) -> None:
    diagram = load(name)
    text = dot(diagram)
    assert text == dot(load(name))
    assert text.startswith(f"digraph {name} {{")
    order = stages(diagram)
    for stage in order:
        assert f'label="{stage.text}"' in text
    assert text.count(" -> ") == sum(len(s.args) for s in order) + len(diagram.outputs)
    for axis in diagram.axes:
        assert re.search(rf"\b{axis}\b", text)


def test_text_is_escaped() -> None:
    named = replace(load("softmax"), name='a "b" \\')
    assert dot(named).startswith('digraph "a \\"b\\" \\\\" {')
