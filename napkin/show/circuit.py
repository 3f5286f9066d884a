"""Neural circuit diagrams as SVG (arXiv 2412.03317, section 2), drawn by napkin itself.

Data columns and operators alternate from left to right. An array is a bundle of parallel wires,
one per axis; dashed lines part the arrays. An operator is a box on the axes that it works along,
and the axes that it is weaved over pass above it. A wire's colour is the level where its array
lies, and labels on it say how the axis is partitioned there: a diagram is relabelled, not redrawn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from napkin.diagram.columns import INNER, OUTER, Levels, columns
from napkin.diagram.diagram import Diagram
from napkin.ir.node import Node
from napkin.show._layout import ITEM, LANE, RULE, Block, layout
from napkin.show._svg import GREY, INK, Paper, short, width

COLOURS = (INK, "#e07b00", "#2e8b3d", "#2f6fd0", "#a03ab0", "#00888a")
"""Levels from the outermost: the paper's black, orange, green and blue, and two more."""

_KNOWN = {OUTER: 0, INNER: 1, "shared": 1, "registers": 2, "tensor": 3}
"""The colours of levels that have names; others take those that are left."""


def draw(
    diagram: Diagram, labels: Mapping[str, str] | None = None, levels: Levels | None = None
) -> str:
    """The neural circuit diagram of `diagram` as standalone SVG text.

    `labels` gives axes the label that their wires carry inside, as in {"q": "g_q", "x": "s_x"};
    `levels` are those of `napkin.diagram.columns`.
    """
    return _Drawing(diagram, dict(labels or {}), levels).svg()


