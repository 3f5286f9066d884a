"""A plan as plain data: the kernels' text and how to launch them, without the derivation.

It is what runs a plan, and what is kept on disk: reading it back needs neither sympy nor a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from napkin.ir.names import with_named
from napkin.ir.types import STORAGE
from napkin.keys.residues import Blocks, sized
from napkin.lower.launch import Entry, Launch, launch
from napkin.run.plain import made, plain


@dataclass(frozen=True)
class Stored:
    """A tensor that some kernel writes: its name, its axes in memory order, its storage type."""

    name: str
    axes: tuple[str, ...]
    dtype: str


@dataclass(frozen=True, eq=False)
class Step:
    """One launch of a plan.

    Attributes:
        entry: the kernel.
        binding: the kernel's tensor names to the plan's.
        specialised: the kernel of warpgroups that takes its place where it may
            (`Recipe.warpgroups`).
    """

    entry: Entry
    binding: Mapping[str, str]
    specialised: Entry | None = None

    def launch(
        self,
        sizes: Mapping[str, int],
        scalars: Mapping[str, float],
        strides: Mapping[str, Sequence[int]],
        aligned: bool = True,
    ) -> Launch:
        """The launch on the plan's tensors with these strides; see `napkin.lower.launch`."""
        own = {theirs: strides[ours] for theirs, ours in self.binding.items()}
        return launch(self.entry, sizes, scalars, own, aligned)

    def launch_specialised(
        self,
        sizes: Mapping[str, int],
        scalars: Mapping[str, float],
        strides: Mapping[str, Sequence[int]],
    ) -> Launch | None:
        """The launch of its kernel of warpgroups; None where it has none, or where descriptors do
        not serve these tensors. They begin at multiples of 16 bytes, on a machine that has
        warpgroups."""
        if self.specialised is None:
            return None
        own = {theirs: strides[ours] for theirs, ours in self.binding.items()}
        found = launch(self.specialised, sizes, scalars, own)
        return found if found.boxes else None

    @property
    def added(self) -> tuple[str, ...]:
        """The plan's names of the tensors that are set to 0 before it, as it adds to them."""
        return tuple(self.binding[t] for t in self.entry.added)

    def tensor(self, argument: str, call: Launch) -> str:
        """The plan's name of the tensor that an argument of the launch points to."""
        return self.binding[call.tensors[argument]]


@dataclass(frozen=True, eq=False)
class Recipe:
    """All that it takes to run a plan, at any sizes that its tiles hold.

    Attributes:
        source: the kernel file.
        steps: the launches, in order.
        stored: the tensors that kernels write: results, and what passes between kernels.
        results: the tensor that holds each output.
        same_size: axes that refactoring named, with the axes whose sizes they have
            (`napkin.ir.names.with_named`).
        parts: axes of parts of a streamed axis, and how many there are.
        warpgroups: the file of kernels of warpgroups; "" where there are none.
        blocks: the axes that groups fold block by block.
    """

    source: str
    steps: tuple[Step, ...]
    stored: tuple[Stored, ...]
    results: tuple[str, ...]
    same_size: Mapping[str, str]
    parts: Mapping[str, int]
    warpgroups: str = ""
    blocks: tuple[Blocks, ...] = ()

    def full(self, sizes: Mapping[str, int]) -> dict[str, int]:
        """Sizes for the kernels' axes: those of the diagram, of axes that refactoring named, and of
        parts."""
        return sized({**with_named(sizes, self.same_size), **self.parts}, self.blocks)

    def to_json(self) -> dict[str, Any]:
        """The recipe as plain data."""
        return plain(self)


def recipe_of(data: Mapping[str, Any]) -> Recipe:
    """The recipe that `Recipe.to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError, IndexError, RecursionError: the data is no recipe.
    """
    found = made(Recipe, data)
    _check(found)
    return found


def _check(recipe: Recipe) -> None:
    """Check that every result is written by some kernel of the source: nobody else would say that
    it was not."""
    stored = {t.name for t in recipe.stored}
    written = {ours for s in recipe.steps for ours in s.binding.values()}
    if not recipe.results or not {*recipe.results} <= stored <= written:
        raise ValueError("some result is written by no kernel")
    if any(t.dtype not in STORAGE for t in recipe.stored):
        raise ValueError("some result is of no storage type")
    for s in recipe.steps:
        for entry, source in ((s.entry, recipe.source), (s.specialised, recipe.warpgroups)):
            if entry is not None and f"\ndef {entry.name}(" not in source:
                raise ValueError(f"there is no kernel {entry.name}")
