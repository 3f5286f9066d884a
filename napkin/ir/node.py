"""Nodes: the terms that a diagram is made of.

A `Node` is one array of a diagram: an operator applied to other nodes, with named axes. Nodes are
interned, so equal terms are one object: comparison and hashing are by identity, and common
subterms are shared without a pass that looks for them.
"""

from __future__ import annotations

import itertools
import math
import threading
import weakref
from collections.abc import Callable, Container, Iterable, Iterator
from typing import Any, NamedTuple, cast

from napkin.ir.operators.record import REDUCTIONS as REDUCTIONS
from napkin.ir.operators.record import Kind as Kind

Param = object  # strings, numbers and tuples of them: hashable, compared by value

Pairs = tuple[tuple[str, str], ...]
"""Axes, and their new names."""

FLOOR = -3.4028234663852886e38
"""The lowest finite float32: the value a stabilising maximum starts from.

Starting there instead of at -inf keeps exp(S - max) free of (-inf) - (-inf), so a row whose scores
are all -inf gets weights 0, as cuDNN and FlashAttention define it.
"""

INT32 = range(-(2**31), 2**31)
"""The values of whole numbers in storage."""

LEAVES = frozenset({
    "input", "number", "size", "scalar", "index", "corner", "ones", "state", "listed", "previous",
    "operand",
})  # fmt: skip
"""Operators without arguments."""

CONSTANTS = frozenset({"number", "size", "scalar"})
"""Leaves that are known before any array is read."""

WRAPPERS = frozenset({"mask"})
"""Operators of lowered terms: `params` say which lanes of a tile hold no value."""

COMPOSITES = frozenset({"softmax", "logsumexp", "mean"})
"""Operators over axes that stand for several simpler ones; `napkin.ir.expansion` opens them.
`params` has the axes of each argument: one maximum and one sum may go over several arrays, of which
a last parameter then says whose weights are meant."""

SCANS = frozenset({"cumsum", "recurrence", "sort", "steps"})
"""Operators that mix along an axis and keep it; "recurrence" of a and b is h_t = a_t h_(t-1) + b_t,
with 0 before the first position; "steps" takes states by any step (`napkin.ir.infer.iterated`)."""

MOVES = frozenset({"compress", "spread"})
"""Operators between the keys that a query sees and the slots of its window
(`napkin.ir.slotted`)."""

_ALONG_AXES = COMPOSITES | SCANS | WRAPPERS | MOVES | {"rename", "keys", "scatter", "take", "input"}
"""Operators with arguments that are not pointwise, beside reductions."""


FLIGHT = 32
"""Levels of terms that are walked, and written as one expression, by recursion."""

LISTED = 2048
"""Nodes of a term that keeps a list of them, at most: each part of a term may have its own."""

MOST_FACTORS = 64
"""Factors that a product is taken apart into, at most."""


