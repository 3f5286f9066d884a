"""Neural circuit diagrams as SVG (arXiv 2412.03317, section 2), drawn by napkin itself.

Data columns and operators alternate from left to right. An array is a bundle of parallel wires, one
per axis; dashed lines part the arrays. An operator is a box on the axes that it works along, and the
axes that it is weaved over pass above it. A wire's colour is the level where its array lies, and
labels on it say how the axis is partitioned there: a diagram is relabelled, never redrawn.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from html import escape

from napkin.diagram.columns import INNER, OUTER, Column, Entry, Levels, columns, opened
from napkin.diagram.diagram import Diagram
from napkin.diagram.node import Node
from napkin.show._layout import GAP, ITEM, LANE, Block, Layout, Wire, layout

COLOURS = ("#1a1a1a", "#e07b00", "#2e8b3d", "#2f6fd0", "#a03ab0", "#00888a")
"""Levels from the outermost: the paper's black, orange, green and blue, and two more."""

_FONT, _CHAR, _MARGIN = 12, 7.3, 16
_LONGEST = 36


@dataclass
class _Paper:
    """SVG elements in the order of painting: wires, then boxes and words on top of them."""

    colours: Mapping[str, str]
    wires: list[str] = field(default_factory=list[str])
    boxes: list[str] = field(default_factory=list[str])

    def path(self, d: str, level: str, axis: str) -> None:
        dash = ' stroke-dasharray="1 4"' if axis == ITEM else ""
        self.wires.append(f'<path d="{d}" stroke="{self.colours[level]}"{dash}/>')

    def line(self, x0: float, x1: float, y: float, level: str, axis: str) -> None:
        if x1 > x0:
            self.path(f"M{_n(x0)} {_n(y)}H{_n(x1)}", level, axis)

    def curve(self, x0: float, y0: float, x1: float, y1: float, level: str, axis: str) -> None:
        mid = (x0 + x1) / 2
        bend = f"C{_n(mid)} {_n(y0)} {_n(mid)} {_n(y1)} {_n(x1)} {_n(y1)}"
        self.path(f"M{_n(x0)} {_n(y0)}{bend}", level, axis)

    def dot(self, x: float, y: float, level: str) -> None:
        self.boxes.append(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="2.6" fill="{self.colours[level]}"/>'
        )

    def text(self, x: float, y: float, words: str, **how: str) -> None:
        given = "".join(f' {k.replace("_", "-")}="{v}"' for k, v in how.items())
        self.boxes.append(f'<text x="{_n(x)}" y="{_n(y)}"{given}>{escape(words)}</text>')

    def plate(self, x: float, y: float, words: str, level: str) -> None:
        """Words on a wire."""
        wide = len(words) * _CHAR + 4
        self.boxes.append(
            f'<rect x="{_n(x - 2)}" y="{_n(y - 8)}" width="{_n(wide)}" height="16" fill="#fff"/>'
        )
        self.text(x, y + 4, words, fill=self.colours[level])

    def box(self, x: float, y: float, wide: float, high: float, words: str, whole: str) -> None:
        self.boxes.append(
            f'<g><title>{escape(whole)}</title><rect x="{_n(x)}" y="{_n(y)}" width="{_n(wide)}" '
            f'height="{_n(high)}" rx="4" fill="#f4f4f0" stroke="#1a1a1a" stroke-width="1.2"/>'
        )
        self.text(x + wide / 2, y + high / 2 + 4, words, text_anchor="middle", fill="#1a1a1a")
        self.boxes.append("</g>")


def draw(
    diagram: Diagram,
    labels: Mapping[str, str] | None = None,
    *,
    expanded: bool = False,
    levels: Levels | None = None,
) -> str:
    """The neural circuit diagram of `diagram` as standalone SVG text.

    `labels` maps an axis to the label that its wires carry inside, such as {"q": "g_q", "x": "s_x"}.
    Composites stay one box unless `expanded`; `levels` are those of `napkin.diagram.columns`.
    """
    shown = opened(diagram) if expanded else diagram
    return _Drawing(shown, dict(labels or {}), levels).svg()


class _Drawing:
    def __init__(self, diagram: Diagram, labels: Mapping[str, str], levels: Levels | None) -> None:
        self.diagram = diagram
        self.labels = labels
        self.columns = columns(diagram, levels=levels)
        self.plan: Layout = layout(diagram)
        found = dict.fromkeys([OUTER, INNER, *(e.level for c in self.columns for e in c)])
        self.colours = {
            level: COLOURS[min(i, len(COLOURS) - 1)] for i, level in enumerate(found)
        }
        self.paper = _Paper(self.colours)

    def svg(self) -> str:
        """Draws from left to right, then frames the result."""
        plan, x = self.plan, 0.0
        for i, cut in enumerate(plan.cuts):
            x = self._column(i, x)
            if i < len(plan.blocks):
                x = self._stage(plan.blocks[i], cut, i, x)
        return self._framed(x)

    # --- data columns -----------------------------------------------------------------------

    def _entries(self, i: int) -> dict[Node, Entry]:
        return {e.node: e for e in reversed(self.columns[i].entries)}

    def _column(self, i: int, x: float) -> float:
        """The arrays on cut `i`, from `x`; returns where the column ends."""
        cut, entries = self.plan.cuts[i], self._entries(i)
        last = i == len(self.plan.blocks)
        new = cut if i == 0 else (self.plan.blocks[i - 1].stage.node,)
        words = {(n, a): self._words(entries[n], a) for n in new for a in self.plan.lanes[n]}
        wide = max([28.0, *(len(w) * _CHAR + 24 for w in words.values())])
        wide = max([wide, *(len(entries[n].name) * _CHAR + 16 for n in new)])
        end = x + wide
        for n in cut:
            e = entries[n]
            for lane, axis in enumerate(self.plan.lanes[n]):
                y = self.plan.y(n, lane)
                self.paper.line(x, end, y, e.level, axis)
                if words.get((n, axis)):
                    self.paper.plate(x + 10, y, words[n, axis], e.level)
                if i == 0:
                    self.paper.text(x - 6, y + 4, axis, text_anchor="end", fill="#1a1a1a")
                if last:
                    self.paper.text(end + 6, y + 4, axis, fill="#1a1a1a")
            if n in new and not (last and i):
                self.paper.text(
                    x + 4, self.plan.top[n] - 8, e.name, font_style="italic", fill="#555"
                )
        for upper, lower in zip(cut, cut[1:], strict=False):
            y = (self.plan.bottom(upper) + self.plan.top[lower]) / 2
            self.paper.wires.append(
                f'<path d="M{_n(x)} {_n(y)}H{_n(end)}" stroke="#999" stroke-width="1" '
                'stroke-dasharray="5 4"/>'
            )
        if last and i:
            self._outputs(cut, end)
        return end

    def _words(self, e: Entry, axis: str) -> str:
        """What a wire says where its array begins; inputs are named at their left end instead."""
        label = self.labels.get(axis, "")
        if e.level == OUTER:
            return ""
        return f"{axis} {label}".strip()

    def _outputs(self, cut: Iterable[Node], x: float) -> None:
        for n in cut:
            called = ", ".join(o.name for o in self.diagram.outputs if o.node is n)
            self.paper.text(
                x - 4,
                self.plan.top[n] - 8,
                called,
                text_anchor="end",
                font_style="italic",
                fill="#555",
            )
