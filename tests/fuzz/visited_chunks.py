"""The chunks that one group visits, one by one: what the counts of `napkin.count` are held to."""

from __future__ import annotations

import itertools
from collections.abc import Mapping

from napkin.count.visited import Bind, hulls, occupied
from napkin.derive.kernel import Kernel
from napkin.ir.key_sets import query_axes


def chunks(
    kernel: Kernel,
    sizes: Mapping[str, int],
    tiles: Mapping[str, int],
    group: Mapping[str, int],
    bind: Bind | None = None,
) -> list[tuple[int, dict[str, range]]]:
    """The chunks that one group visits, each with its box, in order; `group` gives the group's
    number along each axis."""
    seen = kernel.visits
    assert seen is not None
    out: list[tuple[int, dict[str, range]]] = []
    if not all(sizes[q] for q in query_axes(seen.keys)):  # a prefix is the same for all queries
        return out
    if not all(v[group.get(p, 0), group.get(r, 0)] for (p, r), v in occupied(seen, sizes, tiles)):
        return out
    for i, hs in enumerate(hulls(seen, sizes, tiles, bind)):
        if not all(h.first.size for h in hs):  # without queries
            continue
        spans: list[range] = []
        for h in hs:
            known = zip(h.axes, h.first.shape, strict=True)  # of those that are alike one
            place = tuple(min(group.get(q, 0), n - 1) for q, n in known)
            spans.append(range(int(h.first[place]), int(h.end[place])))
        cuts = [
            [range(s, min(s + tiles[a], span.stop)) for s in range(span.start, span.stop, tiles[a])]
            for span, a in zip(spans, seen.axes, strict=True)
        ]
        out += [(i, dict(zip(seen.axes, parts, strict=True))) for parts in itertools.product(*cuts)]
    return out
