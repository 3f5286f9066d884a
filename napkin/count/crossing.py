"""Bytes that cross the levels of a machine, where H is what groups ask for.

H (`napkin.count.traffic`) is of the program: every value that a group reads or writes, as often as
it does. What passes between L2 and the multiprocessors is more where sectors or boxes cross whole
that are used in part, and less where L1 still has what is read again. Memory gives each array once,
and again what L2 no longer has when later groups come to it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

from napkin.count.requested import Read, Requests
from napkin.count.starting_order import Order, fetched, seen
from napkin.count.traffic import Direction, Transfer
from napkin.machine.machines import Machine

L2_HALVES = 2
"""Parts of L2 that each keep what their multiprocessors read: what all of them read is held once in
each. Products 4096^3 in four waves of 43 MB read all of it again in each (H100, 50 MB; counters in
docs/measurements)."""

L1_SHARE = 0.9
"""Of L1, what keeps lines that are read again: layernorm whose groups take 0.75 of it has them
still (counters in docs/measurements), softmax and rmsnorm of rows of 11,008 and 10,240 values,
whose groups take 0.95, take as long as without (H100)."""


@dataclass(frozen=True, eq=False)
class CacheTraffic:
    """What passes between the levels of a machine where groups run together.

    Attributes:
        requests: what groups ask for.
        order: in which they start.
        resident: groups that one multiprocessor holds at once.
        shared: bytes of shared memory of each.
    """

    requests: Requests
    machine: Machine
    order: Order
    resident: int
    shared: int

    # --- between L2 and the multiprocessors -----------------------------------------------------

    def crossing(self) -> dict[tuple[str, Direction], int]:
        """Bytes that pass between L2 and the multiprocessors, for each tensor and direction."""
        out: dict[tuple[str, Direction], int] = {}
        for t, crossing in self.requests.crossing:
            key = (t.tensor, t.direction)
            out[key] = out.get(key, 0) + math.ceil(crossing * self._missed(t))
        return out

    def from_l1(self) -> float:
        """Bytes that groups read of what L1 has already."""
        return sum(n * (1 - self._missed(t)) for t, n in self.requests.through_l1)

    def _missed(self, t: Transfer) -> float:
        """Share of what is read of a tensor that L1 does not have: from an earlier pass of the
        group, or from a group that the multiprocessor ran before."""
        own = self.requests.own_bytes
        if not self.requests.cached(t) or own * self.running > self.l1:
            return 1.0
        share = 1 / self.requests.times(t)
        if t.kernel is None and int(self.l1 // own) > self.running:
            # Groups in a row are dealt out to all multiprocessors, each of which fetches once.
            row = self.order.together(self.requests.carried(t))
            share *= min(row, self.machine.sms) / max(row, 1)
        return share

    @cached_property
    def running(self) -> int:
        """Groups that a multiprocessor runs at once."""
        return max(1, min(self.resident, -(-self.requests.groups // self.machine.sms)))

    @cached_property
    def l1(self) -> float:
        """Bytes of a multiprocessor's L1: what its groups leave of the memory that it shares."""
        unified = self.machine.level("shared").unified
        return L1_SHARE * (unified.value - self.running * self.shared) if unified else 0.0

    # --- between memory and L2 ------------------------------------------------------------------

    def outer(self) -> dict[str, int]:
        """Bytes from and to the outermost memory ("read", "write").

        A wave of groups reads its tiles at once, and each of them once. The next finds in L2 what
        it read if all that is read in between fits there; so does a later pass of the same groups.
        """
        total = dict(self.requests.once)
        if total["read"] > self.l2:
            total["read"] = sum(map(self._fetched, self.requests.reads))
        return total

    def _fetched(self, r: Read) -> int:
        rounds, times = self.requests.rounds(r.of), 1
        if rounds == 1 and len(r.carried) == len(self.requests.group):
            return r.size
        if rounds > 1 and self.kept < 1 and self._missed(r.of) > 1 / rounds:
            times = rounds
        again = fetched(self.order, r.carried, self.wave, self.kept) - r.tiles
        return times * (r.size + round(max(again, 0) * r.each))

    @cached_property
    def wave(self) -> int:
        """Groups that run at once."""
        return self.machine.sms * self.resident

    @cached_property
    def l2(self) -> float:
        """Bytes of what all multiprocessors read that L2 holds."""
        return self.machine.level("l2").capacity.value / L2_HALVES

    @cached_property
    def kept(self) -> int:
        """Waves after which L2 still has what a wave read."""
        # After `low` all is there, whatever groups share, and after `high` it is not.
        each = max(1.0, self.wave * sum(r.each for r in self.requests.reads))  # 0: no key is seen
        low = int(min(self.l2 // each, (self.requests.groups - 1) // self.wave))
        high = low + 1
        while self._live(high * self.wave) <= self.l2:
            low, high = high, 2 * high
        later = range(low + 1, high)
        return low + bisect_right(later, self.l2, key=lambda n: self._live(n * self.wave))

    def _live(self, groups: int) -> float:
        """Bytes that so many groups, one after another, read of all tensors."""
        if groups >= self.requests.groups:
            return math.inf  # which is asked where all together do not fit
        return sum([min(n(groups) * tile, groups * each) for n, tile, each in self._seen])

    @cached_property
    def _seen(self) -> list[tuple[Callable[[int], int], float, float]]:
        """Of each reading: what gives the tiles that the first groups read, the bytes of one, and
        those that a group asks for."""
        return [(seen(self.order, r.carried), r.tile, r.each) for r in self.requests.reads]
