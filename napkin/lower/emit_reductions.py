"""Statements that reduce: matrix products, and reductions of a tile along its dimensions."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from napkin.algebra.terms import (
    identity,
    is_operand,
    is_read,
)
from napkin.ir.node import REDUCTIONS, Node, over
from napkin.ir.operators import FUNCTIONS
from napkin.lower import syntax as sx
from napkin.lower.dots import EXACT_SUM, Dot, contracted, dot_of, multiplied_as
from napkin.lower.emit_block import TILES
from napkin.lower.emit_memory import Memory
from napkin.lower.pointwise import as_kind, stabilises
from napkin.lower.program import Join
from napkin.lower.syntax import Expr


class Reductions(Memory):
    """A block that reduces tiles."""

    def _reduction(self, n: Node) -> Expr:
        body = n.args[0]
        dims = list(self.program.shape(body))
        value = as_kind(n.kind, body, self.value(body))
        value = self._reduce_dims(_combined(n), value, dims, over(n))
        if stabilises(n) and n not in self.begun:  # held whole: no state has begun for it
            value = sx.call(f"tl.{REDUCTIONS[n.op].combine}", value, sx.const(identity(n)))
        return value

    def joined(self, join: Join, lane: int) -> Expr:
        """What lanes hold of a state, reduced along their dimension."""
        value = self.value(join.of)
        if not join.op:
            return value
        op = _combined(join.like) if join.like is not None else join.op
        dims = list(self.program.shape(join.of))
        return self._reduce_dims(op, value, dims, self.program.dims[lane])

    def _reduce_dims(self, op: str, value: Expr, dims: list[int], axes: Sequence[str]) -> Expr:
        gone = [d for d in dims if self.program.dims[d][0] in axes]
        for d in reversed(gone):
            at = sx.const(dims.index(d))
            dims.remove(d)
            if op in FUNCTIONS:
                self.helpers.add(op)
                value = sx.call("tl.reduce", value, at, sx.name(op))
            else:
                value = sx.call(f"tl.{op}", value, axis=at)
        return value

    def _fused_add(self, n: Node) -> Expr | None:
        """`accumulator + product` as one product that starts from the accumulator."""
        for a, b in (n.args, n.args[::-1]):
            if b.op == "sum" and b not in self.have and self.uses[b] <= 1:
                dot = dot_of(self.program, b)
                shapes = {self.program.shape(x) for x in (a, b, n)}
                # A factor outside scales the product, and not what it is added to.
                if dot and not dot.outside and len(shapes) == 1:
                    return self._contraction(b, a)
        return None

    def _contraction(self, n: Node, start: Node | None) -> Expr:
        c, shape = contracted(self.program, n), self.program.shape(n)
        if c.is_product:
            total, dims = self._dot(c, start)
            return self._times(total, dims, c.outside, shape)
        if not c.gone:  # every reduced axis has tile size 1
            return self._product(c.outside, shape)
        dims = sorted({d for p in c.parts for d in self.program.shape(p)})
        total = self._reduce_dims("sum", self._product(c.parts, dims), list(dims), over(n))
        return self._times(total, [d for d in dims if d not in c.gone], c.outside, shape)

    def _times(
        self, total: Expr, have: Sequence[int], more: Sequence[Node], dims: Sequence[int]
    ) -> Expr:
        total = self.spread(total, have, dims)
        return sx.chain("*", [total, *(self.fit(p, dims) for p in more)])

    def _product(self, parts: Sequence[Node], dims: Sequence[int]) -> Expr:
        """`parts` multiplied, over tile dimensions `dims`.

        Triton 3.6 takes `tl.sum(x[:, :, None] * y[None, :, :])` for a TF32 `tl.dot(x, y)`,
        whichever dimension is summed; `y[None, :, :] * x[:, :, None]` it leaves alone. So with
        three dimensions or more, factors that lack the first one come first.
        """
        if len(dims) > 2:
            parts = sorted(parts, key=lambda p: dims[0] in self.program.shape(p))
        values = [self.fit(p, dims) for p in parts]
        loose = [i for i, p in enumerate(parts) if not p.constant]
        if loose and all(parts[i].kind == "bool" for i in loose):
            values[loose[0]] = as_kind("int", parts[loose[0]], values[loose[0]])
        return sx.chain("*", values)

    def _dot(self, c: Dot, start: Node | None) -> tuple[Expr, list[int]]:
        """A matrix product, and its dimensions."""
        left, right = self.operand(c, 0), self.operand(c, 1)
        a = self._matrix(left, c.spans[0], c.rows, c.gone)
        b = self._matrix(right, c.spans[1], c.gone, c.columns)
        out = [*c.rows, *c.columns]
        args = [a, b]
        flat = len(out) == 2
        if start is not None:
            begin = self.value(start)
            want = list(self.program.shape(c.node))
            if want != out:
                begin = self._permuted(begin, want, out)
            args.append(begin if flat else self._matrix(begin, out, c.rows, c.columns))
        kinds: dict[str, Expr] = {"input_precision": ast.Constant("ieee")}
        if c.node.kind == "int":  # Triton 3.6 does not see it from the accumulator
            kinds["out_dtype"] = sx.name(TILES[c.node.kind])
        if c.dtype == "fp8":
            kinds["max_num_imprecise_acc"] = self._exact_sum(c.gone)
        done = sx.call("tl.dot", *args, **kinds)
        if not flat:
            done = sx.call("tl.reshape", done, self._extents(out))
        want = sorted(out)
        return (self._permuted(done, out, want) if want != out else done), want

    def _exact_sum(self, gone: Sequence[int]) -> Expr:
        """`EXACT_SUM`, or the depth of the product where that is less."""
        depth = sx.chain("*", [self.scope.extent(d) for d in gone])
        most = sx.const(EXACT_SUM)
        return sx.choose(sx.less(depth, most), depth, most)

    def operand(self, c: Dot, side: int) -> Expr:
        """One operand of a product."""
        parts, every = c.sides[side], c.parts
        if len(parts) == 1 and is_read(parts[0]):
            self.value(parts[0])
            value = self.have[parts[0]]
            if is_operand(parts[0], every) or c.dtype:
                return value
        else:
            value = self._product(parts, c.spans[side])
        boxes, kernel = self.program.boxes, self.program.kernel
        like = multiplied_as(kernel, every, {*boxes, *self.program.stores})
        if like:
            dtype = f"{self.scope.tensor(like)}.dtype.element_ty"
        elif boxed := [p for p in (*every, *self.have) if p in boxes]:
            self.value(boxed[0])  # a descriptor has no element type; its tile has
            dtype = f"{ast.unparse(self.have[boxed[0]])}.dtype"
        else:
            dtype = "tl.float32"
        return sx.method(value, "to", sx.name(dtype))

    def _matrix(
        self, value: Expr, dims: Sequence[int], first: Sequence[int], second: Sequence[int]
    ) -> Expr:
        order = [*first, *second]
        if list(dims) != order:
            value = self._permuted(value, list(dims), order)
        if len(order) == 2:
            return value
        shape = [sx.chain("*", [self.scope.extent(d) for d in group]) for group in (first, second)]
        return sx.call("tl.reshape", value, sx.tuple_of(shape))


def _combined(n: Node) -> str:
    """What combines the values of a reduction: a function of the kernel file, or of Triton, whose
    `tl.max` and `tl.min` lose a NaN."""
    record = REDUCTIONS[n.op]
    exact = record.function and n.kind == "real" and not stabilises(n)
    return record.function if exact or not record.native else record.native
