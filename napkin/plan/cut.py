"""A diagram cut into kernels: which arrays are materialised, by the time that it costs.

Reductions are taken in dataflow order; a kernel computes a run of them with the pointwise terms
between, and the cut with the least predicted time is found by dynamic programming. Equal kernels
(the layers of a stack) are derived once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from napkin.cost.machines import Machine
from napkin.derive.kernel import is_read
from napkin.diagram.diagram import Output
from napkin.diagram.expand import view
from napkin.diagram.node import (
    REDUCTIONS,
    SCANS,
    Node,
    node,
    postorder,
    rewrite,
)
from napkin.errors import Refusal
from napkin.plan.choose import Choice, best

LONGEST = 12
"""Most reductions that one kernel fuses; a normalisation and a product take about five."""


@dataclass(frozen=True, eq=False)
class Piece:
    """One kernel of a cut.

    Attributes:
        choice: its labels, tiles and cost, over tensor names of its own.
        binding: those names to the names in the plan.
    """

    choice: Choice
    binding: Mapping[str, str]


@dataclass(frozen=True)
class Cut:
    """Kernels in the order they run, and the arrays that they pass on through memory."""

    pieces: tuple[Piece, ...]
    materialised: Mapping[str, Node]

    @property
    def seconds(self) -> float:
        """Predicted time of all kernels."""
        return sum(p.choice.time.seconds for p in self.pieces)


def cut(
    name: str,
    outputs: Sequence[Output],
    names: Mapping[Node, str],
    sizes: Mapping[str, int],
    dtype: str,
    machine: Machine,
    *,
    at: Sequence[Node] | None = None,
) -> Cut:
    """Cut the terms of `outputs` into kernels for a machine.

    Args:
        at: arrays to materialise; by default those that make the whole fastest.

    Raises:
        Refusal: some term has no kernel that fits the machine.
    """
    return _Cutting(name, outputs, names, sizes, dtype, machine).run(at)


class _Cutting:
    def __init__(
        self,
        name: str,
        outputs: Sequence[Output],
        names: Mapping[Node, str],
        sizes: Mapping[str, int],
        dtype: str,
        machine: Machine,
    ) -> None:
        self.name, self.outputs, self.names = name, outputs, names
        self.sizes, self.dtype, self.machine = sizes, dtype, machine
        self.order = _order(outputs)
        self.heavy = [n for n in self.order if _is_heavy(n)]
        self.place = {n: i for i, n in enumerate(self.order)}
        self.level = self._levels()
        self.results = {o.node for o in outputs}
        self.named = {o.node: o for o in reversed(outputs)}
        self.readers = self._readers()
        self.cache: dict[object, Choice | None] = {}
        self.tensor_names: dict[Node, str] = {}
        self.frontiers: dict[tuple[Node, int], frozenset[Node]] = {}

    def _levels(self) -> dict[Node, int]:
        """The heavy term that each term comes with: the last one below it; -1 for none."""
        place = {n: i for i, n in enumerate(self.heavy)}
        out: dict[Node, int] = {}
        for n in self.order:
            out[n] = place.get(n, max((out[a] for a in n.args), default=-1))
        return out

    # --- dynamic programming ----------------------------------------------------------------

    def run(self, at: Sequence[Node] | None) -> Cut:
        last = len(self.heavy) - 1
        forced = {self.level[n] for n in at} if at is not None else None
        cost: list[float] = [0.0]
        chosen: list[tuple[int, list[Piece]]] = [(-1, [])]
        for i in range(last + 1):
            options: list[tuple[float, int, list[Piece]]] = []
            for j in range(i, max(-1, i - LONGEST), -1):
                if forced is not None and any(j <= f < i for f in forced):
                    break
                if cost[j] == float("inf"):
                    continue
                if forced is not None and j > 0 and (j - 1) not in forced:
                    continue
                pieces = self._segment(j, i)
                if pieces is None:
                    continue
                time = sum(p.choice.time.seconds for p in pieces)
                options.append((cost[j] + time, j, pieces))
            least = min(options, key=lambda o: o[0], default=None)
            cost.append(least[0] if least else float("inf"))
            chosen.append((least[1], least[2]) if least else (-1, []))
        if cost[-1] == float("inf"):
            raise self._refusal(cost)
        pieces: list[Piece] = []
        i = last + 1
        while i > 0:
            j, found = chosen[i]
            pieces = found + pieces
            i = j
        pieces = self._light() + pieces
        made = {t: n for n, t in self.tensor_names.items()}
        inner = {
            p.binding[o.name]: made[p.binding[o.name]]
            for p in pieces
            for o in p.choice.kernel.outputs
            if p.binding[o.name] in made and made[p.binding[o.name]] not in self.results
        }
        return Cut(tuple(pieces), inner)

    def _refusal(self, cost: Sequence[float]) -> Refusal:
        stuck = self.heavy[next(i for i, c in enumerate(cost[1:]) if c == float("inf"))]
        return Refusal(
            f"derive {self.name} for {self.machine.name}",
            self.names.get(stuck, stuck.op),
            f"no labelling of {stuck.op} over axes '{' '.join(stuck.args[0].axes)}' at these sizes "
            "fits the registers and shared memory of one group",
            "make the axes that are held whole smaller, or cut them in two by hand",
        )

    def _light(self) -> list[Piece]:
        """Outputs that need no reduction."""
        alone = [n for n in dict.fromkeys(o.node for o in self.outputs) if self.level[n] < 0]
        pieces: list[Piece] = []
        for n in alone:
            piece = self._piece([n], -1)
            if piece is None:
                raise Refusal(
                    f"derive {self.name}",
                    self.names.get(n, n.op),
                    "no tile of it fits registers",
                    "make its axes smaller",
                )
            pieces.append(piece)
        return pieces

    # --- one run of reductions --------------------------------------------------------------

    def _segment(self, j: int, i: int) -> list[Piece] | None:
        """Kernels for heavy terms j to i: one, or where their results differ in shape, one for
        each shape when there is a single heavy term."""
        wanted = self._wanted(j, i)
        if not wanted:
            return []
        piece = self._piece(wanted, j - 1)
        if piece is not None:
            return [piece]
        heavy = self.heavy[i]
        if j < i or wanted == [heavy]:
            return None
        # One reduction whose readers want something wider, or want it under other axis names:
        # that is computed by kernels after it.
        first = self._piece([heavy], i - 1)
        rest = [self._piece([n], i) for n in wanted if n is not heavy]
        if first is None or any(p is None for p in rest):
            return None
        return [first, *(p for p in rest if p is not None)]

    def _wanted(self, j: int, i: int) -> list[Node]:
        """What heavy terms j to i (and their pointwise followers) hand on."""
        out: dict[Node, None] = {n: None for n in self.results if j <= self.level[n] <= i}
        for n in dict.fromkeys(n for at in range(j, i + 1) for n in self.readers[at]):
            if self.level[n] > i:
                below = self._below(n, i)
                out.update(dict.fromkeys(m for m in below if j <= self.level[m] <= i))
        return sorted(out, key=lambda n: self.place[n])

    def _readers(self) -> list[list[Node]]:
        """For each heavy term, the heavy terms and results that its level's arrays go into."""
        out: list[list[Node]] = [[] for _ in self.heavy]
        touches: dict[Node, frozenset[int]] = {}
        for n in self.order:
            below = frozenset[int]().union(*(touches[a] for a in n.args))
            touches[n] = frozenset({self.level[n]}) if _is_heavy(n) else below
            if _is_heavy(n) or n in self.results:
                for at in below - {-1}:
                    out[at].append(n)
            if not _is_heavy(n) and self.level[n] >= 0:
                touches[n] = below | {self.level[n]}
        return out

    def _below(self, n: Node, boundary: int) -> frozenset[Node]:
        """Arrays of level at most `boundary` that computing `n` reads directly."""
        key = (n, boundary)
        if key not in self.frontiers:
            args = _arguments(n)
            found: set[Node] = set()
            for a in args:
                found |= self._needed(a, boundary)
            self.frontiers[key] = frozenset(found)
        return self.frontiers[key]

    def _needed(self, n: Node, boundary: int) -> frozenset[Node]:
        if n.constant or is_read(n) or self.level[n] < 0:
            return frozenset()
        if _is_heavy(n) or n.op == "rename":
            inner = n.args[0] if n.op == "rename" else n
            return frozenset({inner}) if self.level[n] <= boundary else frozenset()
        below = self._below(n, boundary)
        if self.level[n] > boundary or not self._worth(n, below):
            return below
        return frozenset({n})

    def _worth(self, n: Node, below: frozenset[Node]) -> bool:
        """Whether storing `n` moves less than storing what it is computed from."""
        if n in self.results:
            return True
        reads = {m for m in _leaves_of(n, below)}
        again = sum(2 * self._values(m) for m in below) + sum(self._values(m) for m in reads)
        return 2 * self._values(n) < again or (
            2 * self._values(n) == again and not reads
        )

    def _values(self, n: Node) -> int:
        total = 1
        for a in n.axes:
            total *= self.sizes[a]
        return total

    # --- kernels, each derived once ---------------------------------------------------------

    def _piece(self, wanted: Sequence[Node], boundary: int) -> Piece | None:
        """The kernel for `wanted`, reading what came with heavy terms up to `boundary`."""
        stored = self._stored(wanted, boundary)
        if stored is None:
            return None
        leaf_of = {
            n: node("input", params=(self._tensor(n),), axes=n.axes, kind=n.kind) for n in stored
        }

        def change(old: Node, args: tuple[Node, ...]) -> Node | None:
            if old.op == "rename":
                return view(args[0], cast("tuple[tuple[str, str], ...]", old.params[0]))
            return None

        done = rewrite(wanted, change, {n: leaf_of[n] for n in stored if n not in wanted})
        outputs = [Output(self._tensor(n), done[n], self._axes_of(n)) for n in wanted]
        key = _key(outputs)
        if key not in self.cache:
            named = [n for n in done if n in self.names and n.op != "input"]
            names = {done[n]: self.names[n] for n in named}
            names |= {o.node: o.name for o in outputs}
            title = self._title(wanted)
            self.cache[key] = best(title, outputs, names, self.sizes, self.dtype, self.machine)
        choice = self.cache[key]
        if choice is None:
            return None
        # The cached kernel carries the tensor names of the first kernel like it.
        theirs = [*_inputs(choice.origin), *(o.name for o in choice.origin)]
        ours = [*_inputs(outputs), *(o.name for o in outputs)]
        return Piece(choice, dict(zip(theirs, ours, strict=True)))

    def _stored(self, wanted: Sequence[Node], boundary: int) -> list[Node] | None:
        """Arrays of earlier kernels that `wanted` reads; None where one is read under other axis
        names inside the kernel that computes it."""
        found: dict[Node, None] = {}
        stack, seen = list(reversed(wanted)), set[Node]()
        while stack:
            n = stack.pop()
            if n in seen or n.constant or is_read(n):
                continue
            seen.add(n)
            if n.op == "rename":
                if self.level[n] > boundary:
                    return None
                found[n.args[0]] = None
            elif n not in wanted and self.level[n] >= 0 and n in self._needed(n, boundary):
                found[n] = None
            else:
                stack.extend(_arguments(n))
        return list(found)

    def _axes_of(self, n: Node) -> tuple[str, ...]:
        return self.named[n].axes if n in self.named else n.axes

    def _tensor(self, n: Node) -> str:
        if n not in self.tensor_names:
            result = self.named[n].name if n in self.named else ""
            base = result or self.names.get(n) or "t"
            taken = set(self.tensor_names.values())
            taken |= {str(m.params[0]) for m in self.order if m.op == "input"}
            taken |= {o.name for o in self.outputs} - {result}
            name, i = base, 1
            while name in taken:
                i += 1
                name = f"{base}_{i}"
            self.tensor_names[n] = name
        return self.tensor_names[n]

    def _title(self, wanted: Sequence[Node]) -> str:
        if set(wanted) == self.results:
            return self.name
        return f"{self.name}_{'_'.join(self._tensor(n) for n in wanted)}"


