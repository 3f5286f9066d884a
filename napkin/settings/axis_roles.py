"""What the axes of a labelled kernel are to the tiles that are tried for it."""

from __future__ import annotations

from napkin.algebra.terms import reads_bytes
from napkin.count.traffic import transfers
from napkin.derive.kernel import Kernel
from napkin.ir.key_sets import spec_of
from napkin.ir.node import REDUCTIONS, over, postorder


def only_summed(kernel: Kernel) -> tuple[str, ...]:
    """The axes that are streamed jointly, where neither a key set nor a window joins them."""
    axes = kernel.stream.axes
    sets = [set(spec_of(n).keys) for n in postorder(kernel.terms) if n.op == "keys"]
    joined = kernel.taps or set(axes) in sets
    return axes if len(axes) > 1 and not joined else ()


def scanned(kernel: Kernel) -> dict[str, int]:
    """The axes that are scanned in a tile, or that a sum over a scanned tile folds, with the
    positions that it has at least: as many as a thread loads of values side by side. Triton 3.6
    compiles no scan of fewer, in whose layout a thread holds some twice."""
    terms = list(postorder(kernel.terms))
    scans = [n for n in terms if n.op in {"cumsum", "recurrence"}]
    folded = {a for n in terms if n.op in REDUCTIONS for a in over(n)}
    fewest = 16 if scans and reads_bytes(kernel.terms) else 8
    return {a: fewest for n in scans for a in n.axes if a in over(n) or a in folded}


def ends_of(kernel: Kernel) -> dict[str, list[tuple[str, ...]]]:
    """The axes along which values of tensors lie side by side in memory, with the axes of those."""
    ends = {t.own or t.axes: {s.axis: s.out for s in t.slides} for t in transfers(kernel)}
    found: dict[str, list[tuple[str, ...]]] = {}
    for axes, windows in ends.items():
        if axes:
            found.setdefault(windows.get(axes[-1], axes[-1]), []).append(axes)
    return found
