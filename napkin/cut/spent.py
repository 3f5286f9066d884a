"""Where the time of a cut goes: rewrites that may save next to nothing of it are passed over."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from napkin.cut.ways import Cut
from napkin.derive.rules.part import handed
from napkin.diagram.interface import Output
from napkin.ir.node import Node, postorder


class Spent:
    """The seconds that the kernels of a cut take, by the terms that they compute, or that they read
    as inputs.

    Args:
        cut: of a term with these outputs, or of another form of it, which has other terms, too.
    """

    def __init__(self, cut: Cut, outputs: Sequence[Output]) -> None:
        # Sets of terms are whole numbers, with a bit for each term.
        self._bits: dict[Node, int] = {}
        self._under: dict[Node, int] = {}
        self._kernels = list(self._computed(cut, outputs))

    def taken_away(self, before: Node, after: Node) -> float:
        """Seconds of the kernels that compute a term which is under `before` and not under `after`:
        to have the second in place of the first saves no more, but for what other kernels then need
        not read. Infinite where none computes `before`: the cut does not tell."""
        gone = self._set_under(before) & ~self._set_under(after)
        if not any(computed & self._bit(before) for _, computed in self._kernels):
            return math.inf
        return sum(seconds for seconds, computed in self._kernels if computed & gone)

    def _computed(self, cut: Cut, outputs: Sequence[Output]) -> Iterator[tuple[float, int]]:
        """The seconds of each kernel, or of those that pass states, and the set of terms that it
        computes."""
        term_of = {o.name: o.node for o in (*cut.materialised.values(), *outputs)}
        seconds, tensors = 0.0, set[str]()
        for p in cut.pieces:
            seconds, tensors = seconds + p.seconds, tensors | {*p.binding.values()}
            if handed(p.choice.kernel):  # its results come with a kernel after it
                continue
            stored = {p.binding[o.name] for o in p.choice.kernel.outputs}
            read = {term_of[t] for t in tensors - stored if t in term_of}
            made = postorder((term_of[t] for t in stored if t in term_of), read)
            yield seconds, sum(self._bit(n) for n in {*made} - read)
            seconds, tensors = 0.0, set[str]()

    def _bit(self, n: Node) -> int:
        return self._bits.setdefault(n, 1 << len(self._bits))

    def _set_under(self, root: Node) -> int:
        """The set of the terms under one, with itself."""
        for n in postorder([root], self._under):
            if n not in self._under:
                found = self._bit(n)
                for a in n.args:
                    found |= self._under[a]
                self._under[n] = found
        return self._under[root]
