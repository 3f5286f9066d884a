"""M: values that one group holds at the inner level.

With a streamed axis the chunks of the inputs lie beside the results that grow; without one, the
largest column of the diagram counts, since a value is dropped once its last reader has run
(arXiv 2412.03317, section 2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

import sympy

from napkin.algebra.terms import is_read
from napkin.count.residency import live_set, read_by
from napkin.count.split_axes import plain
from napkin.count.traffic import VALUES, Unit, held_values, tile_symbol
from napkin.derive.kernel import Kernel, tensor_of, tile_axes
from napkin.ir.node import LEAVES, Node, inside_sums, postorder
from napkin.ir.sliding import slides


def tile(kernel: Kernel, axes: Iterable[str]) -> Any:
    """Values of one tile of an array with these axes."""
    return plain(sympy.Mul(*(tile_symbol(kernel, a) for a in axes)), kernel.splits, kernel.part)


def _held(kernel: Kernel, n: Node, tap_by_tap: bool) -> Any:
    """Values of one tile of an array; windows of a tensor lie in memory as what they read of it."""
    if tap_by_tap or not is_read(n):
        return tile(kernel, n.axes)
    return held_values(kernel, n.axes, slides(n))


def memory(kernel: Kernel, unit: Unit = VALUES, tap_by_tap: bool = False) -> Any:
    """M as a function of group, stream and whole sizes: in values, or bytes.

    Args:
        tap_by_tap: the taps of windows are held one by one, each with all that it reads.
    """
    if not kernel.stream.axes:
        return columns(kernel, unit, tap_by_tap)
    # One tensor read under two names is held twice: its tiles differ.
    reads = [unit[a.tensor] * _held(kernel, a.leaf, tap_by_tap) for a in kernel.reads]
    writes = [unit[o.name] * tile(kernel, tile_axes(o)) for o in kernel.outputs]
    return sympy.expand(sympy.Add(*reads, *writes))


def per_level(kernel: Kernel) -> dict[str, Any]:
    """Values that one group holds in shared memory and in registers.

    Operands of matrix products lie in shared memory (one chunk of what is streamed; a pipeline
    holds several). Accumulators, and the largest array computed from a chunk, lie in registers.
    """
    found = live_set(kernel)
    operands = [axes for _, axes in (*found.streamed_operands, *found.fixed_operands)]
    stream = kernel.stream
    chunk = [tile(kernel, a) for a in found.chunk if not stream.axes or stream.carried(a)]
    states = sympy.Add(*(tile(kernel, axes) for axes in found.states))
    return {
        "shared": sympy.expand(sympy.Add(*(tile(kernel, axes) for axes in operands))),
        "registers": sympy.expand(states) + _largest(chunk),
    }


def columns(kernel: Kernel, unit: Unit = VALUES, tap_by_tap: bool = False) -> Any:
    """The column rule: the largest sum of tiles that are alive together, operator by operator."""
    names = {o.node.args[0] if o.node.op == "scatter" else o.node: o.name for o in kernel.outputs}

    def held(n: Node) -> Any:
        tensor = tensor_of(n) if is_read(n) else names.get(n, "")
        return unit[tensor] * _held(kernel, n, tap_by_tap)

    sums = (sympy.expand(sympy.Add(*map(held, column))) for column in alive(kernel))
    return _largest(s for s in sums if s != 0)


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
        for a in read_by(n, inside):
            last[a] = i
    later = deque(n for n in order if is_read(n))
    out, held = [list(later)], dict[Node, None]()
    for i, n in enumerate(order):
        if is_read(n):
            later.popleft()
            held |= {n: None} if n in last else {}
            continue
        held[n] = None
        over = [a for a in read_by(n, inside) if last[a] == i and a not in results]
        for a in over:
            held.pop(a, None)
        out.append([*held, *later])
        if n not in last and n not in results:
            del held[n]
    return out


def _largest(found: Iterable[Any]) -> Any:
    """The largest of some sums, but for those that are surely no larger than another."""
    distinct = list(dict.fromkeys(found))
    kept = [s for s in distinct if not any(t != s and _at_least(t, s) for t in distinct)]
    return sympy.Max(*kept) if len(kept) > 1 else sympy.Add(*kept)


def _at_least(big: Any, small: Any) -> bool:
    terms = sympy.Add.make_args(sympy.expand(big - small))
    return all(t.is_nonnegative for t in terms)
