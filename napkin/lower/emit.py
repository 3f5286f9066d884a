"""Triton statements for the terms of a loop program."""

from __future__ import annotations

import ast
import itertools
from collections.abc import Sequence

from napkin.derive.terms import is_read
from napkin.ir.key_sets import member
from napkin.ir.node import REDUCTIONS, Node, in_kind, landings, over
from napkin.ir.operators import POINTWISE
from napkin.ir.storage import own_type, widens
from napkin.lower import syntax as sx
from napkin.lower.bit_words import APART, LEFT_OUT, OUTSIDE, PLACE, outside, place
from napkin.lower.emit_reductions import Reductions
from napkin.lower.pointwise import as_kind, pointwise
from napkin.lower.program import counted
from napkin.lower.syntax import Expr

LINEAR_SCAN = "linear_scan"
"""The function of kernels that computes a recurrence."""

TRITON_DTYPES = {
    "fp64": "tl.float64",
    "fp32": "tl.float32",
    "fp16": "tl.float16",
    "bf16": "tl.bfloat16",
    "fp8": "tl.float8e4nv",
    "int64": "tl.int64",
    "int32": "tl.int32",
    "bool": "tl.int1",
}

ORDERS = frozenset({"less", "less_equal", "greater", "greater_equal"})
"""Comparisons that Triton computes once for a run of positions where it can."""

JOINED = frozenset({"add", "sub", "maximum", "minimum", "where"})
"""Operators that may lose what divides the first value of each run of their arguments."""


