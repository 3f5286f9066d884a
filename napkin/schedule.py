"""How a kernel runs: every setting of it, in one record that all rooms hand on.

What a kernel computes, and its labels, are `napkin.derive.kernel`'s. A new setting is a field here;
the search tries its values, the writers read it, and the time model prices it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal

from napkin.errors import InputError

WARPS = 4
"""Warps of a warpgroup."""

MOST_WARPS = 16
"""Warps of a group, of which each thread still has 128 registers."""

LEAST = {"warps": 1, "stages": 1, "swizzle": 0, "described": 0, "persistent": 0, "warpgroups": 0}

Kind = Literal["blocks", "persistent", "cooperative", "ping-pong"]


@dataclass(frozen=True)
class Schedule:
    """The settings of one kernel.

    Attributes:
        tiles: values of each axis that one program instance holds at once, a power of two; of
            cooperative warpgroups, those of all of them.
        warps: of one program instance; of a warp-specialised kernel, those that compute.
        stages: chunks of what is streamed that are on their way or in use at once.
        swizzle: groups along the last grouped axis but one whose numbers follow each other, before
            the next along the last (`GROUP_M`); 0 where all along the last do.
        described: bytes of a value of the tensors that TMA descriptors serve; 0 where none is.
        per_thread: whether lanes keep the folds of the loops that let them
            (`napkin.lower.per_thread`).
        persistent: program instances at most, each of which takes one group after another; 0 where
            each group has an instance of its own.
        warpgroups: of one warp-specialised program instance, each with a group, beside one warp
            that loads; 0 where all warps do everything.
        axis: the axis along which the groups of these lie side by side (cooperative); "" where they
            take turns at the tensor cores, each with groups of its own (ping-pong).

    Raises:
        InputError: settings contradict each other.
    """

    tiles: Mapping[str, int]
    warps: int = 4
    stages: int = 1
    swizzle: int = 0
    described: int = 0
    per_thread: bool = False
    persistent: int = 0
    warpgroups: int = 0
    axis: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "tiles", dict(self.tiles))
        if self.warpgroups and (reason := self._contradiction()):
            raise InputError(f"a schedule of {self.warpgroups} warpgroups: {reason}")
        if self.axis and not self.warpgroups:
            raise InputError(
                f"a schedule has no warpgroups, but an axis {self.axis} along which they lie; say "
                "how many warpgroups there are, or leave the axis out"
            )
        for name, least in LEAST.items():
            if getattr(self, name) < least:
                raise InputError(
                    f"{name} of a schedule is {getattr(self, name)}; write {least} or more"
                )

    def _contradiction(self) -> str:
        """What cannot be said of warpgroups; "" where all can."""
        groups, axis = self.warpgroups, self.axis
        if self.warps != WARPS * groups:
            return f"they have {WARPS * groups} warps, not {self.warps}"
        if self.stages < 2:
            return "a chunk's place is given back one iteration late, so write 2 stages or more"
        if self.per_thread:
            return "their threads keep no partials, so leave per_thread out"
        if axis and axis not in self.tiles:
            return f"they lie along {axis}, which has no tile; tiles are {', '.join(self.tiles)}"
        if axis and self.tiles[axis] % groups:
            return f"a tile of {self.tiles[axis]} along {axis} has no equal part for each of them"
        return ""

    def __hash__(self) -> int:
        own = (getattr(self, f.name) for f in fields(self) if f.name != "tiles")
        return hash((frozenset(self.tiles.items()), *own))

    @property
    def kind(self) -> Kind:
        """How its groups share program instances; cooperative and ping-pong kernels are
        warp-specialised, and may be persistent, too."""
        if self.warpgroups:
            return "cooperative" if self.axis else "ping-pong"
        return "persistent" if self.persistent else "blocks"

    @cached_property
    def group(self) -> dict[str, int]:
        """Values of each axis that one group holds: of cooperative warpgroups, a part of a tile."""
        return {a: n // (self.warpgroups if a == self.axis else 1) for a, n in self.tiles.items()}

    @property
    def launched_warps(self) -> int:
        """The warps that a launch asks for: a warp-specialised kernel begins with one warpgroup."""
        return WARPS if self.warpgroups else self.warps

    @property
    def words(self) -> str:
        """Its launch settings in words, without the tiles."""
        blocks = f", swizzle {self.swizzle}" if self.swizzle else ""
        if self.warpgroups:
            return f"{self.warps} warps and one load warp, {self.stages} stages{blocks}"
        lasting = f", {self.persistent} persistent programs" if self.persistent else ""
        return f"{self.warps} warps, {self.stages} stages{lasting}{blocks}"

    @property
    def side(self) -> str:
        """How its groups run as warpgroups, in words; "" where they do not."""
        if not self.warpgroups:
            return ""
        place = f"cooperative along {self.axis}" if self.axis else "ping-pong"
        return f"{self.warpgroups} warpgroups {place}"

    def __str__(self) -> str:
        tiles = ",".join(f"{a}={n}" for a, n in self.tiles.items())
        return "; ".join(filter(None, (self.side, tiles, self.words)))

    def to_json(self) -> dict[str, Any]:
        """The schedule as plain data, a key for each setting."""
        return asdict(self)


def specialised(
    group: Mapping[str, int],
    warpgroups: int,
    axis: str = "",
    stages: int = 2,
    described: int = 2,
    persistent: int = 0,
    swizzle: int = 0,
) -> Schedule:
    """The schedule of groups with these tiles as warpgroups of one program instance.

    Args:
        group: values of each axis that one group holds.
        axis: see `Schedule`.
    """
    tiles = {a: n * (warpgroups if a == axis else 1) for a, n in group.items()}
    return Schedule(
        tiles, WARPS * warpgroups, stages, swizzle, described, False, persistent, warpgroups, axis
    )


def others(warps: int, stages: int) -> Iterator[tuple[int, int]]:
    """Warps and stages with which a kernel that is not warp-specialised may run where the compiler
    fails on these: its passes take other ways."""
    for number in (warps, 2 * warps, warps // 2, 4 * warps, warps // 4):
        for depth in dict.fromkeys((stages, 1)):
            if 1 <= number <= MOST_WARPS and (number, depth) != (warps, stages):
                yield number, depth
