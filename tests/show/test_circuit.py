"""Neural circuit diagrams: well-formed, complete, the same each time, and as last looked at."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import pairwise

import pytest
from syrupy.assertion import SnapshotAssertion
from syrupy.extensions.single_file import SingleFileSnapshotExtension, WriteMode

import napkin as nk
from napkin.diagram.columns import alive, stages
from napkin.diagram.library import load, names
from napkin.show._layout import GAP, LANE, layout
from napkin.show.circuit import COLOURS, draw

SVG = "{http://www.w3.org/2000/svg}"
TILES = {"q": "g_q", "x": "s_x"}


class SvgFiles(SingleFileSnapshotExtension):
    """Goldens as files that a browser opens; `pytest --snapshot-update` writes them."""

    _write_mode = WriteMode.TEXT
    file_extension = "svg"


@pytest.fixture
def golden(snapshot: SnapshotAssertion) -> SnapshotAssertion:
    return snapshot.use_extension(SvgFiles)


def words(svg: str) -> list[str]:
    return [t.text or "" for t in ET.fromstring(svg).iter(f"{SVG}text")]


@pytest.mark.parametrize("name", ["attention", "grouped_query_attention", "layernorm_linear"])
def test_golden(name: str, golden: SnapshotAssertion) -> None:
    assert draw(load(name)) == golden


def test_golden_with_labels(golden: SnapshotAssertion) -> None:
    assert draw(load("attention"), TILES) == golden


@pytest.mark.parametrize("name", names())
def test_everything_is_there(name: str) -> None:
    diagram = load(name)
    svg = draw(diagram)
    assert svg == draw(load(name))
    root = ET.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.findtext(f"{SVG}title") == f"{name}: {diagram.signature}"
    said = words(svg)
    assert set(diagram.axes) <= set(said)
    for n in diagram.inputs:
        assert str(n.params[0]) in said
    order = stages(diagram)
    boxes = [
        g.findtext(f"{SVG}title") for g in root.iter(f"{SVG}g") if g.find(f"{SVG}title") is not None
    ]
    assert boxes == [s.text for s in order]
    for stage in order:
        if stage.op != "pointwise":
            assert " ".join([stage.op, *stage.over]) in said


@pytest.mark.parametrize("name", names())
def test_everything_is_inside_the_frame(name: str) -> None:
    root = ET.fromstring(draw(load(name)))
    x, y, wide, high = (int(v) for v in root.attrib["viewBox"].split())
    assert (root.attrib["width"], root.attrib["height"]) == (str(wide), str(high))
    for element in root.iter():
        for dx, dy in re.findall(r"(-?\d+) (-?\d+)", element.get("d", "")):
            assert x <= int(dx) <= x + wide
            assert y <= int(dy) <= y + high
        if element.tag == f"{SVG}text":
            long = 0.605 * 12 * len(element.text or "")
            left = {"end": 1.0, "middle": 0.5}.get(element.get("text-anchor", ""), 0.0)
            start = int(element.attrib["x"]) - left * long
            assert x <= start
            assert start + long <= x + wide
            assert y + 8 <= int(element.attrib["y"]) <= y + high


@pytest.mark.parametrize("name", names())
def test_no_array_runs_into_another(name: str) -> None:
    diagram = load(name)
    plan = layout(diagram)
    for i, cut in enumerate(alive(diagram)):
        for upper, lower in pairwise(cut):
            lanes = len(plan.lanes[upper])
            if i and upper is plan.blocks[i - 1].stage.node:
                lanes = max(lanes, plan.blocks[i - 1].passing + plan.blocks[i - 1].ports)
            assert plan.top[lower] - plan.top[upper] >= (lanes - 1) * LANE + GAP


def test_weaved_axes_pass_above_the_box() -> None:
    diagram = load("attention")
    plan = layout(diagram)
    contract, scale, softmax, _ = plan.blocks
    q, k, _ = diagram.inputs
    assert contract.passing == 2
    assert plan.lanes[contract.stage.node] == ("q", "x")
    assert [(w.source, w.axis, w.lane) for w in contract.wires] == [
        (q, "q", 0),
        (q, "d", 2),
        (k, "x", 1),
        (k, "d", 3),
    ]
    assert (scale.passing, scale.ports) == (0, 2)
    assert (softmax.passing, softmax.ports) == (1, 1)
    assert plan.top[contract.stage.node] == plan.top[q]  # its wires run on straight


def test_shared_axes_join() -> None:
    plan = layout(load("multi_head_attention"))
    assert [w.axis for w in plan.blocks[0].joined] == ["b", "h"]
    assert [b.joined for b in plan.blocks[1:3]] == [(), ()]


def test_labels_stand_on_inner_wires_only() -> None:
    plain, labelled = words(draw(load("attention"))), words(draw(load("attention"), TILES))
    assert "g_q" not in plain
    assert labelled.count("q") == 2  # the ends of Q and O
    assert labelled.count("g_q") == 4  # Q as it is loaded, t, S and t2
    assert labelled.count("s_x") == 5


def test_colours_are_levels() -> None:
    diagram = load("matmul")
    a, b = diagram.inputs
    black, orange, green = COLOURS[:3]
    svg = draw(diagram)
    assert f'stroke="{black}"' in svg
    assert f'stroke="{orange}"' in svg
    assert green not in svg
    deep = draw(diagram, levels={a: ("registers",), b: ("outer",)})
    assert green in deep
    assert "registers" in words(deep)


def test_text_is_escaped() -> None:
    svg = draw(replace(load("attention"), name="a<b>&'\"\0\x1b"), {"q": "<g&q>"})
    ET.fromstring(svg)
    assert "<g&q>" in words(svg)
    assert "a&lt;b&gt;&amp;&#x27;&quot;??" in svg


def test_no_stage_scalars_and_long_words() -> None:
    @nk.diagram("a, b -> b, a, a")
    def swap(A, B):
        return B, A, A

    assert words(draw(swap))[:4] == ["a", "a", "A", "O2, O3"]

    @nk.diagram("q x -> ()")
    def total(S):
        kept = nk.where(nk.index("q") >= nk.index("x"), S, -123456.0)
        return nk.reduce(kept, "max", over="q x")

    svg = draw(total)
    assert any(w.endswith("\u2026") and len(w) == 36 for w in words(svg))
    assert "where(index(q) &gt;= index(x), S, -123456)" in svg  # whole, in the box's title
    assert 'stroke-dasharray="1 4"' in svg  # a value without axes


def test_rename_keeps_wires_straight() -> None:
    @nk.diagram("t d -> t d")
    def self_attention(X):
        Y = X.rename(t="x")
        P = nk.softmax(nk.contract(X, Y, over="d"), over="x")
        return nk.contract(P, Y, over="x")

    assert layout(self_attention).lanes[stages(self_attention)[0].node] == ("x", "d")
    assert "X.rename(t=x)" in words(draw(self_attention))


def test_it_stands_alone() -> None:
    svg = draw(load("attention"))
    assert svg.startswith('<svg xmlns="http://www.w3.org/2000/svg"')
    assert 'fill="#fff"/>' in svg  # white under it, on a dark page, too
    assert not re.search(r"href|url\(|@import|<style|<script", svg)
    assert svg == load("attention").draw()
