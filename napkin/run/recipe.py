"""A plan as plain data: the kernels' text and how to launch them, without the derivation.

It is what runs a plan, and what is kept on disk: reading it back needs neither sympy nor a search.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast, get_args

from napkin.ir.node import Kind, Node, node, postorder
from napkin.ir.operators import POINTWISE
from napkin.ir.types import STORAGE
from napkin.keys.residues import Blocks, Split, sized
from napkin.lower.launch import ArgKind, Argument, Entry, Launch, launch
from napkin.schedule import schedule_of


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
        same_size: axes that refactoring named, with the axes whose sizes they have.
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
        same = {new: sizes[old] for new, old in self.same_size.items()}
        return sized({**sizes, **same, **self.parts}, self.blocks)

    def to_json(self) -> dict[str, Any]:
        """The recipe as plain data."""
        own = [e for s in self.steps for e in (s.entry, s.specialised) if e is not None]
        entries = list({id(e): e for e in own}.values())
        place = {id(e): i for i, e in enumerate(entries)}
        return {
            "source": self.source,
            "entries": [_entry_json(e) for e in entries],
            "steps": [
                {
                    "entry": place[id(s.entry)],
                    "binding": dict(s.binding),
                    "specialised": None if s.specialised is None else place[id(s.specialised)],
                }
                for s in self.steps
            ],
            "stored": [asdict(t) for t in self.stored],
            "results": self.results,
            "same_size": dict(self.same_size),
            "parts": dict(self.parts),
            "warpgroups": self.warpgroups,
            "blocks": [asdict(b) for b in self.blocks],
        }


def recipe_of(data: Mapping[str, Any]) -> Recipe:
    """The recipe that `Recipe.to_json` wrote.

    Raises:
        KeyError, TypeError, ValueError, IndexError, RecursionError: the data is no recipe.
    """
    entries = [_entry(e) for e in data["entries"]]
    found = Recipe(
        _text(data["source"]),
        tuple(_step(s, entries) for s in data["steps"]),
        tuple(
            Stored(_text(t["name"]), _texts(t["axes"]), _text(t["dtype"])) for t in data["stored"]
        ),
        _texts(data["results"]),
        {_text(new): _text(old) for new, old in data["same_size"].items()},
        {_text(axis): _whole(number) for axis, number in data["parts"].items()},
        _text(data["warpgroups"]),
        tuple(
            Blocks(_text(b["axis"]), _text(b["place"]), _whole(b["step"])) for b in data["blocks"]
        ),
    )
    _check(found)
    return found


def _step(data: Mapping[str, Any], entries: Sequence[Entry]) -> Step:
    return Step(
        entries[_whole(data["entry"])],
        {_text(theirs): _text(ours) for theirs, ours in data["binding"].items()},
        None if data["specialised"] is None else entries[_whole(data["specialised"])],
    )


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


def _text(value: Any) -> str:
    if type(value) is not str:
        raise TypeError(f"{value!r} is no text")
    return value


def _whole(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError(f"{value!r} is no number")
    return value


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list | tuple):
        raise TypeError(f"{values!r} is no list")
    return tuple(_text(v) for v in cast("Sequence[Any]", values))


def _entry_json(e: Entry) -> dict[str, Any]:
    return {
        "name": e.name,
        "arguments": [
            [a.name, a.kind, _term_json(a.of) if isinstance(a.of, Node) else list(a.of)]
            for a in e.arguments
        ],
        "axes_of": dict(e.axes_of),
        "schedule": e.schedule.to_json(),
        "group": e.group,
        "whole": e.whole,
        "splits": [asdict(s) for s in e.splits],
        "ragged": list(e.ragged),
        "boxes": dict(e.boxes),
        "streamed": [list(axes) for axes in e.streamed],
        "contracts": e.contracts,
        "added": e.added,
    }


def _entry(data: Mapping[str, Any]) -> Entry:
    splits = tuple(_split(s) for s in data["splits"])
    by_place = {s.place: s for s in splits}
    return Entry(
        _text(data["name"]),
        tuple(_argument(*a) for a in data["arguments"]),
        {_text(tensor): _texts(axes) for tensor, axes in data["axes_of"].items()},
        schedule_of(data["schedule"]),
        _texts(data["group"]),
        _texts(data["whole"]),
        splits,
        {place: by_place[place] for place in data["ragged"]},
        {_text(tensor): _texts(axes) for tensor, axes in data["boxes"].items()},
        tuple(_texts(axes) for axes in data["streamed"]),
        bool(data["contracts"]),
        _texts(data["added"]),
    )


def _split(data: Mapping[str, Any]) -> Split:
    axis, place, residue = (_text(data[k]) for k in ("axis", "place", "residue"))
    return Split(axis, place, residue, _whole(data["step"]))


def _argument(name: str, kind: ArgKind, of: Any) -> Argument:
    if kind not in get_args(ArgKind):
        raise ValueError(f"{kind!r} is no kind of argument")
    return Argument(_text(name), kind, _term(of) if isinstance(of, dict) else _texts(of))


def _term_json(n: Node) -> dict[str, Any]:
    """An expression of sizes and scalars, which has no axes: its terms, arguments first."""
    place = {m: i for i, m in enumerate(postorder([n]))}
    return {"terms": [[m.op, [place[a] for a in m.args], m.params, m.kind] for m in place]}


def _term(data: Any) -> Node:
    made: list[Node] = []
    for op, places, params, kind in cast("Mapping[str, Any]", data)["terms"]:
        if not all(_whole(i) < len(made) for i in places):
            raise ValueError(f"arguments {places!r} of {op!r} are no earlier terms")
        made.append(_operator(op, [made[i] for i in places], params, kind))
    if not made:
        raise ValueError("an expression has no terms")
    return made[-1]


def _operator(op: str, args: Sequence[Node], params: Sequence[Any], kind: Kind) -> Node:
    if op in POINTWISE:
        if len(args) != POINTWISE[op].arity:
            raise ValueError(f"{op} of {len(args)} arguments")
    elif args or op not in {"number", "size", "scalar"}:
        raise ValueError(f"{op!r} is no operator of sizes and scalars")
    if kind not in get_args(Kind):
        raise ValueError(f"{kind!r} is no kind of number")
    return node(op, args, params, (), kind)
