"""Triton statements for the terms of a loop program."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import cast

from napkin.algebra.terms import is_read
from napkin.ir.key_sets import member
from napkin.ir.node import REDUCTIONS, Node, in_kind, landings, over, postorder, preorder
from napkin.ir.operators import POINTWISE
from napkin.ir.storage import own_type, widens
from napkin.ir.types import STORAGE
from napkin.lower import syntax as sx
from napkin.lower.bit_words import DISJOINT, OUTSIDE, PLACE, outside, place
from napkin.lower.dots import dot_of
from napkin.lower.emit_block import Block
from napkin.lower.emit_memory import boxed_load, load
from napkin.lower.emit_reductions import contraction, fused_add, product, reduction
from napkin.lower.pointwise import TYPES, as_kind, negated, pointwise
from napkin.lower.program import counted
from napkin.lower.spelling import TRITON
from napkin.lower.syntax import Expr

ORDERS = frozenset({"less", "less_equal", "greater", "greater_equal"})
"""Comparisons that Triton computes once for a run of positions where it can."""

JOINED = frozenset({"add", "sub", "maximum", "minimum", "where"})
"""Operators that may lose what divides the first value of each run of their arguments."""

ADDED = frozenset({"add", "sub", "neg"})
"""Operators that add."""

DIVIDED = frozenset({"floordiv", "mod"})
"""Operators that divide whole numbers."""

FALLING = frozenset({"sub", "neg"})
"""Operators that fall as their last argument rises."""


class Emitter(Block):
    """Writes statements for terms, each once per block, in the order they are needed."""

    def value(self, n: Node) -> Expr:
        """`n` as an expression, in float32 if it is real, in int32 if it is whole."""
        if n in self.have:
            found = self.have[n]
            if n in self.raw:
                found = self.layouts.read(n, found)
            if n in self.raw and n.kind == "real" and own_type(n) != "fp32":
                return sx.method(found, "to", self.lang.word("float32"))
            if n in self.raw and n.kind == "int" and own_type(n):
                wide = sx.method(found, "to", self.lang.word("int32"))
                return sx.binary(wide, "+", self._zero) if n in self._summed else wide
            return found
        if n.op == "number":
            return self.lang.literal(n.params[0])
        if n.op == "size":
            return sx.name(self.scope.size(str(n.params[0])))
        if n.op in {"index", "corner"}:
            return self.computed(n)
        if n.constant and counted(n):
            return self._pointwise(n, ())
        if n.constant:
            return sx.name(self.scope.constant(n))
        rather = self._has_name  # so that what repeats is in the same words each time
        for deep in landings([n], self.have, self.program.alone, rather):
            self.define(deep)
        if n in self.have:
            return self.value(n)
        if not self._has_name(n):
            return self.computed(n)
        self.define(n)
        return self.value(n)

    def define(self, n: Node) -> None:
        """Compute `n` here and give it a name, whatever its uses."""
        if n in self.have or n.constant:
            return
        made, target = self.computed(n), self.scope.value(n)
        if n not in self.program.boxes:
            self.statements.append(sx.assign(target, made))
        self.have[n] = sx.name(target)

    def _has_name(self, n: Node) -> bool:
        """Whether a statement gives a term a name; others are written where they are used."""
        return n in self.program.kernel.names or n.op not in POINTWISE or self.uses[n] > 1

    def computed(self, n: Node) -> Expr:
        if is_read(n):
            self.raw.add(n)
            return boxed_load(self, n) if n in self.program.boxes else load(self, n)
        dims, writer = self.program.shape(n), _WRITERS.get(n.op)
        if writer is not None:
            return writer(self, n, dims)
        if n.op in REDUCTIONS:  # users add some
            return reduction(self, n)
        added = fused_add(self, n) if n.op == "add" else None
        if added is None and n.op == "add" and self.lang is TRITON:
            added = self._beside(n, dims)
        return added or self._pointwise(n, dims)

    def _beside(self, n: Node, dims: Sequence[int]) -> Expr | None:
        """`product + term` where the product does not start from the term, in words that Triton
        does not take for such a start, as it takes every sum (see `fused_add`)."""
        for a, b in (n.args, n.args[::-1]):
            dot = dot_of(self.program, b)
            if dot is None or dot.outside or (b.kind, self.program.shape(b)) != (n.kind, dims):
                continue
            value, term = self.fit(b, dims), as_kind(self.lang, n.kind, a, self.fit(a, dims))
            if n.kind == "real":
                return self.lang("fma", value, sx.const(1.0), term)
            return sx.binary(value, "-", sx.binary(self._zero, "-", term))
        return None

    def ones(self, dims: Sequence[int]) -> Expr:
        return self.layouts.laid(
            self.lang("full", self.extents(dims), 1, self.lang.word("int32")), dims
        )

    def _pointwise(self, n: Node, dims: Sequence[int]) -> Expr:
        if not n.constant and (of := negated(n)) is not None:
            return self._under_zero(of, dims)
        if n.op == "mul":
            return product(self, n.args, dims, n.kind)
        values = [self._compared(n, a, dims) for a in n.args]
        if self._divides_positions(n):
            values[0] = sx.binary(values[0], "+", self._zero)
        return pointwise(self.lang, n, values, n in self.program.approximate)

    @property
    def _zero(self) -> Expr:
        """A zero that compilers do not know: grids have one axis."""
        return self.lang("program_id", 1)

    def _divides_positions(self, n: Node) -> bool:
        """Whether positions of an axis that a tile holds whole, which compilers know to be small,
        are divided by a number that is no power of two. LLVM divides them in 16 bits, and adds to
        them as to what `_summed` has: of z % 3 with z = x + 1, the 1 was lost (H200)."""
        if n.op not in DIVIDED or n.kind != "int" or n.args[1].op != "number":
            return False
        divisor, whole = int(str(n.args[1].params[0])), self.program.kernel.whole
        leaves = [m for m in postorder([n.args[0]]) if not m.args and m.op != "number"]
        small = all(m.op == "index" and m.axes[0] in whole for m in leaves)
        return small and bool(leaves) and divisor & (divisor - 1) != 0

    @cached_property
    def _summed(self) -> set[Node]:
        """What is read of 8 bits and fewer, and added to something else than another reading. LLVM
        adds a number to two such at once, in 16 bits each, and where the ptxas of CUDA 12.8 and
        12.9 takes that apart, on sm_90, it adds 0."""
        whole = [n for n in postorder(self.program.roots) if n.kind == "int" and n.op in ADDED]
        added = [n for n in whole if not all(map(is_read, n.args))]
        few = [n for n in postorder(added) if is_read(n) and own_type(n)]
        return {n for n in few if STORAGE[own_type(n)].bits <= 8}

    def _under_zero(self, of: Node, dims: Sequence[int]) -> Expr:
        """The negative of a whole number, as its difference from zero. In the larger of three the
        ptxas of CUDA 12.8 and 12.9 takes x for -x, on sm_90 and sm_100."""
        value = as_kind(self.lang, "int", of, self.fit(of, dims))
        return sx.binary(self._zero, "-", value)

    def _compared(self, n: Node, a: Node, dims: Sequence[int]) -> Expr:
        """An argument of a pointwise term; of a comparison with nothing said of its multiples where
        Triton has them wrong: 3.6 takes 2 * f(x) + x % 2 for even, and 16 - x for what divides 16,
        and then compares a run of positions with it once."""
        if n.op not in ORDERS or a.kind != "int" or not self._one_by_one(a):
            return self.fit(a, dims)
        have = self.program.shape(a)
        ones = sx.tuple_of(1 for _ in have)
        return self.layouts.spread(self.lang("multiple_of", self.value(a), ones), have, dims)

    def _one_by_one(self, n: Node) -> bool:
        """Whether whole numbers are computed of two terms that both vary along one dimension, or
        fall where another rises: Triton 3.6 takes what divides the first of 8, 7, 6 for a divisor
        of all."""

        def inside(m: Node) -> bool:
            return m.kind == "int" and m.op in POINTWISE

        for m in filter(inside, preorder([n], inside)):
            if m.op in FALLING and self.program.shape(m.args[-1]):
                return True
            shapes = [set(self.program.shape(a)) for a in m.args] if m.op in JOINED else []
            if any(a & b for a, b in itertools.combinations(shapes, 2)):
                return True
        return False

    def cast(self, n: Node) -> Expr:
        """Rounded as asked; what follows is computed in float32 again."""
        value, target = self.value(n.args[0]), str(n.params[0])
        if widens(n):
            return value
        if target in {"fp16", "bf16", "fp8"}:
            value = as_kind(self.lang, "real", n.args[0], value)
            value = sx.method(value, "to", self.lang.word(TYPES[target]))
        return sx.method(value, "to", self.lang.word(TYPES["fp32" if n.kind == "real" else target]))

    def word(self, n: Node, dims: Sequence[int]) -> Expr:
        if n.op == DISJOINT:
            query, key = (self.fit(a, dims) for a in n.args)
            return ast.Compare(sx.binary(query, "&", key), [ast.Eq()], [sx.const(0)])
        axes = [str(a) for a in n.params]
        blocks = [self.block(a) for a in axes]
        starts = [sx.name(self.scope.start(a)) for a in axes]
        if n.op == OUTSIDE:
            return outside([self.fit(a, dims) for a in n.args], blocks, starts)
        at = [self.along(a, self.scope.position(a), dims) for a in axes]
        return place(at, blocks, starts, self.lang.word("int32"))

    def mask(self, n: Node, dims: Sequence[int]) -> Expr:
        axis = str(n.params[0])
        inside, own = (
            self.along(axis, self.scope.inside(axis), dims),
            self.program.shape_of((axis,)),
        )
        if n.args[0].op == "ones" and self.program.shape(n.args[0]) == tuple(dims) == own:
            return sx.method(inside, "to", self.lang.word("int32"))
        fill = self.lang.literal(in_kind(float(str(n.params[1])), n.kind))
        return self.lang("where", inside, self.fit(n.args[0], dims), fill)

    def _place(self, n: Node, axis: str) -> int:
        dims = self.program.shape(n)
        return next(i for i, d in enumerate(dims) if axis in self.program.dims[d])

    def scan(self, n: Node, dims: Sequence[int]) -> Expr:
        """A running sum, or a recurrence: of maps h -> a h + b, those of all positions so far."""
        (axis,) = over(n)
        values = [as_kind(self.lang, n.kind, a, self.fit(a, dims)) for a in n.args]
        if not self.program.shape_of((axis,)):  # of one position
            return values[-1]
        along = self._place(n, axis)
        if n.op == "cumsum":
            return self.lang("cumsum", values[0], axis=along)
        shapes = [self.program.shape(a) for a in n.args]
        whole = [self._filling(v, have, dims) for v, have in zip(values, shapes, strict=True)]
        return sx.call("linear_scan", *whole, along)

    def _filling(self, value: Expr, have: Sequence[int], want: Sequence[int]) -> Expr:
        """A value that broadcasts to some dimensions, with all of them."""
        whole = self.extents(want)
        if not have:
            full = self.lang("full", whole, value, self.lang.word("float32"))
            return self.layouts.laid(full, want)
        return value if have == tuple(want) else self.lang("broadcast_to", value, whole)

    def renamed(self, n: Node) -> Expr:
        """A tile in registers under other axis names."""
        (x,), names = n.args, dict(cast("tuple[tuple[str, str], ...]", n.params[0]))
        dims, shape = self.program.dims, self.program.shape(x)
        axes = [next(a for a in dims[d] if a in x.axes) for d in shape]
        have = [next(iter(self.program.shape_of((names.get(a, a),)))) for a in axes]
        assert [self.program.extents[d] for d in shape] == [self.program.extents[d] for d in have]
        want = sorted(have)
        return self.value(x) if have == want else self.permuted(self.value(x), have, want)

    def sort(self, n: Node) -> Expr:
        """Triton sorts along the last dimension: another one is brought there, and back."""
        value, have = self.value(n.args[0]), list(self.program.shape(n))
        at = self._place(n, over(n)[0])
        last = [*have[:at], *have[at + 1 :], have[at]]
        if last == have:
            return self.lang("sort", value)
        return self.permuted(self.lang("sort", self.permuted(value, have, last)), last, have)


_WRITERS: dict[str, Callable[[Emitter, Node, Sequence[int]], Expr]] = {
    **dict.fromkeys((OUTSIDE, PLACE, DISJOINT), Emitter.word),
    **dict.fromkeys(("cumsum", "recurrence"), Emitter.scan),
    "sum": lambda into, n, _: contraction(into, n, None),
    "index": lambda into, n, _: sx.name(into.scope.position(n.axes[0])),
    "corner": lambda into, n, _: sx.name(into.scope.corner(*map(str, n.params))),
    "keys": lambda into, n, _: into.value(member(n)),
    "ones": lambda into, _, dims: into.ones(dims),
    "mask": Emitter.mask,
    "sort": lambda into, n, _: into.sort(n),
    "rename": lambda into, n, _: into.renamed(n),
    "cast": lambda into, n, _: into.cast(n),
}
"""What writes each operator, with the dimensions of its tile, that is no pointwise arithmetic."""