class Node:
    """One array: `op` applied to `args`; `params` hold what is not an array.

    Attributes:
        op: a leaf, a reduction, a composite, a scan, "rename", "keys" (a key set, see
            `napkin.keys`), "compress" or "spread" between keys and slots, "take" (see
            `napkin.ir.taking`), or a pointwise operator of `napkin.ir.operators`.
            "listed" is an array of numbers written out. In a kernel an "input" may have arguments:
            where it is read; and "scatter" says the same of what is stored.
        axes: the axis names, in order.
        kind: the item type: "real", "int" or "bool".
        constant: whether it is known before any array is read: made of numbers, sizes and scalars.
        depth: nodes on the longest way down to a leaf, beside itself.
        below: the nodes under it, arguments first, once they were listed.
    """

    __slots__ = (
        "__weakref__", "args", "axes", "below", "constant", "depth", "kind", "op", "params",
    )  # fmt: skip

    op: str
    args: tuple[Node, ...]
    params: tuple[Param, ...]
    axes: tuple[str, ...]
    kind: Kind
    constant: bool
    depth: int
    below: tuple[Node, ...] | None

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy of a term, or one that was pickled, is that term."""
        return node, (self.op, self.args, self.params, self.axes, self.kind)

    def __repr__(self) -> str:
        inner = ", ".join([a.op for a in self.args] + [str(p) for p in self.params])
        return f"<{self.op}({inner}) {' '.join(self.axes)}>"


_INTERNING = threading.Lock()
_interned: weakref.WeakValueDictionary[tuple[object, ...], Node] = weakref.WeakValueDictionary()


def told_apart(param: Param) -> Param:
    """A parameter as it is told apart: 1, 1.0 and True are equal, and so are 0.0 and -0.0, but they
    are not the same constant."""
    if isinstance(param, tuple):
        return tuple(map(told_apart, cast("tuple[Param, ...]", param)))
    if isinstance(param, str):
        return param
    return type(param), repr(param) if isinstance(param, float) else param


def node(
    op: str,
    args: Iterable[Node] = (),
    params: Iterable[Param] = (),
    axes: Iterable[str] = (),
    kind: Kind = "real",
) -> Node:
    """The interned node with these parts."""
    args, params, axes = tuple(args), tuple(params), tuple(axes)
    key = (op, args, tuple(map(told_apart, params)), axes, kind)
    found = _interned.get(key)
    if found is not None:
        return found
    made = Node()
    made.op, made.args, made.params, made.axes, made.kind = op, args, params, axes, kind
    made.constant = op in CONSTANTS or (
        bool(args)
        and op not in REDUCTIONS
        and op not in _ALONG_AXES
        and all(a.constant for a in args)
    )
    made.depth = 1 + max((a.depth for a in args), default=-1)
    made.below = None if args else ()
    with _INTERNING:  # of two threads that make a node, one has to take the other's
        return _interned.setdefault(key, made)


def number(value: float | int | bool) -> Node:
    """A constant without axes."""
    kind: Kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "real"
    return node("number", params=(value,), kind=kind)


def in_kind(value: float, kind: Kind) -> float:
    """`value` in an item type: a whole number is held in int32, which has no infinity."""
    return value if kind == "real" else int(max(min(value, INT32[-1]), INT32[0]))


def stabilises(n: Node) -> bool:
    """Whether `n` is a maximum that starts from a finite value, to keep exponentials in range.

    It may lose a NaN, which then stands in the sum of those exponentials.
    """
    extremum = n.op in REDUCTIONS and REDUCTIONS[n.op].order and n.kind == "real"
    return bool(extremum) and math.isfinite(float(str(n.params[1])))


def over(n: Node) -> tuple[str, ...]:
    """The axes a reduction, composite or scan works along; () for any other node."""
    if n.op in COMPOSITES:
        each = cast("tuple[tuple[str, ...], ...]", n.params[: len(n.args)])
        return tuple(dict.fromkeys(axis for axes in each for axis in axes))
    if n.op in REDUCTIONS or n.op in SCANS:
        first = n.params[0]
        assert isinstance(first, tuple)
        return first
    return ()


def union_axes(nodes: Iterable[Node]) -> tuple[str, ...]:
    """Axes of all nodes, each once, in order of first appearance."""
    return tuple(dict.fromkeys([axis for n in nodes for axis in n.axes]))


def postorder(roots: Iterable[Node], stop: Container[Node] = ()) -> Iterator[Node]:
    """Every node under `roots`, arguments first, each once (without recursion); nothing below a
    node of `stop`."""
    if stop:
        return _walked(roots, stop)
    roots = tuple(roots)
    if len(roots) == 1:
        return itertools.chain(_below(roots[0]), roots)
    found: dict[Node, None] = {}
    for root in roots:
        if root.depth < LISTED:
            _below(root)
        _add(found, root)
    return iter(found)


def _below(n: Node) -> tuple[Node, ...]:
    """The nodes under a node, arguments first; a term that is not long keeps them."""
    if n.below is not None:
        return n.below
    found: dict[Node, None] = {}
    for a in n.args:
        _add(found, a)
    below = tuple(found)
    if len(below) <= LISTED:
        n.below = below
    return below


def _add(found: dict[Node, None], n: Node) -> None:
    """Add a node and all under it that are not yet `found`, arguments first."""
    stack: list[Node | None] = [n]
    while stack:
        current = stack.pop()
        if current is None:  # what is below the next one is done
            found[cast("Node", stack.pop())] = None
        elif current not in found:
            if current.below is None:
                stack += (current, None)
                stack += current.args[::-1]
            else:
                found.update(dict.fromkeys(current.below))
                found[current] = None


def _walked(roots: Iterable[Node], stop: Container[Node]) -> Iterator[Node]:
    seen: set[Node] = set()
    for root in roots:
        stack: list[Node | None] = [root]
        while stack:
            current = stack.pop()
            if current is None:  # what is below the next one is done
                yield cast("Node", stack.pop())
            elif current not in seen:
                seen.add(current)
                if current.args and current not in stop:
                    stack += (current, None)
                    stack += current.args[::-1]
                else:
                    yield current


def ones(axes: tuple[str, ...]) -> Node:
    """1 at every position along axes."""
    return node("ones", params=(axes,), axes=axes, kind="int")


def names_of(n: Node) -> Pairs:
    """The axes that a renaming reads under other names, with these."""
    return cast("Pairs", n.params[0])


class Steps(NamedTuple):
    """What a "steps" node does.

    Attributes:
        which: the state that it is.
        made: the new value of each state, over leaves "previous" i, state i at the position before,
            and "operand" j, argument j at the position. Nothing that rewrites terms looks into it.
        starts: each state before the first position.
    """

    which: int
    made: tuple[Node, ...]
    starts: tuple[float, ...]

    @property
    def leaves(self) -> dict[Node, int]:
        """The leaves of the steps, with their numbers."""
        own = [m for m in postorder(self.made) if m.op in {"operand", "previous"}]
        return {m: cast(int, m.params[0]) for m in own}


def steps_of(n: Node) -> Steps:
    """What a "steps" node does."""
    return Steps(*cast("tuple[Any, Any, Any]", n.params[1:]))


def within(roots: Iterable[Node]) -> Iterator[Node]:
    """Every node under `roots`, as `postorder` has them, and those of their steps."""
    for n in postorder(roots):
        if n.op == "steps":
            yield from within(steps_of(n).made)
        yield n


def preorder(
    roots: Iterable[Node], into: Callable[[Node], bool] = lambda n: True
) -> Iterator[Node]:
    """Nodes under `roots`, each once: a node before its arguments, and these from left to right.

    Args:
        into: whether the arguments of a node are looked at.
    """
    stack, seen = list(roots)[::-1], set[Node]()
    while stack:
        n = stack.pop()
        if n not in seen:
            seen.add(n)
            yield n
            stack.extend(reversed(n.args) if into(n) else ())


def landings(
    roots: Iterable[Node],
    stop: Container[Node] = (),
    may: Callable[[Node], bool] = bool,
    rather: Callable[[Node], bool] = bool,
) -> Iterator[Node]:
    """Nodes under `roots`, arguments first, so that no way down from one to the next has more than
    `FLIGHT` levels, or twice as many where `rather` says so: a recursion that has been at these,
    and keeps what it finds, goes no deeper.

    Args:
        stop: nodes at which a way down ends.
        may: which nodes there may be among them.
        rather: the nodes to wait for, up to `FLIGHT` levels more.
    """
    roots = tuple(roots)
    if all(n.depth < FLIGHT for n in roots):
        return
    levels: dict[Node, int] = {}
    for n in postorder(roots, stop):
        levels[n] = 0 if n in stop else 1 + max((levels[a] for a in n.args), default=-1)
        if levels[n] >= FLIGHT and may(n) and (rather(n) or levels[n] >= 2 * FLIGHT):
            yield n
            levels[n] = 0


def factors(body: Node, whole: Container[Node] = (), by: str = "mul") -> tuple[Node, ...]:
    """The factors of a product, however it is nested; constant products and those in `whole` are
    one factor each, and where there are more than `MOST_FACTORS`, so are those deepest inside.

    Args:
        by: the operator that is taken for the product.
    """
    parts, opened = (), (body,)
    while opened != parts and len(opened) <= MOST_FACTORS:
        parts = opened
        opened = tuple([
            x
            for p in parts
            for x in (p.args if p.op == by and not p.constant and p not in whole else (p,))
        ])  # fmt: skip
    return parts


def readers(order: Iterable[Node]) -> dict[Node, set[Node]]:
    """The terms among some that have each as an argument."""
    found: dict[Node, set[Node]] = {}
    for n in order:
        for a in n.args:
            found.setdefault(a, set()).add(n)
    return found


def built_on(order: Iterable[Node], first: Callable[[Node], bool]) -> set[Node]:
    """Of terms that come after their arguments, the `first`, and all that are computed of them."""
    found = set[Node]()
    for n in order:
        if first(n) or not found.isdisjoint(n.args):
            found.add(n)
    return found


def inside_sums(roots: Iterable[Node]) -> set[Node]:
    """Products that exist only within a contraction: no array ever holds them."""
    roots = tuple(roots)
    order = list(postorder(roots))
    inside: set[Node] = set()
    held = set(roots)
    whole = {p for n in order if n.op == "sum" for p in factors(n.args[0]) if p.op == "mul"}
    for n in reversed(order):  # readers before what they read
        for a in n.args:
            if a.op == "mul" and a not in whole and (n.op == "sum" or n in inside):
                inside.add(a)
            else:
                held.add(a)
    return inside - held
