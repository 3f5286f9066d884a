"""The table of rules: every rewrite that napkin knows, and those that users add."""

from __future__ import annotations

from napkin.algebra.rule import Rule
from napkin.derive.rules.accumulate import ACCUMULATED, ADDED_PARTS
from napkin.derive.rules.ahead import AHEAD
from napkin.derive.rules.alike import ALIKE
from napkin.derive.rules.base_two import BASE_TWO
from napkin.derive.rules.block import BLOCKED
from napkin.derive.rules.cancel import CANCELLED
from napkin.derive.rules.compared import COMPARED
from napkin.derive.rules.counts import COUNTED, MEANS
from napkin.derive.rules.disjoint import DISJOINT
from napkin.derive.rules.divide import DIVIDED
from napkin.derive.rules.exact import EXACT
from napkin.derive.rules.expand import EXPANDED
from napkin.derive.rules.group import GROUP, TILE
from napkin.derive.rules.materialise import STORED
from napkin.derive.rules.nest import NESTED
from napkin.derive.rules.order import ORDERED
from napkin.derive.rules.pair import PAIRED
from napkin.derive.rules.part import MERGED, PARTED
from napkin.derive.rules.read import READ
from napkin.derive.rules.result_names import RENAMED
from napkin.derive.rules.resume import RESUMED
from napkin.derive.rules.scale import SCALED
from napkin.derive.rules.scan_parts import SCANNED
from napkin.derive.rules.seen import SEEN
from napkin.derive.rules.select import SELECTED
from napkin.derive.rules.separation import HELD, SEPARATED
from napkin.derive.rules.solve import SOLVED
from napkin.derive.rules.split import SPLIT
from napkin.derive.rules.square import SQUARED
from napkin.derive.rules.stream import STREAMED
from napkin.derive.rules.take_out import TAKEN_OUT
from napkin.derive.rules.together import TOGETHER
from napkin.derive.rules.visit import VISITED

_ALL = (
    EXPANDED, READ, DISJOINT, SCALED, RENAMED, COMPARED, EXACT, ORDERED, NESTED, TAKEN_OUT, STORED,
    ALIKE, SPLIT, COUNTED, MEANS, CANCELLED, TOGETHER, DIVIDED, SELECTED, SEPARATED, HELD, STREAMED,
    VISITED, PARTED, BLOCKED, MERGED, RESUMED, SCANNED, AHEAD, GROUP, TILE, SQUARED, SEEN,
    ADDED_PARTS, ACCUMULATED, PAIRED, SOLVED, BASE_TWO,
)  # fmt: skip

TABLE: dict[str, Rule] = {r.name: r for r in _ALL}
"""The rules of napkin, by their names."""

ADDED: dict[str, Rule] = {}
"""The rules that users added (`napkin.moves.door`), by their names."""


def rules() -> dict[str, Rule]:
    """Every rule, by its name."""
    return TABLE | ADDED
