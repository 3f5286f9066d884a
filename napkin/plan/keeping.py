"""What a forward keeps for its backward: the candidates, and the choice among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from napkin.cut.segments import Memo
from napkin.derive.kernel import Kernel
from napkin.diagram.diagram import Diagram
from napkin.errors import Refusal
from napkin.gradient.gradient import Backward
from napkin.gradient.training_pair import Keepable, backward_with, forward_with, keepable, kept_leaf
from napkin.ir.node import SCANS, over, postorder
from napkin.ir.storage import storage_type
from napkin.ir.types import stored_bytes
from napkin.plan.derive import Searched, frugal, searched
from napkin.rewrite.exact import is_small, read_exactly
from napkin.settings.effort import PAIRS, Effort

Keep = Literal["fastest", "least"] | int


@dataclass(frozen=True)
class Candidate:
    """An array that may be kept.

    Attributes:
        bytes: that it takes until the backward; of outputs of the diagram, which are there in any
            case, 0.
        forward, backward: seconds by which keeping it makes the forward longer, and rebuilding it
            the backward, beside what else is kept; NaN where no kernels fit or it was not looked
            at: the forward alone would take longer than both do now, or the search is bounded.
    """

    name: str
    axes: tuple[str, ...]
    dtype: str
    bytes: int
    output: bool
    kept: bool
    forward: float
    backward: float

    def to_json(self) -> dict[str, Any]:
        """As plain data; times in microseconds, None where there are none."""
        return {
            "array": self.name,
            "axes": " ".join(self.axes),
            "dtype": self.dtype,
            "bytes": self.bytes,
            "output": self.output,
            "kept": self.kept,
            "keep_us": _microseconds(self.forward),
            "rebuild_us": _microseconds(self.backward),
        }


def _microseconds(seconds: float) -> float | None:
    return None if math.isnan(seconds) else round(seconds * 1e6, 3)


Kept = tuple[Keepable, ...]


class Pairs:
    """The forwards and backwards of a diagram, by what is kept; each is searched for once.

    Attributes:
        keepable: what may be kept.
        bounded: whether something was not looked at, as `PAIRS` of work was done.
    """

    def __init__(
        self, f: Diagram, back: Backward, sizes: Mapping[str, int], memo: Memo, keep: Keep
    ) -> None:
        self.f, self.back, self.sizes, self.memo, self.keep = f, back, sizes, memo, keep
        self.keepable = list(self._stored())
        self._found: dict[tuple[str, Kept], Searched | Refusal] = {}
        self._efforts = {"forward": Effort(), "backward": Effort()}
        self.bounded = False

    def _stored(self) -> Iterator[Keepable]:
        """What may be kept, with storage types: float32 of what passes between kernels so, and of
        small arrays. An output that is stored in less is then kept once more."""
        exact = read_exactly(self.back.diagram.roots, self.memo.dtype)
        for k in keepable(self.f, self.back):
            exactly = k.node in exact or is_small(k.axes, self.f.inputs, self.sizes)
            stored = k.output and k.dtype == "fp32"
            yield k.exactly() if exactly and not stored else k

    def bytes(self, *kept: Keepable) -> int:
        """Bytes of what is kept beside inputs and outputs."""
        more = [k for k in kept if not k.output]
        sizes = (math.prod(self.sizes[a] for a in k.axes) for k in more)
        each = zip(sizes, more, strict=True)
        return sum(stored_bytes(values, k.dtype or self.memo.dtype) for values, k in each)

    # --- plans ------------------------------------------------------------------------------

    def forward(self, kept: Kept) -> Searched | None:
        """The forward that stores what is kept; None where no kernel fits."""
        more = tuple(k for k in kept if not k.output)
        return self._search("forward", more, lambda: forward_with(self.f, self.back, more))

    def backward(self, kept: Kept) -> Searched | None:
        """The backward that reads what is kept; None where no kernel fits."""
        return self._search("backward", kept, lambda: backward_with(self.back, kept))

    def _search(self, which: str, kept: Kept, made: Callable[[], Diagram]) -> Searched | None:
        key = which, kept
        if key not in self._found:
            try:
                self._found[key] = self._searched(which, made())
            except Refusal as why:
                self._found[key] = why
        found = self._found[key]
        return found if isinstance(found, Searched) else None

    def _searched(self, which: str, diagram: Diagram) -> Searched:
        own = {a: n for a, n in self.sizes.items() if a in diagram.axes}
        known = diagram.check_sizes(own)
        search = frugal if self.keep == "least" else searched
        self._efforts[which] = effort = self._efforts[which].further()
        return search(diagram, known, self.memo.again(effort=effort))

    def leave_out(self, kernel: Kernel) -> None:
        """Search again, without kernels with the labels of one that no compiler takes."""
        self.memo.leave_out(kernel)
        self._found.clear()

    def chosen(self, kept: Kept) -> tuple[Searched, Searched]:
        """The forward and the backward.

        Raises:
            Refusal: one of them has no kernel that fits.
        """
        if self.forward(kept) is None or self.backward(kept) is None:
            raise next(why for why in self._found.values() if isinstance(why, Refusal))
        return self.forward(kept), self.backward(kept)  # pyright: ignore

    @property
    def _spent(self) -> bool:
        """Whether no more arrays are looked at."""
        return sum(e.work for e in self._efforts.values()) >= PAIRS

    # --- what is kept -----------------------------------------------------------------------

    def best(self) -> Kept:
        """What is kept: outputs that the backward would compute; then one array after another that
        makes it better beside what is; but for those without which it is better in the end."""
        kept = self._read(tuple(k for k in self.keepable if k.output))
        if self.rank(kept)[-1] == math.inf:
            kept = ()
        for k in sorted(self.keepable, key=self.turn):
            if k not in kept and self._may_pay(k, kept):
                kept = self._better(self._with(kept, k), kept)
        for k in kept:
            kept = self._better(self._read(tuple(x for x in kept if x is not k)), kept)
        return kept

    def turn(self, k: Keepable) -> tuple[int, ...]:
        """When an array is looked at: results of scans first, which take many steps to rebuild;
        then small ones; of equal ones, a sum with the maximum in its body before that alone."""
        return k.node.op not in SCANS, self.bytes(k), -len(self._with((), k))

    def _better(self, other: Kept, kept: Kept) -> Kept:
        """The better of the two; what is kept where they are alike."""
        now = self.rank(kept)
        return other if self.rank(other, now) < now else kept

    def _with(self, kept: Kept, k: Keepable) -> Kept:
        """What is kept with an array more, in order, but for what the backward then has no use
        for. The maximum in the body of a sum is kept with it: one pass finds the two, and each
        alone saves none."""
        folds = [n for n in postorder([k.node]) if over(n)]
        within = {n for n in folds if over(n) == over(folds[-1])}
        both = {x.node for x in self.keepable} & within | {k.node}
        return self._read(tuple(x for x in self.keepable if x in kept or x.node in both))

    def _read(self, kept: Kept) -> Kept:
        read = set(postorder(backward_with(self.back, kept).roots))
        return tuple(k for k in kept if kept_leaf(k) in read)

    def rank(self, kept: Kept, under: tuple[float, ...] = (math.inf,)) -> tuple[float, ...]:
        """How good it is to keep these, the least best; `under` or more where that is known before
        all of it is searched for, or the search is bounded."""
        if self.bytes(*kept) > self._budget or not self._looked_at(kept, under):
            return (math.inf, math.inf)
        ahead, behind = self.forward(kept), self.backward(kept)
        if ahead is None or behind is None:
            return (math.inf, math.inf)
        seconds = ahead.predicted.seconds + behind.predicted.seconds
        if self.keep == "least":
            return (self.bytes(*kept) + behind.predicted.workspace, seconds)
        return (seconds,)

    def _looked_at(self, kept: Kept, under: tuple[float, ...]) -> bool:
        """Whether the rank of these may come before another, and the search has work left."""
        if under[-1] == math.inf or ("backward", kept) in self._found:
            return True
        if self._spent:
            self.bounded = True
            return False
        ahead = self.forward(kept)
        return self.keep == "least" or (ahead is not None and ahead.predicted.seconds < under[0])

    @property
    def _budget(self) -> float:
        """Bytes that may be kept."""
        return self.keep if isinstance(self.keep, int) else math.inf

    def _may_pay(self, k: Keepable, kept: Kept) -> bool:
        """Whether keeping an array can make it better, by what it takes alone."""
        now = self.rank(kept)[0]
        if self.keep == "least":
            return self.bytes(k) <= now
        moved = 2 * self.bytes(k) / self.memo.machine.dram_rate
        return moved < now and self.bytes(k) <= self._budget

    def candidate(self, k: Keepable, kept: Kept) -> Candidate:
        """A row of the table: what the array costs, and what it saves, beside what else is kept."""
        others = tuple(x for x in kept if x is not k)
        both = self._with(others, k)
        dtype = storage_type(kept_leaf(k), self.memo.dtype)
        now = self.rank(kept)
        if all(self._looked_at(pair, now) for pair in (others, both)):
            ahead = self._gap(self.forward(both), self.forward(others))
            behind = self._gap(self.backward(others), self.backward(both))
        else:
            ahead = behind = math.nan
        return Candidate(k.name, k.axes, dtype, self.bytes(k), k.output, k in kept, ahead, behind)

    def _gap(self, more: Searched | None, less: Searched | None) -> float:
        """Seconds by which one takes longer."""
        if more is None or less is None:
            return math.nan
        return more.predicted.seconds - less.predicted.seconds
