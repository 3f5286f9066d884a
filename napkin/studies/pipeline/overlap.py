"""Tensor cores and arithmetic at the same time (arXiv 2412.03317, section 6).

An iteration has products before its arithmetic, the arithmetic, and products that wait for it.
Where several teams take turns, one's products run beside another's arithmetic (inter). Where a team
runs alone, only the products of the iteration before do (intra), and the first products are not
hidden:

    inter: T = max(T_1 + T_2, T_S (1 + e))        intra: T = T_1 + max(T_2, T_S (1 + e))

in clocks for one row, with e the overhead of the arithmetic over its counted operations.
"""

from __future__ import annotations

from dataclasses import dataclass

from napkin.ir.node import Node
from napkin.studies.pipeline.clocks import Clocks

NOT_INDEPENDENT = (
    "an overhead that is fitted to one published figure and then explains a second is one fit of"
    " two figures, not an independent prediction"
)
"""What any report with a fitted overhead has to say."""


@dataclass(frozen=True)
class Overlap:
    """One iteration.

    Attributes:
        first: T_1, clocks of the products that the arithmetic waits for.
        second: T_2, clocks of the others.
        arithmetic: T_S, clocks of the slowest pipe beside the tensor cores.
        pipe: that pipe.
    """

    first: float
    second: float
    arithmetic: float
    pipe: str

    @property
    def tensor(self) -> float:
        """T_1 + T_2."""
        return self.first + self.second

    def clocks(self, how: str, overhead: float = 0.0) -> float:
        """T, "inter" or "intra"."""
        slow = self.arithmetic * (1 + overhead)
        if how == "inter":
            return max(self.tensor, slow)
        return self.first + max(self.second, slow)

    def utilisation(self, how: str, overhead: float = 0.0) -> float:
        """The share of the time in which the tensor cores run."""
        return self.tensor / self.clocks(how, overhead)

    def idle(self, how: str, overhead: float = 0.0) -> float:
        """The share of the time in which the arithmetic's pipe does not work on what is counted
        and its overhead."""
        return 1 - self.arithmetic * (1 + overhead) / self.clocks(how, overhead)

    def absorbed(self, how: str) -> float:
        """The most overhead that takes no longer; negative where there is no room even for none,
        and infinite where there is no arithmetic."""
        room = self.tensor if how == "inter" else self.second
        return room / self.arithmetic - 1 if self.arithmetic else float("inf")


def overlap(clocks: Clocks, long: bool = False) -> Overlap:
    """The iteration of a body; `long` leaves out what an iteration does once, as where chunks are
    long."""
    first, second = 0.0, 0.0
    waited = _waited(clocks)
    for s in clocks.body.steps:
        if s.product is not None:
            name = clocks.body.block.names[s.stage.node].removesuffix("'")
            own = sum(w.long if long else w.clocks for w in clocks.on("tensor") if w.what == name)
            first, second = (
                (first + own, second) if s.stage.node in waited else (first, second + own)
            )
    others = [p for p in clocks.pipes if p != "tensor"]
    pipe = max(others, key=lambda p: clocks.clocks(p, long), default="")
    return Overlap(first, second, clocks.clocks(pipe, long) if pipe else 0.0, pipe)


def _waited(clocks: Clocks) -> set[Node]:
    """The products whose results arithmetic of the iteration turns into operands of other
    products."""
    feeding = set[Node]()
    for s in reversed(clocks.body.steps):
        n = s.stage.node
        if s.product is not None or n in feeding:
            feeding |= {a for a in s.stage.args if a.op not in {"input", "state"}}
    return {s.stage.node for s in clocks.body.steps if s.product and s.stage.node in feeding}
