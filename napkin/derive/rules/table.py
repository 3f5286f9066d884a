"""The table of rules: every rewrite that napkin knows, and those that users add."""

from __future__ import annotations

from napkin.algebra.rule import Rule
from napkin.derive.rules.accumulate import ACCUMULATED, ADDED_PARTS
from napkin.derive.rules.ahead import AHEAD
from napkin.derive.rules.block import BLOCKED
from napkin.derive.rules.group import GROUP, TILE
from napkin.derive.rules.part import MERGED, PARTED
from napkin.derive.rules.resume import RESUMED
from napkin.derive.rules.scan_parts import SCANNED
from napkin.derive.rules.select import SELECTED
from napkin.derive.rules.separation import HELD, SEPARATED
from napkin.derive.rules.stream import STREAMED
from napkin.rewrite.alike import ALIKE
from napkin.rewrite.base_two import BASE_TWO
from napkin.rewrite.cancel import CANCELLED
from napkin.rewrite.compared import COMPARED
from napkin.rewrite.counts import COUNTED, MEANS
from napkin.rewrite.disjoint import DISJOINT
from napkin.rewrite.divide import DIVIDED
from napkin.rewrite.exact import EXACT
from napkin.rewrite.expand import EXPANDED
from napkin.rewrite.materialise import STORED
from napkin.rewrite.nest import NESTED
from napkin.rewrite.order import ORDERED
from napkin.rewrite.pair import PAIRED
from napkin.rewrite.read import READ
from napkin.rewrite.result_names import RENAMED
from napkin.rewrite.scale import SCALED
from napkin.rewrite.seen import SEEN
from napkin.rewrite.solve import SOLVED
from napkin.rewrite.sorted_places import SORTED
from napkin.rewrite.split import SPLIT
from napkin.rewrite.square import SQUARED, WEIGHTED
from napkin.rewrite.take_out import TAKEN_OUT
from napkin.rewrite.together import TOGETHER
from napkin.rewrite.visit import VISITED

_ALL = (
    EXPANDED, READ, DISJOINT, SCALED, RENAMED, COMPARED, EXACT, ORDERED, SORTED, NESTED, TAKEN_OUT,
    STORED, ALIKE, SPLIT, COUNTED, MEANS, CANCELLED, TOGETHER, DIVIDED, SELECTED, SEPARATED, HELD,
    STREAMED, VISITED, PARTED, BLOCKED, MERGED, RESUMED, SCANNED, AHEAD, GROUP, TILE, SQUARED,
    WEIGHTED, SEEN, ADDED_PARTS, ACCUMULATED, PAIRED, SOLVED, BASE_TWO,
)  # fmt: skip

TABLE: dict[str, Rule] = {r.name: r for r in _ALL}
"""The rules of napkin, by their names."""

ADDED: dict[str, Rule] = {}
"""The rules that users added (`napkin.moves.door`), by their names."""


def rules() -> dict[str, Rule]:
    """Every rule, by its name."""
    return TABLE | ADDED
