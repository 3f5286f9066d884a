"""The few SVG elements that a neural circuit diagram is made of."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import ceil

from napkin.show.words import printable

INK, GREY = "#1a1a1a", "#555"
FONT = 12
SHORT = 36
"""No box says more than this many letters; the whole is its title."""


def width(words: str) -> int:
    """The width of words in a font of equal letters: what the widest of the usual ones takes."""
    return ceil(len(words) * 0.605 * FONT)


def short(words: str) -> str:
    """`words`, cut to the length that a box holds."""
    return words if len(words) <= SHORT else words[: SHORT - 1] + "\u2026"


def quoted(words: str) -> str:
    """`words` as XML text."""
    return escape(printable(words))


class Paper:
    """Collects elements; wires are painted first, then boxes and words on top of them."""

    def __init__(self, colours: Mapping[str, str]) -> None:
        self._colours = colours
        self._wires: list[str] = []
        self._above: list[str] = []

    def wire(self, x0: int, y0: int, x1: int, y1: int, level: str, *, dotted: bool = False) -> None:
        """A wire, bent in the middle where the heights differ."""
        mid = (x0 + x1) // 2
        bend = f"H{x1}" if y0 == y1 else f"C{mid} {y0} {mid} {y1} {x1} {y1}"
        dash = ' stroke-dasharray="1 4" stroke-linecap="butt"' if dotted else ""
        if x1 > x0:
            self._wires.append(
                f'<path d="M{x0} {y0}{bend}" stroke="{self._colours[level]}"{dash}/>'
            )

    def rule(self, x0: int, x1: int, y: int) -> None:
        """A piece of a dashed line; the pattern is counted from x = 0, so that pieces join."""
        self._wires.append(
            f'<path d="M{x0} {y}H{x1}" stroke="#999" stroke-width="1" stroke-linecap="butt" '
            f'stroke-dasharray="5 4" stroke-dashoffset="{x0 % 9}"/>'
        )

    def dot(self, x: int, y: int, level: str) -> None:
        """Where a wire splits, or two join."""
        self._above.append(f'<circle cx="{x}" cy="{y}" r="2.6" fill="{self._colours[level]}"/>')

    def words(
        self, x: int, y: int, words: str, *, fill: str = INK, anchor: str = "", italic: bool = False
    ) -> None:
        """Words whose middle line is at `y`."""
        how = f' text-anchor="{anchor}"' if anchor else ""
        how += ' font-style="italic"' if italic else ""
        self._above.append(f'<text x="{x}" y="{y + 4}" fill="{fill}"{how}>{quoted(words)}</text>')

    def plate(self, x: int, y: int, words: str, level: str) -> None:
        """Words on a wire."""
        wide = width(words) + 6
        self._above.append(f'<rect x="{x}" y="{y - 8}" width="{wide}" height="16" fill="#fff"/>')
        self.words(x + 3, y, words, fill=self._colours[level])

    def box(self, x0: int, y0: int, x1: int, y1: int, words: str, whole: str) -> None:
        """An operator."""
        self._above.append(
            f'<g><title>{quoted(whole)}</title><rect x="{x0}" y="{y0}" width="{x1 - x0}" '
            f'height="{y1 - y0}" rx="4" fill="#f4f4f0" stroke="{INK}" stroke-width="1.2"/>'
        )
        self.words((x0 + x1) // 2, (y0 + y1) // 2, words, anchor="middle")
        self._above.append("</g>")

    def svg(self, title: str, x0: int, y0: int, x1: int, y1: int) -> str:
        """The document, with the window from (x0, y0) to (x1, y1) on white."""
        wide, high = x1 - x0, y1 - y0
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{high}" '
                f'viewBox="{x0} {y0} {wide} {high}" '
                f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="{FONT}">',
                f"<title>{quoted(title)}</title>",
                f'<rect x="{x0}" y="{y0}" width="{wide}" height="{high}" fill="#fff"/>',
                '<g fill="none" stroke-width="1.6" stroke-linecap="square">',
                *self._wires,
                "</g>",
                "<g>",
                *self._above,
                "</g>",
                "</svg>",
                "",
            ]
        )