class _Drawing:
    def __init__(self, diagram: Diagram, labels: Mapping[str, str], levels: Levels | None) -> None:
        self.diagram = diagram
        self.labels = labels
        self.entries = [{e.node: e for e in reversed(c.entries)} for c in columns(diagram, levels)]
        self.plan = layout(diagram)
        found = dict.fromkeys(e.level for column in self.entries for e in column.values())
        made = (c[b.stage.node] for b, c in zip(self.plan.blocks, self.entries[1:], strict=True))
        inside = [INNER] if any(e.level == OUTER for e in made) else []
        self.used = tuple(dict.fromkeys([*found, *inside]))
        self.paper = Paper(_coloured([OUTER, INNER, *self.used]))

    def svg(self) -> str:
        """The columns from left to right, the legend, and the frame around them."""
        x = 0
        for i in range(len(self.plan.cuts)):
            x = self._column(i, x)
            if i < len(self.plan.blocks):
                x = self._stage(i, x)
        foot, at = self.plan.foot + 44, 0
        for level in self.used:
            self.paper.wire(at, foot, at + 22, foot, level)
            self.paper.words(at + 28, foot, level, fill=GREY)
            at += 28 + width(level) + 18
        margin = max([0, *(width(a) for a in self.diagram.axes)]) + 20
        title = f"{self.diagram.name}: {self.diagram.signature}"
        return self.paper.svg(title, -margin, -34, max(x, at) + margin, foot + 16)

    # --- data columns -----------------------------------------------------------------------

    def _column(self, i: int, x: int) -> int:
        """The arrays on cut `i`, from `x`; returns where the column ends."""
        plan, cut, entries = self.plan, self.plan.cuts[i], self.entries[i]
        first, last = i == 0, i == len(plan.blocks)
        new = cut if first else (plan.blocks[i - 1].stage.node,)
        # At the outer level the end of a wire says what its array is.
        inner = [n for n in new if entries[n].level != OUTER]
        plates = {(n, a): self.labels.get(a, a) for n in inner for a in plan.lanes[n]}
        end = x + max([28, *(width(words) + 24 for words in plates.values())])
        end = max([end, *(x + width(entries[n].name) + 16 for n in new)])
        if last:
            end += max([0, *(width(self._called(n)) - 8 for n in cut)])
        for n in cut:
            e = entries[n]
            for lane, axis in enumerate(plan.lanes[n]):
                y = plan.y(n, lane)
                self.paper.wire(x, y, end, y, e.level, dotted=axis == ITEM)
                if plates.get((n, axis)):
                    self.paper.plate(x + 8, y, plates[n, axis], e.level)
                if first:
                    self.paper.words(x - 6, y, axis, anchor="end")
                if last:
                    self.paper.words(end + 6, y, axis)
            if n in new and (first or not last):
                self.paper.words(x + 2, plan.top[n] - 12, e.name, fill=GREY, italic=True)
            if last:
                called = self._called(n)
                self.paper.words(
                    end - 2, plan.top[n] - 12, called, fill=GREY, italic=True, anchor="end"
                )
        for n in cut[1:]:
            self.paper.rule(x, end, plan.top[n] - RULE)
        return end

    def _called(self, n: Node) -> str:
        return ", ".join(o.name for o in self.diagram.outputs if o.node is n)

    # --- operators --------------------------------------------------------------------------

    def _stage(self, i: int, x: int) -> int:
        """The operator between cuts `i` and `i + 1`, from `x`; returns where it ends."""
        plan, block = self.plan, self.plan.blocks[i]
        before, after, made = self.entries[i], self.entries[i + 1], block.stage.node
        level = after[made].level if after[made].level != OUTER else INNER
        every = (*block.wires, *block.joined)
        drops = [abs(plan.of(w.source, w.axis) - plan.y(made, w.lane)) for w in every]
        turn = x + 22 + 5 * sum(drop > 0 for drop in drops) + max([0, *drops]) // 5
        # A wire takes its label on where its array is loaded.
        loaded = [w for w in block.wires if before[w.source].level != level]
        loads = {w: self.labels[w.axis] for w in loaded if self.labels.get(w.axis)}
        left = turn + max([0, *(width(words) + 20 for words in loads.values())])
        words = short(_title(block))
        right = left + width(words) + 16
        end = right + 14
        for w in every:
            y0, y1 = plan.of(w.source, w.axis), plan.y(made, w.lane)
            dotted = w.axis == ITEM
            self.paper.wire(x, y0, turn, y1, level, dotted=dotted)
            if w.source in after:
                self.paper.dot(x, y0, before[w.source].level)
            if w in block.joined:
                self.paper.dot(turn, y1, level)
            elif w.lane >= block.passing:
                self.paper.wire(turn, y1, left, y1, level, dotted=dotted)
            if w in loads:
                self.paper.plate(turn + 6, y1, loads[w], level)
        for lane, axis in enumerate(plan.lanes[made]):
            start, y = turn if lane < block.passing else right, plan.y(made, lane)
            self.paper.wire(start, y, end, y, level, dotted=axis == ITEM)
        for n in plan.cuts[i]:
            if n in after:
                for lane, axis in enumerate(plan.lanes[n]):
                    y = plan.y(n, lane)
                    self.paper.wire(x, y, end, y, before[n].level, dotted=axis == ITEM)
                if n != plan.cuts[i][0] and n != plan.cuts[i + 1][0]:
                    self.paper.rule(x, end, plan.top[n] - RULE)
        top = plan.y(made, block.passing) - LANE // 2
        self.paper.box(left, top, right, top + block.ports * LANE, words, block.stage.text)
        return end


def _coloured(levels: Sequence[str]) -> dict[str, str]:
    """A colour for each level: its own, or the next that no other has."""
    ranks = {level: _KNOWN[level] for level in levels if level in _KNOWN}
    free = [i for i in range(len(COLOURS)) if i not in ranks.values()]
    for level in levels:
        ranks.setdefault(level, free.pop(0) if len(free) > 1 else len(COLOURS) - 1)
    return {level: COLOURS[rank] for level, rank in ranks.items()}


def _title(block: Block) -> str:
    stage = block.stage
    if stage.op in {"pointwise", "rename"} or not stage.args:
        return stage.text
    return " ".join([stage.op, *stage.over])
