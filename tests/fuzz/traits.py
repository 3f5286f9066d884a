"""What kernels that ran are like, by twos: what one rule makes of a kernel another may not expect.

Scans in parts were right, and so were kernels that visit the chunks of a key set. A kernel that did
both read the chunks of other parts, too, and 10,000 programs drew one such scan.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Mapping

from napkin.count.residency import chained
from napkin.derive.kernel import Kernel
from napkin.ir.node import postorder
from napkin.ir.storage import own_type
from napkin.ir.taking import taken_of
from napkin.plan.planned import PlannedKernel
from napkin.schedule import Schedule


def _computes(*ops: str) -> Callable[[Kernel], object]:
    return lambda k: any(n.op in ops for n in postorder(k.terms))


OF_KERNELS: Mapping[str, Callable[[Kernel], object]] = {
    "parts of a fold": lambda k: k.part and not (k.unit or k.ahead),
    "parts of a scan": lambda k: k.part and k.unit and not k.ahead,
    "merges": lambda k: k.merges,
    "blocks": lambda k: k.blocks and not k.merges,
    "adds in memory": lambda k: k.added,
    "chunks ahead": lambda k: k.ahead,
    "residues": lambda k: k.splits,
    "visits": lambda k: k.visits,
    "a key set": _computes("keys"),
    "passes": lambda k: len(k.stream.passes) > 1,
    "a joint stream": lambda k: len(k.stream.axes) > 1,
    "a step": lambda k: k.stepped,
    "pairs of positions": lambda k: k.stream.twin,
    "slots": lambda k: k.fills,
    "windows": lambda k: k.taps,
    "takes": lambda k: any(taken_of(a.leaf) is not None for a in k.reads),
    "a scan of a tile": _computes("cumsum", "recurrence"),
    "a sort": _computes("sort"),
    "products": lambda k: k.products,
    "a chain of products": chained,
    "results of chunks": lambda k: any(p.emits for p in k.stream.passes),
    "several outputs": lambda k: len(k.outputs) > 1,
    "an axis held whole": lambda k: k.whole,
    "types of their own": lambda k: any(own_type(a.leaf) for a in k.reads),
}
"""What a labelled kernel may have."""

OF_SCHEDULES: Mapping[str, Callable[[Schedule], object]] = {
    "boxes": lambda s: s.described,
    "folds by lanes": lambda s: s.per_thread,
    "persistence": lambda s: s.persistent,
    "blocks of groups": lambda s: s.swizzle,
    "one warp": lambda s: s.warps == 1,
}
"""What its schedule may have."""

OF_RUNS = ("warpgroups", "an empty axis", "a short last tile")
"""What a run of it may have."""

SEEN: set[str] = set()
"""The pairs that ran since it was last emptied."""


def saw(k: PlannedKernel, sizes: Mapping[str, int], warpgroups: bool) -> None:
    """Note the pairs that a kernel has which runs at some sizes."""
    kernel, tiles = k.choice.kernel, k.schedule.tiles
    lengths = {a: n for a, n in kernel.sized(sizes).items() if a in tiles}
    short = any(n % tiles[a] for a, n in lengths.items())
    run = zip(OF_RUNS, (warpgroups, 0 in lengths.values(), short), strict=True)
    found = [name for name, has in OF_KERNELS.items() if has(kernel)]
    found += [name for name, has in OF_SCHEDULES.items() if has(k.schedule)]
    SEEN.update(_pairs([*found, *(name for name, has in run if has)]))


def _pairs(names: Collection[str]) -> list[str]:
    return [f"kernels with {a} and {b}" for a, b in itertools.combinations(names, 2)]


def all_pairs() -> list[str]:
    """Every pair, whether or not there can be one."""
    return _pairs([*OF_KERNELS, *OF_SCHEDULES, *OF_RUNS])
