"""The door to the rooms above: moves that a `Diagram` offers but that live elsewhere.

Imports run one way, so this room never imports the ones that build on it; they are looked up by
name when a move is made, which also keeps `import napkin` light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from napkin.diagram.diagram import Diagram


def start(diagram: Diagram) -> Any:
    """An empty derivation of `diagram`."""
    return import_module("napkin.derive.derivation").Derivation.start(diagram)


def cost(kernel: Any) -> Any:
    """The symbolic cost of a labelled kernel."""
    return import_module("napkin.cost.model").Cost(kernel)


def draw(diagram: Diagram) -> Any:
    """The SVG drawing of `diagram`."""
    return import_module("napkin.show.circuit").draw(diagram)
