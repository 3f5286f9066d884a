"""What passes between kernels: which arrays a cut of a term has to store, and which it may.

The points of a term (`napkin.cut.points`) are taken in dataflow order. Every other term comes with
a point, the last one below it; a cut after point i stores what terms of levels up to i hand on to
later ones. Where storing less and computing it again moves fewer values, that is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from napkin.algebra.terms import compared, is_read, rounded_alike
from napkin.cut.layout import layouts
from napkin.cut.points import READ_AGAIN, points_of, values
from napkin.diagram.interface import Output
from napkin.ir.node import Node, over, postorder
from napkin.ir.storage import own_type, unstored, widens
from napkin.ir.taking import own_axes


class Frontier:
    """The arrays that lie between the kernels of any cut of a term.

    Args:
        points: the terms that kernels may end with; by default those of `points_of`.
        unfused: whether every point is stored anyway, so that only reading it again counts.

    Attributes:
        points: the points in dataflow order.
        level: the place in `points` of the term that each term comes with; -1 for none.
        layouts: the axes in memory of arrays that lie otherwise than their terms say.
        results: the nodes of the outputs.
        written: the terms that are to be rounded as they are written, as all kernels that compute
            them round them.
        moved: the places of points with which an array comes that is stored to be read at computed
            addresses.
    """

    def __init__(
        self,
        outputs: Sequence[Output],
        sizes: Mapping[str, int],
        order: Sequence[Node] = (),
        points: Set[Node] | None = None,
        unfused: bool = False,
    ) -> None:
        self.sizes, self.unfused = sizes, unfused
        self.results = {o.node for o in outputs}
        self._compared = compared(self.results)
        self.written = rounded_alike(self.results)
        given = points_of(outputs, sizes) if points is None else points
        self.order = list(order or next(orders(outputs, given)))
        self._inside = _inside_casts(self.order, given) - self.results
        self._points = given - self._inside
        self.points = [n for n in self.order if n in self._points]
        self.level = self._levels()
        self.layouts = layouts(self.order, sizes)
        self.moved = {self.level[n] for n in self.order if n.op in {"compress", "take"}}
        self._place = {n: i for i, n in enumerate(self.order)}
        self._known = {n: frozenset(() if n.constant else (n,)) for n in self.points}
        self._beside: dict[Node, tuple[set[Node], set[int]]] = {}
        self._handed_on = self._crossing()
        self._made: dict[int, list[tuple[int, Node]]] = {}
        self._steps: dict[Node, tuple[int, Sequence[Node]] | None] = {}

    def _levels(self) -> dict[Node, int]:
        """The point that each term comes with: the last one below it; -1 for none."""
        place = {n: i for i, n in enumerate(self.points)}
        out: dict[Node, int] = {}
        for n in self.order:
            out[n] = place.get(n, max((out[a] for a in n.args), default=-1))
        return out

    def wanted(self, j: int, i: int) -> list[Node]:
        """What points j to i, and what comes with them, hand on."""
        if i not in self._made:
            made = [n for n in self._handed_on[i] | self.results if self.level[n] <= i]
            made.sort(key=self._place.__getitem__)
            self._made[i] = [(self.level[n], n) for n in made]
        return [n for level, n in self._made[i] if j <= level]

    def _crossing(self) -> list[set[Node]]:
        """For each point, the sources of what it or an earlier one makes and a later one
        reads."""
        last: dict[Node, int] = {}
        for n in self.order:
            cast = n in self._points and widens(n)  # what it casts is computed where it is stored
            read = _arguments(n) + (_arguments(unstored(n)) if cast else ())
            last.update((a, max(last.get(a, -1), self.level[n])) for a in read)
        found: list[set[Node]] = [set() for _ in self.points]
        for a, end in last.items():
            for i in range(self.level[a], end) if self.level[a] >= 0 else ():
                found[i] |= self.sources(a)
        for n in self.order:
            source = _read_again(n)
            # It is read from memory, whatever it moves to compute it again.
            if source is not None and self.level[source] >= 0:
                for i in range(self.level[source], self.level[n]):
                    found[i].add(source)
        return found

    def stored(self, wanted: Sequence[Node], boundary: int) -> list[Node] | None:
        """Arrays of earlier kernels that `wanted` reads; None where one is read under other axis
        names, or moved between keys and slots, inside the kernel that computes it, or says there
        where a key set begins. What is stored as a cast says is computed there, and nowhere stored
        otherwise."""
        computed = {*wanted, *(unstored(n) for n in wanted if widens(n))}
        found: dict[Node, None] = {}
        stack, seen, steps = list(reversed(wanted)), set[Node](), self._steps
        while stack:
            n = stack.pop()
            if n in seen:
                continue
            seen.add(n)
            if n.op == "keys" and any(self._computed(a, boundary) for a in n.args):
                return None
            if n not in steps:
                steps[n] = self._step(n)
            if (step := steps[n]) is not None:
                level, arguments = step
                if 0 <= level <= boundary and n not in computed:
                    found[n] = None
                else:
                    stack.extend(arguments)
            elif n.op in READ_AGAIN:
                source = n.args[0]
                stack.extend(n.args[1:] if n.op == "take" else ())
                read = source if n.op == "take" else n  # of a take, positions may be computed there
                if self.level[read] > boundary or (self.level[n] < 0 and not is_read(source)):
                    return None
                if source.op == "rename":
                    stack.append(source)
                else:
                    found[source] = None
            elif any(a.op == "compress" and self.level[a] > boundary for a in n.args):
                return None
            elif n not in computed and 0 <= self.level[n] <= boundary and n in self.sources(n):
                found[n] = None
            else:
                stack.extend(_arguments(n))
        return list(found)

    def _computed(self, n: Node, boundary: int) -> bool:
        """Whether no kernel stores a point before those after the boundary."""
        return n in self._points and self.level[n] > boundary

    def _step(self, n: Node) -> tuple[int, Sequence[Node]] | None:
        """The level from which on a term is stored, -1 where it is in no case, and what it reads;
        None where more has to be known (see `stored`)."""
        if n.constant:
            return -1, ()
        if is_read(n) and n not in self._points:
            return -1, n.args
        if n.op in READ_AGAIN or any(a.op == "compress" for a in n.args):
            return None
        return self.level[n] if n in self.sources(n) else -1, _arguments(n)

    def moved_within(self, j: int, i: int) -> list[Node]:
        """What points j to i compute and what comes with them reads from memory, as under other
        axis names."""
        order = list(postorder([self.points[i], *self.wanted(j, i)]))
        read = [n.args[0] for n in order if n.op in READ_AGAIN]
        read += [n for n in order if n.op == "compress"]
        return list(dict.fromkeys(n for n in read if n.op != "rename" and self.level[n] >= j))

    def sources(self, n: Node) -> frozenset[Node]:
        """What is read to have an array, once the point that it comes with is done: the array
        itself, or what it is computed from."""
        for m in postorder([n], self._known) if n not in self._known else ():
            if m not in self._known:
                self._known[m] = self._find_sources(m)
        return self._known[n]

    def _find_sources(self, n: Node) -> frozenset[Node]:
        if n.constant or self.level[n] < 0:
            self._beside[n] = {m for m in postorder([n]) if is_read(m)}, set()
            return frozenset()
        below = self._below(n)
        self._beside[n] = self._read_beside(n, below)
        alone = n in self._inside or n.op in READ_AGAIN or is_read(n)
        return below if alone or not self._worth(n, below) else frozenset({n})

    def _below(self, n: Node) -> frozenset[Node]:
        """What is stored of what a term that is no point is computed from."""
        source = _read_again(n)
        if source is None:
            return frozenset[Node]().union(*map(self.sources, _arguments(n)))
        positions = n.args[1:] if n.op == "take" else ()
        return frozenset({source}).union(*map(self.sources, positions))

    def _read_beside(self, n: Node, below: frozenset[Node]) -> tuple[set[Node], set[int]]:
        """What a term reads of inputs beside what is stored of what it is computed from, and the
        places of points with which an array comes that is read again for it."""
        reads, again = {n} if is_read(n) else set[Node](), set[int]()
        for a in n.args:
            if a.op in READ_AGAIN:
                again.add(self.level[a.args[0]])
            if a not in below:
                if a not in self._beside:  # the product inside a contraction, or another name
                    self._beside[a] = self._read_beside(a, self._below(a))
                reads |= self._beside[a][0]
                again |= self._beside[a][1]
        return reads, again

    def _worth(self, n: Node, below: frozenset[Node]) -> bool:
        """Whether storing `n` moves less than storing what it is computed from."""
        if n in self.results:
            return True
        # What the kernel that computes it has in memory only, no other term of that kernel reads.
        if any(m.op == "compress" and self.level[m] == self.level[n] for m in below):
            return False
        reads, again = self._beside[n]
        if self.level[n] in again:
            return False
        # A comparison of two reals reads what was computed, and not a rounded point of it.
        crossings = 1 if self.unfused and n not in self._compared else 2
        moved = sum(crossings * self._values(m) for m in below)
        moved += sum(self._values(m) for m in reads)
        if 2 * self._values(n) == moved:  # of two that are as small, the one with a type of its own
            return not reads and (bool(own_type(n)) or not any(map(own_type, below)))
        return 2 * self._values(n) < moved

    def _values(self, n: Node) -> int:
        return values(own_axes(n) if is_read(n) else n.axes, self.sizes)


def orders(outputs: Sequence[Output], points: Set[Node]) -> Iterator[list[Node]]:
    """The dataflow orders that are worth a try, each once.

    What is read under other names comes as early as it can: it has to be stored, so nothing that
    could be one kernel should lie around it. Beside that order there is one in which what is read
    at computed positions comes early, too, and one for each axis of the outputs in which points
    that lack the axis come first: a kernel that is fused with one computes it again for each group
    along the axis, so it may be better stored, and kernels are runs of an order.
    """
    roots = [o.node for o in outputs]
    renamed = [n for n in postorder(roots) if n.op == "rename"]
    first = list(postorder([*renamed, *roots]))
    yield first
    seen = {tuple(n for n in first if n in points)}
    others = [[n for n in first if n.op == "take"]]
    for axis in dict.fromkeys(a for o in outputs for a in o.axes):
        lack = [n for n in first if n in points and axis not in n.axes and axis not in over(n)]
        others.append(lack)
    for early in others:
        order = list(postorder([*renamed, *early, *roots]))
        found = tuple(n for n in order if n in points)
        if found not in seen:
            seen.add(found)
            yield order


def _inside_casts(order: Sequence[Node], points: Set[Node]) -> Set[Node]:
    """Terms that nothing reads but casts that are points: to store one otherwise would round it
    before it is cast."""
    casts = {n for n in order if n in points and widens(n)}
    read = {a for n in order if n not in casts for a in n.args}
    return {unstored(n) for n in casts} - read


def _arguments(n: Node) -> tuple[Node, ...]:
    # The product inside a contraction is no array; its two sides may be.
    return n.args[0].args if n.op == "sum" and n.args[0].op == "mul" else n.args


def _read_again(n: Node) -> Node | None:
    """What a term reads from memory under other axis names or at computed addresses."""
    if n.op not in READ_AGAIN:
        return None
    source = n.args[0]
    while source.op == "rename":
        source = source.args[0]
    return source
