"""Every way to label the axes of a term as one kernel: which axis to stream, in how many passes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

from napkin.algebra.rule import verifying
from napkin.algebra.tracer import active
from napkin.derive.kernel import Kernel, leaves, tensor_of
from napkin.derive.label import known_counts, label, weaved
from napkin.derive.rules.stream import streamed
from napkin.diagram.interface import Output
from napkin.errors import Refusal
from napkin.ir.key_sets import spec_of
from napkin.ir.node import REDUCTIONS, Node, inside_sums, over, postorder
from napkin.ir.sliding import taps
from napkin.keys.residues import sized
from napkin.rewrite.solve import by_pairs
from napkin.rewrite.split import SplitTerm, split_terms
from napkin.settings.effort import Effort
from napkin.settings.phrases import called, kernel_text, stream_text
from napkin.settings.tiles import MAX_TILE, power_of_two

PAIRS = (16, 32, 64, 128)
"""Positions of a chunk whose pairs are tried."""

LABELLED = 512
"""Labellings that are kept: they are the same at any sizes."""


def labellings(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    dtype: str = "bf16",
    effort: Effort | None = None,
) -> Iterator[Kernel]:
    """Every labelling of a term as one kernel: each axis streamed in one pass or two, or none; as
    it is, and with the axes of dilated key sets split by residue. Taps of windows that share
    positions are streamed where they can be: held together, each is a tile of its own.

    Args:
        effort: what the search for a diagram has done, in which each labelling that is tried is
            counted, refused ones among them; by default nothing.
    """
    with_taps: list[Kernel] = []
    streams = False
    for kernel in _labellings(name, outputs, names, sizes, dtype, effort or Effort()):
        if {tap for a in kernel.reads for tap in taps(a.leaf)} & set(kernel.whole):
            with_taps.append(kernel)
        else:
            streams = True
            yield kernel
    if streams:
        _tell_with_taps(with_taps)
    yield from () if streams else with_taps


def _tell_with_taps(kernels: Sequence[Kernel]) -> None:
    if (tracer := active()) is not None:
        for k in kernels:
            tracer.dropped("kernel", kernel_text(k), "it holds taps, which others stream")


def _labellings(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    dtype: str,
    effort: Effort,
) -> Iterator[Kernel]:
    whose = "" if active() is None else _called(name, outputs)
    term = _Term(name, tuple(map(_fields, outputs)), tuple(names.items()))
    told = active() is not None or verifying()  # of every rule that is applied
    found = term.labelled if told else partial(_labelled, term)
    for split in (None, *split_terms(outputs, names)):
        # A count of positions is a size wherever its axes are not streamed: it asks for no label.
        terms = known_counts(split.outputs if split else outputs, ())
        known = sized(sizes, split.splits) if split else sizes
        legal = set(weaved(terms))
        order = tuple(postorder(o.node for o in terms))
        every = tuple(dict.fromkeys(a for n in order for a in n.axes))
        alone = [a for a in every if a not in legal]
        together = [" ".join(keys) for keys in _key_axes(terms) if len(keys) > 1]
        together += _with_taps(terms)
        together += summed_together(terms)
        for axis in dict.fromkeys(("", *alone, *together)):
            whole = [a for a in every if a not in legal and a not in axis.split()]
            if not may_fit(terms, whole, known):
                _tell(whose, axis, 1, f"{' '.join(whole)} held whole is too much for a tile")
                continue
            for passes in (1, 2, 3) if axis else (1,):
                since = _now()
                effort.labelled += len(order)
                kernel = found(axis, passes, split)
                if isinstance(kernel, str):
                    _tell(whose, axis, passes, kernel)
                    continue
                _tell_labelled(streamed(kernel), since)
                yield kernel
                break
            for length in _paired(terms, axis, dtype != "fp32"):
                since = _now()
                effort.labelled += len(order)
                kernel = found(axis, 1, split, length, dtype != "fp32")
                if not isinstance(kernel, str):
                    _tell_labelled(streamed(kernel), since)
                    yield kernel


@dataclass(frozen=True)
class _Term:
    """A term that may be one kernel: its name, its results, and the names of its arrays."""

    name: str
    results: tuple[tuple[str, Node, tuple[str, ...], bool], ...]
    names: tuple[tuple[Node, str], ...]

    def labelled(
        self,
        axis: str,
        passes: int,
        split: SplitTerm | None,
        pair: int = 0,
        rounded: bool = False,
    ) -> Kernel | str:
        """The kernel that streams an axis; why there is none."""
        outputs, names = [Output(*r) for r in self.results], dict(self.names)
        how: dict[str, Any] = {"streamed": axis, "passes": passes, "split": split}
        try:
            return label(self.name, outputs, names, **how, pair=pair, rounded=rounded)
        except Refusal as refusal:
            return str(refusal)


def _fields(o: Output) -> tuple[str, Node, tuple[str, ...], bool]:
    return o.name, o.node, o.axes, o.as_written


def _paired(outputs: Sequence[Output], axis: str, rounded: bool) -> Sequence[int]:
    """Chunks of an axis whose positions may be paired (`napkin.rewrite.pair`)."""
    roots = [o.node for o in outputs]
    return PAIRS if by_pairs(list(postorder(roots)), roots, axis, rounded) else ()


_labelled = lru_cache(maxsize=LABELLED)(_Term.labelled)


def _now() -> int:
    """The number of events that are traced so far."""
    return 0 if (tracer := active()) is None else len(tracer.events)


def _tell(whose: str, axis: str, passes: int, why: str) -> None:
    if (tracer := active()) is not None:
        tracer.dropped("kernel", f"{whose}: {stream_text(axis, passes)}", why)


def _called(name: str, outputs: Sequence[Output]) -> str:
    read = map(tensor_of, leaves(o.node for o in outputs))
    return called(name, read, (o.name for o in outputs))


def _tell_labelled(kernel: Kernel, since: int) -> None:
    if (tracer := active()) is not None:
        tracer.labelled(kernel, since)


def _key_axes(outputs: Sequence[Output]) -> list[tuple[str, ...]]:
    """The axes of every key set: a chunk of them is a box."""
    found = [spec_of(n).keys for n in postorder(o.node for o in outputs) if n.op == "keys"]
    return list(dict.fromkeys(found))


def summed_together(outputs: Sequence[Output]) -> Iterator[str]:
    """Axes that one reduction works along: held whole, one of them may be too long beside the
    other's chunks."""
    for n in postorder(o.node for o in outputs):
        if n.op in REDUCTIONS and len(over(n)) > 1:
            yield " ".join(over(n))


def _with_taps(outputs: Sequence[Output]) -> Iterator[str]:
    """The axes that are summed over windows together: the taps, one by one, and one axis beside
    them. Taps go fastest, as what they read lies in the caches still."""
    order = list(postorder(o.node for o in outputs))
    every = {tap for n in order if n.op == "input" for tap in taps(n)}
    for gone in dict.fromkeys(over(n) for n in order if every & set(over(n))):
        inner = [a for a in gone if a in every]
        others = [a for a in gone if a not in every]
        for axes in ([*others, *inner], *([a, *inner] for a in others), inner):
            if len(axes) > 1:
                yield " ".join(axes)


def may_fit(outputs: Sequence[Output], whole: Sequence[str], sizes: Mapping[str, int]) -> bool:
    """Whether a tile holds what a group has of each array that holds some axes whole."""
    inside = inside_sums(o.node for o in outputs)
    return all(
        math.prod(power_of_two(sizes[a]) for a in n.axes if a in whole) <= MAX_TILE
        for n in postorder(o.node for o in outputs)
        if n not in inside and n.op != "compress"
    )
