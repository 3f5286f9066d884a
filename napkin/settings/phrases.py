"""Labelled kernels and their settings in words, for what is traced (`napkin.algebra.tracer`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from napkin.derive.kernel import Kernel
from napkin.settings.choice import Choice


def called(name: str, read: Iterable[str], stored: Iterable[str]) -> str:
    """A kernel's name, with the tensors that it reads and stores: cuts have several of one name."""
    return f"{name} ({', '.join(dict.fromkeys(read))} -> {', '.join(stored)})"


def kernel_text(kernel: Kernel) -> str:
    """A kernel's name, what it reads and stores, and its labels."""
    read = (a.tensor for a in kernel.reads)
    return f"{called(kernel.name, read, (o.name for o in kernel.outputs))}: {labels_text(kernel)}"


def labels_text(kernel: Kernel) -> str:
    """The labels of a kernel: what is streamed, grouped, held whole and split."""
    parts = [stream_text(kernel.stream.axis, len(kernel.stream.passes))]
    parts += [f"pair {t.length} positions of {t.axis}"] if (t := kernel.stream.twin) else []
    labelled = {"group": kernel.group, "hold": kernel.whole}
    parts += [f"{label} {' '.join(axes)}" for label, axes in labelled.items() if axes]
    parts += [f"split {' '.join(s.axis for s in kernel.splits)}"] if kernel.splits else []
    return ", ".join(parts)


def stream_text(axis: str, passes: int) -> str:
    """How an axis is streamed; "" is none."""
    if not axis:
        return "stream nothing"
    return f"stream {axis}" + (f" in {passes} passes" if passes > 1 else "")


def way_text(way: Sequence[Choice]) -> str:
    """The kernel of a way to run a term, or both that pass the states of parts."""
    return " and ".join(kernel_text(c.kernel) for c in way)


def priced_text(way: Sequence[Choice]) -> str:
    """The same with the setting of each."""
    return " and ".join(f"{kernel_text(c.kernel)}; {c.schedule}" for c in way)