class Emitter(Reductions):
    """Writes statements for terms, each once per block, in the order they are needed."""

    def value(self, n: Node) -> Expr:
        """`n` as an expression, in float32 if it is real, in int32 if it is whole."""
        if n in self.have:
            found = self.have[n]
            if n in self.raw and n.kind == "real" and own_type(n) != "fp32":
                return sx.method(found, "to", sx.name("tl.float32"))
            if n in self.raw and n.kind == "int" and own_type(n):
                return sx.method(found, "to", sx.name("tl.int32"))
            return found
        if n.op == "number":
            return sx.const(n.params[0])
        if n.op == "size":
            return sx.name(self.scope.size(str(n.params[0])))
        if n.op in {"index", "corner"}:
            return self._define(n)
        if n.constant and counted(n):
            return self._pointwise(n, ())
        if n.constant:
            return sx.name(self.scope.constant(n))
        for deep in landings([n], self.have, self.program.alone):
            self.define(deep)
        if n in self.have:
            return self.value(n)
        made = self._define(n)
        if isinstance(made, ast.Name) and n in self.program.boxes:
            self.have[n] = made
            return self.value(n)
        if self._in_line(n):
            return made
        target = self.scope.value(n)
        self.statements.append(sx.assign(target, made))
        self.have[n] = sx.name(target)
        return self.value(n)

    def define(self, n: Node) -> None:
        """Compute `n` here and give it a name, whatever its uses."""
        if n not in self.have and not n.constant:
            made = self._define(n)
            if isinstance(made, ast.Name) and n in self.program.boxes:
                self.have[n] = made
            if n not in self.have:
                target = self.scope.value(n)
                self.statements.append(sx.assign(target, made))
                self.have[n] = sx.name(target)

    def _in_line(self, n: Node) -> bool:
        named = n in self.program.kernel.names or n.op in REDUCTIONS
        return n.op in POINTWISE and self.uses[n] <= 1 and not named

    def _define(self, n: Node) -> Expr:
        dims = self.program.shape(n)
        if is_read(n):
            self.raw.add(n)
            return self._boxed_load(n) if n in self.program.boxes else self.load(n)
        if n.op == "index":
            return sx.name(self.scope.position(n.axes[0]))
        if n.op == "keys":
            return self.value(member(n))
        if n.op == "corner":
            return sx.name(self.scope.corner(*map(str, n.params)))
        if n.op in {OUTSIDE, PLACE, APART}:
            return self._word(n, dims)
        if n.op == "ones":
            ones = sx.call("tl.full", self._extents(dims), sx.const(1), sx.name("tl.int32"))
            return self.laid(ones, dims)
        if n.op == "mask":
            return self._mask(n, dims)
        if n.op == "sum":
            return self._contraction(n, None)
        if n.op in REDUCTIONS:
            return self._reduction(n)
        if n.op in {"cumsum", "recurrence"}:
            return self._scan(n, dims)
        if n.op == "sort":
            return self._sort(n)
        if n.op == "add":
            fused = self._fused_add(n)
            if fused is not None:
                return fused
        if n.op == "cast":
            return self._cast(n)
        return self._pointwise(n, dims)

    def _pointwise(self, n: Node, dims: Sequence[int]) -> Expr:
        if n.op == "mul":
            return self._product(n.args, dims)
        values = [self._compared(n, a, dims) for a in n.args]
        made, called = pointwise(n, values, n in self.program.near)
        self.helpers |= called
        return made

    def _compared(self, n: Node, a: Node, dims: Sequence[int]) -> Expr:
        """An argument of a pointwise term; of a comparison with nothing said of its multiples where
        Triton has them wrong: 3.6 takes 2 * f(x) + x % 2 for even, and then compares a run of
        positions with it once."""
        if n.op not in ORDERS or a.kind != "int" or not self._one_by_one(a):
            return self.fit(a, dims)
        have = self.program.shape(a)
        ones = sx.tuple_of(sx.const(1) for _ in have)
        return self.spread(sx.call("tl.multiple_of", self.value(a), ones), have, dims)

    def _one_by_one(self, n: Node) -> bool:
        """Whether whole numbers are computed of two terms that both vary along one dimension."""
        todo, seen = [n], set[Node]()
        while todo:
            m = todo.pop()
            if m in seen or m.kind != "int" or m.op not in POINTWISE:
                continue
            seen.add(m)
            shapes = [set(self.program.shape(a)) for a in m.args] if m.op in JOINED else []
            if any(a & b for a, b in itertools.combinations(shapes, 2)):
                return True
            todo += m.args
        return False

    def _cast(self, n: Node) -> Expr:
        """Rounded as asked; what follows is computed in float32 again."""
        value, target = self.value(n.args[0]), str(n.params[0])
        if widens(n):
            return value
        if target in {"fp16", "bf16", "fp8"}:
            value = as_kind("real", n.args[0], value)
            value = sx.method(value, "to", sx.name(TRITON_DTYPES[target]))
        return sx.method(
            value, "to", sx.name(TRITON_DTYPES["fp32" if n.kind == "real" else target])
        )

    def _word(self, n: Node, dims: Sequence[int]) -> Expr:
        if n.op == APART:
            query, key = (self.fit(a, dims) for a in n.args)
            return ast.Compare(sx.binary(query, "&", key), [ast.Eq()], [sx.const(0)])
        axes = [str(a) for a in n.params]
        blocks = [self.block(a) for a in axes]
        starts = [sx.name(self.scope.start(a)) for a in axes]
        if n.op == OUTSIDE:
            self.helpers.add(LEFT_OUT)
            return outside([self.fit(a, dims) for a in n.args], blocks, starts)
        at = [
            self.spread(sx.name(self.scope.position(a)), self.program.shape_of((a,)), dims)
            for a in axes
        ]
        return place(at, blocks, starts)

    def _mask(self, n: Node, dims: Sequence[int]) -> Expr:
        axis = str(n.params[0])
        inside = self.spread(sx.name(self.scope.inside(axis)), self.program.shape_of((axis,)), dims)
        if n.args[0].op == "ones" and self.program.shape(n.args[0]) == tuple(dims) == (
            self.program.shape_of((axis,))
        ):
            return sx.method(inside, "to", sx.name("tl.int32"))
        fill = sx.const(in_kind(float(str(n.params[1])), n.kind))
        return sx.call("tl.where", inside, self.fit(n.args[0], dims), fill)

    def _place(self, n: Node, axis: str) -> int:
        dims = self.program.shape(n)
        return next(i for i, d in enumerate(dims) if axis in self.program.dims[d])

    def _scan(self, n: Node, dims: Sequence[int]) -> Expr:
        """A running sum, or a recurrence: of maps h -> a h + b, those of all positions so far."""
        (axis,) = over(n)
        values = [as_kind(n.kind, a, self.fit(a, dims)) for a in n.args]
        if not self.program.shape_of((axis,)):  # of one position
            return values[-1]
        along = sx.const(self._place(n, axis))
        if n.op == "cumsum":
            return sx.call("tl.cumsum", values[0], axis=along)
        self.helpers.add(LINEAR_SCAN)
        shapes = [self.program.shape(a) for a in n.args]
        whole = [self._filling(v, have, dims) for v, have in zip(values, shapes, strict=True)]
        return sx.call(LINEAR_SCAN, *whole, along)

    def _filling(self, value: Expr, have: Sequence[int], want: Sequence[int]) -> Expr:
        """A value that broadcasts to some dimensions, with all of them."""
        whole = self._extents(want)
        if not have:
            return self.laid(sx.call("tl.full", whole, value, sx.name("tl.float32")), want)
        return value if have == tuple(want) else sx.call("tl.broadcast_to", value, whole)

    def _sort(self, n: Node) -> Expr:
        """Triton sorts along the last dimension: another one is brought there, and back."""
        value, have = self.value(n.args[0]), list(self.program.shape(n))
        at = self._place(n, over(n)[0])
        last = [*have[:at], *have[at + 1 :], have[at]]
        if last == have:
            return sx.call("tl.sort", value)
        return self._permuted(sx.call("tl.sort", self._permuted(value, have, last)), last, have)
