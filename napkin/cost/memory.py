"""M: values that one group holds at the inner level.

With a streamed axis the chunks of the inputs lie beside the results that grow; without one, the
largest column of the diagram counts, since a value is dropped once its last reader has run
(arXiv 2412.03317, section 2).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import sympy

from napkin.cost.levels import held
from napkin.cost.places import plain
from napkin.cost.traffic import VALUES, Unit, tile_symbol
from napkin.derive.kernel import Kernel, tile_axes
from napkin.derive.terms import is_read
from napkin.diagram.node import LEAVES, Node, inside_sums, postorder


def tile(kernel: Kernel, axes: Iterable[str]) -> Any:
    """Values of one tile of an array with these axes."""
    return plain(sympy.prod([tile_symbol(kernel, a) for a in axes]), kernel.splits)


def memory(kernel: Kernel, unit: Unit = VALUES) -> Any:
    """M in values (or in another unit), as a function of group, stream and whole sizes."""
    if not kernel.stream.axes:
        return columns(kernel, unit)
    # One tensor read under two names is held twice: its tiles differ.
    reads = [unit.of(a.tensor) * tile(kernel, a.leaf.axes) for a in kernel.reads]
    writes = [unit.of(o.name) * tile(kernel, tile_axes(o)) for o in kernel.outputs]
    return sympy.expand(sympy.Add(*reads, *writes))


def per_level(kernel: Kernel) -> dict[str, Any]:
    """Values that one group holds in shared memory and in registers.

    Operands of matrix products lie in shared memory (one chunk of what is streamed; a pipeline
    holds several). Accumulators, and the largest array computed from a chunk, lie in registers.
    """
    found = held(kernel)
    operands = [axes for _, axes in (*found.streamed_operands, *found.fixed_operands)]
    stream = kernel.stream
    chunk = [tile(kernel, a) for a in found.chunk if not stream.axes or stream.carried(a)]
    distinct = list(dict.fromkeys(chunk))
    largest = [t for t in distinct if not any(t != u and _at_least(u, t) for u in distinct)]
    top = sympy.Max(*largest) if len(largest) > 1 else sympy.Add(*largest)
    return {
        "shared": sympy.expand(sympy.Add(*(tile(kernel, axes) for axes in operands))),
        "registers": sympy.expand(sympy.Add(*(tile(kernel, axes) for axes in found.states))) + top,
    }


def columns(kernel: Kernel, unit: Unit = VALUES) -> Any:
    """The column rule: the largest sum of tiles that are alive together, operator by operator."""
    each = {o.node: unit.of(o.name) for o in kernel.outputs}
    each |= {a.leaf: unit.of(a.tensor) for a in kernel.reads}
    sums = [
        sympy.Add(*(each.get(n, unit.rest) * tile(kernel, n.axes) for n in column))
        for column in alive(kernel)
    ]
    kept = [s for s in dict.fromkeys(sympy.expand(s) for s in sums) if s != 0]
    kept = [s for s in kept if not any(t != s and _at_least(t, s) for t in kept)]
    return sympy.Max(*kept) if len(kept) > 1 else (kept[0] if kept else sympy.Integer(0))


def alive(kernel: Kernel) -> list[list[Node]]:
    """The arrays that are alive together, for every column of a kernel without a stream.

    The first column is the inputs. An operator's holds what it leaves: its result, and whatever a
    later operator reads.
    """
    terms = [n.args[0] if n.op == "scatter" else n for n in kernel.terms]
    inside = inside_sums(terms)
    reads = {n for n in postorder(terms) if is_read(n)}
    order = [
        n
        for n in postorder(terms, reads)
        if (is_read(n) or n.op not in LEAVES) and n.axes and n not in inside
    ]
    results = set(terms)
    last: dict[Node, int] = {}
    for i, n in enumerate(order):
        for a in _arguments(n, inside):
            last[a] = i
    out = [[n for n in order if is_read(n)]]
    for i, n in enumerate(order):
        if is_read(n):
            continue
        held = [m for m in order[: i + 1] if not is_read(m) or m in last]
        held = [m for m in held if last.get(m, -1) > i or m in results or m is n]
        later = [m for m in order[i + 1 :] if is_read(m)]
        out.append([*held, *later])
    return out


def _arguments(n: Node, inside: set[Node]) -> list[Node]:
    out: list[Node] = []
    for a in () if is_read(n) else n.args:
        out += _arguments(a, inside) if a in inside else [a]
    return out


def _at_least(big: Any, small: Any) -> bool:
    terms = sympy.Add.make_args(sympy.expand(big - small))
    return all(t.is_nonnegative for t in terms)
