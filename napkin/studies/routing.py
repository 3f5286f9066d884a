"""How many tokens each expert of a mixture has, under uniform routing.

Each of T tokens chooses k of E experts, all choices alike and independent of other tokens. The load
of one expert is then binomial, T tries with chance k / E; capacities as in arXiv 2101.03961
(section 2.2) are what the slots of a static layout hold of it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np

from napkin.errors import InputError

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Routing:
    """Tokens that choose experts.

    Attributes:
        tokens: T.
        experts: E.
        chosen: k, experts for each token.
    """

    tokens: int
    experts: int
    chosen: int

    def __post_init__(self) -> None:
        for name, value in list(vars(self).items()):
            _check_whole(f"Routing: {name}={value!r}", value)
            object.__setattr__(self, name, int(value))  # numpy's wrap
        if self.chosen > self.experts:
            raise InputError(f"{self}: a token chooses no more experts than there are")

    @property
    def mean(self) -> float:
        """Tokens of an expert on average, T_e = k T / E."""
        return self.chosen * self.tokens / self.experts

    @property
    def active(self) -> float:
        """Experts that have a token, on average: E (1 - (1 - k / E)^T)."""
        return self.experts * (1 - (1 - self.chosen / self.experts) ** self.tokens)

    @property
    def worst(self) -> int:
        """Tokens of an expert that every token chooses."""
        return self.tokens

    @cached_property
    def _chances(self) -> Array:
        """The chance that an expert has 0, 1, ..., T tokens."""
        from scipy.stats import binom

        return binom.pmf(np.arange(self.tokens + 1), self.tokens, self.chosen / self.experts)

    @property
    def busiest(self) -> float:
        """Tokens of the expert that has most, on average, with experts taken for independent: that
        some have more leaves less to others, which moves it by less than one standard deviation."""
        below = np.minimum(np.cumsum(self._chances), 1.0)
        return float(np.sum(1 - below**self.experts))

    def dropped(self, slots: int) -> float:
        """The share of all choices that find no slot, on average, where each expert has `slots`."""
        _check_whole(f"{slots!r} slots", slots, 0)
        n = np.arange(self.tokens + 1)
        return float(np.sum(np.maximum(n - slots, 0) * self._chances)) / self.mean

    def slots(self, dropped: float = 0.001) -> int:
        """The fewest slots for each expert that leave out no more than a share of all choices."""
        if not isinstance(dropped, Real) or not 0 <= dropped <= 1:
            raise InputError(f"dropped={dropped!r} is no share; write a number from 0 to 1")
        return bisect_left(range(self.tokens), -dropped, key=lambda n: -self.dropped(n))

    def dispatch(self, choices: Sequence[Sequence[int]] | Array, slots: int) -> tuple[Array, Array]:
        """A layout for choices of a router: the token in each slot of each expert, experts by slots
        (-1 for none), and the slot of each choice, tokens by choices (-1 for those left out).

        Raises:
            InputError: the choices are not k numbers of experts for each of T tokens, or the slots
                are no whole number.
        """
        _check_whole(f"{slots!r} slots", slots, 0)
        order, experts, place = self._sorted(choices)
        kept = place < slots
        tokens = np.full((self.experts, slots), -1)
        tokens[experts[kept], place[kept]] = order[kept] // self.chosen
        at = np.full(order.size, -1)
        at[order[kept]] = place[kept]
        return tokens, at.reshape(self.tokens, self.chosen)

    def blocks(self, rows: int) -> int:
        """The most blocks of so many rows that all choices fill, each block of one expert.

        Raises:
            InputError: the rows are no whole number from 1.
        """
        _check_whole(f"blocks of {rows!r} rows", rows)
        every = self.chosen * self.tokens
        begun = min(self.experts, every)
        return begun + (every - begun) // rows

    def packed(
        self, choices: Sequence[Sequence[int]] | Array, rows: int
    ) -> tuple[Array, Array, Array, Array]:
        """A layout in blocks of so many rows for choices of a router, of which none is left out:
        the token in each row of each block, blocks by rows (-1 for none); the expert of each
        block, those after the last in use 0; and the block of each choice and its row there,
        tokens by choices.

        Raises:
            InputError: as `dispatch` and `blocks`.
        """
        count = self.blocks(rows)
        order, experts, place = self._sorted(choices)
        loads = np.bincount(experts, minlength=self.experts)
        many = -(-loads // rows)
        first = np.cumsum(many) - many
        tokens = np.full((count, rows), -1)
        serving = np.zeros(count, int)
        serving[: many.sum()] = np.repeat(np.arange(self.experts), many)
        block, row = first[experts] + place // rows, place % rows
        tokens[block, row] = order // self.chosen
        found = np.empty((2, order.size), int)
        found[:, order] = block, row
        blocks, places = found.reshape(2, self.tokens, self.chosen)
        return tokens, serving, blocks, places

    def _sorted(self, choices: Sequence[Sequence[int]] | Array) -> tuple[Array, Array, Array]:
        """Choices by expert: their numbers, their experts, and the place of each among those of
        its expert."""
        try:
            found = np.asarray(choices)
        except ValueError:
            raise InputError("choices: tokens have different numbers of experts") from None
        if found.shape != (self.tokens, self.chosen):
            raise InputError(
                f"choices of shape {found.shape}; write {self.tokens} x {self.chosen}, the experts "
                "of each token"
            )
        if found.dtype.kind not in "iu":
            raise InputError(f"choices hold {found.dtype}; write numbers of experts, as integers")
        if not (found.min() >= 0 and found.max() < self.experts):
            raise InputError(f"choices name an expert that is not one of 0 to {self.experts - 1}")
        order = np.argsort(found.ravel(), kind="stable")
        experts = found.ravel()[order]
        return order, experts, np.arange(len(order)) - np.searchsorted(experts, experts)


def _check_whole(what: str, value: object, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral) or int(value) < least:
        raise InputError(f"{what}; write a whole number from {least}, such as 128")