def _order(outputs: Sequence[Output]) -> list[Node]:
    """Dataflow order in which what is read under other names comes as early as it can: it has to
    be stored, so nothing that could be one kernel should lie around it."""
    roots = [o.node for o in outputs]
    return list(postorder([*(n for n in postorder(roots) if n.op == "rename"), *roots]))


def _is_heavy(n: Node) -> bool:
    counts = n.op == "sum" and n.args[0].op == "ones"
    return (n.op in REDUCTIONS or n.op in SCANS) and not counts


def _arguments(n: Node) -> tuple[Node, ...]:
    # The product inside a contraction is no array; its two sides may be.
    return n.args[0].args if n.op == "sum" and n.args[0].op == "mul" else n.args


def _leaves_of(n: Node, stop: frozenset[Node]) -> set[Node]:
    out: set[Node] = set()
    stack = list(n.args)
    while stack:
        m = stack.pop()
        if m in stop:
            continue
        if is_read(m):
            out.add(m)
        else:
            stack.extend(m.args)
    return out


# --- one form for equal kernels -------------------------------------------------------------


def _inputs(outputs: Sequence[Output]) -> list[str]:
    """Input tensors in order of first use."""
    order = postorder(o.node for o in outputs)
    return list(dict.fromkeys(str(n.params[0]) for n in order if n.op == "input"))


def _key(outputs: Sequence[Output]) -> object:
    """Equal for kernels that differ only in the names of their tensors."""
    order = list(postorder(o.node for o in outputs))
    place = {n: i for i, n in enumerate(order)}
    tensors = _inputs(outputs)
    rows = tuple(
        (
            n.op,
            tuple(place[a] for a in n.args),
            (tensors.index(str(n.params[0])), n.params[1:])
            if n.op == "input"
            else tuple(map(repr, n.params)),
            n.axes,
            n.kind,
        )
        for n in order
    )
    return rows, tuple((place[o.node], o.axes) for o in outputs)
